// The records that replay needs, as they happen on this machine: what some threads and their children do, and
// which pages of files anyone lets go of (kernel threads do).
//
// Two tracing instances, as a filter by thread holds for all events of an instance.  Both are gone with the
// object, whatever the end.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_LIVE_TRACE_H_
#define MEMCGD_CLIENT_RECORD_LIVE_TRACE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/record/event_decoder.h"
#include "client/record/ring_merge.h"
#include "client/record/thread_names.h"
#include "client/record/trace_instance.h"
#include "client/trace_record.h"

namespace memcgd::client {

class LiveTrace {
 public:
  struct Counts {
    uint64_t records = 0;
    uint64_t lost_events = 0;  // overwritten in full buffers
    uint64_t late = 0;         // handed out after a later one
  };
  using Taker = std::function<absl::Status(const TraceRecord& record)>;

  // REQUIRES: CheckTracing().
  static absl::StatusOr<std::unique_ptr<LiveTrace>> Create(uint64_t buffer_bytes_per_cpu);

  // Follows the threads, which are this process's or named by `names()`, and their children.
  absl::Status Follow(const std::vector<int32_t>& tids);
  absl::Status Start();
  absl::Status Stop();
  // Hands out what is old enough to be in order; after Stop(), all.
  absl::Status Poll(const Taker& take);

  // All records before this moment were handed out.
  int64_t horizon_ns() const { return merge_->horizon_ns(); }

  ThreadNames* names() { return &names_; }
  // At any time; lost events are asked of the kernel.
  Counts counts() const;
  uint32_t cpus() const { return static_cast<uint32_t>(traced_->Cpus().size()); }

 private:
  LiveTrace() = default;
  absl::Status EnableEvents();

  std::unique_ptr<TraceInstance> traced_;  // what the threads do
  std::unique_ptr<TraceInstance> anyone_;  // deletions from the page cache
  EventDecoder decoder_;
  ThreadNames names_;
  std::unique_ptr<RingMerge> merge_;  // behind the instances, as it has their files open
  uint64_t records_ = 0;
  bool stopped_ = false;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_LIVE_TRACE_H_
