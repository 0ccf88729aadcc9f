// Charging pages to cgroups: try → commit → cancel → uncharge, the per-CPU stock, and statistics.
//
// Kernel counterpart: try_charge_memcg(), consume_stock(), refill_stock(), uncharge_batch(),
// __mod_memcg_state() in mm/memcontrol.c.  The root cgroup is never charged.
//
// A page is charged before anything of it can be seen.  Requests of at most 64 pages are served from this
// CPU's stock of seven slots, each of one cgroup; else max(64, n) are charged at once, then exactly n.  What
// limits refuse is charged by force here and counted as the event `max` ("recorded" reclaim: the trace says
// what was evicted and killed); modelled reclaim takes its place between the refusal and the force. Bound: 0
// ≤ charged − used ≤ 64 × CPUs pages for a leaf.
//
// Thread safety: by the holder of the CPU's slot; DrainStocks() at a cut.
#ifndef MEMCGD_CORE_CHARGE_H_
#define MEMCGD_CORE_CHARGE_H_

#include <cstdint>

#include "core/cpu_slot.h"
#include "core/memcg_tree.h"

namespace memcgd::core {

class Charges {
 public:
  explicit Charges(MemcgTree& tree) : tree_(tree) {}

  void Charge(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
    Stock::Slot& last = slot.stock.slots[slot.stock.last];
    if (last.memcg == memcg && last.pages >= pages) {
      last.pages -= pages;
    } else {
      ChargeSlow(slot, memcg, pages);
    }
  }
  // Gathered; FlushUncharge() ends a run.
  void Uncharge(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
    if (memcg == MemcgId::kRoot || memcg == MemcgId::kNone) return;
    if (slot.uncharge_memcg != memcg) {
      FlushUncharge(slot);
      slot.uncharge_memcg = memcg;
    }
    slot.uncharge_pages += pages;
  }
  void FlushUncharge(CpuSlot& slot) {
    if (slot.uncharge_pages != 0) UnchargeBatch(slot);
  }
  // Gives all that the CPU has in stock back.
  void DrainStock(CpuSlot& slot);

  void ModStat(CpuSlot& slot, MemcgId memcg, Stat stat, int32_t delta) {
    Mod(StatsOf(slot, memcg), memcg, stat, delta);
  }
  // The same in two steps, for several changes of one cgroup.
  static StatPending& StatsOf(CpuSlot& slot, MemcgId memcg) {
    if (slot.stats_memcg != memcg) FindStats(slot, memcg);
    return *slot.stats_pending;
  }
  void Mod(StatPending& stats, MemcgId memcg, Stat stat, int32_t delta) {
    int32_t& pending = stats.pending[static_cast<size_t>(stat)];
    pending += delta;
    if (static_cast<uint32_t>(pending + kStatBatch) > 2 * kStatBatch) Spill(memcg, stat, &pending);
  }
  // Spills the pendings of one cgroup.
  void FlushStats(CpuSlot& slot, MemcgId memcg);
  // Brings the cgroup's pending_total, and its ancestors', up to what the CPU has pending.  At a cut.
  void SettlePending(CpuSlot& slot, MemcgId memcg);

 private:
  // Makes the cgroup's statistics the slot's current ones, which the next exact read will look at.
  static void FindStats(CpuSlot& slot, MemcgId memcg);
  void UnchargeBatch(CpuSlot& slot);
  void ChargeSlow(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  bool ConsumeStock(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  void RefillStock(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  void DrainStockSlot(Stock::Slot& slot);
  void Spill(MemcgId memcg, Stat stat, int32_t* pending);

  MemcgTree& tree_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CHARGE_H_
