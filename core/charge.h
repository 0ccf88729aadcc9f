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
// Thread safety: by the holder of the CPU's slot; DrainStock() at a cut.
#ifndef MEMCGD_CORE_CHARGE_H_
#define MEMCGD_CORE_CHARGE_H_

#include <cstdint>

#include "core/forms.h"
#include "core/machine.h"

namespace memcgd::core {

template <class Forms>
class Charges {
 public:
  explicit Charges(Machine& machine)
      : tree_(machine.tree),
        forms_(machine.config.mechanisms),
        refuses_(machine.config.reclaim == Reclaim::kNone),
        flush_threshold_(int64_t{kStatBatch} * machine.config.cpus) {}

  // False where a limit refuses and the node does not charge past it.
  [[nodiscard]] bool TryCharge(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
    Stock::Slot& last = slot.stock.slots[slot.stock.last];
    if (last.memcg != memcg || last.pages < pages) return TryChargeSlow(slot, memcg, pages);
    last.pages -= pages;
    if (forms_.per_page_refs()) AddRefs(slot, tree_.Get(memcg), pages);
    return true;
  }
  // Past every limit, where it has to be.
  void ForceCharge(CpuSlot& slot, MemcgId memcg, uint32_t pages);
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
    Mod(slot, StatsOf(slot, memcg), memcg, stat, delta);
  }
  // The same in two steps, for several changes of one cgroup.
  static StatPending& StatsOf(CpuSlot& slot, MemcgId memcg) {
    if (slot.stats_memcg != memcg) FindStats(slot, memcg);
    return *slot.stats_pending;
  }
  void Mod(CpuSlot& slot, StatPending& stats, MemcgId memcg, Stat stat, int32_t delta) {
    std::atomic<int32_t>& pending = stats.pending[static_cast<size_t>(stat)];
    if (forms_.stats() == StatsForm::kRstat) {
      uint32_t sum =
          static_cast<uint32_t>(pending.load(std::memory_order_relaxed)) + static_cast<uint32_t>(delta);
      pending.store(static_cast<int32_t>(sum), std::memory_order_relaxed);
      CountUpdate(slot, stats, memcg, delta);
      return;
    }
    int32_t sum = pending.load(std::memory_order_relaxed) + delta;
    pending.store(sum, std::memory_order_relaxed);
    if (static_cast<uint32_t>(sum + kStatBatch) > 2 * kStatBatch) Spill(slot, memcg, stat, pending);
  }

 private:
  // Makes the cgroup's statistics the slot's current ones, which the next exact read will look at.
  static void FindStats(CpuSlot& slot, MemcgId memcg);
  static void Touch(CpuSlot& slot, MemcgId memcg, StatPending& stats);
  // memcg_rstat_updated()
  void CountUpdate(CpuSlot& slot, StatPending& stats, MemcgId memcg, int32_t delta);
  void Spill(CpuSlot& slot, MemcgId memcg, Stat stat, std::atomic<int32_t>& pending);

  bool TryChargeSlow(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  bool ConsumeStock(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  void RefillStock(CpuSlot& slot, Memcg& memcg, uint32_t pages);
  void DrainStockSlot(CpuSlot& slot, Stock::Slot& stock);
  void UnchargeBatch(CpuSlot& slot);
  // Changes the cgroup's count of references: by all pages at once, or one by one.
  void AddRefs(CpuSlot& slot, Memcg& memcg, int64_t pages);

  MemcgTree& tree_;
  [[no_unique_address]] const Forms forms_;
  const bool refuses_;
  const int64_t flush_threshold_;  // updates
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CHARGE_H_
