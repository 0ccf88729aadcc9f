// Threads, processes, and which address space and cgroup they use.
//
// Kernel counterpart: kernel/fork.c, fs/exec.c, kernel/exit.c, cgroup_attach_task(), as far as memory is
// concerned.
//
// Thread safety: by the holder of the CPU's slot, but for Attach(), which stands at a cut.  The tables are
// under `mutex_`, which is never held while an address space's is waited for.
#ifndef MEMCGD_CORE_PROCESS_H_
#define MEMCGD_CORE_PROCESS_H_

#include <string>
#include <string_view>

#include "core/address_space.h"
#include "core/fault.h"
#include "core/machine.h"

namespace memcgd::core {

class Processes {
 public:
  Processes(Machine& machine, AddressSpaces& spaces, Faults& faults)
      : m_(machine), spaces_(spaces), faults_(faults) {}

  // The thread, or null where none of that id is alive.
  Thread* Find(uint32_t tid) const {
    if (!threads_.Exists(tid)) return nullptr;
    Thread& thread = threads_.Get(tid);
    ProcessRef ref = thread.process.load(std::memory_order_acquire);
    if (ref.id == ProcessId::kNone) return nullptr;
    bool alive = processes_.Get(Raw(ref.id)).generation.load(std::memory_order_acquire) == ref.generation;
    return alive ? &thread : nullptr;
  }
  // The same; where it is not known, it and (where that is new too) its process are made in the root cgroup,
  // with an address space that nobody saw begin.
  Thread& FindOrCreate(uint32_t tid, uint32_t tgid);

  Process& ProcessOf(const Thread& thread) const {
    return processes_.Get(Raw(thread.process.load(std::memory_order_acquire).id));
  }
  Mm& MmOf(const Thread& thread) const {
    return m_.mms.Get(Raw(ProcessOf(thread).mm.load(std::memory_order_acquire)));
  }

  Outcome Clone(CpuSlot& slot, uint32_t parent_tid, const wide::Clone& clone);
  void ExecArguments(CpuSlot& slot, Thread& thread, uint32_t pages);
  void Exec(CpuSlot& slot, Thread& thread, std::string_view name);
  void Exit(CpuSlot& slot, Thread& thread, bool group_dead);
  void ExitMmap(CpuSlot& slot, Thread& thread);
  void SetComm(Thread& thread, std::string_view name);
  // At a cut.
  void Attach(Thread& thread, Memcg& memcg);

  // For saving and loading a state, at a cut; snapshot.cc has it.
  template <typename Archive>
  void Walk(Archive& a);

  uint64_t alive() const { return alive_.load(std::memory_order_relaxed); }

 private:
  Process& NewProcess(uint32_t tgid, MemcgId memcg) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MmId NewMm(ProcessId owner, MemcgId memcg) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Thread& EnsureThread(uint32_t tid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Join(Thread& thread, const Process& process);
  // One user less; the last one tears the address space down.
  void PutMm(CpuSlot& slot, MmId mm);
  // Once for each generation; the threads that still name it are gone with it.
  void EndProcess(CpuSlot& slot, Process& process, uint32_t generation);

  Machine& m_;
  AddressSpaces& spaces_;
  Faults& faults_;
  Mutex mutex_;
  IndexedTable<Process> processes_;
  IndexedTable<Thread> threads_;  // by thread id
  std::atomic<uint64_t> alive_{0};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PROCESS_H_
