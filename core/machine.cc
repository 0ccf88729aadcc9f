#include "core/machine.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace memcgd::core {

// min_free_kbytes = 4 × √(RAM in KiB), in 128 KiB … 256 MiB; the distance between the marks is a quarter of
// it or 0.1 % of RAM (watermark_scale_factor), whichever is more.
Watermarks WatermarksOf(const NodeConfig& config) {
  uint64_t memory_kib = config.memory_bytes >> 10;
  uint64_t min_kib = std::clamp<uint64_t>(
      static_cast<uint64_t>(std::sqrt(16.0 * static_cast<double>(memory_kib))), 128, 262144);
  int64_t pages = static_cast<int64_t>(config.memory_bytes / config.page_size);
  // A node of a few pages, as tests make, keeps half of them.
  int64_t min = std::min(static_cast<int64_t>((min_kib << 10) / config.page_size), pages / 2);
  int64_t distance = std::max(min / 4, pages / 1000);
  return {pages - min, pages - min - distance, pages - min - 2 * distance};
}

Machine::Machine(const NodeConfig& node_config)
    : config(node_config),
      page_shift(static_cast<uint32_t>(std::countr_zero(node_config.page_size))),
      commit(node_config.cpus, static_cast<int64_t>(node_config.memory_bytes >> page_shift),
             static_cast<int64_t>(node_config.swap_bytes >> page_shift), node_config.page_size,
             node_config.mechanisms.commit_batch,
             {node_config.overcommit, node_config.overcommit_ratio, node_config.overcommit_kbytes}) {
  for (uint32_t cpu = 0; cpu < config.cpus; ++cpu) {
    cpus.push_back(std::make_unique<CpuSlot>());
    cpus.back()->cpu = cpu;
    cpus.back()->random.seed(cpu + 1);
  }
  AddCpuStats(MemcgId::kRoot);
  if (config.reclaim == Reclaim::kModelled) {
    tree.root().memory.set_max_pages(watermarks.min_usage);
    tree.root().swap.set_max_pages(static_cast<int64_t>(config.swap_bytes >> page_shift));
  }
}

uint64_t Machine::ResidentPages() const {
  int64_t pages = 0;
  for (const std::unique_ptr<CpuSlot>& slot : cpus)
    pages += slot->folios.in_use.load(std::memory_order_relaxed);
  return static_cast<uint64_t>(pages);
}

void Machine::AddCpuStats(MemcgId memcg) {
  for (std::unique_ptr<CpuSlot>& slot : cpus) {
    if (slot->stats.size() <= Raw(memcg)) slot->stats.resize(Raw(memcg) + 1);
    slot->stats[Raw(memcg)] = std::make_unique<StatPending>();
  }
}

}  // namespace memcgd::core
