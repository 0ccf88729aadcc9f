#include "core/percpu_counter.h"

namespace memcgd::core {

int64_t PercpuCounter::Sum() const {
  int64_t sum = count_.load(std::memory_order_relaxed);
  for (const Slot& slot : slots_) sum += slot.value.load(std::memory_order_relaxed);
  return sum;
}

void PercpuCounter::Spill(uint32_t cpu, int64_t local) {
  std::atomic<uint64_t>& spills = slots_[cpu].spills;
  spills.store(spills.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  Locked lock(lock_);
  count_.store(count_.load(std::memory_order_relaxed) + local, std::memory_order_relaxed);
}

uint64_t PercpuCounter::spills() const {
  uint64_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.spills.load(std::memory_order_relaxed);
  return sum;
}

void PercpuCounter::Sync() {
  for (Slot& slot : slots_) {
    count_.fetch_add(slot.value.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }
}

}  // namespace memcgd::core
