#include "client/record/feed.h"

#include <utility>

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

constexpr size_t kSendAtEvents = 8192;
// How long a server may be away while something is recorded: longer than the backlog lasts.
constexpr std::chrono::hours kServerAway{24};

uint64_t EventsOf(const v1::Batch& batch) {
  return static_cast<uint64_t>(batch.words_size()) / 2 + static_cast<uint64_t>(batch.side_size());
}

}  // namespace

EventStream::Options Feed::StreamOptions(const Options& options) {
  EventStream::Options stream;
  stream.server = options.server;
  stream.patience = kServerAway;
  stream.node = options.node;
  stream.stream_id = options.stream_id;
  stream.cancelled = &cancelled_;
  stream.on_state = [on_state = options.on_state](const v1::State& state) {
    if (on_state) on_state(state);
    return absl::OkStatus();
  };
  return stream;
}

Feed::Feed(Options options)
    : backlog_events_(options.backlog_events),
      translator_(options.translator, &builder_),
      stream_(StreamOptions(options)),
      thread_([this] { Run(); }) {}

Feed::~Feed() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    cancelled_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Feed::Add(const TraceRecord& record) {
  if (queued_events_ >= backlog_events_) {
    ++dropped_records_;
    return;
  }
  translator_.Add(record);
  if (builder_.size() >= kSendAtEvents || builder_.full()) Send();
}

void Feed::Send() {
  if (builder_.size() == 0) return;
  v1::Batch batch = builder_.Take(0);  // the stream numbers it
  queued_events_ += EventsOf(batch);
  std::lock_guard<std::mutex> lock(mu_);
  if (!status_.ok()) return;
  queue_.push_back(std::move(batch));
  changed_.notify_all();
}

absl::Status Feed::status() const {
  std::lock_guard<std::mutex> lock(mu_);
  return status_;
}

absl::Status Feed::Finish(std::chrono::milliseconds patience) {
  translator_.Finish();
  Send();
  std::unique_lock<std::mutex> lock(mu_);
  finishing_ = true;
  changed_.notify_all();
  while (!ended_) {
    const uint64_t before = batches_done_;
    const bool moved =
        changed_.wait_for(lock, patience, [&] { return ended_ || batches_done_ != before || cancelled_; });
    if (!moved) {
      status_ = absl::DeadlineExceededError("the server did not take what was recorded within --timeout");
      cancelled_ = true;
    }
    if (cancelled_) changed_.wait(lock, [this] { return ended_; });
  }
  return status_;
}

Feed::Counts Feed::counts() const {
  std::lock_guard<std::mutex> lock(mu_);
  return {dropped_records_, ended_ ? stream_.counts() : EventStream::Counts{}};
}

bool Feed::TakeBatch(v1::Batch* batch) {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [this] { return !queue_.empty() || finishing_ || cancelled_; });
  if (cancelled_ || queue_.empty()) return false;
  *batch = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Feed::Run() {
  absl::Status status = stream_.Open();
  v1::Batch batch;
  while (status.ok() && TakeBatch(&batch)) {
    const uint64_t events = EventsOf(batch);
    status = stream_.Send(std::move(batch));
    queued_events_ -= events;
    std::lock_guard<std::mutex> lock(mu_);
    ++batches_done_;
    changed_.notify_all();
  }
  if (status.ok() && !cancelled_) status = stream_.Finish();
  std::lock_guard<std::mutex> lock(mu_);
  if (status_.ok()) status_ = status;
  ended_ = true;
  changed_.notify_all();
}

}  // namespace memcgd::client
