#include "core/machine.h"

#include <bit>

namespace memcgd::core {

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
