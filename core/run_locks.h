// What a batch holds from event to event: the slots of the CPUs that it named, and address spaces.
//
// They are kept to the batch's end, as its CPUs take turns event by event and each has a process of its own.
// To wait for one while another of its kind is held could deadlock: so each further one is tried, and where
// another stream has it, all that stands at its place in the lock order or after it is let go of before the
// wait.
//
// Thread safety: one thread.
#ifndef MEMCGD_CORE_RUN_LOCKS_H_
#define MEMCGD_CORE_RUN_LOCKS_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/event.h"
#include "core/machine.h"

namespace memcgd::core {

class RunLocks {
 public:
  explicit RunLocks(Machine& machine) : m_(machine) {}
  ~RunLocks() { LeaveAll(); }
  RunLocks(const RunLocks&) = delete;
  RunLocks& operator=(const RunLocks&) = delete;

  // Takes the CPU's slot where it is not held.
  CpuSlot& EnterCpu(uint32_t cpu) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    CpuSlot& slot = *m_.cpus[cpu];
    if (held_[cpu]) return slot;
    if (cpus_.size() == kMostCpus) LeaveAll();
    if (!slot.lock.TryLock()) {
      LeaveAll();
      slot.lock.Lock();
    }
    slot.holder.store(this, std::memory_order_relaxed);
    held_[cpu] = true;
    cpus_.push_back(cpu);
    return slot;
  }
  // Takes the address space's mutex where it is not held.
  void EnterSpace(Mm& mm) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (uint32_t i = 0; i < spaces_count_; ++i) {
      if (spaces_[i] == &mm) return;
    }
    if (spaces_count_ == spaces_.size()) LeaveSpaces();
    if (!mm.mutex.TryLock()) {
      LeaveSpaces();
      mm.mutex.Lock();
    }
    spaces_[spaces_count_++] = &mm;
  }
  void LeaveSpaces() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (uint32_t cpu : cpus_) m_.cpus[cpu]->lru_add_unshared = 0;
    for (uint32_t i = 0; i < spaces_count_; ++i) spaces_[i]->mutex.Unlock();
    spaces_count_ = 0;
    ++epoch_;
  }
  void LeaveAll() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    LeaveSpaces();
    for (uint32_t cpu : cpus_) {
      held_[cpu] = false;
      ptes_walked_ += std::exchange(m_.cpus[cpu]->ptes_walked, 0);
      m_.cpus[cpu]->holder.store(nullptr, std::memory_order_relaxed);
      m_.cpus[cpu]->lock.Unlock();
    }
    cpus_.clear();
  }
  // Rises when address spaces are let go of.
  uint64_t epoch() const { return epoch_; }
  // By the CPUs that were left, while they were held.
  uint64_t ptes_walked() const { return ptes_walked_; }

 private:
  static constexpr size_t kMostCpus = 32;  // those of a large machine in turn need not all be kept

  Machine& m_;
  std::vector<uint32_t> cpus_;
  std::bitset<kMaxCpus> held_;
  std::array<Mm*, 8> spaces_{};
  uint32_t spaces_count_ = 0;
  uint64_t epoch_ = 1;
  uint64_t ptes_walked_ = 0;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_RUN_LOCKS_H_
