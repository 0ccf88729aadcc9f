// A recording's way to memcgd: records in, batches out, on a thread of its own, so that whoever records never
// waits for the server.
//
// While the server is away, or slower than what happens, batches wait, up to Options::backlog_events; then
// records are dropped before they are translated, and counted: what is sent stays one stream without gaps in
// handles and numbers.
//
// Thread safety: all of it but Add(), Mark(), Settle(), builder() and Send(), which one thread calls.
#ifndef MEMCGD_CLIENT_RECORD_FEED_H_
#define MEMCGD_CLIENT_RECORD_FEED_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client/batch_builder.h"
#include "client/event_stream.h"
#include "client/trace_record.h"
#include "client/trace_translator.h"

namespace memcgd::client {

class Feed {
 public:
  struct Options {
    Server server;
    std::string node;
    std::string stream_id;
    TraceTranslator::Options translator;
    uint64_t backlog_events = 4'000'000;  // 16 bytes each
    // Answers to marks, on the feed's thread.
    std::function<void(const memcgd::v1::State&)> on_state;
  };
  struct Counts {
    uint64_t dropped_records = 0;  // for want of room in the backlog
    EventStream::Counts sent;      // after Finish()
  };

  explicit Feed(Options options);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  void Add(const TraceRecord& record);
  void Mark(uint64_t id) { translator_.Mark(id); }
  // What has not gone on since then is sent as it is (TraceTranslator::SettleBefore()).
  void Settle(int64_t before_ns) { translator_.SettleBefore(before_ns); }
  // For events that no record tells, after Flush().
  BatchBuilder* builder() { return &builder_; }
  void Flush() { translator_.Finish(); }
  // What was translated goes out.
  void Send();

  // What ended the stream, OK while it lives.
  absl::Status status() const;
  // Sends what is left and waits until it was applied; gives up after `patience` without progress.
  absl::Status Finish(std::chrono::milliseconds patience);
  // Ends without waiting.
  void Cancel() { cancelled_ = true; }
  Counts counts() const;

 private:
  EventStream::Options StreamOptions(const Options& options);
  void Run();
  // False at the end.
  bool TakeBatch(memcgd::v1::Batch* batch);

  const uint64_t backlog_events_;
  BatchBuilder builder_;
  TraceTranslator translator_;
  uint64_t dropped_records_ = 0;

  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> queued_events_{0};

  mutable std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::deque<memcgd::v1::Batch> queue_;
  uint64_t batches_done_ = 0;
  bool finishing_ = false;
  bool ended_ = false;
  absl::Status status_;

  EventStream stream_;  // the thread's
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_FEED_H_
