#include "core/stat_reader.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "core/check.h"

namespace memcgd::core {
namespace {

struct V1Line {
  std::string_view local;
  std::string_view total;
  Stat stat;
};
// memcg1_stats of mm/memcontrol-v1.c, in its order.
constexpr V1Line kV1Lines[] = {
    {"cache", "total_cache", Stat::kFile},
    {"rss", "total_rss", Stat::kAnon},
    {"rss_huge", "total_rss_huge", Stat::kAnonThp},
    {"shmem", "total_shmem", Stat::kShmem},
    {"mapped_file", "total_mapped_file", Stat::kFileMapped},
    {"dirty", "total_dirty", Stat::kFileDirty},
    {"writeback", "total_writeback", Stat::kFileWriteback},
    {"workingset_refault_anon", "total_workingset_refault_anon", Stat::kWorkingsetRefaultAnon},
    {"workingset_refault_file", "total_workingset_refault_file", Stat::kWorkingsetRefaultFile},
    {"swap", "total_swap", Stat::kSwap},
    {"swapcached", "total_swapcached", Stat::kSwapcached},
    {"pgpgin", "total_pgpgin", Stat::kPgpgin},
    {"pgpgout", "total_pgpgout", Stat::kPgpgout},
    {"pgfault", "total_pgfault", Stat::kPgfault},
    {"pgmajfault", "total_pgmajfault", Stat::kPgmajfault},
    {"inactive_anon", "total_inactive_anon", Stat::kInactiveAnon},
    {"active_anon", "total_active_anon", Stat::kActiveAnon},
    {"inactive_file", "total_inactive_file", Stat::kInactiveFile},
    {"active_file", "total_active_file", Stat::kActiveFile},
    {"unevictable", "total_unevictable", Stat::kUnevictable},
};

using Counts = std::array<int64_t, kStats>;

constexpr int64_t kFlushPeriodNs = int64_t{2'000'000'000};

bool IsBelow(const Memcg& memcg, const Memcg& ancestor) {
  for (const Memcg* level = &memcg; level != nullptr; level = level->parent) {
    if (level == &ancestor) return true;
  }
  return false;
}

// What changed on the CPU since the last look.
int32_t TakeNew(StatPending& stats, size_t i) {
  int32_t now = stats.pending[i].load(std::memory_order_relaxed);
  uint32_t delta = static_cast<uint32_t>(now) - static_cast<uint32_t>(stats.seen[i]);
  stats.seen[i] = now;
  return static_cast<int32_t>(delta);
}

// spill: brings the cgroup's pending_total, and its ancestors', up to what the CPU has pending.
void SettlePending(Machine& machine, CpuSlot& slot, MemcgId id) {
  StatPending& stats = *slot.stats[Raw(id)];
  Memcg& memcg = machine.tree.Get(id);
  for (size_t i = 0; i < kStats; ++i) {
    int32_t delta = TakeNew(stats, i);
    if (delta == 0) continue;
    memcg.stats.pending_local[i] += delta;
    for (Memcg* level = &memcg; level != nullptr; level = level->parent)
      level->stats.pending_total[i] += delta;
  }
}

// spill: adds up what changed on each CPU since the last exact read.
void Settle(Machine& machine) {
  for (std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    Locked lock(slot->touched_lock);
    for (MemcgId id : slot->touched) {
      if (slot->stats[Raw(id)] == nullptr) continue;  // freed since
      SettlePending(machine, *slot, id);
      slot->stats[Raw(id)]->touched = false;
    }
    slot->touched.clear();
    slot->stats_memcg = MemcgId::kNone;
  }
}

// rstat: mem_cgroup_css_rstat_flush()
void FlushOne(Machine& machine, Memcg& memcg) ABSL_EXCLUSIVE_LOCKS_REQUIRED(machine.rstat_lock) {
  for (size_t i = 0; i < kStats; ++i) {
    int64_t own = 0;
    for (std::unique_ptr<CpuSlot>& slot : machine.cpus) own += TakeNew(*slot->stats[Raw(memcg.id)], i);
    int64_t all = own + std::exchange(memcg.stats.from_children[i], 0);
    if (all == 0 && own == 0) continue;
    memcg.stats.local[i].fetch_add(own, std::memory_order_relaxed);
    memcg.stats.recursive[i].fetch_add(all, std::memory_order_relaxed);
    if (memcg.parent != nullptr) memcg.parent->stats.from_children[i] += all;
  }
  memcg.stats.updates.store(0, std::memory_order_relaxed);
}

// rstat: css_rstat_flush().  Flushes `top` and all below it that changed, children (whose ids are higher)
// first. The lists of what changed may lack a change that came while another flush ran: at a cut, where it is
// to be exact, all are looked at.
void Flush(Machine& machine, Memcg& top, bool all = false) {
  Locked lock(machine.rstat_lock);
  ++machine.flushes;
  if (top.parent == nullptr) machine.last_flush_ns = machine.time_ns.load(std::memory_order_relaxed);
  std::set<uint32_t, std::greater<>> changed;
  auto add = [&](Memcg& memcg) {
    for (Memcg* level = &memcg; level != &top && changed.insert(Raw(level->id)).second;)
      level = level->parent;
  };
  for (std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    Locked touched_lock(slot->touched_lock);
    std::erase_if(slot->touched, [&](MemcgId id) {
      StatPending* stats = slot->stats[Raw(id)].get();
      if (stats == nullptr) return true;  // freed since
      Memcg& memcg = machine.tree.Get(id);
      if (!IsBelow(memcg, top)) return false;
      stats->touched.store(false, std::memory_order_relaxed);
      add(memcg);
      return true;
    });
  }
  // What an earlier flush of a part of the subtree has left with a parent.
  std::erase_if(machine.unflushed, [&](MemcgId id) {
    if (machine.tree.all()[Raw(id)] == nullptr) return true;
    Memcg& memcg = machine.tree.Get(id);
    if (!IsBelow(memcg, top)) return false;
    add(memcg);
    return true;
  });
  if (all) {
    for (const std::unique_ptr<Memcg>& memcg : machine.tree.all()) {
      if (memcg != nullptr && IsBelow(*memcg, top)) add(*memcg);
    }
  }
  for (uint32_t id : changed) FlushOne(machine, machine.tree.Get(MemcgId{id}));
  FlushOne(machine, top);
  if (top.parent != nullptr) machine.unflushed.insert(top.parent->id);
}

// rstat: mem_cgroup_flush_stats(), and the flush of every two seconds.
void FlushForReader(Machine& machine, Memcg& memcg) {
  int64_t last;
  {
    Locked lock(machine.rstat_lock);
    last = machine.last_flush_ns;
  }
  int64_t threshold = int64_t{kStatBatch} * machine.config.cpus;
  if (machine.time_ns.load(std::memory_order_relaxed) - last >= kFlushPeriodNs) {
    Flush(machine, machine.tree.root());
  } else if (memcg.stats.updates.load(std::memory_order_relaxed) > threshold) {
    Flush(machine, memcg);
  }
}

// walk: the cgroup's own, all CPUs.
void AddWalked(const Machine& machine, const Memcg& memcg, Counts& sum) {
  for (size_t i = 0; i < kStats; ++i) sum[i] += memcg.stats.local[i].load(std::memory_order_relaxed);
  for (const std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    const StatPending& stats = *slot->stats[Raw(memcg.id)];
    for (size_t i = 0; i < kStats; ++i) sum[i] += stats.pending[i].load(std::memory_order_relaxed);
  }
}

// walk: the cgroup and all below it.
Counts Walk(const Machine& machine, const Memcg& top) {
  Counts sum{};
  for (const std::unique_ptr<Memcg>& memcg : machine.tree.all()) {
    if (memcg != nullptr && IsBelow(*memcg, top)) AddWalked(machine, *memcg, sum);
  }
  return sum;
}

// v1 shows the smallest limit on the way to the root.
int64_t HierarchicalLimitBytes(const Machine& machine, const Memcg& memcg) {
  int64_t pages = PageCounter::kMax;
  for (const Memcg* level = &memcg; level != nullptr; level = level->parent) {
    pages = std::min(pages, level->memory.max_pages());
  }
  int64_t page = machine.config.page_size;
  return std::min(pages, INT64_MAX / page) * page;
}

Counts Sum(const std::array<std::atomic<int64_t>, kStats>& counted, const Counts* pending) {
  Counts sum;
  for (size_t i = 0; i < kStats; ++i) {
    sum[i] = counted[i].load(std::memory_order_relaxed) + (pending == nullptr ? 0 : (*pending)[i]);
  }
  return sum;
}

// Of the cgroup alone, and with all below it; after Settle() or Flush() where it is to be exact.
Counts ReadLocal(const Machine& machine, const Memcg& memcg, bool exact) {
  if (machine.config.mechanisms.stats == StatsForm::kWalk) {
    Counts sum{};
    AddWalked(machine, memcg, sum);
    return sum;
  }
  bool with_pending = exact && machine.config.mechanisms.stats == StatsForm::kSpill;
  return Sum(memcg.stats.local, with_pending ? &memcg.stats.pending_local : nullptr);
}
Counts ReadRecursive(const Machine& machine, const Memcg& memcg, bool exact) {
  if (machine.config.mechanisms.stats == StatsForm::kWalk) return Walk(machine, memcg);
  bool with_pending = exact && machine.config.mechanisms.stats == StatsForm::kSpill;
  return Sum(memcg.stats.recursive, with_pending ? &memcg.stats.pending_total : nullptr);
}

void MakeExact(Machine& machine) {
  if (machine.config.mechanisms.stats == StatsForm::kSpill) Settle(machine);
  if (machine.config.mechanisms.stats == StatsForm::kRstat) Flush(machine, machine.tree.root(), true);
}

// How far a fast read can be off, in pages or counts.
uint64_t BoundOf(const Machine& machine, const Memcg& memcg, bool local) {
  uint64_t batches = uint64_t{kStatBatch} * machine.cpus.size();
  uint64_t cgroups = 1;
  if (!local) cgroups += memcg.descendants.load(std::memory_order_relaxed);
  switch (machine.config.mechanisms.stats) {
    case StatsForm::kSpill:
      return batches * cgroups;
    case StatsForm::kWalk:
      // A cgroup's own count is read at one moment, what a CPU has pending at a later one: it was within
      // ±kStatBatch at both, whatever went to the cgroup's count between them.
      return 2 * batches * cgroups;
    case StatsForm::kRstat:
      return 2 * batches;
  }
  CheckFailed("a form of statistics", __FILE__, __LINE__);
}

// walk: of each cgroup by id, with all below it.
std::vector<Counts> WalkAll(const Machine& machine) {
  const auto& all = machine.tree.all();
  std::vector<Counts> sums(all.size());
  for (size_t id = all.size(); id-- > 0;) {  // children, which have the higher ids, first
    if (all[id] == nullptr) continue;
    AddWalked(machine, *all[id], sums[id]);
    if (all[id]->parent == nullptr) continue;
    Counts& parent = sums[Raw(all[id]->parent->id)];
    for (size_t i = 0; i < kStats; ++i) parent[i] += sums[id][i];
  }
  return sums;
}

CgroupSample SampleOf(const Machine& machine, const Memcg& memcg, const Counts& counts) {
  const uint64_t page = machine.config.page_size;
  auto bytes = [page](int64_t pages) { return static_cast<uint64_t>(std::max<int64_t>(pages, 0)) * page; };
  auto limit = [&](int64_t pages) {
    return pages >= PageCounter::kMax ? CgroupSample::kNoLimit : bytes(pages);
  };
  CgroupSample sample;
  sample.path = memcg.path;
  sample.id = Raw(memcg.id);
  sample.stat = ShowStats(counts, machine.config.page_size);
  sample.usage_bytes = memcg.parent != nullptr ? bytes(memcg.memory.usage_pages())
                                               : sample.Of(Stat::kAnon) + sample.Of(Stat::kFile);
  if (memcg.parent == nullptr) sample.total_less_free_bytes = machine.ResidentPages() * page;
  sample.peak_bytes = bytes(memcg.memory.watermark_pages());
  sample.max_bytes = limit(memcg.memory.max_pages());
  sample.high_bytes = limit(memcg.reclaim.high);
  sample.low_bytes = bytes(memcg.reclaim.low);
  sample.swap_max_bytes = limit(memcg.swap.max_pages());
  sample.swap_bytes = bytes(memcg.swap.usage_pages());
  sample.failcnt = static_cast<uint64_t>(memcg.memory.failcnt());
  for (size_t i = 0; i < kMemcgEvents; ++i)
    sample.events[i] = memcg.events[i].load(std::memory_order_relaxed);
  sample.error_bound_pages = BoundOf(machine, memcg, false);
  sample.error_bound_bytes = sample.error_bound_pages * page;
  return sample;
}

}  // namespace

void SampleAll(Machine& machine, absl::FunctionRef<void(const CgroupSample&)> show) {
  const StatsForm form = machine.config.mechanisms.stats;
  if (form == StatsForm::kRstat) FlushForReader(machine, machine.tree.root());
  std::vector<Counts> walked;
  if (form == StatsForm::kWalk) walked = WalkAll(machine);
  for (const auto& [path, memcg] : machine.tree.online()) {
    const Counts counts =
        form == StatsForm::kWalk ? walked[Raw(memcg->id)] : ReadRecursive(machine, *memcg, false);
    CgroupSample sample = SampleOf(machine, *memcg, counts);
    // Two of the cgroup's own: not worth a look at all of them, but where they are to be summed anyway.
    Counts local{};
    if (form == StatsForm::kWalk) AddWalked(machine, *memcg, local);
    auto own = [form, &local, memcg = memcg](Stat stat) {
      const size_t i = static_cast<size_t>(stat);
      const int64_t count =
          form == StatsForm::kWalk ? local[i] : memcg->stats.local[i].load(std::memory_order_relaxed);
      return static_cast<uint64_t>(std::max<int64_t>(count, 0));
    };
    sample.local_faults = own(Stat::kPgfault);
    sample.local_major_faults = own(Stat::kPgmajfault);
    show(sample);
  }
}

std::map<MemcgId, std::array<int64_t, kStats>> ReadExact(Machine& machine) {
  MakeExact(machine);
  std::map<MemcgId, Counts> exact;
  const auto& all = machine.tree.all();
  bool walk = machine.config.mechanisms.stats == StatsForm::kWalk;
  for (size_t id = all.size(); id-- > 0;) {  // children, which have the higher ids, first
    if (all[id] == nullptr) continue;
    Counts& counts = exact[MemcgId{static_cast<uint32_t>(id)}];
    if (!walk) {
      counts = ReadRecursive(machine, *all[id], true);
      continue;
    }
    AddWalked(machine, *all[id], counts);
    if (all[id]->parent == nullptr) continue;
    Counts& parent = exact[all[id]->parent->id];
    for (size_t i = 0; i < kStats; ++i) parent[i] += counts[i];
  }
  return exact;
}

std::array<int64_t, kStats> ReadExactLocal(Machine& machine, const Memcg& memcg) {
  MakeExact(machine);
  return ReadLocal(machine, memcg, true);
}

void EndStats(Machine& machine, const Memcg& memcg) {
  Memcg& ending = machine.tree.Get(memcg.id);
  if (machine.config.mechanisms.stats == StatsForm::kRstat) Flush(machine, ending);
  for (std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    StatPending& stats = *slot->stats[Raw(memcg.id)];
    if (machine.config.mechanisms.stats == StatsForm::kSpill) {
      for (size_t i = 0; i < kStats; ++i) {
        int32_t pending = stats.pending[i].exchange(0, std::memory_order_relaxed);
        if (pending != 0) ending.AddStat(i, pending);
      }
      SettlePending(machine, *slot, memcg.id);
    }
    slot->stats[Raw(memcg.id)] = nullptr;
    slot->stats_memcg = MemcgId::kNone;
  }
}

void FlushForSave(Machine& machine) {
  if (machine.config.mechanisms.stats != StatsForm::kRstat) return;
  Flush(machine, machine.tree.root(), true);
  for (std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    for (std::unique_ptr<StatPending>& stats : slot->stats) {
      if (stats != nullptr) stats = std::make_unique<StatPending>();
    }
    slot->stats_memcg = MemcgId::kNone;
  }
}

uint64_t StatFlushes(Machine& machine) {
  Locked lock(machine.rstat_lock);
  return machine.flushes;
}

CgroupReading ReadReading(Machine& machine, const Memcg& memcg, bool local, bool v1, bool fast) {
  CgroupReading reading;
  uint32_t page = machine.config.page_size;
  if (!fast) {
    MakeExact(machine);
  } else if (machine.config.mechanisms.stats == StatsForm::kRstat) {
    FlushForReader(machine, machine.tree.Get(memcg.id));
  }
  bool is_root = memcg.parent == nullptr;
  Counts own{}, total{};  // what is shown of them
  if (local || v1) own = ShowStats(ReadLocal(machine, memcg, !fast), page);
  if (!local || v1 || is_root) total = ShowStats(ReadRecursive(machine, memcg, !fast), page);
  if (fast) reading.error_bound = BoundOf(machine, memcg, local);
  if (v1) {
    for (const V1Line& line : kV1Lines)
      reading.stat.emplace_back(line.local, own[static_cast<size_t>(line.stat)]);
    reading.stat.emplace_back("hierarchical_memory_limit", HierarchicalLimitBytes(machine, memcg));
    for (const V1Line& line : kV1Lines)
      reading.stat.emplace_back(line.total, total[static_cast<size_t>(line.stat)]);
  } else {
    const std::array<int64_t, kStats>& shown = local ? own : total;
    for (size_t i = 0; i < kMemoryStatLines; ++i)
      reading.stat.emplace_back(StatName(static_cast<Stat>(i)), shown[i]);
  }
  const auto& events = local ? memcg.events_local : memcg.events;
  for (size_t i = 0; i < kMemcgEvents; ++i) {
    reading.events.emplace_back(MemcgEventName(static_cast<MemcgEvent>(i)),
                                events[i].load(std::memory_order_relaxed));
  }
  const auto& swap_events = local ? memcg.swap_events_local : memcg.swap_events;
  for (size_t i = 0; i < kSwapEvents; ++i) {
    reading.swap_events.emplace_back(SwapEventName(static_cast<SwapEvent>(i)),
                                     swap_events[i].load(std::memory_order_relaxed));
  }
  reading.swap_current_bytes = static_cast<uint64_t>(memcg.swap.usage_pages()) * page;
  reading.swap_peak_bytes = static_cast<uint64_t>(memcg.swap.watermark_pages()) * page;
  reading.high_delay_us = static_cast<uint64_t>(memcg.high_delay_us.load(std::memory_order_relaxed));
  reading.peak_bytes = static_cast<uint64_t>(memcg.memory.watermark_pages()) * page;
  if (!is_root) {
    reading.current_bytes = static_cast<uint64_t>(memcg.memory.usage_pages()) * page;
  } else {
    CgroupReading::RootUsage usage;
    usage.anon_and_file_bytes = static_cast<uint64_t>(total[static_cast<size_t>(Stat::kAnon)] +
                                                      total[static_cast<size_t>(Stat::kFile)]);
    usage.total_less_free_bytes = machine.ResidentPages() * page;
    reading.root_usage = usage;
  }
  return reading;
}

}  // namespace memcgd::core
