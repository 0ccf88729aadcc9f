// The client's end of IngestService.Stream: batches go out in order, answers come back in order, and a
// connection that breaks is made again without an event lost or applied twice.
//
// Batches are numbered here, from 1, and kept until the server needs no second copy of them.  After a broken
// connection, or when the server says GoAway, the stream is opened again (waiting longer after each attempt
// that fails) and goes on at the number that the server expects next.
//
// Nobody waits for ever: time without any answer, reconnecting included, is bounded by Options::patience.
//
// Thread safety: one thread at a time.  All callbacks run on that thread, within Open(), Send() and Finish();
// gRPC's own threads only put messages into a queue.  So a callback may be slow (a full pipe): the queue
// fills, reading stops, and the server waits.  It cannot deadlock: who waits to write reads at the same time.
//
// Invariants:
//   1. kept_ holds batches of consecutive numbers, at most window_ of them (those of one Send() may be more).
//   2. Every mark gets its one State, in order, or the stream fails with DATA_LOSS.
#ifndef MEMCGD_CLIENT_EVENT_STREAM_H_
#define MEMCGD_CLIENT_EVENT_STREAM_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/node_client.h"
#include "memcgd/v1/ingest.grpc.pb.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client {

// What one message may hold.
struct BatchLimits {
  size_t events = 8192;    // frequent and side ones together, 1 …
  size_t bytes = 1 << 20;  // roughly: of the batch in the protocol's form; one event may have more
  size_t marks = 256;      // each is answered with the statistics of every cgroup
};

// The batch in parts within the limits, to be sent one after the other in its place.
std::vector<memcgd::v1::Batch> SplitBatch(memcgd::v1::Batch batch, const BatchLimits& limits);

class EventStream {
 public:
  struct Options {
    Server server;  // its timeout bounds the time without any answer on one connection
    // The same over all connections, while the server is away; 0: the server's timeout.
    std::chrono::milliseconds patience{0};
    std::string node;
    std::string stream_id;  // a new one: the handles of its events begin with it
    // The stream may be there already, fed with the same batches: those that the server has are passed over,
    // but for marks with a larger id than the last that was answered.
    bool again = false;
    uint64_t last_answered_mark = 0;
    BatchLimits limits;
    size_t max_window_batches = 32;  // of about 128 KiB each
    std::chrono::milliseconds first_backoff{50};
    std::chrono::milliseconds longest_backoff{2'000};
    const std::atomic<bool>* cancelled = nullptr;  // true: everything ends soon with CANCELLED
    // Answers to marks, in order.  An error ends the stream with it.
    std::function<absl::Status(const memcgd::v1::State&)> on_state;
    std::function<void(const memcgd::v1::Notable&)> on_notable;
  };
  static constexpr size_t kOutcomes = memcgd::v1::Outcome_ARRAYSIZE;
  struct Counts {
    uint64_t batches = 0;  // sent, repeated ones not counted again
    uint64_t events = 0;   // in them
    uint64_t states = 0;
    uint64_t reconnects = 0;  // what acknowledgements told that were lost on the way is not in the sums below
    std::array<uint64_t, kOutcomes> outcomes{};  // events by memcgd.v1.Outcome
    uint64_t high_delay_us = 0;                  // for which memory.high would have held their tasks up
  };

  explicit EventStream(Options options);
  ~EventStream();
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // Errors: UNAVAILABLE and DEADLINE_EXCEEDED name the server; DATA_LOSS: the server no longer has the state
  // that this stream fed, begin again; CANCELLED; otherwise what the server refused, or a callback's error.
  // After an error every call returns it again.
  absl::Status Open();
  // Numbers the batch and sends it; waits while the window is full.  REQUIRES: Open().
  absl::Status Send(memcgd::v1::Batch batch);
  // Waits until everything was applied and every mark answered, and ends the stream.
  absl::Status Finish();

  const Counts& counts() const { return counts_; }
  uint64_t incarnation() const { return incarnation_; }
  // It ended because the server has another state than was fed, or none: to feed all of it again may help.
  bool state_is_gone() const { return state_is_gone_; }

 private:
  class Call;
  using Clock = std::chrono::steady_clock;

  struct Kept {
    uint64_t sequence = 0;
    std::shared_ptr<const memcgd::v1::StreamRequest> request;
    std::deque<uint64_t> marks;  // not answered yet
  };

  template <typename Goal>
  absl::Status PumpUntil(Goal goal);
  absl::Status Fail(absl::Status status);
  void Enqueue(memcgd::v1::Batch batch);
  void StartCall();
  absl::Status EndCall();
  absl::Status Wait();
  bool WriteMore();
  absl::Status Handle(const memcgd::v1::StreamResponse& response);
  absl::Status HandleOpened(const memcgd::v1::Opened& opened);
  absl::Status HandleAck(const memcgd::v1::Ack& ack);
  absl::Status HandleState(const memcgd::v1::State& state);
  absl::Status StateLost(const std::string& why) const;
  absl::Status StateGone(const std::string& why);
  void Forget();

  const Options options_;
  const std::unique_ptr<memcgd::v1::IngestService::Stub> stub_;
  absl::Status status_;  // the first error; it stays

  // The stream, across connections.
  uint64_t incarnation_ = 0;  // 0: never opened
  size_t window_ = 1;
  BatchLimits limits_;
  uint64_t next_sequence_ = 1;  // of the next batch to be made
  uint64_t applied_through_ = 0;
  bool state_is_gone_ = false;
  std::deque<Kept> kept_;
  Counts counts_;

  // The connection.
  std::unique_ptr<Call> call_;  // null: none
  bool opened_ = false;         // it answered Opened
  bool going_away_ = false;     // the server wants it to end
  uint64_t next_to_write_ = 1;  // sequence number

  // Waiting.
  std::chrono::milliseconds backoff_;
  Clock::time_point next_attempt_;
  Clock::duration silent_{};       // time spent waiting since the last answer that moved the stream on
  Clock::duration call_silent_{};  // since the last answer on this connection
  grpc::Status last_failure_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_EVENT_STREAM_H_
