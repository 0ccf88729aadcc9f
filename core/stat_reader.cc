#include "core/stat_reader.h"

#include <algorithm>

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

// Adds up what changed on each CPU since the last read.
void Settle(Machine& machine) {
  for (std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    for (MemcgId id : slot->touched) {
      if (slot->stats[Raw(id)] == nullptr) continue;  // freed since
      machine.charges.SettlePending(*slot, id);
      slot->stats[Raw(id)]->touched = false;
    }
    slot->touched.clear();
    slot->stats_memcg = MemcgId::kNone;
  }
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

// What was spilled, and where it is wanted what the last Settle() found pending.
std::array<int64_t, kStats> Read(const std::array<std::atomic<int64_t>, kStats>& spilled,
                                 const std::array<int64_t, kStats>& pending, bool fast) {
  std::array<int64_t, kStats> sum;
  for (size_t i = 0; i < kStats; ++i) {
    sum[i] = spilled[i].load(std::memory_order_relaxed) + (fast ? 0 : pending[i]);
  }
  return sum;
}
std::array<int64_t, kStats> ReadRecursive(const Memcg& memcg, bool fast) {
  return Read(memcg.stats.recursive, memcg.stats.pending_total, fast);
}
std::array<int64_t, kStats> ReadLocal(const Memcg& memcg, bool fast) {
  return Read(memcg.stats.local, memcg.stats.pending_local, fast);
}

}  // namespace

std::vector<std::array<int64_t, kStats>> ReadExact(Machine& machine) {
  Settle(machine);
  std::vector<std::array<int64_t, kStats>> exact;
  exact.reserve(machine.tree.all().size());
  for (const std::unique_ptr<Memcg>& memcg : machine.tree.all()) {
    exact.push_back(memcg == nullptr ? std::array<int64_t, kStats>{} : ReadRecursive(*memcg, false));
  }
  return exact;
}

std::array<int64_t, kStats> ReadExactLocal(Machine& machine, const Memcg& memcg) {
  Settle(machine);
  return ReadLocal(memcg, false);
}

CgroupReading ReadReading(Machine& machine, const Memcg& memcg, bool local, bool v1, bool fast) {
  CgroupReading reading;
  uint32_t page = machine.config.page_size;
  if (!fast) Settle(machine);
  std::array<int64_t, kStats> own = ShowStats(ReadLocal(memcg, fast), page);
  std::array<int64_t, kStats> total = ShowStats(ReadRecursive(memcg, fast), page);
  if (fast) {
    uint64_t levels = local ? 1 : machine.tree.all().size();
    reading.error_bound = kStatBatch * machine.cpus.size() * levels;
  }
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
  reading.peak_bytes = static_cast<uint64_t>(memcg.memory.watermark_pages()) * page;
  if (memcg.parent != nullptr) {
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
