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

uint32_t Memcg::AddStat(size_t stat, int64_t amount) {
  stats.local[stat].fetch_add(amount, std::memory_order_relaxed);
  uint32_t written = 1;
  for (Memcg* level = this; level != nullptr; level = level->parent, ++written) {
    level->stats.recursive[stat].fetch_add(amount, std::memory_order_relaxed);
  }
  return written;
}

}  // namespace memcgd::core
