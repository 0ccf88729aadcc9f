#include "client/loadgen/turn.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/loadgen/pinning.h"
#include "client/loadgen/worker.h"

namespace memcgd::client::loadgen {
namespace {

namespace v1 = memcgd::v1;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kTick{100};
constexpr milliseconds kCleanupTimeout{2'000};

nanoseconds Ns(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }
milliseconds Timeout(const TurnOptions& options) {
  return milliseconds(std::llround(options.timeout_seconds * 1000));
}

absl::StatusOr<Server> Connect(const TurnOptions& options) {
  return ConnectTo(options.server, Timeout(options), /*own_connection=*/true, options.credentials);
}

// The nodes of a turn, removed whatever happens.
class Nodes {
 public:
  explicit Nodes(const TurnOptions& options) : options_(options) {}
  ~Nodes() {
    Remove();
    if (options_.set_last_resort) options_.set_last_resort(nullptr);
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  absl::Status Make(const v1::NodeSpec& spec) {
    absl::StatusOr<Server> server = Connect(options_);
    if (!server.ok()) return server.status();
    client_ = std::make_unique<NodeClient>(*std::move(server));
    std::random_device random;
    const std::string prefix = absl::StrFormat("loadgen-%08x", random());
    for (uint32_t i = 0; i < options_.nodes; ++i) names_.push_back(absl::StrCat(prefix, "-", i));
    if (options_.set_last_resort) options_.set_last_resort([this] { Remove(); });
    for (const std::string& name : names_) {
      absl::StatusOr<v1::Node> node = client_->CreateNode(name, spec);
      if (!node.ok()) return node.status();
    }
    return absl::OkStatus();
  }
  const std::vector<std::string>& names() const { return names_; }
  NodeClient* client() { return client_.get(); }

 private:
  void Remove() {
    if (client_ == nullptr) return;
    Server server = client_->server();
    server.timeout = std::min<milliseconds>(server.timeout, kCleanupTimeout);
    NodeClient client(std::move(server));
    for (const std::string& name : names_) client.DeleteNode(name).IgnoreError();
  }

  const TurnOptions& options_;
  std::unique_ptr<NodeClient> client_;
  std::vector<std::string> names_;
};

// Reads memory.stat of a cgroup at a steady rate, each read timed from when it was due.
class Poller {
 public:
  Poller(NodeClient* client, std::string node, const Case& measured, Together* together,
         const std::atomic<bool>* cancelled)
      : client_(*client),
        node_(std::move(node)),
        path_(measured.poll_path),
        period_(Ns(1 / measured.polls)),
        together_(*together),
        cancelled_(*cancelled) {}

  void Run() {
    const Clock::time_point from = together_.begin + together_.warmup, end = from + together_.duration;
    for (Clock::time_point due = together_.begin + period_; due < end; due += period_) {
      while (Clock::now() < due) {
        if (cancelled_ || together_.failed) return;
        std::this_thread::sleep_for(std::min<Clock::duration>(kTick, due - Clock::now()));
      }
      const Clock::time_point asked = Clock::now();
      status = Read(client_);
      if (!status.ok()) return;
      if (due < from) continue;
      const Clock::time_point answered = Clock::now();
      ++polls;
      poll_ns.Record(static_cast<uint64_t>(nanoseconds(answered - due).count()));
      poll_seconds += std::chrono::duration<double>(answered - asked).count();
    }
  }

  absl::Status status;
  uint64_t polls = 0;
  Histogram poll_ns;        // from when they were due
  double poll_seconds = 0;  // from when they were asked

 private:
  // What the node's form of statistics serves a reader.
  absl::Status Read(NodeClient& client) {
    return client.ReadCgroup(node_, path_, /*local=*/false, v1::NAME_STYLE_V2, /*fast=*/true).status();
  }

  NodeClient& client_;
  const std::string node_, path_;
  const nanoseconds period_;
  const Together& together_;
  const std::atomic<bool>& cancelled_;
};

class Turn {
 public:
  Turn(const TurnOptions& options, const Case& measured)
      : options_(options),
        measured_(measured),
        workers_wanted_(options.nodes * measured.streams),
        together_(workers_wanted_, Ns(options.warmup_seconds), Ns(options.duration_seconds)),
        nodes_(options) {}

  TurnResult Run(const Forms& forms) {
    v1::NodeSpec spec = measured_.spec;
    SetForms(forms, &spec);
    result_.status = nodes_.Make(spec);
    if (result_.status.ok()) result_.status = MakeWorkers();
    if (!result_.status.ok()) return std::move(result_);
    std::vector<std::thread> threads;
    for (auto& worker : workers_) threads.emplace_back([&worker] { worker->Run(); });
    together_.barrier.arrive_and_wait();
    together_.barrier.arrive_and_wait();
    const Counters before = ReadCounters();
    together_.begin = Clock::now();
    together_.barrier.arrive_and_wait();
    for (auto& poller : pollers_) threads.emplace_back([&poller] { poller->Run(); });
    Watch();
    together_.barrier.arrive_and_wait();
    CountPerUnit(before);
    together_.barrier.arrive_and_wait();
    for (std::thread& thread : threads) thread.join();
    Collect();
    return std::move(result_);
  }

 private:
  using Counters = std::map<std::string, uint64_t>;
  struct CpuTimes {
    double own = 0;
    absl::StatusOr<double> server = 0.0;
  };

  absl::Status MakeWorkers() {
    const uint32_t batch_events = options_.batch_events;
    const double batches_per_second = options_.rate / batch_events / static_cast<double>(workers_wanted_);
    for (uint32_t number = 0; number < workers_wanted_; ++number) {
      const uint32_t stream = number % measured_.streams;
      absl::StatusOr<Server> server = Connect(options_);
      if (!server.ok()) return server.status();
      const uint32_t cpu = options_.cpus[number % options_.cpus.size()];
      Worker::Options worker{.server = *std::move(server),
                             .node = nodes_.names()[number / measured_.streams],
                             .stream_id = absl::StrCat("worker-", number),
                             .number = number,
                             .cpu = cpu,
                             .leads = stream == 0,
                             .window = options_.window,
                             .batches_per_second = batches_per_second,
                             .seed = options_.seed,
                             .cancelled = options_.cancelled};
      const Part part{stream, measured_.streams, batch_events, options_.seed};
      workers_.push_back(
          std::make_unique<Worker>(std::move(worker), NewGenerator(measured_, part), &together_));
      result_.places.push_back({number, cpu, NumaNodeOf(cpu)});
    }
    for (size_t i = 0; measured_.polls > 0 && i < nodes_.names().size(); ++i) {
      pollers_.push_back(std::make_unique<Poller>(nodes_.client(), nodes_.names()[i], measured_, &together_,
                                                  options_.cancelled));
    }
    return absl::OkStatus();
  }

  // Of all nodes; empty where something is wrong, which the streams find too.
  Counters ReadCounters() {
    Counters sums;
    for (const std::string& name : nodes_.names()) {
      if (together_.failed || *options_.cancelled) return {};
      const absl::StatusOr<v1::Node> node = nodes_.client()->GetNode(name);
      if (!node.ok()) return {};
      for (const auto& [counter, value] : CountersOf(*node)) sums[counter] += value;
    }
    return sums;
  }

  // REQUIRES: the workers have sent all that is measured, and nothing after it.
  void CountPerUnit(const Counters& before) {
    const Counters now = ReadCounters();
    uint64_t units = 0;
    for (const auto& worker : workers_) units += worker->units_so_far();
    if (units == 0 || before.size() != now.size()) return;
    for (const auto& [counter, value] : now) {
      result_.counters_per_unit[counter] =
          static_cast<double>(value - before.at(counter)) / static_cast<double>(units);
    }
  }

  CpuTimes Now() const {
    return {OwnCpuSeconds(), options_.server_cpu.known() ? ServerCpuSeconds(options_.server_cpu)
                                                         : absl::UnavailableError("not asked for")};
  }

  // From the beginning to the end, or until something ends it earlier.
  void Watch() {
    const Clock::time_point from = together_.begin + together_.warmup, end = from + together_.duration;
    SleepUntil(from);
    const CpuTimes first = Now();
    SleepUntil(end);
    const CpuTimes last = Now();
    const Clock::time_point stopped = std::min(Clock::now(), end);
    result_.seconds = std::max(std::chrono::duration<double>(stopped - from).count(), 0.0);
    result_.own_cpu_seconds = last.own - first.own;
    if (first.server.ok() && last.server.ok()) result_.server_cpu_seconds = *last.server - *first.server;
  }

  void SleepUntil(Clock::time_point time) {
    while (Clock::now() < time && !*options_.cancelled && !together_.failed) {
      std::this_thread::sleep_for(std::min<Clock::duration>(kTick, time - Clock::now()));
      if (!options_.on_progress) continue;
      uint64_t events = 0;
      for (const auto& worker : workers_) events += worker->events_so_far();
      options_.on_progress(
          std::chrono::duration<double>(Clock::now() - together_.begin - together_.warmup).count(), events);
    }
  }

  void Collect() {
    Clock::time_point last = together_.begin + together_.warmup;
    for (const auto& worker : workers_) {
      result_.status.Update(worker->status());  // the first error: the others were told to end
      result_.events += worker->events();
      result_.units += worker->units();
      result_.batches += worker->batches();
      result_.latency_ns.Merge(worker->latency_ns());
      for (size_t i = 0; i < result_.outcomes.size(); ++i) result_.outcomes[i] += worker->outcomes()[i];
      last = std::max(last, worker->end());
    }
    const std::chrono::duration<double> until_last = last - together_.begin - together_.warmup;
    result_.seconds = std::min(result_.seconds, until_last.count());
    for (const auto& poller : pollers_) {
      if (result_.status.ok()) result_.status = poller->status;
      result_.polls += poller->polls;
      result_.poll_seconds += poller->poll_seconds;
      result_.poll_ns.Merge(poller->poll_ns);
    }
    if (*options_.cancelled) result_.status = absl::CancelledError("interrupted");
  }

  const TurnOptions& options_;
  const Case& measured_;
  const uint32_t workers_wanted_;
  Together together_;
  Nodes nodes_;  // outlives those who use them
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  TurnResult result_;
};

}  // namespace

std::optional<double> TurnResult::UnitsPerCpuSecond() const {
  if (!server_cpu_seconds.has_value() || *server_cpu_seconds <= 0) return std::nullopt;
  return static_cast<double>(units) / *server_cpu_seconds;
}

uint64_t TurnResult::NotOk() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) sum += i == v1::OUTCOME_OK ? 0 : outcomes[i];
  return sum;
}

TurnResult RunTurn(const TurnOptions& options, const Case& measured, const Forms& forms) {
  return Turn(options, measured).Run(forms);
}

}  // namespace memcgd::client::loadgen
