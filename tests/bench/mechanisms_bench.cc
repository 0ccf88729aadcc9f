// What single mechanisms of the core are worth: two ways to do a thing, in turns within one run.
//
//   mechanisms_bench --benchmark_counters_tabular=true
//
// Each benchmark runs its two ways as A B B A …, a pair of turns an iteration.  `older_ns` and `newer_ns` are
// CPU time of all threads an event (medians), `ratio` the median of the pairs' ratios, beside it the least
// and the largest, and `wanted` what it should reach.  The column Time is that of the newer way.  Threads
// have a CPU each, where there are as many.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/charge.h"
#include "core/node.h"

namespace memcgd {
namespace {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "mechanisms_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

double ClockNs(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What a turn took, for each event.
struct Cost {
  double cpu_ns = 0;   // of all threads
  double wall_ns = 0;  // from the first thread's begin to the last one's end
};

// Runs work(thread), of `events` events each, on threads that begin together.
Cost Measure(uint32_t threads, uint64_t events, const std::function<void(uint32_t)>& work) {
  std::vector<double> cpu_ns(threads), begin_ns(threads), end_ns(threads);
  std::barrier together(threads);
  auto run = [&](uint32_t thread) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(thread % std::max(1u, std::thread::hardware_concurrency()), &cpu);
    pthread_setaffinity_np(pthread_self(), sizeof cpu, &cpu);  // where it may not, it runs anywhere
    together.arrive_and_wait();
    begin_ns[thread] = ClockNs(CLOCK_MONOTONIC);
    const double cpu_before = ClockNs(CLOCK_THREAD_CPUTIME_ID);
    work(thread);
    cpu_ns[thread] = ClockNs(CLOCK_THREAD_CPUTIME_ID) - cpu_before;
    end_ns[thread] = ClockNs(CLOCK_MONOTONIC);
  };
  std::vector<std::thread> crew;
  for (uint32_t thread = 0; thread < threads; ++thread) crew.emplace_back(run, thread);
  for (std::thread& thread : crew) thread.join();
  Cost cost;
  for (double one : cpu_ns) cost.cpu_ns += one;
  cost.wall_ns =
      *std::max_element(end_ns.begin(), end_ns.end()) - *std::min_element(begin_ns.begin(), begin_ns.end());
  const double all = static_cast<double>(events) * threads;
  return {cost.cpu_ns / all, cost.wall_ns / all};
}

using Way = std::function<Cost()>;
struct Pairs {
  std::vector<Cost> older, newer;
  std::vector<double> Of(double (*value)(const Cost&, const Cost&)) const {
    std::vector<double> values;
    for (size_t i = 0; i < older.size(); ++i) values.push_back(value(older[i], newer[i]));
    return values;
  }
};

Pairs TakeTurns(benchmark::State& state, const Way& older, const Way& newer) {
  older();  // neither is cold
  newer();
  Pairs pairs;
  bool older_first = true;
  for (auto _ : state) {
    Cost first = older_first ? older() : newer();
    Cost second = older_first ? newer() : older();
    pairs.older.push_back(older_first ? first : second);
    pairs.newer.push_back(older_first ? second : first);
    older_first = !older_first;
    state.SetIterationTime(pairs.newer.back().cpu_ns * 1e-9);
  }
  return pairs;
}

void Compare(benchmark::State& state, const Way& older, const Way& newer, double wanted) {
  const Pairs pairs = TakeTurns(state, older, newer);
  std::vector<double> ratios = pairs.Of([](const Cost& a, const Cost& b) { return a.cpu_ns / b.cpu_ns; });
  state.counters["older_ns"] = Median(pairs.Of([](const Cost& a, const Cost&) { return a.cpu_ns; }));
  state.counters["newer_ns"] = Median(pairs.Of([](const Cost&, const Cost& b) { return b.cpu_ns; }));
  state.counters["ratio"] = Median(ratios);
  state.counters["ratio_min"] = *std::min_element(ratios.begin(), ratios.end());
  state.counters["ratio_max"] = *std::max_element(ratios.begin(), ratios.end());
  state.counters["wanted"] = wanted;
}

core::NodeConfig ConfigOf(uint32_t cpus) {
  core::NodeConfig config;
  config.cpus = cpus;
  config.memory_bytes = uint64_t{24} << 30;
  return config;
}

// A machine with a leaf for each thread, five levels deep; the levels above are shared.
template <class Forms>
struct Leaves {
  explicit Leaves(const core::NodeConfig& config) : machine(config), charges(machine) {
    core::Memcg* parent = &machine.tree.root();
    std::string path;
    for (int level = 1; level <= 4; ++level) parent = Create(path += "/shared", *parent);
    for (uint32_t cpu = 0; cpu < config.cpus; ++cpu) {
      leaves.push_back(Create(path + "/leaf" + std::to_string(cpu), *parent));
    }
  }
  core::Memcg* Create(const std::string& path, core::Memcg& parent) {
    core::Memcg& made = machine.tree.Create(path, parent);
    machine.AddCpuStats(made.id);
    return &made;
  }

  core::Machine machine;
  core::Charges<Forms> charges;
  std::vector<core::Memcg*> leaves;
};

// Charging a page, and charging and giving back: through this CPU's stock and gathered uncharges, or each
// page through all levels.
void BM_Stock(benchmark::State& state, bool give_back) {
  const uint32_t threads = static_cast<uint32_t>(state.range(0));
  constexpr uint32_t kRun = 1024;  // pages that are given back together
  Leaves<core::DefaultForms> ground(ConfigOf(threads));
  auto none = [&](uint64_t events) {
    Cost cost = Measure(threads, events, [&](uint32_t thread) {
      core::Memcg& leaf = *ground.leaves[thread];
      for (uint64_t run = 0; run < events; run += kRun) {
        for (uint32_t i = 0; i < kRun; ++i) {
          if (!leaf.memory.TryCharge(1, nullptr)) std::abort();
          leaf.refs.fetch_add(1, std::memory_order_relaxed);
        }
        for (uint32_t i = 0; give_back && i < kRun; ++i) {
          leaf.memory.Uncharge(1);
          leaf.refs.fetch_sub(1, std::memory_order_relaxed);
        }
      }
    });
    for (core::Memcg* leaf : ground.leaves) {
      if (give_back) continue;
      leaf->memory.Uncharge(static_cast<int64_t>(events));
      leaf->refs.fetch_sub(static_cast<int64_t>(events), std::memory_order_relaxed);
    }
    return cost;
  };
  auto stock = [&](uint64_t events) {
    auto uncharge = [&](uint32_t thread, uint32_t pages) {
      ground.charges.Uncharge(*ground.machine.cpus[thread], ground.leaves[thread]->id, pages);
    };
    Cost cost = Measure(threads, events, [&](uint32_t thread) {
      core::CpuSlot& slot = *ground.machine.cpus[thread];
      const core::MemcgId leaf = ground.leaves[thread]->id;
      for (uint64_t run = 0; run < events; run += kRun) {
        for (uint32_t i = 0; i < kRun; ++i) {
          if (!ground.charges.TryCharge(slot, leaf, 1)) std::abort();
        }
        if (!give_back) continue;
        for (uint32_t i = 0; i < kRun; ++i) uncharge(thread, 1);
        ground.charges.FlushUncharge(slot);
      }
    });
    for (uint32_t thread = 0; thread < threads; ++thread) {
      if (!give_back) uncharge(thread, static_cast<uint32_t>(events));
      ground.charges.FlushUncharge(*ground.machine.cpus[thread]);
    }
    return cost;
  };
  Compare(
      state, [&] { return none(1 << 18); }, [&] { return stock(1 << 22); }, threads == 1 ? 25 : 40);
}

constexpr core::Stat kOfAnEvent[] = {core::Stat::kPgfault, core::Stat::kAnon, core::Stat::kInactiveAnon,
                                     core::Stat::kPgpgin};

template <class Forms>
Cost ChangeBatched(Leaves<Forms>& ground, uint64_t events) {
  return Measure(static_cast<uint32_t>(ground.leaves.size()), events, [&](uint32_t thread) {
    core::CpuSlot& slot = *ground.machine.cpus[thread];
    const core::MemcgId leaf = ground.leaves[thread]->id;
    for (uint64_t event = 0; event < events; ++event) {
      core::StatPending& stats = ground.charges.StatsOf(slot, leaf);
      for (core::Stat stat : kOfAnEvent) ground.charges.Mod(slot, stats, leaf, stat, 1);
    }
  });
}

// Four statistics an event: pending on this CPU until past 64, or at once here and at every ancestor.
void BM_Statistics(benchmark::State& state) {
  const uint32_t threads = static_cast<uint32_t>(state.range(0));
  Leaves<core::DefaultForms> ground(ConfigOf(threads));
  auto unbatched = [&](uint64_t events) {
    return Measure(threads, events, [&](uint32_t thread) {
      for (uint64_t event = 0; event < events; ++event) {
        for (core::Stat stat : kOfAnEvent) ground.leaves[thread]->AddStat(static_cast<size_t>(stat), 1);
      }
    });
  };
  Compare(
      state, [&] { return unbatched(1 << 16); }, [&] { return ChangeBatched(ground, 1 << 21); },
      threads == 1 ? 18 : 80);
}

// First touch of anonymous memory, as this kernel does it: ns of CPU time a page.
double KernelFaultNs() {
  constexpr size_t kBytes = size_t{64} << 20;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* memory =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  const double before = ClockNs(CLOCK_THREAD_CPUTIME_ID);
  for (size_t at = 0; at < kBytes; at += page) static_cast<volatile char*>(memory)[at] = 1;
  const double ns = ClockNs(CLOCK_THREAD_CPUTIME_ID) - before;
  munmap(memory, kBytes);
  return ns / static_cast<double>(kBytes / page);
}

// What it costs that statistics go up through all ancestors: the form `spill` less the form `walk`, whose
// changes stay with the cgroup, for the four statistics of an event; and its share of this kernel's own
// fault.
void BM_UpwardSpill(benchmark::State& state) {
  core::NodeConfig config = ConfigOf(1);
  Leaves<core::ChosenForms> upward(config);
  config.mechanisms.stats = core::StatsForm::kWalk;
  Leaves<core::ChosenForms> own(config);
  constexpr uint64_t kEvents = 1 << 22;
  const Pairs pairs = TakeTurns(
      state, [&] { return ChangeBatched(upward, kEvents); }, [&] { return ChangeBatched(own, kEvents); });
  const double spill_ns = Median(pairs.Of([](const Cost& a, const Cost& b) { return a.cpu_ns - b.cpu_ns; }));
  std::vector<double> faults;
  for (int turn = 0; turn < 5; ++turn) faults.push_back(KernelFaultNs());
  state.counters["spill_ns"] = Median(pairs.Of([](const Cost& a, const Cost&) { return a.cpu_ns; }));
  state.counters["walk_ns"] = Median(pairs.Of([](const Cost&, const Cost& b) { return b.cpu_ns; }));
  state.counters["upward_ns"] = spill_ns;
  state.counters["wanted"] = 3;
  state.counters["kernel_fault_ns"] = Median(faults);
  state.counters["percent_of_fault"] = 100 * spill_ns / Median(faults);
}

// A stream whose processes first-touch anonymous memory in turn, one page each.
class Toucher {
 public:
  struct Process {
    uint32_t tid;
    std::string cgroup;  // empty: the process is another stream's
  };
  Toucher(core::Node& node, uint32_t cpu, const std::vector<Process>& processes, uint64_t pages)
      : node_(node), stream_(node.OpenStream("stream of " + std::to_string(processes[0].tid))) {
    const uint64_t share = pages / processes.size();
    const uint64_t first = (uint64_t{0x7f0000000} + (uint64_t{cpu} << 24)) << 12;
    std::vector<core::WideEvent> begin;
    for (uint32_t i = 0; i < processes.size(); ++i) {
      const Process& process = processes[i];
      if (!process.cgroup.empty()) {
        begin.push_back(Wide(cpu, process.tid, core::wide::DefinePath{i + 1, process.cgroup}));
        begin.push_back(Wide(cpu, process.tid, core::wide::BaselineProcess{process.tid, i + 1, 0}));
      }
      map_.push_back(Wide(cpu, process.tid,
                          core::wide::Mmap{first, share << 12, core::kProtRead | core::kProtWrite,
                                           core::kMapPrivate | core::kMapAnonymous, 0, 0}));
      unmap_.push_back(Wide(cpu, process.tid, core::wide::Munmap{first, share << 12}));
    }
    for (uint64_t page = 0; page < share; ++page) {
      for (const Process& process : processes) {
        touches_.push_back(
            {core::Event::Head(core::EventKind::kFault, cpu, process.tid, 0),
             core::Event::AddressBody(first + (page << 12), core::kFaultWrite | core::kFaultUser)});
      }
    }
    Apply({}, begin);
  }
  void Map() { Apply({}, map_); }
  void Unmap() { Apply({}, unmap_); }
  void Touch() {
    constexpr size_t kBatch = 8192;
    for (size_t i = 0; i < touches_.size(); i += kBatch) {
      Apply(std::span(touches_).subspan(i, std::min(kBatch, touches_.size() - i)), {});
    }
  }
  uint64_t touches() const { return touches_.size(); }
  void Apply(std::span<const core::Event> events, std::span<const core::WideEvent> wide) {
    core::BatchResult result;
    Require(node_.Apply(stream_, {0, events, wide}, &result));
    result.outcomes[static_cast<size_t>(core::Outcome::kOk)] = 0;
    for (size_t outcome = 0; outcome < result.outcomes.size(); ++outcome) {
      if (result.outcomes[outcome] == 0) continue;
      std::fprintf(stderr, "mechanisms_bench: %zu events had the outcome %zu\n",
                   static_cast<size_t>(result.outcomes[outcome]), outcome);
      std::exit(1);
    }
  }

 private:
  static core::WideEvent Wide(uint32_t cpu, uint32_t tid, core::WideBody body) {
    return {0, cpu, tid, 0, std::move(body)};
  }
  core::Node& node_;
  core::EventStream* const stream_;
  std::vector<core::WideEvent> map_, unmap_;
  std::vector<core::Event> touches_;
};

std::unique_ptr<core::Node> NodeWith(const core::NodeConfig& config, const std::vector<std::string>& leaves) {
  auto node = core::Node::Create(config);
  Require(node.status());
  std::string above;
  for (int level = 1; level <= 4; ++level) Require((*node)->CreateCgroup(above += "/shared"));
  for (const std::string& leaf : leaves) Require((*node)->CreateCgroup(above + "/" + leaf));
  return *std::move(node);
}
constexpr char kAbove[] = "/shared/shared/shared/shared/";

// First touches, whole, of processes in 32 cgroups in turn, event by event (`older`), and of one in one.
void BM_Interleaved(benchmark::State& state) {
  constexpr uint32_t kGroups = 32;
  constexpr uint64_t kPages = 1 << 18;
  std::vector<std::string> leaves = {"alone"};
  std::vector<Toucher::Process> processes;
  for (uint32_t group = 0; group < kGroups; ++group) {
    leaves.push_back("leaf" + std::to_string(group));
    processes.push_back({100 + group, kAbove + leaves.back()});
  }
  auto node = NodeWith(ConfigOf(1), leaves);
  Toucher one(*node, 0, {{7, kAbove + leaves[0]}}, kPages);
  Toucher many(*node, 0, processes, kPages);
  auto touch = [](Toucher& toucher) {
    toucher.Map();
    Cost cost = Measure(1, toucher.touches(), [&](uint32_t) { toucher.Touch(); });
    toucher.Unmap();
    return cost;
  };
  Compare(
      state, [&] { return touch(many); }, [&] { return touch(one); }, 3);
}

// First touch and unmap by two threads, each a stream and a CPU, against one of them alone.  `by_clock` is
// how much more they do in a second by the clock, which needs two CPUs that nobody else uses; `by_cpu` the
// same reckoned from CPU time, which leaves out waits that sleep.
enum class Sharing { kNothing, kCgroup, kProcess };
void BM_TwoThreads(benchmark::State& state, Sharing sharing, double wanted) {
  constexpr uint64_t kPages = 1 << 17;
  auto node = NodeWith(ConfigOf(2), {"leaf0", "leaf1"});
  const std::string first = std::string(kAbove) + "leaf0", second = std::string(kAbove) + "leaf1";
  Toucher one(*node, 0, {{7, first}}, kPages);
  Toucher::Process other{8, sharing == Sharing::kNothing ? second : first};
  if (sharing == Sharing::kProcess) {
    other.cgroup = "";
    core::WideEvent clone{0, 0, 7, 0, core::wide::Clone{8, true, true}};
    one.Apply({}, {&clone, 1});
  }
  Toucher two(*node, 1, {other}, kPages);
  auto turn = [&](uint32_t threads) {
    return Measure(threads, kPages, [&](uint32_t thread) {
      Toucher& toucher = thread == 0 ? one : two;
      toucher.Map();
      toucher.Touch();
      toucher.Unmap();
    });
  };
  const Pairs pairs = TakeTurns(
      state, [&] { return turn(1); }, [&] { return turn(2); });
  state.counters["one_ns"] = Median(pairs.Of([](const Cost& a, const Cost&) { return a.cpu_ns; }));
  state.counters["two_ns"] = Median(pairs.Of([](const Cost&, const Cost& b) { return b.cpu_ns; }));
  state.counters["by_cpu"] =
      Median(pairs.Of([](const Cost& a, const Cost& b) { return 2 * a.cpu_ns / b.cpu_ns; }));
  std::vector<double> by_clock = pairs.Of([](const Cost& a, const Cost& b) { return a.wall_ns / b.wall_ns; });
  state.counters["by_clock"] = Median(by_clock);
  state.counters["by_clock_min"] = *std::min_element(by_clock.begin(), by_clock.end());
  state.counters["by_clock_max"] = *std::max_element(by_clock.begin(), by_clock.end());
  state.counters["wanted"] = wanted;
}

std::unique_ptr<core::Node> NodeWithIdle(core::StatsForm form, uint32_t idle) {
  core::NodeConfig config = ConfigOf(8);
  config.mechanisms.stats = form;
  auto node = NodeWith(config, {});
  for (uint32_t i = 0; i < idle; ++i) Require(node->CreateCgroup(kAbove + ("idle" + std::to_string(i))));
  return node;
}

// The fast read of memory.stat of the cgroup above all others: with 15,000 of them (`older`) and with 10, or
// by walking (`older`) and from one number.  The median of CPU time, the clock's own call included, stands
// for a turn; `spill_p99_ns` is by the clock on the wall.  `cold`: after caches were filled with other
// things, as a reader that comes once a second finds them.
void BM_Read(benchmark::State& state, core::StatsForm older_form, uint32_t newer_idle, bool cold,
             double wanted) {
  auto older = NodeWithIdle(older_form, 15'000), newer = NodeWithIdle(core::StatsForm::kSpill, newer_idle);
  std::vector<char> other_things(static_cast<size_t>(cold ? 64 : 0) << 20);
  std::vector<double> spilled_ns;
  auto read = [&](core::Node& node, uint32_t reads, std::vector<double> took_ns) {
    for (uint32_t i = 0; i < reads; ++i) {
      for (size_t at = 0; at < other_things.size(); at += 64) ++other_things[at];
      const double clock_before = ClockNs(CLOCK_MONOTONIC), before = ClockNs(CLOCK_THREAD_CPUTIME_ID);
      Require(node.ReadCgroup("/shared", false, false, /*fast=*/true).status());
      took_ns.push_back(ClockNs(CLOCK_THREAD_CPUTIME_ID) - before);
      if (reads > 10) spilled_ns.push_back(ClockNs(CLOCK_MONOTONIC) - clock_before);
    }
    return Cost{Median(took_ns), 0};
  };
  const uint32_t reads = cold ? 30 : 2000;
  Compare(
      state, [&] { return read(*older, older_form == core::StatsForm::kWalk ? 5 : reads, {}); },
      [&] { return read(*newer, reads, {}); }, wanted);
  std::sort(spilled_ns.begin(), spilled_ns.end());
  state.counters["spill_p99_ns"] = spilled_ns[spilled_ns.size() * 99 / 100];
}

// The unit of all this here: an addition to an atomic counter, by one thread or by two to the same.
void BM_AtomicAdd(benchmark::State& state) {
  static std::atomic<int64_t> shared{0};
  const uint32_t threads = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    Cost cost = Measure(threads, 1 << 20, [](uint32_t) {
      for (int i = 0; i < 1 << 20; ++i) shared.fetch_add(1, std::memory_order_relaxed);
    });
    state.SetIterationTime(cost.cpu_ns * 1e-9);
  }
}

#define MEMCGD_TURNS(count) Iterations(count)->UseManualTime()->Unit(benchmark::kNanosecond)
BENCHMARK(BM_AtomicAdd)->Arg(1)->Arg(2)->MEMCGD_TURNS(21);
BENCHMARK_CAPTURE(BM_Stock, charge, false)->Arg(1)->Arg(2)->MEMCGD_TURNS(21);
BENCHMARK_CAPTURE(BM_Stock, charge_and_uncharge, true)->Arg(1)->Arg(2)->MEMCGD_TURNS(21);
BENCHMARK(BM_Statistics)->Arg(1)->Arg(2)->MEMCGD_TURNS(21);
BENCHMARK(BM_UpwardSpill)->MEMCGD_TURNS(21);
BENCHMARK(BM_Interleaved)->MEMCGD_TURNS(11);
BENCHMARK_CAPTURE(BM_TwoThreads, separate_cgroups, Sharing::kNothing, 1.8)->MEMCGD_TURNS(21);
BENCHMARK_CAPTURE(BM_TwoThreads, one_cgroup, Sharing::kCgroup, 1.2)->MEMCGD_TURNS(21);
BENCHMARK_CAPTURE(BM_TwoThreads, one_process, Sharing::kProcess, 1.0)->MEMCGD_TURNS(21);
BENCHMARK_CAPTURE(BM_Read, many_and_few, core::StatsForm::kSpill, 10u, false, 1.0)->MEMCGD_TURNS(11);
BENCHMARK_CAPTURE(BM_Read, many_and_few_cold, core::StatsForm::kSpill, 10u, true, 1.0)->MEMCGD_TURNS(11);
BENCHMARK_CAPTURE(BM_Read, walk_and_spill, core::StatsForm::kWalk, 15'000u, false, 1000.0)->MEMCGD_TURNS(11);
BENCHMARK_CAPTURE(BM_Read, walk_and_spill_cold, core::StatsForm::kWalk, 15'000u, true, 1000.0)
    ->MEMCGD_TURNS(11);
#undef MEMCGD_TURNS

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
