// One call of IngestService.Stream: reads batches, has them applied in order, writes what came of them.
//
//   gRPC's threads      OnReadDone: parse ─▶ received_
//   a worker of ours    received_ ─▶ apply ─▶ unsent_          (one at a time: a stream is one sequence)
//   gRPC's threads      unsent_ ─▶ write
//
// Parsing is work but never waits, and so stays in the reaction, beside the batch that a worker applies.
// Applying may wait for the node's cut and does not.  Messages are read as bytes (gRPC reports a message that
// it cannot parse just as a client that has nothing more to say).
//
// Thread safety: all of it.  Operations on the call are started by one thread at a time, without the lock
// (Pump()): a thread that finds another one at it leaves it a note.
//
// Invariants:
//  1. At most one read and one write are under way.  Nothing is started after Finish().
//  2. Finish() waits for the worker and the write, never for the read.
//  3. What was applied is acknowledged before Finish(), unless the connection is gone.
//  4. A call holds at most kMaxReadAhead requests and one that is being read, one that is being applied, and
//  what
//     limits.h lets wait for the client and the States of one batch more.
#ifndef MEMCGD_SERVER_STREAM_CALL_H_
#define MEMCGD_SERVER_STREAM_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

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
#include "memcgd/v1/ingest.pb.h"
#include "server/metrics.h"
#include "server/node_registry.h"
#include "server/wire.h"
#include "server/worker_pool.h"

namespace memcgd::server {

// What the calls of a server share.
struct IngestParts {
  NodeRegistry* registry = nullptr;
  WorkerPool* workers = nullptr;
  ServerMetrics* metrics = nullptr;
};

class StreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  // `id` is this call's alone and not 0.  `on_done` is called last of all.
  StreamCall(const IngestParts& parts, uint64_t id, grpc::CallbackServerContext* context,
             std::function<void()> on_done);

  // Begins to read.
  void Start();
  // Tells the client that the server will stop, and why.  A call that is not open yet ends with `why`.
  void GoAway(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Applies and acknowledges what was received, then ends with `status`.
  void StopReading(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Applies nothing more; ends with `status` once the answers are written.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // An answer that waits: an Ack, which may yet take in the next one, or bytes.
  struct Answer {
    std::unique_ptr<v1::StreamResponse> message;
    StateBytes bytes;
    uint32_t batches = 0;  // that an Ack is about

    size_t size() const { return bytes == nullptr ? 0 : bytes->size(); }
  };
  // What the client sent.
  struct Received {
    std::unique_ptr<v1::StreamRequest> request;
    size_t bytes = 0;
  };
  enum class Step { kNothing, kFinish, kWrite, kWork, kRead };

  // Starts whatever can be started.
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  Step NextStepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client takes the answers that it is given.
  bool ClientReadsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddAnswerLocked(Answer answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer TakeAnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAnswersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(const Answer& answer, bool more_follow);
  bool Parse(v1::StreamRequest* request);

  // On a worker.
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  Received TakeReceived() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Handle(const v1::StreamRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HandleOpen(const v1::Open& open) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HandleBatch(const v1::Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Acknowledge(uint64_t sequence, const std::vector<StateBytes>& states, bool applied)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const IngestParts parts_;
  const uint64_t id_;
  const std::vector<std::string> metadata_;
  const std::function<void()> on_done_;

  std::shared_ptr<StreamCall> self_;  // from Start() to OnDone()

  // The reader's, the writer's: touched by whoever starts the operation and by its reaction.
  grpc::ByteBuffer read_buffer_;
  grpc::ByteBuffer write_buffer_;

  // The worker's.
  std::shared_ptr<ServedNode> node_;
  ServedStream* stream_ = nullptr;  // the node's
  BatchWork work_;

  core::Mutex mutex_;
  std::deque<Received> received_ ABSL_GUARDED_BY(mutex_);
  size_t received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<v1::StreamRequest>> spare_
      ABSL_GUARDED_BY(mutex_);  // their memory is used again
  std::deque<Answer> unsent_ ABSL_GUARDED_BY(mutex_);
  size_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // Acks count for nothing: they are folded
  // Batches whose Ack was not written yet; those of the write under way.
  uint64_t unacknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t acknowledging_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_to_go_ ABSL_GUARDED_BY(mutex_) = false;
  // No more will be read; with what status the call ends when all that was received is handled.
  std::optional<absl::Status> read_end_ ABSL_GUARDED_BY(mutex_);
  // The call ends with this.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool pump_again_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_STREAM_CALL_H_
