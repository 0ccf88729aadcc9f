#include <utility>

#include "client/translation.h"

namespace memcgd::client {

void Translation::OnExit(const TraceRecord& record, Thread* thread) {
  if (thread == nullptr) return BeginDead(record);
  if (thread->dead) return;  // perf tells an exit twice
  const bool group_dead = record.group_dead >= 0 ? record.group_dead == 1 : thread->process->live == 1;
  // Before Linux 6.16 the address space ends first.
  if (thread->exec.sign == PendingExec::Sign::kMmapGone) EndAddressSpace(*thread);
  Push(record, ExitEvent{group_dead});
  Process& process = *thread->process;
  if (group_dead && !traces_exit_mmap_ && !process.shares_mm && !process.mm_gone)
    EndUntraced(*thread, record);
  EndThread(*thread);
}

void Translation::EndUntraced(Thread& thread, const TraceRecord& record) {
  if (lacks_exit_mmap_) {
    thread.process->mm_gone = true;
    Push(record, ExitMmapEvent{});
  } else {
    thread.exit_mmap_slot = PushOpen(record, ExitMmapEvent{});
  }
}

void Translation::BeginDead(const TraceRecord& record) {
  Thread& thread = BeginThread(record.tid, record.tgid > 0 ? record.tgid : record.tid);
  thread.told = false;
  threads_.Die(thread);
}

void Translation::EndThread(Thread& thread) {
  Settle(thread);
  threads_.Die(thread);
}

void Translation::OnExitMmap(const TraceRecord& record) {
  traces_exit_mmap_ = true;
  Thread* thread = threads_.Find(record.tid);
  if (thread != nullptr && thread->dead) {
    const Process& process = *thread->process;
    if (!thread->told || process.mm_gone) return;
    // While other threads live it is one of them, in exec, with the number of its leader.
    if (process.live == 0) return EndAddressSpaceOfDead(*thread, record);
  }
  Thread& living = Living(record);
  if (living.exec.sign != PendingExec::Sign::kNone) AbandonExec(living);
  BeginExec(living, record, PendingExec::Sign::kMmapGone, ExecEvent{0});
}

void Translation::EndAddressSpaceOfDead(Thread& thread, const TraceRecord& record) {
  thread.process->mm_gone = true;
  const Slot slot = std::exchange(thread.exit_mmap_slot, kNoSlot);
  if (slot == kNoSlot || Resolve(slot, Nothing{})) Push(record, ExitMmapEvent{});
}

void Translation::EndAddressSpace(Thread& thread) {
  const PendingExec exec = std::exchange(thread.exec, {});
  Resolve(exec.slot, ExitMmapEvent{});
  Resolve(exec.arguments, Nothing{});
  thread.process->mm_gone = true;
}

void Translation::OnMarkVictim(const TraceRecord& record) {
  if (record.child_pid <= 0) return;
  Known(record);
  EnsureProcess(record, record.child_pid);
  Push(record, MarkVictimEvent{static_cast<uint32_t>(record.child_pid)});
}

void Translation::OnOomScoreAdj(const TraceRecord& record) {
  if (record.child_pid <= 0 || static_cast<uint32_t>(record.child_pid) > kMaxWordTid) return;
  EnsureProcess(record, record.child_pid);
  Push(record, OomScoreAdjEvent{static_cast<uint32_t>(record.child_pid), static_cast<int32_t>(record.ret)});
}

}  // namespace memcgd::client
