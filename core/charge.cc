#include "core/charge.h"

#include <algorithm>
#include <cstdlib>

#include "core/check.h"

namespace memcgd::core {

template <class Forms>
bool Charges<Forms>::TryChargeSlow(CpuSlot& slot, MemcgId id, uint32_t pages, ChargeMode mode) {
  if (id == MemcgId::kRoot && !models_reclaim_) return true;
  Memcg& memcg = tree_.Get(id);
  if (ConsumeStock(slot, id, pages)) {
    if (forms_.per_page_refs()) AddRefs(slot, memcg, pages);
    return true;
  }
  ++slot.counters.charges_walked;
  uint32_t batch = std::max(Stock::kBatch, pages);
  PageCounter* failed = nullptr;
  if (!memcg.memory.TryCharge(batch, &failed)) {
    if (batch == pages || !memcg.memory.TryCharge(pages, &failed)) {
      if (models_reclaim_) {
        if (!MakeRoom(slot, memcg, pages, failed, mode)) return false;
      } else {
        LevelOf(memcg, failed).CountEvent(MemcgEvent::kMax);
        if (refuses_) return false;
        memcg.memory.Charge(pages);
      }
    }
    batch = pages;
  }
  AddRefs(slot, memcg, forms_.per_page_refs() ? pages : batch);  // coalesced, the stock's too
  if (batch > pages) RefillStock(slot, memcg, batch - pages);
  if (models_reclaim_) CheckWatermarks(slot, memcg, batch);
  return true;
}

template <class Forms>
Memcg& Charges<Forms>::LevelOf(Memcg& memcg, const PageCounter* counter) {
  Memcg* level = &memcg;
  while (&level->memory != counter) level = level->parent;
  return *level;
}

template <class Forms>
bool Charges<Forms>::MakeRoom(CpuSlot& slot, Memcg& memcg, uint32_t pages, PageCounter* failed,
                              ChargeMode mode) {
  bool drained = false;
  for (int retries = kReclaimRetries;;) {
    Memcg& over = LevelOf(memcg, failed);
    if (over.parent != nullptr) over.CountEvent(MemcgEvent::kMax);  // the node's memory is no cgroup's limit
    int64_t reclaimed = room_maker_->TryToFree(slot, over, pages);
    bool again = over.memory.margin_pages() >= pages;
    if (!again && !drained) {
      DrainAllStocks(slot);
      drained = again = true;
    }
    if (!again && mode == ChargeMode::kNoRetry) return false;
    if (reclaimed == 0 && mode == ChargeMode::kRetry) machine_.reads.Await();
    // Each round that got something took from what can be got: it comes to an end.
    if (!again && reclaimed > 0 && pages <= kCostlyPages) again = true;
    if (!again && retries > 0) {
      --retries;
      again = true;
    }
    if (!again) {
      if (pages > kCostlyPages) return false;
      slot.oom_at = over.id;
      slot.oom_memcg = memcg.id;
      slot.oom_pages = pages;
      return false;
    }
    if (memcg.memory.TryCharge(pages, &failed)) return true;
  }
}

template <class Forms>
void Charges<Forms>::CheckWatermarks(CpuSlot& slot, Memcg& memcg, uint32_t pages) {
  if (tree_.root().memory.usage_pages() > machine_.watermarks.low_usage) room_maker_->Balance(slot);
  for (Memcg* level = &memcg; level->parent != nullptr; level = level->parent) {
    if (level->memory.usage_pages() <= level->reclaim.high &&
        level->swap.usage_pages() <= level->reclaim.swap_high)
      continue;
    if (slot.over_high_memcg != memcg.id) slot.over_high_pages = 0;
    slot.over_high_memcg = memcg.id;
    slot.over_high_pages += pages;
    break;
  }
  if (slot.over_high_pages > Stock::kBatch) room_maker_->HandleOverHigh(slot);
}

template <class Forms>
void Charges<Forms>::ForceCharge(CpuSlot& slot, MemcgId id, uint32_t pages) {
  if (TryCharge(slot, id, pages, ChargeMode::kNoRetry)) return;
  Memcg& memcg = tree_.Get(id);
  memcg.memory.Charge(pages);
  AddRefs(slot, memcg, pages);
}

template <class Forms>
bool Charges<Forms>::ConsumeStock(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
  for (uint32_t i = 0; i < Stock::kSlots; ++i) {
    Stock::Slot& stock = slot.stock.slots[i];
    if (stock.memcg == memcg && stock.pages >= pages) {
      stock.pages -= pages;
      slot.stock.last = i;
      return true;
    }
  }
  return false;
}

template <class Forms>
void Charges<Forms>::RefillStock(CpuSlot& slot, Memcg& memcg, uint32_t pages) {
  Stock::Slot* target = nullptr;
  for (Stock::Slot& stock : slot.stock.slots) {
    if (stock.memcg == memcg.id) {
      target = &stock;
      break;
    }
    if (stock.memcg == MemcgId::kNone && target == nullptr) target = &stock;
  }
  if (target == nullptr) {
    target = &slot.stock.slots[slot.random() % Stock::kSlots];
    DrainStockSlot(slot, *target);
  }
  if (target->memcg == MemcgId::kNone && forms_.per_page_refs()) AddRefs(slot, memcg, 1);  // the slot's own
  target->memcg = memcg.id;
  target->pages += pages;
  slot.stock.last = static_cast<uint32_t>(target - slot.stock.slots.data());
  if (target->pages > Stock::kBatch) DrainStockSlot(slot, *target);
}

template <class Forms>
void Charges<Forms>::DrainStockSlot(CpuSlot& slot, Stock::Slot& stock) {
  if (stock.memcg == MemcgId::kNone) return;
  Memcg& memcg = tree_.Get(stock.memcg);
  if (stock.pages > 0) memcg.memory.Uncharge(stock.pages);
  uint32_t refs = forms_.per_page_refs() ? 1 : stock.pages;
  if (refs > 0) AddRefs(slot, memcg, -int64_t{refs});
  stock = Stock::Slot{};
}

template <class Forms>
void Charges<Forms>::DrainStock(CpuSlot& slot) {
  for (Stock::Slot& stock : slot.stock.slots) DrainStockSlot(slot, stock);
}

template <class Forms>
void Charges<Forms>::DrainAllStocks(CpuSlot& slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const void* ours = slot.holder.load(std::memory_order_relaxed);
  for (std::unique_ptr<CpuSlot>& other : machine_.cpus) {
    bool held = other->holder.load(std::memory_order_relaxed) == ours;
    if (!held && !other->lock.TryLock()) continue;
    DrainStock(*other);
    if (!held) other->lock.Unlock();
  }
}

template <class Forms>
uint32_t Charges<Forms>::AllocateSwap(CpuSlot& slot, Memcg& memcg, FolioId folio) {
  PageCounter* failed = nullptr;
  if (!memcg.swap.TryCharge(1, &failed)) {
    if (failed != &tree_.root().swap) memcg.CountEvent(SwapEvent::kMax);
    memcg.CountEvent(SwapEvent::kFail);
    return SwapSpace::kNoSlot;
  }
  AddRefs(slot, memcg, 1);  // so that it is there when the page comes back
  ModStat(slot, memcg.id, Stat::kSwap, 1);
  uint32_t place = machine_.swap.Allocate(folio, memcg.id);
  MEMCG_CHECK(place != SwapSpace::kNoSlot);  // the root's counter has as many pages as there are slots
  return place;
}

template <class Forms>
void Charges<Forms>::FreeSwap(CpuSlot& slot, Folio& folio) {
  if (folio.Has(kFolioSwapCache)) {
    ModStat(slot, folio.memcg(), Stat::kSwapcached, -1);
  } else {
    slot.folios.CountInUse(1);  // a descriptor again, which is to be freed
  }
  MemcgId owner = machine_.swap.Free(SwapSlotOf(folio));
  folio.Clear(kFolioSwapped | kFolioSwapCache);
  Memcg& memcg = tree_.Get(owner);
  memcg.swap.Uncharge(1);
  ModStat(slot, owner, Stat::kSwap, -1);
  AddRefs(slot, memcg, -1);
}

template <class Forms>
bool Charges<Forms>::SwapIsFull(const Memcg& memcg) const {
  for (const Memcg* level = &memcg; level != nullptr; level = level->parent) {
    int64_t usage = level->swap.usage_pages();
    if (level->parent == nullptr) return usage > level->swap.max_pages() - usage;  // vm_swap_full()
    if (usage >= level->swap.max_pages() - usage || usage >= level->reclaim.swap_high - usage) return true;
  }
  return false;
}

template <class Forms>
void Charges<Forms>::UnchargeBatch(CpuSlot& slot) {
  Memcg& memcg = tree_.Get(slot.uncharge_memcg);
  memcg.memory.Uncharge(slot.uncharge_pages);
  AddRefs(slot, memcg, -int64_t{slot.uncharge_pages});
  slot.uncharge_memcg = MemcgId::kNone;
  slot.uncharge_pages = 0;
}

// Relaxed: whoever frees a cgroup stands at a cut.
template <class Forms>
void Charges<Forms>::AddRefs(CpuSlot& slot, Memcg& memcg, int64_t pages) {
  int64_t operations = forms_.per_page_refs() ? std::abs(pages) : 1;
  for (int64_t i = 0; i < operations; ++i)
    memcg.refs.fetch_add(pages / operations, std::memory_order_relaxed);
  slot.counters.css_ref_operations += static_cast<uint64_t>(operations);
}

template <class Forms>
void Charges<Forms>::FindStats(CpuSlot& slot, MemcgId memcg) {
  StatPending& stats = *slot.stats[Raw(memcg)];
  if (!stats.touched.load(std::memory_order_relaxed)) Touch(slot, memcg, stats);
  slot.stats_memcg = memcg;
  slot.stats_pending = &stats;
}

template <class Forms>
void Charges<Forms>::Touch(CpuSlot& slot, MemcgId memcg, StatPending& stats) {
  Locked lock(slot.touched_lock);
  stats.touched.store(true, std::memory_order_relaxed);
  slot.touched.push_back(memcg);
}

template <class Forms>
void Charges<Forms>::CountUpdate(CpuSlot& slot, StatPending& stats, MemcgId memcg, int32_t delta) {
  // As the kernel's: a flush that runs at this moment may miss the change; the next one has it.
  if (!stats.touched.load(std::memory_order_relaxed)) Touch(slot, memcg, stats);
  for (Memcg* level = &tree_.Get(memcg); level != nullptr; level = level->parent) {
    // A level that is to be flushed has ancestors that are.
    if (level->stats.updates.load(std::memory_order_relaxed) > flush_threshold_) return;
    int32_t& updates = slot.stats[Raw(level->id)]->updates;
    updates += std::abs(delta);
    if (updates < kStatBatch) continue;
    level->stats.updates.fetch_add(updates, std::memory_order_relaxed);
    ++slot.counters.stat_shared_writes;
    updates = 0;
  }
}

template <class Forms>
void Charges<Forms>::Spill(CpuSlot& slot, MemcgId id, Stat stat, int32_t sum) {
  size_t i = static_cast<size_t>(stat);
  Memcg& memcg = tree_.Get(id);
  ++slot.counters.stat_spills;
  if (forms_.stats() == StatsForm::kSpill) {
    slot.counters.stat_shared_writes += memcg.AddStat(i, sum);
  } else {  // walk
    memcg.stats.local[i].fetch_add(sum, std::memory_order_relaxed);
    ++slot.counters.stat_shared_writes;
  }
}

template class Charges<DefaultForms>;
template class Charges<ChosenForms>;

}  // namespace memcgd::core
