#include <utility>

#include "client/linux_numbers.h"
#include "client/record_kind.h"
#include "client/translation.h"

namespace memcgd::client {

void Translation::OnFork(const TraceRecord& record) {
  // Kernel threads have no memory of their own.
  if (record.tid == kKthreadd || record.comm == "kthreadd" || record.child_pid <= 0) return;
  if (static_cast<uint32_t>(record.child_pid) > kMaxWordTid) return;
  Thread& parent = Living(record);
  Thread* child = threads_.Find(record.child_pid);
  // perf tells the same fork twice, once as a record of its own.
  if (child != nullptr && !child->dead && child->records == 0 && child->clone.parent == record.tid) {
    if (record.child_tgid > 0) child->clone.tgid = record.child_tgid;
    child->clone.parent_records = parent.records;
    return;
  }
  BeginChild(parent, record);
}

void Translation::BeginChild(Thread& parent, const TraceRecord& record) {
  const int32_t parent_tgid = parent.process->tgid;
  const bool named_thread = record.child_tgid > 0 && record.child_tgid == parent_tgid;
  const std::optional<uint64_t> flags = CloneFlags(parent.call, record.child_tgid, named_thread);
  // What remains open is taken for a thread until it is known; `parent` is no longer valid below.
  const PendingClone pending = {
      .slot = kNoSlot, .parent = parent.tid, .parent_records = parent.records, .tgid = record.child_tgid};
  const bool thread = !flags.has_value() || (*flags & kCloneThread) != 0;
  const bool shares_mm = !flags.has_value() || (*flags & kCloneVm) != 0;
  const FileAreas areas = parent.process->areas;
  Thread& child = BeginThread(record.child_pid, thread ? parent_tgid : record.child_pid);
  child.clone = pending;
  if (!thread) {
    child.process->shares_mm = shares_mm;
    child.process->areas = areas;
  }
  const CloneEvent event{static_cast<uint32_t>(record.child_pid), thread, shares_mm};
  if (flags.has_value()) {
    Push(record, event);
  } else {
    child.clone.slot = PushOpen(record, event);
  }
}

std::optional<uint64_t> Translation::CloneFlags(const Call& call, int32_t child_tgid, bool named_thread) {
  switch (call.syscall) {
    case Syscall::kClone:
      return call.args[0];
    case Syscall::kVfork:
      return kCloneVm;
    case Syscall::kFork:
      return 0;
    default:
      if (child_tgid > 0 && named_thread) return kCloneVm | kCloneThread;
      return std::nullopt;
  }
}

void Translation::UnderstandClone(Thread& child, const TraceRecord& record) {
  const Thread* parent = threads_.Find(child.clone.parent);
  const int32_t parent_tgid = child.process->tgid;  // as long as it is open
  const int32_t tgid = child.clone.tgid > 0 ? child.clone.tgid : record.tgid;
  // A parent that vforks is silent until the child's exec or end.
  const bool parent_went_on = parent == nullptr || parent->records > child.clone.parent_records;
  if (tgid > 0 && tgid == parent_tgid) return ResolveClone(child, true, true);
  const bool own_process = tgid > 0;
  const bool execs = record.op == TraceOp::kExec || IsPerfExec(record);
  const bool ends = IsExit(record.op);
  if (record.op == TraceOp::kExitMmap && !child.dead) return ResolveClone(child, false, false);
  if (execs) return ResolveClone(child, false, !parent_went_on);
  if (!own_process) {
    // Whether it is a thread shows when the parent goes on while the child has not called exec.
    if (parent_went_on || ends) ResolveClone(child, true, true);
    return;
  }
  if (parent_went_on) return ResolveClone(child, false, false);
  if (record.op == TraceOp::kPageFault) {
    // The first thing that a copy does is to write to its stack: copy on write.
    const uint8_t copy_on_write = kFaultProtection | kFaultWrite;
    return ResolveClone(child, false, (record.error_code & copy_on_write) != copy_on_write);
  }
  if (ends) ResolveClone(child, false, true);
}

void Translation::ResolveClone(Thread& child, bool thread, bool shares_mm) {
  const Slot slot = std::exchange(child.clone.slot, kNoSlot);
  if (!Resolve(slot, CloneEvent{static_cast<uint32_t>(child.tid), thread, shares_mm})) return;
  if (thread) return;
  FileAreas areas = child.process->areas;
  threads_.Move(child, child.tid);
  child.process->areas = std::move(areas);
  child.process->shares_mm = shares_mm;
}

}  // namespace memcgd::client
