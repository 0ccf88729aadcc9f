#include "core/process.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace memcgd::core {

template <class Forms>
Thread& Processes<Forms>::FindOrCreate(uint32_t tid, uint32_t tgid) {
  Thread* known = Find(tid);
  if (known != nullptr) return *known;
  Thread* leader = Find(tgid);
  Locked lock(m_.table.mutex);
  if (leader == nullptr) {
    leader = &m_.table.Ensure(tgid);
    Process& process = NewProcess(tgid, MemcgId::kRoot);
    MmId mm = NewMm(process.id, MemcgId::kRoot);
    {
      Mm& space = m_.mms.Get(Raw(mm));
      Locked space_lock(space.mutex);  // new: nobody waits for it
      space.predates_stream = space.tables_predate = true;
    }
    process.mm.store(mm, std::memory_order_release);
    process.threads = 1;
    Join(*leader, process);
  }
  if (tid == tgid) return *leader;
  Thread& thread = m_.table.Ensure(tid);
  Process& process = ProcessOf(*leader);
  ++process.threads;
  Join(thread, process);
  return thread;
}

template <class Forms>
void Processes<Forms>::Join(Thread& thread, const Process& process) {
  thread.stack = MemcgId::kNone;
  thread.hints = {};
  thread.in_reclaim = false;
  thread.oom_killed = false;
  thread.reads = {};
  thread.next_read = 0;
  ProcessRef ref{process.id, process.generation.load(std::memory_order_relaxed)};
  thread.process.store(ref, std::memory_order_release);
}

template <class Forms>
void Processes<Forms>::AddStack(Thread& thread, Process& process, MemcgId memcg) {
  thread.stack = memcg;
  for (auto& [payer, count] : process.stacks) {
    if (payer != memcg) continue;
    ++count;
    return;
  }
  process.stacks.emplace_back(memcg, 1);
}

template <class Forms>
Process& Processes<Forms>::NewProcess(uint32_t tgid, MemcgId memcg) {
  uint32_t id = m_.table.processes.Allocate();
  Process& process = m_.table.processes.Get(id);
  process.id = ProcessId{id};
  process.tgid = tgid;
  process.threads = 0;
  process.memcg.store(memcg, std::memory_order_relaxed);
  process.exec_mm.store(MmId::kNone, std::memory_order_relaxed);
  process.oom_score_adj = 0;
  process.comm.clear();
  ++m_.tree.Get(memcg).processes;
  m_.table.alive.fetch_add(1, std::memory_order_relaxed);
  return process;
}

template <class Forms>
MmId Processes<Forms>::NewMm(ProcessId owner, MemcgId memcg) {
  uint32_t id = m_.mms.Allocate();
  Mm& mm = m_.mms.Get(id);
  mm.id = MmId{id};
  mm.owner = owner;
  mm.users = 1;
  mm.memcg.store(memcg, std::memory_order_relaxed);
  ++m_.tree.Get(memcg).spaces;
  return MmId{id};
}

template <class Forms>
void Processes<Forms>::ExitStale(CpuSlot& slot, uint32_t tid) {
  Thread* stale = Find(tid);
  if (stale != nullptr) Exit(slot, *stale, false);
}

template <class Forms>
Outcome Processes<Forms>::Clone(CpuSlot& slot, uint32_t parent_tid, const wide::Clone& clone) {
  Thread& parent_thread = FindOrCreate(parent_tid, parent_tid);
  ExitStale(slot, clone.child_tid);
  Process& parent = ProcessOf(parent_thread);
  MmId parent_mm = parent.mm.load(std::memory_order_acquire);
  MemcgId payer = parent.memcg.load(std::memory_order_relaxed);  // the one that forks
  if (!m_.kernel.TryChargeStack(slot, payer)) return Outcome::kLimit;
  Process* child_process = &parent;
  MmId copy = MmId::kNone;
  {
    Locked lock(m_.table.mutex);
    if (clone.thread) {
      ++parent.threads;
    } else {
      child_process = &NewProcess(clone.child_tid, parent.memcg.load(std::memory_order_relaxed));
      child_process->threads = 1;
      child_process->comm = parent.comm;
      child_process->oom_score_adj = parent.oom_score_adj;
      if (clone.shares_mm) {
        ++m_.mms.Get(Raw(parent_mm)).users;
        child_process->mm.store(parent_mm, std::memory_order_release);
      } else {
        copy = NewMm(child_process->id, child_process->memcg.load(std::memory_order_relaxed));
        child_process->mm.store(copy, std::memory_order_release);
      }
    }
  }
  Outcome outcome = Outcome::kOk;
  if (copy != MmId::kNone) {
    Mm& from = m_.mms.Get(Raw(parent_mm));
    Locked lock(from.mutex);
    outcome = spaces_.Fork(slot, from, m_.mms.Get(Raw(copy)));
  }
  if (outcome != Outcome::kOk) {  // refused: no child
    m_.kernel.UnchargeStacks(slot, payer, 1);
    EndProcess(slot, *child_process, child_process->generation.load(std::memory_order_relaxed));
    return outcome;
  }
  Locked lock(m_.table.mutex);
  Thread& child = m_.table.Ensure(clone.child_tid);
  Join(child, *child_process);
  AddStack(child, *child_process, payer);
  return Outcome::kOk;
}

template <class Forms>
MmId Processes<Forms>::EnsureExecMm(Process& process) {
  Locked lock(m_.table.mutex);
  MmId id = process.exec_mm.load(std::memory_order_relaxed);
  if (id == MmId::kNone) {
    id = NewMm(process.id, process.memcg.load(std::memory_order_relaxed));
    process.exec_mm.store(id, std::memory_order_release);
  }
  return id;
}

template <class Forms>
void Processes<Forms>::ExecArguments(CpuSlot& slot, Thread& thread, uint32_t pages) {
  Process& process = ProcessOf(thread);
  Mm& mm = m_.mms.Get(Raw(EnsureExecMm(process)));
  Locked lock(mm.mutex);
  if (process.exec_mm.load(std::memory_order_acquire) != mm.id) return;  // another thread's exec was first
  m_.kernel.BeginExec(slot, mm);
  for (uint32_t i = 0; i < pages; ++i) faults_.AddArgumentPage(slot, mm);
}

template <class Forms>
void Processes<Forms>::Exec(CpuSlot& slot, Thread& thread, std::string_view name) {
  ProcessRef ref = thread.process.load(std::memory_order_acquire);
  Process& process = m_.table.processes.Get(Raw(ref.id));
  if (process.exec_mm.load(std::memory_order_relaxed) == MmId::kNone) ExecArguments(slot, thread, 1);
  MmId old = MmId::kNone;
  {
    Locked lock(m_.table.mutex);
    MmId next = process.exec_mm.load(std::memory_order_relaxed);
    // The process ended, or another thread's exec took it, by another stream's event.
    if (process.generation.load(std::memory_order_relaxed) != ref.generation || next == MmId::kNone) return;
    old = process.mm.exchange(next, std::memory_order_acq_rel);
    process.exec_mm.store(MmId::kNone, std::memory_order_release);
    // Where others use the old one on, it stays charged as it is (mm_update_next_owner).
    if (old != MmId::kNone && m_.mms.Get(Raw(old)).owner == process.id)
      m_.mms.Get(Raw(old)).owner = ProcessId::kNone;
  }
  thread.hints = {};
  if (!name.empty()) SetComm(thread, name);
  PutMm(slot, old);
}

template <class Forms>
void Processes<Forms>::SetComm(Thread& thread, std::string_view name) {
  Locked lock(m_.table.mutex);
  ProcessOf(thread).comm.assign(name);
}

template <class Forms>
void Processes<Forms>::SetOomScoreAdj(Thread& thread, int32_t oom_score_adj) {
  Locked lock(m_.table.mutex);
  ProcessOf(thread).oom_score_adj = oom_score_adj;
}

template <class Forms>
void Processes<Forms>::PutMm(CpuSlot& slot, MmId id) {
  if (id == MmId::kNone) return;
  Mm& mm = m_.mms.Get(Raw(id));
  {
    Locked lock(m_.table.mutex);
    if (--mm.users > 0) return;
  }
  {
    Locked lock(mm.mutex);
    spaces_.Teardown(slot, mm);
  }
  Locked lock(m_.table.mutex);
  --m_.tree.Get(mm.memcg.load(std::memory_order_relaxed)).spaces;
  m_.mms.Free(Raw(id));
}

// The address space of the last thread stays until ExitMmap, as in the kernel, where the one comes after the
// other; one that others use too does not end here.
template <class Forms>
void Processes<Forms>::Exit(CpuSlot& slot, Thread& thread, bool group_dead) {
  ProcessRef ref = thread.process.load(std::memory_order_acquire);
  Process& process = m_.table.processes.Get(Raw(ref.id));
  bool ends;
  MemcgId stack = MemcgId::kNone;
  {
    Locked lock(m_.table.mutex);
    if (process.generation.load(std::memory_order_relaxed) != ref.generation) return;  // it ended meanwhile
    MmId mm = process.mm.load(std::memory_order_relaxed);
    if (group_dead) {
      ends = mm == MmId::kNone || m_.mms.Get(Raw(mm)).users > 1;
    } else {
      thread.process.store(ProcessRef{}, std::memory_order_release);
      ends = --process.threads == 0;
      stack = std::exchange(thread.stack, MemcgId::kNone);
      for (auto& [payer, count] : process.stacks) count -= payer == stack ? 1 : 0;
      std::erase_if(process.stacks,
                    [](const auto& stacks) { return stacks.second == 0; });  // it may be freed
    }
  }
  m_.kernel.UnchargeStacks(slot, stack, 1);
  if (ends) EndProcess(slot, process, ref.generation);
}

template <class Forms>
void Processes<Forms>::ExitMmap(CpuSlot& slot, Thread& thread) {
  ProcessRef ref = thread.process.load(std::memory_order_acquire);
  EndProcess(slot, m_.table.processes.Get(Raw(ref.id)), ref.generation);
}

template <class Forms>
void Processes<Forms>::EndProcess(CpuSlot& slot, Process& process, uint32_t generation) {
  MmId exec_mm, mm;
  std::vector<std::pair<MemcgId, uint32_t>> stacks;
  {
    Locked lock(m_.table.mutex);
    if (process.generation.load(std::memory_order_relaxed) != generation) return;  // once
    process.generation.store(generation + 1, std::memory_order_release);
    exec_mm = process.exec_mm.exchange(MmId::kNone, std::memory_order_acq_rel);
    mm = process.mm.exchange(MmId::kNone, std::memory_order_acq_rel);
    --m_.tree.Get(process.memcg.load(std::memory_order_relaxed)).processes;
    // Where others use the address space on, it stays charged as it is.
    if (mm != MmId::kNone && m_.mms.Get(Raw(mm)).owner == process.id)
      m_.mms.Get(Raw(mm)).owner = ProcessId::kNone;
    stacks.swap(process.stacks);
  }
  PutMm(slot, exec_mm);
  PutMm(slot, mm);
  for (const auto& [payer, count] : stacks) m_.kernel.UnchargeStacks(slot, payer, count);
  Locked lock(m_.table.mutex);
  m_.table.processes.Free(Raw(process.id));
  m_.table.alive.fetch_sub(1, std::memory_order_relaxed);
}

template <class Forms>
void Processes<Forms>::Kill(CpuSlot& slot, Process& process) {
  uint32_t generation = process.generation.load(std::memory_order_relaxed);
  for (uint32_t tid = 1; tid <= kMaxTid; ++tid) {
    if (!m_.table.threads.Exists(tid)) {
      tid |= 255;  // the rest of the chunk
      continue;
    }
    Thread& thread = m_.table.threads.Get(tid);
    ProcessRef ref = thread.process.load(std::memory_order_relaxed);
    if (ref.id == process.id && ref.generation == generation) thread.oom_killed = true;
  }
  EndProcess(slot, process, generation);
}

template <class Forms>
void Processes<Forms>::Attach(Thread& thread, Memcg& memcg) {
  Process& process = ProcessOf(thread);
  Locked lock(m_.table.mutex);
  --m_.tree.Get(process.memcg.load(std::memory_order_relaxed)).processes;
  process.memcg.store(memcg.id, std::memory_order_relaxed);
  ++memcg.processes;
  for (MmId id :
       {process.mm.load(std::memory_order_relaxed), process.exec_mm.load(std::memory_order_relaxed)}) {
    if (id == MmId::kNone) continue;
    Mm& mm = m_.mms.Get(Raw(id));
    if (mm.owner != process.id) continue;
    --m_.tree.Get(mm.memcg.load(std::memory_order_relaxed)).spaces;
    mm.memcg.store(memcg.id, std::memory_order_relaxed);
    ++memcg.spaces;
  }
}

template <class Forms>
void Processes<Forms>::ChargeBaseline(CpuSlot& slot, Thread& thread) {
  Process& process = ProcessOf(thread);
  MemcgId memcg = process.memcg.load(std::memory_order_relaxed);
  if (m_.kernel.TryChargeStack(slot, memcg)) {
    Locked lock(m_.table.mutex);
    AddStack(thread, process, memcg);
  }
  Mm& mm = MmOf(thread);
  Locked lock(mm.mutex);
  mm.tables_predate = false;  // the areas that the baseline tells have all of them
  if (mm.pgd == MemcgId::kNone) m_.kernel.MakePgd(slot, mm);
}

template class Processes<DefaultForms>;
template class Processes<ChosenForms>;

}  // namespace memcgd::core
