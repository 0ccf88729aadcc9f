// Holds a node against this kernel while it is fed: at a moment, what memory.stat says and what the node has.
//
// Thread safety: all of it.
#ifndef MEMCGD_CLIENT_RECORD_VERIFIER_H_
#define MEMCGD_CLIENT_RECORD_VERIFIER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "client/record/kernel_stat.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client {

class Verifier {
 public:
  // One comparison: when, by the trace's clock, and every statistic that both have.
  using Report = std::function<void(int64_t time_ns, const std::vector<StatDifference>& all)>;

  Verifier(MemoryHierarchy hierarchy, std::string cgroup, Report report);

  // Reads the kernel's figures.  Their mark is due once all records before that moment were added.
  void Sample(int64_t now_ns);
  // The id of the oldest mark that is due before the record of that time; 0: none.
  uint64_t TakeDue(int64_t time_ns);
  // The node's answer.  Reports.
  void Answer(const memcgd::v1::State& state);

 private:
  struct Moment {
    uint64_t id = 0;
    int64_t time_ns = 0;
    std::vector<KernelStat> kernel;
  };

  const MemoryHierarchy hierarchy_;
  const std::string cgroup_;
  const Report report_;
  const std::vector<KernelStat> base_;  // counts begin here: the node has not seen what came before

  std::mutex mu_;               // guards what follows
  std::deque<Moment> waiting_;  // for the records before them
  std::deque<Moment> asked_;    // for the node's answer
  uint64_t last_id_ = 0;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_VERIFIER_H_
