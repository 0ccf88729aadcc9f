// Charging pages to cgroups: try → commit → cancel → uncharge, the per-CPU stock, and statistics.
//
// Kernel counterpart: try_charge_memcg(), consume_stock(), refill_stock(), uncharge_batch(),
// __mod_memcg_state() in mm/memcontrol.c.  The root cgroup is never charged.
//
// A page is charged before anything of it can be seen.  Requests of at most 64 pages are served from this
// CPU's stock of seven slots, each of one cgroup; else max(64, n) are charged at once, then exactly n.  What
// limits refuse is charged by force and counted as the event `max` where the trace says what was evicted and
// killed; refused; or, where the model reclaims, tried again in the kernel's order: reclaim, drain, reclaim,
// OOM. Bound: 0 ≤ charged − used ≤ 64 × CPUs pages for a leaf.
//
// Where the model reclaims the root is charged too: its counter stands for the node's memory.
//
// Thread safety: by the holder of the CPU's slot; DrainStock() at a cut.
#ifndef MEMCGD_CORE_CHARGE_H_
#define MEMCGD_CORE_CHARGE_H_

#include <cstdint>

#include "core/forms.h"
#include "core/machine.h"

namespace memcgd::core {

// How long a charge tries, where the model reclaims.
enum class ChargeMode : uint8_t {
  kRetry,    // as a fault: reclaim, drain, again, and in the end the OOM killer
  kNoRetry,  // as readahead (__GFP_NORETRY): one reclaim, one drain, then a quiet refusal
};

// Makes room where a limit refuses a charge (reclaim.h).
class RoomMaker {
 public:
  virtual ~RoomMaker() = default;
  // try_to_free_mem_cgroup_pages(): the pages that it got, of `target` and all below it.
  virtual int64_t TryToFree(CpuSlot& slot, Memcg& target, int64_t pages) = 0;
  // The node is short of memory: kswapd's work.
  virtual void Balance(CpuSlot& slot) = 0;
  // Tasks charged over memory.high: reclaims and says how long they are held up (slot.high_delay_us).
  virtual void HandleOverHigh(CpuSlot& slot) = 0;
};

template <class Forms>
class Charges {
 public:
  explicit Charges(Machine& machine)
      : machine_(machine),
        tree_(machine.tree),
        forms_(machine.config.mechanisms),
        refuses_(machine.config.reclaim == Reclaim::kNone),
        models_reclaim_(machine.config.reclaim == Reclaim::kModelled),
        flush_threshold_(int64_t{kStatBatch} * machine.config.cpus) {}

  void set_room_maker(RoomMaker* room_maker) { room_maker_ = room_maker; }
  bool models_reclaim() const { return models_reclaim_; }

  // False where a limit refuses and the node does not charge past it.  Where the model reclaims and found
  // nothing, slot.oom_at says whose limit it was (kRetry only).
  [[nodiscard]] bool TryCharge(CpuSlot& slot, MemcgId memcg, uint32_t pages,
                               ChargeMode mode = ChargeMode::kRetry) {
    Stock::Slot& last = slot.stock.slots[slot.stock.last];
    if (last.memcg != memcg || last.pages < pages) return TryChargeSlow(slot, memcg, pages, mode);
    last.pages -= pages;
    if (forms_.per_page_refs()) AddRefs(slot, tree_.Get(memcg), pages);
    return true;
  }
  // How many pages TryCharge() would take one by one from where it looks first, and what takes them in one
  // go.
  uint32_t Stocked(const CpuSlot& slot, MemcgId memcg) const {
    const Stock::Slot& last = slot.stock.slots[slot.stock.last];
    if (forms_.per_page_refs()) return 0;
    return memcg == MemcgId::kRoot ? UINT32_MAX : last.memcg == memcg ? last.pages : 0;
  }
  static void TakeStocked(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
    if (memcg != MemcgId::kRoot) slot.stock.slots[slot.stock.last].pages -= pages;
  }
  // Past every limit, where it has to be.
  void ForceCharge(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  // Gathered; FlushUncharge() ends a run.
  void Uncharge(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
    if (memcg == MemcgId::kNone || (memcg == MemcgId::kRoot && !models_reclaim_)) return;
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
  // The same for every CPU, but those that other streams hold.
  void DrainAllStocks(CpuSlot& slot);

  // folio_alloc_swap(): where a page of the cgroup goes in swap; kNoSlot, and the events counted, where there
  // is no room.
  uint32_t AllocateSwap(CpuSlot& slot, Memcg& memcg, FolioId folio);
  // The page has no place in swap any more.
  void FreeSwap(CpuSlot& slot, Folio& folio);
  // mem_cgroup_swap_full(): a page that comes back gives its place up at once.
  bool SwapIsFull(const Memcg& memcg) const;

  void ModStat(CpuSlot& slot, MemcgId memcg, Stat stat, int32_t delta) {
    Mod(slot, StatsOf(slot, memcg), memcg, stat, delta);
  }
  // The same in two steps, for several changes of one cgroup.
  static StatPending& StatsOf(CpuSlot& slot, MemcgId memcg) {
    if (slot.stats_memcg != memcg) FindStats(slot, memcg);
    return *slot.stats_pending;
  }
  // How often Mod(…, 1) would only add to what is pending.
  uint32_t Room(const StatPending& stats, Stat stat) const {
    if (forms_.stats() == StatsForm::kRstat) return 0;
    int32_t pending = stats.pending[static_cast<size_t>(stat)].load(std::memory_order_relaxed);
    return static_cast<uint32_t>(kStatBatch - pending);
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
    if (static_cast<uint32_t>(sum + kStatBatch) > 2 * kStatBatch) {
      Spill(slot, memcg, stat, sum);
      sum = 0;
    }
    pending.store(sum, std::memory_order_relaxed);
  }

 private:
  // Makes the cgroup's statistics the slot's current ones, which the next exact read will look at.
  static void FindStats(CpuSlot& slot, MemcgId memcg);
  static void Touch(CpuSlot& slot, MemcgId memcg, StatPending& stats);
  // memcg_rstat_updated()
  void CountUpdate(CpuSlot& slot, StatPending& stats, MemcgId memcg, int32_t delta);
  void Spill(CpuSlot& slot, MemcgId memcg, Stat stat, int32_t sum);

  bool TryChargeSlow(CpuSlot& slot, MemcgId memcg, uint32_t pages, ChargeMode mode);
  // try_charge_memcg() from its first refusal, at `over`, on.
  bool MakeRoom(CpuSlot& slot, Memcg& memcg, uint32_t pages, PageCounter* failed, ChargeMode mode);
  // Whose counter it is: of the cgroup or an ancestor.
  static Memcg& LevelOf(Memcg& memcg, const PageCounter* counter);
  // What follows from a charge that reached the counters: memory.high, and the node's own watermarks.
  void CheckWatermarks(CpuSlot& slot, Memcg& memcg, uint32_t pages);
  bool ConsumeStock(CpuSlot& slot, MemcgId memcg, uint32_t pages);
  void RefillStock(CpuSlot& slot, Memcg& memcg, uint32_t pages);
  void DrainStockSlot(CpuSlot& slot, Stock::Slot& stock);
  void UnchargeBatch(CpuSlot& slot);
  // Changes the cgroup's count of references: by all pages at once, or one by one.
  void AddRefs(CpuSlot& slot, Memcg& memcg, int64_t pages);

  static constexpr int kReclaimRetries = 16;        // MAX_RECLAIM_RETRIES
  static constexpr uint32_t kCostlyPages = 1 << 3;  // PAGE_ALLOC_COSTLY_ORDER

  Machine& machine_;
  MemcgTree& tree_;
  RoomMaker* room_maker_ = nullptr;
  [[no_unique_address]] const Forms forms_;
  const bool refuses_;
  const bool models_reclaim_;
  const int64_t flush_threshold_;  // updates
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CHARGE_H_
