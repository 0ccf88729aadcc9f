// pft and multi-fault-all-split: threads of one process in a cgroup that fault anonymous memory in order.
//
// pft: each thread maps an area of its own, touches every page of it and unmaps it, over and over, so that
// all memory is fresh.  multi-fault-all-split: one area, of which each thread has a part; it touches every
// page and gives them back with MADV_DONTNEED, over and over.
//
// Thread safety: as of Generator.
#ifndef MEMCGD_CLIENT_LOADGEN_FAULT_GENERATOR_H_
#define MEMCGD_CLIENT_LOADGEN_FAULT_GENERATOR_H_

#include "client/loadgen/event_words.h"
#include "client/loadgen/generator.h"

namespace memcgd::client::loadgen {

class FaultGenerator final : public Generator {
 public:
  enum class Area : uint8_t { kOwn, kPartOfOne };

  // `pages` for each thread, 1 … kMaxRangePages.
  FaultGenerator(Area area, uint64_t pages, uint32_t cpus, const Part& part);

  std::vector<memcgd::v1::Batch> SetUpNode() override;
  uint64_t Fill(memcgd::v1::Batch* batch) override;
  std::vector<memcgd::v1::Batch> TearDown() override;
  std::vector<memcgd::v1::Batch> TearDownNode() override;

 private:
  uint32_t TidOf(uint32_t stream) const { return kFirstTid + stream; }

  static constexpr uint32_t kFirstTid = 1000;
  static constexpr uint64_t kFirstPage = 0x7f0000000;

  const Area area_;
  const uint64_t pages_;
  const Part part_;
  const uint32_t cpu_, tid_;
  const uint64_t first_page_;
  uint64_t touched_ = 0;  // pages of this round
  bool mapped_ = false;   // kOwn
  int64_t time_ns_ = 1;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_FAULT_GENERATOR_H_
