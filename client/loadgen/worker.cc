#include "client/loadgen/worker.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/loadgen/event_words.h"
#include "client/loadgen/pinning.h"

namespace memcgd::client::loadgen {
namespace {

namespace v1 = memcgd::v1;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// gRPC waits in whole milliseconds.  The last one before a batch is due is slept through in naps, with a look
// at the answers between two of them.
constexpr milliseconds kCoarse{1};
constexpr microseconds kNap{50};

void Nap(Worker::Clock::duration time) {
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::min<Worker::Clock::duration>(time, kNap));
  const timespec nap{0, static_cast<long>(ns.count())};
  nanosleep(&nap, nullptr);
}

}  // namespace

Worker::Worker(Options options, std::unique_ptr<Generator> generator, Together* together)
    : options_(std::move(options)), generator_(std::move(generator)), together_(*together) {
  if (options_.batches_per_second > 0) {
    arrivals_ = std::make_unique<PoissonArrivals>(options_.batches_per_second,
                                                  options_.seed * 7'368'787 + options_.number);
  }
}

void Worker::Do(const std::function<absl::Status()>& step) {
  if (!status_.ok() || Stop()) return;
  status_ = step();
  if (!status_.ok()) together_.failed = true;
}

void Worker::Run() {
  pthread_setname_np(pthread_self(), absl::StrCat("worker-", options_.number).c_str());
  Do([this] { return PinThisThread(options_.cpu); });
  stream_ =
      std::make_unique<LoadStream>(options_.server, options_.node, options_.stream_id, options_.cancelled);
  Do([this] { return stream_->Open(); });
  Do([this] { return options_.leads ? SendAll(generator_->SetUpNode()) : absl::OkStatus(); });
  together_.barrier.arrive_and_wait();  // the node's process and cgroups are there
  Do([this] { return SendAll(generator_->SetUp()); });
  together_.barrier.arrive_and_wait();  // all are ready
  together_.barrier.arrive_and_wait();  // the time of the beginning is set
  measured_from_ = together_.begin + together_.warmup;
  end_ = measured_from_ + together_.duration;
  next_due_ = together_.begin;
  if (arrivals_ != nullptr) next_due_ += std::chrono::nanoseconds(arrivals_->NextNs());
  Do([this] { return Measure(); });
  together_.barrier.arrive_and_wait();  // all are done
  Do([this] { return SendAll(generator_->TearDown()); });
  together_.barrier.arrive_and_wait();  // nobody uses the node's process any more
  Do([this] { return options_.leads ? SendAll(generator_->TearDownNode()) : absl::OkStatus(); });
  if (status_.ok() && !Stop()) stream_->Finish();
  outcomes_ = stream_->outcomes();
  stream_.reset();
}

absl::Status Worker::SendAll(std::vector<v1::Batch> batches) {
  for (v1::Batch& batch : batches) {
    while (!stream_->can_send()) {
      absl::Status status = stream_->Poll(Clock::now() + milliseconds{50});
      if (!status.ok()) return status;
    }
    request_.mutable_batch()->Swap(&batch);
    stream_->Send(&request_);
  }
  absl::Status status = stream_->Drain();
  acknowledged_ = stream_->acknowledged();
  return status;
}

bool Worker::Due(Clock::time_point now, Clock::time_point* due) {
  if (used_up_ || Stop()) return false;
  *due = arrivals_ != nullptr ? next_due_ : now;
  return *due < end_;
}

absl::Status Worker::Measure() {
  Clock::time_point due;
  while (Due(Clock::now(), &due)) {
    const bool room = arrivals_ != nullptr || stream_->sent() - stream_->acknowledged() < options_.window;
    absl::Status status;
    if (!room || !stream_->can_send()) {
      status = stream_->Poll(Clock::now() + milliseconds{50});
    } else if (due > Clock::now()) {
      status = WaitUntil(due);
    } else {
      if (!SendNext(due)) break;
      status = stream_->Poll(Clock::now());
    }
    TakeAcks();
    if (!status.ok()) return status;
  }
  if (used_up_) end_ = std::max(std::min(end_, Clock::now()), measured_from_);
  while (stream_->acknowledged() < stream_->sent() && !Stop()) {
    absl::Status status = stream_->Poll(Clock::now() + milliseconds{50});
    TakeAcks();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Worker::WaitUntil(Clock::time_point time) {
  const auto left = time - Clock::now();
  if (left > kCoarse) return stream_->Poll(time - kCoarse);
  Nap(left);
  return stream_->Poll(Clock::now());
}

bool Worker::SendNext(Clock::time_point due) {
  const uint64_t units = generator_->Fill(request_.mutable_batch());
  const uint64_t events = EventsOf(request_.batch());
  if (events == 0) {
    used_up_ = true;
    return false;
  }
  units_so_far_ += units;
  // The time of sending where there is no time at which it should be: filling is not the server's.
  waiting_.push_back({arrivals_ != nullptr ? due : Clock::now(), events, units});
  stream_->Send(&request_);
  if (arrivals_ != nullptr) next_due_ = together_.begin + std::chrono::nanoseconds(arrivals_->NextNs());
  return true;
}

void Worker::TakeAcks() {
  const Clock::time_point at = stream_->last_ack();
  for (; acknowledged_ < stream_->acknowledged(); ++acknowledged_) {
    const Sent sent = waiting_.front();
    waiting_.pop_front();
    events_so_far_.fetch_add(sent.events, std::memory_order_relaxed);
    if (sent.due >= measured_from_) {
      const auto latency = std::chrono::duration_cast<std::chrono::nanoseconds>(at - sent.due);
      latency_ns_.Record(static_cast<uint64_t>(std::max<int64_t>(latency.count(), 0)));
    }
    if (at < measured_from_ || at > end_) continue;
    events_ += sent.events;
    units_ += sent.units;
    ++batches_;
  }
}

}  // namespace memcgd::client::loadgen
