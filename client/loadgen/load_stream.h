// A stream as a load generator needs it: one thread writes, reads and sees each acknowledgement when it
// comes.
//
// Unlike EventStream it keeps no batch to send it again: a connection that breaks ends the measurement.  All
// of the connection's work is done by the thread that calls (a completion queue of its own, a connection of
// its own), so that a pinned worker's costs are its CPU's.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_LOADGEN_LOAD_STREAM_H_
#define MEMCGD_CLIENT_LOADGEN_LOAD_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/node_client.h"
#include "memcgd/v1/ingest.grpc.pb.h"

namespace memcgd::client::loadgen {

class LoadStream {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kOutcomes = memcgd::v1::Outcome_ARRAYSIZE;

  // The server's timeout bounds the time without an acknowledgement while batches wait for one.
  LoadStream(Server server, std::string node, std::string stream_id, const std::atomic<bool>* cancelled);
  ~LoadStream();
  LoadStream(const LoadStream&) = delete;
  LoadStream& operator=(const LoadStream&) = delete;

  absl::Status Open();

  bool can_send() const { return !writing_ && sent_ - acknowledged_ < window_; }
  // Gives the request's batch its number and starts to write it; the request may be changed at once.
  // REQUIRES: can_send(), and that the request holds a batch.
  void Send(memcgd::v1::StreamRequest* request);
  // Waits until something happened or that time has come.
  absl::Status Poll(Clock::time_point until);
  // Until everything is acknowledged.
  absl::Status Drain();
  // Ends the stream; REQUIRES: Drain().
  void Finish();

  uint64_t sent() const { return sent_; }
  uint64_t acknowledged() const { return acknowledged_; }
  Clock::time_point last_ack() const { return last_ack_; }
  uint32_t max_batch_events() const { return max_batch_events_; }
  const std::array<uint64_t, kOutcomes>& outcomes() const { return outcomes_; }

 private:
  enum Tag : intptr_t { kStart = 1, kWrite, kRead, kWritesDone, kFinish };

  absl::Status OnRead();
  absl::Status Broken();
  // Lets go of all completions before that one; false where it did not come in time.
  bool WaitFor(Tag tag, std::chrono::milliseconds most);

  const Server server_;
  const std::string node_, stream_id_;
  const std::atomic<bool>& cancelled_;
  const std::unique_ptr<memcgd::v1::IngestService::Stub> stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<memcgd::v1::StreamRequest, memcgd::v1::StreamResponse>> call_;
  memcgd::v1::StreamResponse incoming_;
  grpc::Status final_status_;  // gRPC's until the call's end was seen
  bool opened_ = false, writing_ = false, ended_ = false;
  uint64_t sent_ = 0, acknowledged_ = 0, window_ = 1;
  uint32_t max_batch_events_ = UINT32_MAX;
  Clock::time_point last_ack_;
  Clock::time_point last_progress_;
  std::array<uint64_t, kOutcomes> outcomes_{};
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_LOAD_STREAM_H_
