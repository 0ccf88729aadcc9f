// The per-CPU ring buffers of tracing instances as one sequence in order of time.
//
// A buffer is in order by itself.  An event of one CPU may go out once no other CPU can still show an earlier
// one: Poll() empties all buffers, and hands out what is older than the beginning of the Poll() before it, so
// an event has at least one interval between two polls to become visible.  What comes later than that all the
// same is handed out late and counted.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_RING_MERGE_H_
#define MEMCGD_CLIENT_RECORD_RING_MERGE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/record/event_decoder.h"
#include "client/record/trace_instance.h"

struct kbuffer;

namespace memcgd::client {

class RingMerge {
 public:
  struct Counts {
    uint64_t events = 0;
    uint64_t lost_events = 0;  // at the places where the kernel says how many
    uint64_t lost_places = 0;
    uint64_t late = 0;  // came after a later one of another CPU was handed out
  };
  // Data null: `lost` events (0: an unknown number) of that CPU are missing here.
  using Taker = std::function<absl::Status(const RawEvent& event, uint64_t lost)>;

  RingMerge();
  ~RingMerge();
  RingMerge(const RingMerge&) = delete;
  RingMerge& operator=(const RingMerge&) = delete;

  // REQUIRES: the instance outlives this object's last Poll().
  absl::Status Add(const TraceInstance& instance);
  // Reads what there is and hands out what is old enough.  `all`: everything; the instances are off.
  absl::Status Poll(bool all, const Taker& take);

  const Counts& counts() const { return counts_; }
  // All events before this moment were handed out.
  int64_t horizon_ns() const { return horizon_ns_; }

 private:
  class Source;

  absl::Status HandOut(int64_t before_ns, const Taker& take);

  std::vector<std::unique_ptr<Source>> sources_;
  int64_t last_poll_ns_ = 0;
  int64_t horizon_ns_ = 0;
  int64_t last_time_ns_ = 0;
  Counts counts_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_RING_MERGE_H_
