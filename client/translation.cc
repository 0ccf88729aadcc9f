#include "client/translation.h"

#include <algorithm>
#include <utility>

#include "client/linux_numbers.h"
#include "client/record_kind.h"

namespace memcgd::client {

void Translation::Add(const TraceRecord& record) {
  if (record.op == TraceOp::kOther || record.op == TraceOp::kLost) return;
  if (IsUnhandledFault(record)) return;
  last_time_ns_ = record.time_ns;
  if (InInterrupt(record) && AddFromInterrupt(record)) return Drain();
  Thread* thread = threads_.Find(record.tid);
  if (thread != nullptr) Understand(*thread, record);
  if (IsCgroupOp(record.op)) {
    OnCgroup(record);
  } else if (record.tid > 0 && static_cast<uint32_t>(record.tid) <= kMaxWordTid) {
    OnRecord(record, thread);
  }
  Drain();
}

bool Translation::AddFromInterrupt(const TraceRecord& record) {
  // No process's doing: told as of the kernel's own first thread, which has no memory and is in no cgroup.
  EventPlace place = PlaceOf(record);
  place.tid = kKthreadd;
  switch (record.op) {
    case TraceOp::kFilemapAdd:
      PushAt(place, FolioOf(record, WordKind::kFileAdd, files_.Handle(record.op, record.dev, record.ino)));
      return true;
    case TraceOp::kFilemapDelete:
      PushAt(place, FolioOf(record, WordKind::kFileDelete, files_.Handle(record.op, record.dev, record.ino)));
      return true;
    case TraceOp::kDirtyFolio:
      PushAt(place, FileEvent{WordKind::kFileDirty, 0, files_.DirtyHandle(record.dev, record.ino),
                              record.page_index, 1});
      return true;
    default:
      return false;
  }
}

void Translation::Mark(uint64_t id) {
  PushAt({.cpu = 0, .tid = 0, .time_ns = last_time_ns_}, MarkEvent{id});
  Drain();
}

void Translation::SettleBefore(int64_t time_ns) {
  while (!window_.empty()) {
    const Entry& front = window_.front();
    // Calls, clones and ends are on their way through the kernel; a fault, or a place kept in case of an
    // exec, may be a thread's last line for hours.
    const bool may_be_last =
        std::holds_alternative<FaultEvent>(front.body) || std::holds_alternative<Nothing>(front.body);
    if (front.open && !(may_be_last && front.place.time_ns < time_ns)) break;
    emitter_.Emit(front);
    window_.PopFront();
  }
  counts_.events = emitter_.events();
}

void Translation::Finish() {
  for (; !window_.empty(); window_.PopFront()) emitter_.Emit(window_.front());
  counts_.events = emitter_.events();
}

Slot Translation::PushAt(const EventPlace& place, const Body& body, bool open) {
  if (window_.full()) ForceFrontOut();
  return window_.Push(place, body, open);
}

void Translation::Push(const TraceRecord& record, const Body& body) { PushAt(PlaceOf(record), body); }
Slot Translation::PushOpen(const TraceRecord& record, const Body& face_value) {
  return PushAt(PlaceOf(record), face_value, true);
}

bool Translation::Resolve(Slot slot, const Body& body) {
  Entry* entry = window_.Find(slot);
  if (entry == nullptr) return false;
  entry->body = body;
  entry->open = false;
  return true;
}

void Translation::ResolveAsItIs(Slot slot) {
  if (Entry* entry = window_.Find(slot)) entry->open = false;
}

void Translation::ForceFrontOut() {
  const Entry& front = window_.front();
  if (front.open && std::holds_alternative<ExitMmapEvent>(front.body)) {
    lacks_exit_mmap_ = true;
  } else if (front.open && !std::holds_alternative<Nothing>(front.body)) {
    // A place that may hold an event, and so far holds none, is no record that was not understood.
    ++counts_.unresolved;
  }
  emitter_.Emit(front);
  window_.PopFront();
}

void Translation::Drain() {
  for (; !window_.empty() && !window_.front().open; window_.PopFront()) emitter_.Emit(window_.front());
  counts_.events = emitter_.events();
}

EventPlace Translation::PlaceOf(const TraceRecord& record) const {
  const uint32_t cpu = options_.cpus != 0 ? record.cpu % options_.cpus : record.cpu;
  return {
      .cpu = std::min(cpu, kMaxWordCpu), .tid = static_cast<uint32_t>(record.tid), .time_ns = record.time_ns};
}

EventPlace Translation::NodePlaceOf(const TraceRecord& record) const {
  EventPlace place = PlaceOf(record);
  place.tid = 0;
  return place;
}

uint64_t Translation::PageOf(uint64_t byte) const { return byte / options_.page_size; }
uint64_t Translation::WholePages(uint64_t bytes) const {
  const uint64_t mask = options_.page_size - 1;
  return (bytes + mask) & ~mask;
}

bool Translation::IsUserRange(uint64_t address, uint64_t length) const {
  return address % options_.page_size == 0 && length != 0 && address <= kMaxWordAddress &&
         length <= kMaxWordAddress - address;
}

void Translation::Understand(Thread& thread, const TraceRecord& record) {
  ++thread.records;
  if (thread.reclaiming && record.op != TraceOp::kFilemapDelete) EndNodeReclaim(thread, record);
  if (thread.clone.open()) UnderstandClone(thread, record);
  if (thread.readahead.active()) UnderstandReadahead(thread, record);
  if (IsWithinFault(record.op)) {
    thread.fault.alone = false;
  } else if (thread.fault.slot != kNoSlot) {
    CloseFault(thread, record);
  }
  if (thread.reads != 0 && !KeepsReads(record)) ForgetReads(thread);
  if (thread.exec.sign != PendingExec::Sign::kNone) UnderstandExec(thread, record);
}

void Translation::OnRecord(const TraceRecord& record, Thread* thread) {
  switch (record.op) {
    case TraceOp::kPageFault:
      return OnPageFault(record);
    case TraceOp::kFilemapAdd:
    case TraceOp::kFilemapGetPages:
    case TraceOp::kWriteBegin:
      return OnFileUse(record);
    case TraceOp::kFilemapDelete:
      return OnFileDelete(record, thread);
    case TraceOp::kDirtyFolio:
      return OnFileDirty(record, thread);
    case TraceOp::kFilemapFault:
    case TraceOp::kFilemapMapPages:
      return OnFileMapped(record);
    case TraceOp::kSyscallEnter:
      return OnSyscallEnter(record);
    case TraceOp::kSyscallExit:
      if (thread != nullptr) OnSyscallExit(record, *thread);
      return;
    case TraceOp::kFork:
      return OnFork(record);
    case TraceOp::kExec:
      return OnExec(record);
    case TraceOp::kExit:
    case TraceOp::kPerfExit:
      return OnExit(record, thread);
    case TraceOp::kExitMmap:
      return OnExitMmap(record);
    case TraceOp::kReclaimBegin:
      Known(record);
      Push(record, ReclaimBeginEvent{});
      return;
    case TraceOp::kReclaimEnd:
      Known(record);
      Push(record, ReclaimEndEvent{record.ret > 0 ? static_cast<uint64_t>(record.ret) : 0});
      return;
    case TraceOp::kMarkVictim:
      return OnMarkVictim(record);
    case TraceOp::kOomScoreAdj:
      return OnOomScoreAdj(record);
    case TraceOp::kPerfMmap:
      return OnPerfMmap(record);
    case TraceOp::kPerfComm:
      return OnPerfComm(record, thread);
    default:
      return;
  }
}

Thread& Translation::Known(const TraceRecord& record) {
  Thread* thread = threads_.Find(record.tid);
  return thread != nullptr ? *thread : BeginBaseline(record, record.tid, record.tgid, record.comm);
}

Thread& Translation::Living(const TraceRecord& record) {
  Thread* thread = threads_.Find(record.tid);
  if (thread != nullptr && !thread->dead) return *thread;
  return BeginBaseline(record, record.tid, record.tgid, record.comm);
}

Thread& Translation::BeginBaseline(const TraceRecord& record, int32_t tid, int32_t tgid,
                                   std::string_view name) {
  if (tgid <= 0) tgid = tid;
  EventPlace place = PlaceOf(record);
  place.tid = static_cast<uint32_t>(tid);
  PushAt(place,
         BaselineProcessEvent{static_cast<uint32_t>(tgid), name.empty() ? 0 : builder_->NameHandle(name)});
  return BeginThread(tid, tgid);
}

Thread& Translation::BeginThread(int32_t tid, int32_t tgid) {
  if (Thread* former = threads_.Find(tid)) Settle(*former);  // its end was not seen
  return threads_.Begin(tid, tgid);
}

void Translation::Settle(Thread& thread) {
  ResolveAsItIs(std::exchange(thread.fault, {}).slot);
  AbandonPopulated(thread, thread.call);
  ResolveAsItIs(std::exchange(thread.call, {}).slot);
  ResolveAsItIs(std::exchange(thread.clone.slot, kNoSlot));
  AbandonExec(thread);
  ForgetReads(thread);
}

void Translation::EnsureProcess(const TraceRecord& record, int32_t pid) {
  const Thread* thread = threads_.Find(pid);
  if (thread == nullptr || thread->dead) BeginBaseline(record, pid, pid, {});
}

}  // namespace memcgd::client
