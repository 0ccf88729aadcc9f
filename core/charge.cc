#include "core/charge.h"

#include <algorithm>

namespace memcgd::core {

void Charges::ChargeSlow(CpuSlot& slot, MemcgId id, uint32_t pages) {
  if (id == MemcgId::kRoot) return;
  if (ConsumeStock(slot, id, pages)) return;
  Memcg& memcg = tree_.Get(id);
  uint32_t batch = std::max(Stock::kBatch, pages);
  PageCounter* failed = nullptr;
  if (!memcg.memory.TryCharge(batch, &failed)) {
    if (batch == pages || !memcg.memory.TryCharge(pages, &failed)) {
      for (Memcg* level = &memcg; level != nullptr; level = level->parent) {
        if (&level->memory == failed) level->CountEvent(MemcgEvent::kMax);
      }
      memcg.memory.Charge(pages);
    }
    batch = pages;
  }
  memcg.refs.fetch_add(batch, std::memory_order_relaxed);
  if (batch > pages) RefillStock(slot, id, batch - pages);
}

bool Charges::ConsumeStock(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
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

void Charges::RefillStock(CpuSlot& slot, MemcgId memcg, uint32_t pages) {
  Stock::Slot* target = nullptr;
  for (Stock::Slot& stock : slot.stock.slots) {
    if (stock.memcg == memcg) {
      target = &stock;
      break;
    }
    if (stock.memcg == MemcgId::kNone && target == nullptr) target = &stock;
  }
  if (target == nullptr) {
    target = &slot.stock.slots[slot.random() % Stock::kSlots];
    DrainStockSlot(*target);
  }
  target->memcg = memcg;
  target->pages += pages;
  slot.stock.last = static_cast<uint32_t>(target - slot.stock.slots.data());
  if (target->pages > Stock::kBatch) DrainStockSlot(*target);
}

void Charges::DrainStockSlot(Stock::Slot& stock) {
  if (stock.memcg == MemcgId::kNone) return;
  Memcg& memcg = tree_.Get(stock.memcg);
  if (stock.pages > 0) {
    memcg.memory.Uncharge(stock.pages);
    memcg.refs.fetch_sub(stock.pages, std::memory_order_relaxed);
  }
  stock = Stock::Slot{};
}

void Charges::DrainStock(CpuSlot& slot) {
  for (Stock::Slot& stock : slot.stock.slots) DrainStockSlot(stock);
}

void Charges::UnchargeBatch(CpuSlot& slot) {
  Memcg& memcg = tree_.Get(slot.uncharge_memcg);
  memcg.memory.Uncharge(slot.uncharge_pages);
  memcg.refs.fetch_sub(slot.uncharge_pages, std::memory_order_relaxed);
  slot.uncharge_memcg = MemcgId::kNone;
  slot.uncharge_pages = 0;
}

void Charges::FindStats(CpuSlot& slot, MemcgId memcg) {
  StatPending& stats = *slot.stats[Raw(memcg)];
  if (!stats.touched) {
    stats.touched = true;
    slot.touched.push_back(memcg);
  }
  slot.stats_memcg = memcg;
  slot.stats_pending = &stats;
}

void Charges::Spill(MemcgId id, Stat stat, int32_t* pending) {
  size_t i = static_cast<size_t>(stat);
  Memcg& memcg = tree_.Get(id);
  memcg.stats.local[i].fetch_add(*pending, std::memory_order_relaxed);
  for (Memcg* level = &memcg; level != nullptr; level = level->parent) {
    level->stats.recursive[i].fetch_add(*pending, std::memory_order_relaxed);
  }
  *pending = 0;
}

void Charges::SettlePending(CpuSlot& slot, MemcgId id) {
  StatPending& stats = *slot.stats[Raw(id)];
  Memcg& memcg = tree_.Get(id);
  for (size_t i = 0; i < kStats; ++i) {
    int32_t delta = stats.pending[i] - stats.seen[i];
    if (delta == 0) continue;
    stats.seen[i] = stats.pending[i];
    memcg.stats.pending_local[i] += delta;
    for (Memcg* level = &memcg; level != nullptr; level = level->parent)
      level->stats.pending_total[i] += delta;
  }
}

void Charges::FlushStats(CpuSlot& slot, MemcgId memcg) {
  std::array<int32_t, kStats>& pending = slot.stats[Raw(memcg)]->pending;
  for (size_t i = 0; i < kStats; ++i) {
    if (pending[i] != 0) Spill(memcg, static_cast<Stat>(i), &pending[i]);
  }
}

}  // namespace memcgd::core
