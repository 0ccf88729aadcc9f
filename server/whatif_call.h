// One call of WhatIfService.Sweep: takes events, then runs points over them.
//
//   gRPC's threads      OnReadDone: parse, hold the batch
//   an admin worker     SweepStart: find the node, fork it (may wait for its cut)
//   sweep workers       SweepPoints: get ready; then a point at a time each ─▶ results, progress
//   gRPC's threads      unsent_ ─▶ write
//
// One message of the client's is handled at a time; nothing is read meanwhile.
//
// Thread safety: all of it.  Operations on the call are started with the lock held: gRPC runs no reaction
// within them.  Another thread's may end the call meanwhile, so whoever starts one holds the call.
//
// Invariants:
//  1. At most one read and one write are under way.  Nothing is started after Finish().
//  2. Finish() waits for the workers and the write, never for the read.
//  3. Results go out in the order of the points.
#ifndef MEMCGD_SERVER_WHATIF_CALL_H_
#define MEMCGD_SERVER_WHATIF_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/mutex.h"
#include "memcgd/v1/whatif.pb.h"
#include "server/access.h"
#include "server/memory_budget.h"
#include "server/node_registry.h"
#include "server/wire.h"
#include "server/worker_pool.h"

namespace memcgd::server {

// What the calls of a server share.
struct WhatIfParts {
  NodeRegistry* registry = nullptr;
  Access* access = nullptr;
  MemoryBudget* budget = nullptr;
  WorkerPool* admin_workers = nullptr;
  WorkerPool* sweep_workers = nullptr;
  uint32_t sweep_threads = 1;  // of sweep_workers
};

class WhatIfCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public std::enable_shared_from_this<WhatIfCall> {
 public:
  // `on_done` is called last of all.
  WhatIfCall(const WhatIfParts& parts, grpc::CallbackServerContext* context, std::function<void()> on_done);

  // Begins to read.
  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops what is under way; ends with `status`.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // In a reaction; all but batches goes to a worker.
  absl::Status Handle(std::unique_ptr<v1::SweepRequest> request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HoldBatch(std::unique_ptr<v1::SweepRequest> request);
  void Work(WorkerPool* workers, std::function<absl::Status()> task) ABSL_LOCKS_EXCLUDED(mutex_);
  void Worked(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Begin(const v1::SweepStart& start);
  absl::Status BeginPoints(const v1::SweepPoints& points) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs one point, and puts the next behind other calls' work.
  absl::Status RunPoint() ABSL_LOCKS_EXCLUDED(mutex_);
  void SendProgress() ABSL_LOCKS_EXCLUDED(mutex_);

  void SendLocked(const v1::SweepResponse& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads, writes or finishes, whatever is next.
  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const WhatIfParts parts_;
  const std::vector<std::string> metadata_;
  const std::function<void()> on_done_;

  std::shared_ptr<WhatIfCall> self_;  // from Start() to OnDone()
  std::atomic<bool> cancelled_{false};

  // The reader's, the writer's: touched by whoever starts the operation and by its reaction.
  grpc::ByteBuffer read_buffer_;
  grpc::ByteBuffer write_buffer_;

  // Of whoever handles a message; while points run, read only.
  std::unique_ptr<HeldSweep> sweep_;
  uint32_t parallelism_ = 1;
  size_t bytes_ = 0;  // of batches
  uint64_t next_sequence_ = 1;
  bool loaded_ = false;

  // The points under way.
  std::atomic<uint64_t> events_done_{0};
  uint64_t events_total_ = 0;

  core::Mutex mutex_;
  size_t next_point_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t points_done_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t points_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::optional<v1::SweepResponse>> results_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point next_progress_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> unsent_ ABSL_GUARDED_BY(mutex_);
  size_t working_ ABSL_GUARDED_BY(mutex_) = 0;  // tasks at workers
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_ended_ ABSL_GUARDED_BY(mutex_) = false;  // the client has nothing more to say
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_WHATIF_CALL_H_
