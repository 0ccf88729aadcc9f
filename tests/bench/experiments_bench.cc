// The experiments of memcg-loadgen in process, without gRPC: what the core alone costs, in each form of each
// mechanism, on one thread and on two.
//
//   experiments_bench --benchmark_filter='pft|stats' --benchmark_counters_tabular=true
//
// ns_per_event and ns_per_unit are CPU time of the threads within Node::Apply(), all threads together; making
// events and turning them into the core's is not in it.  units/s is by the clock on the wall.  The other
// counters are the mechanisms' own (core/mechanisms.h), for each unit.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/loadgen/event_words.h"
#include "client/loadgen/experiment.h"
#include "core/node.h"
#include "server/wire.h"

namespace memcgd {
namespace {

using client::loadgen::Case;
using client::loadgen::CasesOf;
using client::loadgen::EventsOf;
using client::loadgen::ExperimentKind;
using client::loadgen::Generator;
using client::loadgen::InfoOf;
using client::loadgen::NewGenerator;
using client::loadgen::Settings;

constexpr uint32_t kBatchEvents = 8192;
constexpr uint64_t kWarmupEvents = 1'000'000;
constexpr uint64_t kEvents = 8'000'000;  // of all threads, an iteration

double ThreadCpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "experiments_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// One stream and its thread.
class Feeder {
 public:
  Feeder(core::Node* node, const Case& measured, uint32_t stream)
      : node_(*node),
        stream_(node->OpenStream("stream-" + std::to_string(stream))),
        generator_(NewGenerator(measured, {stream, measured.streams, kBatchEvents, 1})) {}

  void Apply(const std::vector<v1::Batch>& batches) {
    for (const v1::Batch& batch : batches) Require(server::ApplyBatch(&node_, stream_, batch, &work_));
  }
  Generator& generator() { return *generator_; }

  void Feed(uint64_t events_wanted) {
    cpu_ns = 0;
    events = units = 0;
    while (events < events_wanted) {
      units += generator_->Fill(&batch_);
      events += EventsOf(batch_);
      const absl::StatusOr<core::Batch> batch = server::ToCore(batch_, &work_);
      Require(batch.status());
      work_.result = {};
      const double begin = ThreadCpuNs();
      Require(node_.Apply(stream_, *batch, &work_.result));
      cpu_ns += ThreadCpuNs() - begin;
    }
  }

  double cpu_ns = 0;
  uint64_t events = 0, units = 0;

 private:
  core::Node& node_;
  core::EventStream* const stream_;
  const std::unique_ptr<Generator> generator_;
  v1::Batch batch_;
  server::BatchWork work_;
};

struct Sums {
  double cpu_ns = 0, wall_s = 0;
  double events = 0, units = 0;
  double reads = 0, read_ns = 0;
  core::MechanismCounters counters;
};

// One thread a stream, and one that reads memory.stat where the experiment says so.
void FeedAll(core::Node& node, const Case& measured, std::vector<std::unique_ptr<Feeder>>& feeders,
             uint64_t events, Sums* sums) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  std::thread reader;
  if (measured.polls > 0) {
    reader = std::thread([&] {
      const auto period = std::chrono::nanoseconds(static_cast<int64_t>(1e9 / measured.polls));
      for (auto due = std::chrono::steady_clock::now() + period; !done; due += period) {
        std::this_thread::sleep_until(due);
        const double begin = ThreadCpuNs();
        Require(node.ReadCgroup(measured.poll_path, false, false, /*fast=*/true).status());
        sums->read_ns += ThreadCpuNs() - begin;
        ++sums->reads;
      }
    });
  }
  const auto begin = std::chrono::steady_clock::now();
  for (auto& feeder : feeders) {
    threads.emplace_back([&feeder, share = events / feeders.size()] { feeder->Feed(share); });
  }
  for (std::thread& thread : threads) thread.join();
  sums->wall_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  done = true;
  if (reader.joinable()) reader.join();
  for (auto& feeder : feeders) {
    sums->cpu_ns += feeder->cpu_ns;
    sums->events += static_cast<double>(feeder->events);
    sums->units += static_cast<double>(feeder->units);
  }
}

void Report(benchmark::State& state, const Sums& sums) {
  const double units = std::max(sums.units, 1.0);
  state.counters["ns_per_event"] = sums.cpu_ns / std::max(sums.events, 1.0);
  state.counters["ns_per_unit"] = sums.cpu_ns / units;
  state.counters["units/s"] = sums.units / sums.wall_s;
  if (sums.reads > 0) state.counters["us_per_read"] = sums.read_ns / sums.reads / 1e3;
#define MEMCGD_REPORT_COUNTER(field, help) \
  if (sums.counters.field != 0) state.counters[#field] = static_cast<double>(sums.counters.field) / units;
  MEMCGD_MECHANISM_COUNTERS(MEMCGD_REPORT_COUNTER)
#undef MEMCGD_REPORT_COUNTER
}

core::MechanismCounters Since(const core::MechanismCounters& before, core::MechanismCounters now) {
#define MEMCGD_SUBTRACT_COUNTER(field, help) now.field -= before.field;
  MEMCGD_MECHANISM_COUNTERS(MEMCGD_SUBTRACT_COUNTER)
#undef MEMCGD_SUBTRACT_COUNTER
  return now;
}

void BM_Experiment(benchmark::State& state, const Case& measured, const core::Mechanisms& mechanisms) {
  absl::StatusOr<core::NodeConfig> config = server::ToCore(measured.spec);
  Require(config.status());
  config->mechanisms = mechanisms;
  absl::StatusOr<std::unique_ptr<core::Node>> node = core::Node::Create(*config);
  Require(node.status());
  std::vector<std::unique_ptr<Feeder>> feeders;
  for (uint32_t stream = 0; stream < measured.streams; ++stream) {
    feeders.push_back(std::make_unique<Feeder>(node->get(), measured, stream));
  }
  feeders[0]->Apply(feeders[0]->generator().SetUpNode());
  for (auto& feeder : feeders) feeder->Apply(feeder->generator().SetUp());
  Sums unused, sums;
  FeedAll(**node, measured, feeders, kWarmupEvents, &unused);
  const core::MechanismCounters before = (*node)->Info().counters;
  for (auto _ : state) {
    const double cpu_before = sums.cpu_ns;
    FeedAll(**node, measured, feeders, kEvents, &sums);
    state.SetIterationTime((sums.cpu_ns - cpu_before) / 1e9);
  }
  sums.counters = Since(before, (*node)->Info().counters);
  Report(state, sums);
}

// The rows: the defaults, then each mechanism's older forms on the experiment that shows them.
struct Form {
  const char* name;
  core::Mechanisms mechanisms;
};

Form Older(const char* name, void (*change)(core::Mechanisms*)) {
  Form form{name, {}};
  change(&form.mechanisms);
  return form;
}

std::vector<Form> FormsFor(ExperimentKind kind) {
  using M = core::Mechanisms;
  std::vector<Form> forms = {{"default", {}}};
  switch (kind) {
    case ExperimentKind::kPft:
      forms.push_back(
          Older("uptodate_first", [](M* m) { m->charge_order = core::ChargeOrder::kUptodateFirst; }));
      break;
    case ExperimentKind::kMmap1:
      forms.push_back(Older("small", [](M* m) { m->commit_batch = core::CommitBatch::kSmall; }));
      break;
    case ExperimentKind::kMultiFaultAllSplit:
      forms.push_back(Older("per_page", [](M* m) { m->css_refs = core::CssRefs::kPerPage; }));
      break;
    case ExperimentKind::kMemoryStat:
      forms.push_back(Older("walk", [](M* m) { m->stats = core::StatsForm::kWalk; }));
      forms.push_back(Older("rstat", [](M* m) { m->stats = core::StatsForm::kRstat; }));
      break;
    case ExperimentKind::kLruFileReadTwice:
      forms.push_back(Older("per_node", [](M* m) { m->lru_lock = core::LruLock::kPerNode; }));
      break;
    default:
      break;
  }
  return forms;
}

void RegisterAll() {
  for (ExperimentKind kind :
       {ExperimentKind::kPft, ExperimentKind::kMmap1, ExperimentKind::kMultiFaultAllSplit,
        ExperimentKind::kMemoryStat, ExperimentKind::kLruFileReadTwice, ExperimentKind::kMix}) {
    Settings settings;
    settings.streams = {1, 2};
    // What is compared is the batch on one machine: 128 GiB and 64 CPUs in both forms.
    for (const Case& measured : CasesOf(kind, settings, "commit_batch", {})) {
      for (const Form& form : FormsFor(kind)) {
        const std::string name = std::string(InfoOf(kind).name) + "/" + measured.label + "/" + form.name;
        benchmark::RegisterBenchmark(name.c_str(), BM_Experiment, measured, form.mechanisms)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace memcgd

int main(int argc, char** argv) {
  // As the server does: memory once had is kept.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  memcgd::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
}
