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

void AddPending(const Machine& machine, MemcgId id, std::array<int64_t, kStats>& sum) {
  for (const std::unique_ptr<CpuSlot>& slot : machine.cpus) {
    const std::array<int32_t, kStats>& pending = slot->stats[Raw(id)]->pending;
    for (size_t i = 0; i < kStats; ++i) sum[i] += pending[i];
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

std::array<int64_t, kStats> ReadRecursive(const Machine& machine, const Memcg& memcg) {
  std::array<int64_t, kStats> sum;
  for (size_t i = 0; i < kStats; ++i) sum[i] = memcg.stats.recursive[i].load(std::memory_order_relaxed);
  for (const std::unique_ptr<Memcg>& other : machine.tree.all()) {
    if (other == nullptr || other->depth < memcg.depth) continue;
    const Memcg* level = other.get();
    while (level->depth > memcg.depth) level = level->parent;
    if (level == &memcg) AddPending(machine, other->id, sum);
  }
  return sum;
}

}  // namespace

std::vector<std::array<int64_t, kStats>> ReadExact(const Machine& machine) {
  const auto& all = machine.tree.all();
  std::vector<std::array<int64_t, kStats>> exact(all.size());
  std::vector<std::array<int64_t, kStats>> pending(all.size());
  for (size_t id = all.size(); id-- > 0;) {  // children have higher ids than parents
    if (all[id] == nullptr) continue;
    AddPending(machine, all[id]->id, pending[id]);
    for (size_t i = 0; i < kStats; ++i) {
      exact[id][i] = all[id]->stats.recursive[i].load(std::memory_order_relaxed) + pending[id][i];
    }
    if (all[id]->parent == nullptr) continue;
    std::array<int64_t, kStats>& up = pending[Raw(all[id]->parent->id)];
    for (size_t i = 0; i < kStats; ++i) up[i] += pending[id][i];
  }
  return exact;
}

std::array<int64_t, kStats> ReadExactLocal(const Machine& machine, const Memcg& memcg) {
  std::array<int64_t, kStats> sum;
  for (size_t i = 0; i < kStats; ++i) sum[i] = memcg.stats.local[i].load(std::memory_order_relaxed);
  AddPending(machine, memcg.id, sum);
  return sum;
}

CgroupReading ReadReading(const Machine& machine, const Memcg& memcg, bool local, bool v1) {
  CgroupReading reading;
  uint32_t page = machine.config.page_size;
  std::array<int64_t, kStats> own = ShowStats(ReadExactLocal(machine, memcg), page);
  std::array<int64_t, kStats> total = ShowStats(ReadRecursive(machine, memcg), page);
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
