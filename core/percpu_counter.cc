#include "core/percpu_counter.h"

namespace memcgd::core {

int64_t PercpuCounter::Sum() const {
  int64_t sum = count_.load(std::memory_order_relaxed);
  for (const Slot& slot : slots_) sum += slot.value.load(std::memory_order_relaxed);
  return sum;
}

void PercpuCounter::Sync() {
  for (Slot& slot : slots_) {
    count_.fetch_add(slot.value.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }
}

}  // namespace memcgd::core
