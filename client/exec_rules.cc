#include <utility>

#include "client/record_kind.h"
#include "client/translation.h"

namespace memcgd::client {

void Translation::CountRead(Thread& thread, const TraceRecord& record) {
  constexpr uint32_t kMaxReads = 64;
  if (++thread.reads == 1) {
    thread.reads_slot = PushOpen(record, Nothing{});
  } else if (thread.reads == kMaxReads) {
    Resolve(std::exchange(thread.reads_slot, kNoSlot), Nothing{});
  }
}

void Translation::ForgetReads(Thread& thread) {
  Resolve(std::exchange(thread.reads_slot, kNoSlot), Nothing{});
  thread.reads = 0;
}

Slot Translation::TakeReads(Thread& thread) {
  thread.reads = 0;
  return std::exchange(thread.reads_slot, kNoSlot);
}

void Translation::BeginExec(Thread& thread, const TraceRecord& record, PendingExec::Sign sign,
                            const Body& face_value) {
  const Slot arguments = TakeReads(thread);
  thread.exec = {.sign = sign, .slot = PushOpen(record, face_value), .arguments = arguments};
}

void Translation::BeginKernelFaults(Thread& thread, const TraceRecord& record) {
  BeginExec(thread, record, PendingExec::Sign::kKernelFaults, Nothing{});
}

void Translation::UnderstandExec(Thread& thread, const TraceRecord& record) {
  switch (thread.exec.sign) {
    case PendingExec::Sign::kNone:
      return;
    case PendingExec::Sign::kMmapGone:
      if (!IsWithinExec(record) && !IsExit(record.op)) AbandonExec(thread);  // OnExit() has the other case
      return;
    case PendingExec::Sign::kKernelFaults:
      if (!IsWithinKernelFaults(record)) AbandonExec(thread);
      return;
    case PendingExec::Sign::kPerfComm:
      if (!IsWithinExec(record)) CompleteExec(thread);
      return;
  }
}

void Translation::AbandonExec(Thread& thread) {
  const PendingExec exec = std::exchange(thread.exec, {});
  Resolve(exec.slot, Nothing{});
  Resolve(exec.arguments, Nothing{});
}

void Translation::CompleteExec(Thread& thread) {
  const PendingExec exec = std::exchange(thread.exec, {});
  ResolveAsItIs(exec.slot);
  Resolve(exec.arguments, ExecArgumentsEvent{});
  thread.process->areas.Clear();
  thread.process->shares_mm = false;
  thread.process->mm_gone = false;
}

void Translation::OnExec(const TraceRecord& record) {
  Thread& thread = Living(record);
  const ExecEvent event{builder_->NameHandle(BaseName(record.path))};
  if (thread.exec.sign == PendingExec::Sign::kNone) {
    BeginExec(thread, record, PendingExec::Sign::kPerfComm, event);
  } else if (Entry* entry = window_.Find(thread.exec.slot)) {
    entry->body = event;
  } else if (thread.exec.sign == PendingExec::Sign::kKernelFaults) {
    thread.exec.slot = PushOpen(record, event);  // its better place is gone
  }
  CompleteExec(thread);
  // Another thread than the leader called exec: it has the leader's number now, and its own is gone.
  Thread* old = record.old_pid > 0 && record.old_pid != record.tid ? threads_.Find(record.old_pid) : nullptr;
  if (old == nullptr || old->dead) return;
  EventPlace place = PlaceOf(record);
  place.tid = static_cast<uint32_t>(old->tid);
  PushAt(place, ExitEvent{false});
  EndThread(*old);
}

}  // namespace memcgd::client
