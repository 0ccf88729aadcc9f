// A counter in batches per CPU: a fast read with a stated bound, and an exact sum.
//
// Kernel counterpart: lib/percpu_counter.c (vm_committed_as).  A CPU adds to its own slot and moves it to the
// shared count when |local| ≥ batch.  Bound: |fast read − exact| < batch × CPUs.
//
// Thread safety: Add() by the holder of that CPU's slot; the reads by anyone.
#ifndef MEMCGD_CORE_PERCPU_COUNTER_H_
#define MEMCGD_CORE_PERCPU_COUNTER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/mutex.h"

namespace memcgd::core {

class PercpuCounter {
 public:
  explicit PercpuCounter(uint32_t cpus) : slots_(cpus) {}

  void Add(uint32_t cpu, int64_t amount) {
    std::atomic<int64_t>& slot = slots_[cpu].value;
    int64_t local = slot.load(std::memory_order_relaxed) + amount;
    int64_t batch = batch_.load(std::memory_order_relaxed);
    if (local >= batch || -local >= batch) {
      Spill(cpu, local);
      local = 0;
    }
    slot.store(local, std::memory_order_relaxed);
  }
  // Off by less than batch × CPUs.
  int64_t Read() const { return count_.load(std::memory_order_relaxed); }
  // Exact where no Add() runs.
  int64_t Sum() const;
  // Moves every CPU's slot to the shared count.  At a cut only.
  void Sync();

  // For saving and loading a state.
  int64_t Local(uint32_t cpu) const { return slots_[cpu].value.load(std::memory_order_relaxed); }
  void Restore(int64_t count) { count_.store(count, std::memory_order_relaxed); }
  void RestoreLocal(uint32_t cpu, int64_t value) {
    slots_[cpu].value.store(value, std::memory_order_relaxed);
  }

  // Times that a CPU's slot was moved to the shared count.
  uint64_t spills() const;

  int64_t batch() const { return batch_.load(std::memory_order_relaxed); }
  void set_batch(int64_t batch) { batch_.store(batch, std::memory_order_relaxed); }

 private:
  struct alignas(64) Slot {
    // Both written by the holder of the CPU's slot; relaxed: they order nothing.
    std::atomic<int64_t> value{0};
    std::atomic<uint64_t> spills{0};
  };
  void Spill(uint32_t cpu, int64_t local);

  std::vector<Slot> slots_;
  SpinLock lock_;  // as the kernel's: a spill takes it
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> batch_{32};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PERCPU_COUNTER_H_
