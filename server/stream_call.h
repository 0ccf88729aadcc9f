// One call of IngestService.Stream: reads batches, has them applied in order, writes what came of them.
//
//   OnReadDone: parse, start the next read ─▶ apply ─▶ unsent_ ─▶ write
//
// All completions of a call come to one thread (ingest_service.h), which applies what it reads: nothing is
// handed from thread to thread, and what gRPC reads meanwhile waits in the transport.  Messages are read as
// bytes (gRPC reports a message that it cannot parse just as a client that has nothing more to say).
//
// Thread safety: Request() and Complete() by the thread of the call's completion queue; the rest by any.
// Operations on the call are started by one thread at a time, without the lock (Pump()): a thread that finds
// another one at it leaves it a note.
//
// Invariants:
//  1. At most one read and one write are under way.  Nothing is started after Finish().
//  2. Finish() waits for the batch under way and the write, never for the read.
//  3. What was applied is acknowledged before Finish(), unless the connection is gone.
//  4. A call holds one request that is being applied or waits for the client to read, and one that is being
//     read; what limits.h lets wait for the client, and the States of one batch more.
#ifndef MEMCGD_SERVER_STREAM_CALL_H_
#define MEMCGD_SERVER_STREAM_CALL_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

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
#include "memcgd/v1/ingest.grpc.pb.h"
#include "server/access.h"
#include "server/memory_budget.h"
#include "server/metrics.h"
#include "server/node_registry.h"
#include "server/wire.h"

namespace memcgd::server {

// What the calls of a server share.
struct IngestParts {
  NodeRegistry* registry = nullptr;
  Access* access = nullptr;
  MemoryBudget* budget = nullptr;
  ServerMetrics* metrics = nullptr;
};

// The service as gRPC generates it, with requests and responses as bytes.
using RawIngestService = v1::IngestService::WithRawMethod_Stream<v1::IngestService::Service>;

class StreamCall final : public std::enable_shared_from_this<StreamCall> {
 public:
  // `id` is this call's alone and not 0.
  StreamCall(const IngestParts& parts, uint64_t id) : parts_(parts), id_(id) {}

  // Waits for a client's call.  `on_start` is called when it has come, and may refuse it; `on_done` last of
  // all, whether it came or the server was shut down before.
  void Request(RawIngestService* service, grpc::ServerCompletionQueue* queue,
               std::function<absl::Status()> on_start, std::function<void()> on_done);
  // Lets the call go on whose operation came back with this tag.
  static void Complete(void* tag, bool ok);

  // Tells the client that the server will stop, and why.  A call that is not open yet ends with `why`.
  void GoAway(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Applies and acknowledges what was received, then ends with `status`.
  void StopReading(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a call that was not opened in time, has had no batch for `idle`, or leaves an answer unread for
  // `stalled`; 0: for ever.  Whether it did.
  bool EndIfIdle(std::chrono::steady_clock::time_point now, std::chrono::seconds idle,
                 std::chrono::seconds stalled) ABSL_LOCKS_EXCLUDED(mutex_);
  // The client's address, from on_start on.
  std::string peer() const { return context_.peer(); }
  // Applies nothing more; ends with `status` once the answers are written.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Where gRPC's completions go.
  struct Tag {
    StreamCall* call;
    void (StreamCall::*on)(bool ok);
  };
  // An answer that waits: an Ack, which may yet take in the next one, or bytes.
  struct Answer {
    std::unique_ptr<v1::StreamResponse> message;
    StateBytes bytes;
    uint32_t batches = 0;  // that an Ack is about

    size_t size() const { return bytes == nullptr ? 0 : bytes->size(); }
  };
  enum class Step { kNothing, kFinish, kWrite, kRead };

  void OnStart(bool ok) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReadDone(bool ok) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnOver(bool ok) ABSL_LOCKS_EXCLUDED(mutex_);  // answered, or the client is gone
  void OnFinished(bool ok) ABSL_LOCKS_EXCLUDED(mutex_);
  void LeaveIfLast() ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave();

  // Starts whatever can be started.
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  Step NextStepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client takes the answers that it is given.
  bool ClientReadsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddAnswerLocked(Answer answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer TakeAnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAnswersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(const Answer& answer, bool more_follow);
  bool Parse();
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Handles the request, where there is one and the client reads.
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Handle(const v1::StreamRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HandleOpen(const v1::Open& open) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status HandleBatch(const v1::Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Acknowledge(uint64_t sequence, const std::vector<StateBytes>& states, bool applied)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Orders what Request() wrote before what Complete() reads.  So does gRPC's queue, but ThreadSanitizer does
  // not see into it.
  static inline std::atomic<uint64_t> requests_{0};

  // Constant after Request().
  const IngestParts parts_;
  const uint64_t id_;
  std::function<absl::Status()> on_start_;
  std::function<void()> on_done_;

  std::shared_ptr<StreamCall> self_;  // from Request() to the last tag

  // gRPC's.  Operations are started as Pump() says.
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_io_{&context_};
  Tag start_tag_{this, &StreamCall::OnStart};
  Tag read_tag_{this, &StreamCall::OnReadDone};
  Tag write_tag_{this, &StreamCall::OnWriteDone};
  Tag over_tag_{this, &StreamCall::OnOver};
  Tag finish_tag_{this, &StreamCall::OnFinished};
  grpc::ByteBuffer read_buffer_;

  // Of the queue's thread.
  bool over_ = false, finish_done_ = false;
  std::unique_ptr<v1::StreamRequest> request_ = std::make_unique<v1::StreamRequest>();  // its memory is kept
  size_t request_bytes_ = 0;
  std::shared_ptr<ServedNode> node_;
  ServedStream* stream_ = nullptr;  // the node's
  BatchWork work_;

  core::Mutex mutex_;
  std::deque<Answer> unsent_ ABSL_GUARDED_BY(mutex_);
  size_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // Acks count for nothing: they are folded
  // Batches whose Ack was not written yet; those of the write under way.
  uint64_t unacknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t acknowledging_ ABSL_GUARDED_BY(mutex_) = 0;
  // When the last message came, or the call; when the write under way began.
  std::chrono::steady_clock::time_point last_read_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point write_began_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool received_ ABSL_GUARDED_BY(mutex_) = false;  // request_ waits to be handled
  bool working_ ABSL_GUARDED_BY(mutex_) = false;   // … is handled
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
