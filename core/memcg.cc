#include "core/memcg.h"

namespace memcgd::core {

std::string_view MemcgEventName(MemcgEvent event) {
  constexpr std::array<std::string_view, kMemcgEvents> kNames = {
      "low", "high", "max", "oom", "oom_kill", "oom_group_kill", "sock_throttled"};
  return kNames[static_cast<size_t>(event)];
}

void Memcg::CountEvent(MemcgEvent event) {
  size_t i = static_cast<size_t>(event);
  events_local[i].fetch_add(1, std::memory_order_relaxed);
  for (Memcg* level = this; level != nullptr; level = level->parent) {
    level->events[i].fetch_add(1, std::memory_order_relaxed);
  }
}

std::string_view SwapEventName(SwapEvent event) {
  constexpr std::array<std::string_view, kSwapEvents> kNames = {"high", "max", "fail"};
  return kNames[static_cast<size_t>(event)];
}

void Memcg::CountEvent(SwapEvent event) {
  size_t i = static_cast<size_t>(event);
  swap_events_local[i].fetch_add(1, std::memory_order_relaxed);
  for (Memcg* level = this; level != nullptr; level = level->parent) {
    level->swap_events[i].fetch_add(1, std::memory_order_relaxed);
  }
}

// Both costs fall by half as the lists that they are held against are used up.
void Memcg::AddCost(bool file, int64_t added) {
  if (added == 0) return;
  for (Memcg* level = this; level != nullptr; level = level->parent) {
    int64_t own = level->cost[file].fetch_add(added, std::memory_order_relaxed) + added;
    int64_t other = level->cost[!file].load(std::memory_order_relaxed);
    int64_t pages = 0;
    for (size_t list = 0; list < static_cast<size_t>(LruList::kUnevictable); ++list)
      pages += level->lru_pages[list].load(std::memory_order_relaxed);
    if (own + other <= pages / 4) continue;
    level->cost[file].store(own / 2, std::memory_order_relaxed);
    level->cost[!file].store(other / 2, std::memory_order_relaxed);
  }
}

bool Memcg::HasSwap() const {
  for (const Memcg* level = this; level != nullptr; level = level->parent) {
    if (level->swap.margin_pages() == 0) return false;
  }
  return true;
}

uint32_t Memcg::AddStat(size_t stat, int64_t amount) {
  stats.local[stat].fetch_add(amount, std::memory_order_relaxed);
  uint32_t written = 1;
  for (Memcg* level = this; level != nullptr; level = level->parent, ++written) {
    level->stats.recursive[stat].fetch_add(amount, std::memory_order_relaxed);
  }
  return written;
}

}  // namespace memcgd::core
