// Threads, processes, and which address space and cgroup they use.
//
// Kernel counterpart: kernel/fork.c, fs/exec.c, kernel/exit.c, cgroup_attach_task(), as far as memory is
// concerned.
//
// Thread safety: by the holder of the CPU's slot, but for Attach(), which stands at a cut.  The tables are
// under the table's mutex, which is never held while an address space's is waited for.
#ifndef MEMCGD_CORE_PROCESS_H_
#define MEMCGD_CORE_PROCESS_H_

#include <string>
#include <string_view>

#include "core/accounts.h"
#include "core/address_space.h"
#include "core/fault.h"

namespace memcgd::core {

template <class Forms>
class Processes {
 public:
  Processes(Accounts<Forms>& machine, AddressSpaces<Forms>& spaces, Faults<Forms>& faults)
      : m_(machine), spaces_(spaces), faults_(faults) {}

  // The thread, or null where none of that id is alive.
  Thread* Find(uint32_t tid) const { return m_.table.Find(tid); }
  // The same; where it is not known, it and (where that is new too) its process are made in the root cgroup,
  // with an address space that nobody saw begin.
  Thread& FindOrCreate(uint32_t tid, uint32_t tgid);

  Process& ProcessOf(const Thread& thread) const { return m_.table.ProcessOf(thread); }
  Mm& MmOf(const Thread& thread) const {
    return m_.mms.Get(Raw(ProcessOf(thread).mm.load(std::memory_order_acquire)));
  }

  Outcome Clone(CpuSlot& slot, uint32_t parent_tid, const wide::Clone& clone);
  // An id is used again: its last user's end was lost.
  void ExitStale(CpuSlot& slot, uint32_t tid);
  void ExecArguments(CpuSlot& slot, Thread& thread, uint32_t pages);
  void Exec(CpuSlot& slot, Thread& thread, std::string_view name);
  void Exit(CpuSlot& slot, Thread& thread, bool group_dead);
  void ExitMmap(CpuSlot& slot, Thread& thread);
  void SetComm(Thread& thread, std::string_view name);
  // Of the process alone: the kernel sets it for others that use its address space, but for a vforked child.
  void SetOomScoreAdj(Thread& thread, int32_t oom_score_adj);
  // The OOM killer's: the process ends at once, and what its threads' events tell later did not happen.  At a
  // cut.
  void Kill(CpuSlot& slot, Process& process);
  // At a cut.
  void Attach(Thread& thread, Memcg& memcg);
  // A thread of the baseline, which is in its cgroup: what the kernel has for it is charged there.
  void ChargeBaseline(CpuSlot& slot, Thread& thread);

 private:
  Process& NewProcess(uint32_t tgid, MemcgId memcg) ABSL_EXCLUSIVE_LOCKS_REQUIRED(m_.table.mutex);
  MmId NewMm(ProcessId owner, MemcgId memcg) ABSL_EXCLUSIVE_LOCKS_REQUIRED(m_.table.mutex);
  // The address space that execve fills; made where there is none.
  MmId EnsureExecMm(Process& process);
  void Join(Thread& thread, const Process& process);
  // The thread's kernel stack, which is charged already.
  void AddStack(Thread& thread, Process& process, MemcgId memcg)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(m_.table.mutex);
  // One user less; the last one tears the address space down.
  void PutMm(CpuSlot& slot, MmId mm);
  // Once for each generation; the threads that still name it are gone with it.
  void EndProcess(CpuSlot& slot, Process& process, uint32_t generation);

  Accounts<Forms>& m_;
  AddressSpaces<Forms>& spaces_;
  Faults<Forms>& faults_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PROCESS_H_
