// Threads and processes by id.
//
// Thread safety: Find(), ProcessOf() by anyone; what grows the tables, and a process's counts, under `mutex`.
#ifndef MEMCGD_CORE_PROCESS_TABLE_H_
#define MEMCGD_CORE_PROCESS_TABLE_H_

#include <atomic>
#include <cstdint>

#include "core/mm.h"

namespace memcgd::core {

struct ProcessTable {
  Mutex mutex;
  IndexedTable<Process> processes;
  IndexedTable<Thread> threads;  // by thread id
  std::atomic<uint64_t> alive{0};

  // The thread, or null where none of that id is alive.
  Thread* Find(uint32_t tid) const {
    if (!threads.Exists(tid)) return nullptr;
    Thread& thread = threads.Get(tid);
    ProcessRef ref = thread.process.load(std::memory_order_acquire);
    if (ref.id == ProcessId::kNone) return nullptr;
    bool lives = processes.Get(Raw(ref.id)).generation.load(std::memory_order_acquire) == ref.generation;
    return lives ? &thread : nullptr;
  }
  Process& ProcessOf(const Thread& thread) const {
    return processes.Get(Raw(thread.process.load(std::memory_order_acquire).id));
  }
  Thread& Ensure(uint32_t tid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    threads.EnsureChunk(tid);
    return threads.Get(tid);
  }
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PROCESS_TABLE_H_
