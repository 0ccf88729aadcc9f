// What the core costs, without transport: traces decoded once and applied in process, and synthetic streams.
//
//   core_bench --benchmark_counters_tabular=true
//
// Google Benchmark prints the columns ns_per_… with the suffix s: they are nanoseconds.  ns_per_unit is CPU
// time over events + page-table entries copied or unmapped.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/node.h"
#include "server/wire.h"
#include "tests/support/in_process_replay.h"

namespace memcgd {
namespace {

core::NodeConfig FixtureConfig() {
  core::NodeConfig config;
  config.cpus = 2;
  config.memory_bytes = uint64_t{24} << 30;
  config.zero_page = false;
  return config;
}

// A trace, decoded: what Apply takes.
struct Decoded {
  explicit Decoded(const std::string& trace) : wire(tests::TranslateTrace(trace, {}, 8192)) {
    works.resize(wire.size());
    for (size_t i = 0; i < wire.size(); ++i) {
      auto batch = server::ToCore(wire[i], &works[i]);
      if (!batch.ok()) std::abort();
      batches.push_back(*batch);
    }
  }
  std::vector<v1::Batch> wire;
  std::vector<server::BatchWork> works;
  std::vector<core::Batch> batches;
};

void BM_ApplyTrace(benchmark::State& state, const char* trace) {
  Decoded decoded(std::string(MEMCGD_FIDELITY_DIR "/traces/") + trace + "/trace.txt.zst");
  uint64_t events = 0, units = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto node = core::Node::Create(FixtureConfig());
    core::EventStream* stream = (*node)->OpenStream("bench");
    core::BatchResult result;
    state.ResumeTiming();
    for (const core::Batch& batch : decoded.batches) {
      if (!(*node)->Apply(stream, batch, &result).ok()) std::abort();
    }
    state.PauseTiming();
    for (const core::Batch& batch : decoded.batches) events += batch.events.size() + batch.wide.size();
    units += result.ptes_walked;
    node->reset();
    state.ResumeTiming();
  }
  units += events;
  state.counters["events/s"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
  state.counters["ns_per_event"] = benchmark::Counter(
      static_cast<double>(events) * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["ns_per_unit"] = benchmark::Counter(
      static_cast<double>(units) * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["units_per_event"] = static_cast<double>(units) / static_cast<double>(events);
}
BENCHMARK_CAPTURE(BM_ApplyTrace, buildfarm, "buildfarm")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_ApplyTrace, compile, "compile")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_ApplyTrace, anon, "anon")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_ApplyTrace, sqlite, "sqlite")->Unit(benchmark::kMillisecond);

// First touch of fresh anonymous memory, in order or at random, then munmap of all of it; a cgroup five
// levels deep.
void BM_TouchAndUnmap(benchmark::State& state, bool at_random) {
  const uint64_t pages = static_cast<uint64_t>(state.range(0));
  auto node = core::Node::Create(FixtureConfig());
  core::EventStream* stream = (*node)->OpenStream("bench");
  core::BatchResult result;
  std::vector<core::WideEvent> setup(3);
  setup[0].body = core::wide::DefinePath{1, "/a/b/c/d/e"};
  setup[1].body = core::wide::CgroupCreate{1};
  setup[2].body = core::wide::CgroupAttach{1, 7};
  if (!(*node)->Apply(stream, {0, {}, setup}, &result).ok()) std::abort();
  constexpr uint64_t kBatch = 8192;
  constexpr uint64_t kFirst = 0x7f0000000;
  std::vector<core::WideEvent> map(1), unmap(1);
  map[0].tid = unmap[0].tid = 7;
  map[0].body = core::wide::Mmap{kFirst << 12,
                                 pages << 12,
                                 core::kProtRead | core::kProtWrite,
                                 core::kMapPrivate | core::kMapAnonymous,
                                 0,
                                 0};
  unmap[0].body = core::wide::Munmap{kFirst << 12, pages << 12};
  std::vector<uint64_t> order(pages);
  std::iota(order.begin(), order.end(), kFirst);
  if (at_random) std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<core::Event> events;
  for (uint64_t page : order) {
    events.push_back({core::Event::Head(core::EventKind::kFault, 0, 7, 0),
                      core::Event::AddressBody(page << 12, core::kFaultWrite | core::kFaultUser)});
  }
  for (auto _ : state) {
    if (!(*node)->Apply(stream, {0, {}, map}, &result).ok()) std::abort();
    for (size_t i = 0; i < events.size(); i += kBatch) {
      core::Batch batch{0, std::span(events).subspan(i, std::min<size_t>(kBatch, events.size() - i)), {}};
      if (!(*node)->Apply(stream, batch, &result).ok()) std::abort();
    }
    if (!(*node)->Apply(stream, {0, {}, unmap}, &result).ok()) std::abort();
  }
  if (result.outcomes[static_cast<size_t>(core::Outcome::kOk)] == 0) std::abort();
  double touched = static_cast<double>(pages) * static_cast<double>(state.iterations());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(pages));
  state.counters["ns_per_page"] =
      benchmark::Counter(touched * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["ns_per_unit"] =
      benchmark::Counter(2 * touched * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(BM_TouchAndUnmap, in_order, false)
    ->Arg(1 << 16)
    ->Arg(1'000'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_TouchAndUnmap, at_random, true)
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond);

// A node of 64 CPUs that each thread of a benchmark feeds on a stream of its own, as thread 7 + its index on
// the CPU of its index.
enum class Apart { kCgroups, kProcesses, kThreads };  // what the threads have of their own, at least
class SharedNode {
 public:
  SharedNode(int threads, Apart apart, core::CommitBatch commit_batch) {
    core::NodeConfig config;
    config.cpus = 64;
    config.memory_bytes = uint64_t{128} << 30;
    config.mechanisms.commit_batch = commit_batch;
    node_ = std::move(*core::Node::Create(config));
    std::vector<core::WideEvent> setup;
    for (uint32_t i = 0; i < static_cast<uint32_t>(threads); ++i) {
      const uint32_t tid = 7 + i, leaf = apart == Apart::kCgroups ? i : 0;
      setup.push_back({.body = core::wide::DefinePath{1 + i, "/a/b/c/d/" + std::to_string(leaf)}});
      setup.push_back({.body = core::wide::CgroupCreate{1 + i}});
      setup.push_back(
          {.tid = tid, .body = core::wide::BaselineProcess{apart == Apart::kThreads ? 7 : tid, 1 + i}});
    }
    core::BatchResult result;
    if (!node_->Apply(node_->OpenStream("setup"), {0, {}, setup}, &result).ok()) std::abort();
  }
  core::Node& operator*() { return *node_; }

 private:
  std::unique_ptr<core::Node> node_;
};
std::unique_ptr<SharedNode> shared_node;  // of the benchmark that runs

core::Event RangeEvent(core::EventKind kind, uint32_t thread, uint64_t page, uint64_t pages) {
  return {core::Event::Head(kind, thread, 7 + thread, 0), core::Event::RangeBody(page, pages)};
}

// Applies the events over and over, on the threads of the benchmark.
void ApplyOverAndOver(benchmark::State& state, const std::vector<core::Event>& events, size_t batch_events) {
  core::EventStream* stream = nullptr;
  core::BatchResult result;
  for (auto _ : state) {
    if (stream == nullptr) stream = (**shared_node).OpenStream(std::to_string(state.thread_index()));
    for (size_t i = 0; i < events.size(); i += batch_events) {
      core::Batch batch{0, std::span(events).subspan(i, std::min(batch_events, events.size() - i)), {}};
      if (!(**shared_node).Apply(stream, batch, &result).ok()) std::abort();
    }
  }
  const uint64_t applied = events.size() * static_cast<uint64_t>(state.iterations());
  if (result.outcomes[static_cast<size_t>(core::Outcome::kOk)] != applied) std::abort();
}

// 128 MiB mapped and unmapped, by processes of one cgroup: the commit account.
void BM_MapAndUnmap(benchmark::State& state, core::CommitBatch commit_batch) {
  if (state.thread_index() == 0) {
    shared_node = std::make_unique<SharedNode>(state.threads(), Apart::kProcesses, commit_batch);
  }
  constexpr uint64_t kPages = (128 << 20) / 4096;
  const uint32_t thread = static_cast<uint32_t>(state.thread_index());
  std::vector<core::Event> events;
  for (int pair = 0; pair < 4096; ++pair) {
    events.push_back(RangeEvent(core::EventKind::kMmapAnon, thread, 0x7f0000000, kPages));
    events.push_back(RangeEvent(core::EventKind::kMunmap, thread, 0x7f0000000, kPages));
  }
  ApplyOverAndOver(state, events, events.size());
  state.SetItemsProcessed(state.iterations() * 4096);
}
BENCHMARK_CAPTURE(BM_MapAndUnmap, by_policy, core::CommitBatch::kByPolicy)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(BM_MapAndUnmap, small, core::CommitBatch::kSmall)->ThreadRange(1, 2)->UseRealTime();

// 65536 pages touched and given back, over and over: on two threads against one, by what the threads share.
void BM_TouchOnThreads(benchmark::State& state, Apart apart) {
  if (state.thread_index() == 0) {
    shared_node = std::make_unique<SharedNode>(state.threads(), apart, core::CommitBatch::kByPolicy);
  }
  constexpr uint64_t kPages = 1 << 16;
  const uint32_t thread = static_cast<uint32_t>(state.thread_index());
  const uint64_t first = 0x7f0000000 + thread * kPages;
  std::vector<core::Event> events;
  for (uint64_t i = 0; i < kPages; ++i) {
    events.push_back({core::Event::Head(core::EventKind::kFault, thread, 7 + thread, 0),
                      core::Event::AddressBody((first + i) << 12, core::kFaultWrite | core::kFaultUser)});
  }
  events.push_back(RangeEvent(core::EventKind::kDontNeed, thread, first, kPages));
  ApplyOverAndOver(state, events, 8192);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kPages));
}
BENCHMARK_CAPTURE(BM_TouchOnThreads, own_cgroups, Apart::kCgroups)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(BM_TouchOnThreads, one_cgroup, Apart::kProcesses)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK_CAPTURE(BM_TouchOnThreads, one_process, Apart::kThreads)->ThreadRange(1, 2)->UseRealTime();

// Bytes of memory for each resident page, all told: descriptor, page-table entry, lists; anonymous pages in
// order.
void BM_MemoryPerPage(benchmark::State& state) {
  const uint64_t pages = static_cast<uint64_t>(state.range(0));
  auto resident_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    uint64_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  };
  double bytes = 0;
  for (auto _ : state) {
    auto node = core::Node::Create(FixtureConfig());
    core::EventStream* stream = (*node)->OpenStream("bench");
    core::BatchResult result;
    uint64_t before = resident_bytes();
    std::vector<core::Event> events(8192);
    for (uint64_t page = 0; page < pages; page += events.size()) {
      for (uint64_t i = 0; i < events.size(); ++i) {
        events[i] = {
            core::Event::Head(core::EventKind::kFault, 0, 7, 0),
            core::Event::AddressBody((0x7f0000000 + page + i) << 12, core::kFaultWrite | core::kFaultUser)};
      }
      if (!(*node)->Apply(stream, {0, events, {}}, &result).ok()) std::abort();
    }
    bytes =
        static_cast<double>(resident_bytes() - before) / static_cast<double>((*node)->Info().resident_pages);
  }
  state.counters["bytes_per_page"] = bytes;
}
BENCHMARK(BM_MemoryPerPage)->Arg(1 << 22)->Iterations(1)->Unit(benchmark::kMillisecond);

// A fork of a node with so many resident pages, half of them anonymous and half of the page cache, in 100
// cgroups on 64 CPUs.
void BM_Fork(benchmark::State& state) {
  constexpr uint32_t kGroups = 100, kCpus = 64;
  const auto pages = static_cast<uint64_t>(state.range(0));
  core::NodeConfig config = FixtureConfig();
  config.cpus = kCpus;
  auto node = core::Node::Create(config);
  core::EventStream* stream = (*node)->OpenStream("bench");
  core::BatchResult result;
  std::vector<core::WideEvent> setup;
  for (uint32_t i = 1; i <= kGroups; ++i) {
    setup.push_back({.body = core::wide::DefinePath{i, "/group/" + std::to_string(i)}});
    setup.push_back({.body = core::wide::DefineFile{i, 0x800001, i, false}});
    setup.push_back({.body = core::wide::CgroupCreate{i}});
    setup.push_back({.body = core::wide::CgroupAttach{i, i}});
  }
  if (!(*node)->Apply(stream, {0, {}, setup}, &result).ok()) std::abort();
  std::vector<core::Event> events;
  for (uint64_t i = 0; i < pages / 2; ++i) {
    const auto tid = static_cast<uint32_t>(i / 64 % kGroups + 1), cpu = tid % kCpus;
    events.push_back(
        {core::Event::Head(core::EventKind::kFault, cpu, tid, 0),
         core::Event::AddressBody((0x7f0000000 + i) << 12, core::kFaultWrite | core::kFaultUser)});
    events.push_back({core::Event::Head(core::EventKind::kFileAdd, cpu, tid, 0),
                      core::Event::FileBody(tid, static_cast<uint32_t>(i), 0)});
    if (events.size() < 8192 && i + 1 < pages / 2) continue;
    if (!(*node)->Apply(stream, {0, events, {}}, &result).ok()) std::abort();
    events.clear();
  }
  for (auto _ : state) {
    std::unique_ptr<core::Node> fork = (*node)->Fork();
    state.PauseTiming();
    fork.reset();
    state.ResumeTiming();
  }
  state.counters["resident_pages"] = static_cast<double>((*node)->Info().resident_pages);
}
BENCHMARK(BM_Fork)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace memcgd

int main(int argc, char** argv) {
  // As the server does: memory once had is kept.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
