// One stream and the thread that feeds it, on a CPU of its own or of few.
//
// Thread safety: Run() is the worker's thread; the counters of progress may be read meanwhile, all else when
// the thread has ended.
#ifndef MEMCGD_CLIENT_LOADGEN_WORKER_H_
#define MEMCGD_CLIENT_LOADGEN_WORKER_H_

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/loadgen/generator.h"
#include "client/loadgen/histogram.h"
#include "client/loadgen/load_stream.h"
#include "client/loadgen/random.h"

namespace memcgd::client::loadgen {

// What the workers of a turn share.  Each of them, and the thread that started them, arrives at every
// barrier, whatever went wrong before: nobody waits for ever.
struct Together {
  Together(ptrdiff_t workers, std::chrono::nanoseconds warmup_time, std::chrono::nanoseconds duration_time)
      : barrier(workers + 1), warmup(warmup_time), duration(duration_time) {}

  std::barrier<> barrier;
  const std::chrono::nanoseconds warmup, duration;
  std::atomic<bool> failed{false};  // one of them: the others end too
  // Set between the barriers before the measurement.
  LoadStream::Clock::time_point begin;
};

class Worker {
 public:
  using Clock = LoadStream::Clock;

  struct Options {
    Server server;
    std::string node, stream_id;
    uint32_t number = 0;
    uint32_t cpu = 0;
    bool leads = false;  // stream 0 of its node
    uint32_t window = 8;
    double batches_per_second = 0;  // 0: closed loop
    uint64_t seed = 1;
    const std::atomic<bool>* cancelled = nullptr;
  };

  Worker(Options options, std::unique_ptr<Generator> generator, Together* together);

  void Run();

  const absl::Status& status() const { return status_; }
  uint64_t events_so_far() const { return events_so_far_.load(std::memory_order_relaxed); }
  // In all batches that were sent in the warm-up and after it.  When measuring is over.
  uint64_t units_so_far() const { return units_so_far_; }
  // Acknowledged within the measured time, and its end: that of the turn, or earlier where there were no
  // more events.
  uint64_t events() const { return events_; }
  uint64_t units() const { return units_; }
  uint64_t batches() const { return batches_; }
  Clock::time_point end() const { return end_; }
  const Histogram& latency_ns() const { return latency_ns_; }
  const std::array<uint64_t, LoadStream::kOutcomes>& outcomes() const { return outcomes_; }

 private:
  struct Sent {
    Clock::time_point due;
    uint64_t events = 0, units = 0;
  };

  // Each step does nothing once something went wrong.
  void Do(const std::function<absl::Status()>& step);
  absl::Status SendAll(std::vector<memcgd::v1::Batch> batches);
  absl::Status Measure();
  // When the next batch is due; false where the measurement is over.
  bool Due(Clock::time_point now, Clock::time_point* due);
  absl::Status WaitUntil(Clock::time_point time);
  bool SendNext(Clock::time_point due);
  void TakeAcks();
  bool Stop() const { return together_.failed || *options_.cancelled; }

  const Options options_;
  const std::unique_ptr<Generator> generator_;
  Together& together_;
  std::unique_ptr<LoadStream> stream_;
  memcgd::v1::StreamRequest request_;  // filled over and over
  std::unique_ptr<PoissonArrivals> arrivals_;
  Clock::time_point next_due_;
  std::deque<Sent> waiting_;  // for their acknowledgement
  uint64_t acknowledged_ = 0;
  bool used_up_ = false;

  absl::Status status_;
  Clock::time_point measured_from_, end_;
  std::atomic<uint64_t> events_so_far_{0};
  uint64_t units_so_far_ = 0;
  uint64_t events_ = 0, units_ = 0, batches_ = 0;
  Histogram latency_ns_;
  std::array<uint64_t, LoadStream::kOutcomes> outcomes_{};
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_WORKER_H_
