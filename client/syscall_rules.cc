#include <utility>
#include <variant>

#include "client/linux_numbers.h"
#include "client/translation.h"

namespace memcgd::client {

void Translation::OnSyscallEnter(const TraceRecord& record) {
  Thread& thread = Living(record);
  ResolveAsItIs(thread.call.slot);  // a return that was lost
  AbandonPopulated(thread, thread.call);
  thread.call = {};
  thread.call.syscall = record.syscall;
  thread.call.args = record.args;
  const Body body = AtEntry(record);
  if (!std::holds_alternative<Nothing>(body)) thread.call.slot = PushOpen(record, body);
}

Body Translation::AtEntry(const TraceRecord& record) const {
  const uint64_t address = record.args[0], length = WholePages(record.args[1]);
  if (!IsUserRange(address, length)) return Nothing{};
  if (record.syscall == Syscall::kMunmap) return RangeEvent{WordKind::kMunmap, address, length};
  if (record.syscall != Syscall::kMadvise) return Nothing{};
  const uint64_t advice = record.args[2];
  if (advice == kMadvDontNeed) return RangeEvent{WordKind::kDontNeed, address, length};
  if (!AdviceUnmaps(advice)) return Nothing{};
  return MadviseEvent{address, length, static_cast<uint32_t>(advice)};
}

bool Translation::AdviceUnmaps(uint64_t advice) {
  return advice == kMadvDontNeed || advice == kMadvFree || advice == kMadvRemove ||
         advice == kMadvDontNeedLocked;
}

void Translation::OnSyscallExit(const TraceRecord& record, Thread& thread) {
  Call call = std::exchange(thread.call, {});
  const bool failed = IsError(record.ret);
  const bool succeeded = call.syscall == record.syscall && !failed;
  const Body body = succeeded ? AtReturn(call, static_cast<uint64_t>(record.ret)) : Nothing{};
  if (succeeded) ChangeAreas(*thread.process, call, static_cast<uint64_t>(record.ret));
  if (call.area_slot != kNoSlot && succeeded) return FinishPopulatedMmap(thread, call, record, body);
  AbandonPopulated(thread, call);
  if (call.slot != kNoSlot) {
    if (failed && call.syscall == record.syscall) {
      Resolve(call.slot, Nothing{});
    } else {
      ResolveAsItIs(call.slot);
    }
  } else if (!std::holds_alternative<Nothing>(body)) {
    Push(record, body);
  }
}

Body Translation::AtReturn(const Call& call, uint64_t ret) const {
  const auto& args = call.args;
  switch (call.syscall) {
    case Syscall::kMmap:
      return MmapReturned(call, ret);
    case Syscall::kBrk:
      return ret <= kMaxWordAddress ? Body(BrkEvent{ret}) : Nothing{};
    case Syscall::kMremap:
      return MremapEvent{args[0], WholePages(args[1]), ret, WholePages(args[2]),
                         static_cast<uint32_t>(args[3])};
    case Syscall::kMprotect:
      if (!IsUserRange(args[0], WholePages(args[1]))) return Nothing{};
      return MprotectEvent{args[0], WholePages(args[1]), static_cast<uint32_t>(args[2])};
    case Syscall::kMadvise:
      if (AdviceUnmaps(args[2]) || !IsUserRange(args[0], WholePages(args[1]))) return Nothing{};
      return MadviseEvent{args[0], WholePages(args[1]), static_cast<uint32_t>(args[2])};
    case Syscall::kMlock:
      return MlockEvent{args[0], args[1], false};
    case Syscall::kMlock2:
      return MlockEvent{args[0], args[1], (args[2] & kMlockOnFault) != 0};
    case Syscall::kMlockall:
      return MlockEvent{0, 0, (args[0] & kMclOnFault) != 0};
    case Syscall::kMunlock:
      return MunlockEvent{args[0], args[1]};
    case Syscall::kMunlockall:
      return MunlockEvent{0, 0};
    default:
      return Nothing{};
  }
}

Body Translation::MmapReturned(const Call& call, uint64_t address) const {
  const uint64_t length = WholePages(call.args[1]), prot = call.args[2], flags = call.args[3];
  if (!IsUserRange(address, length)) return Nothing{};
  if (prot == kProtReadWrite && (flags & (kMapTypeMask | kMapAnonymous)) == (kMapPrivate | kMapAnonymous) &&
      (flags & kMapSpecial) == 0) {
    return RangeEvent{WordKind::kMmapAnon, address, length};
  }
  const bool anonymous = (flags & kMapAnonymous) != 0;
  return MmapEvent{.address = address,
                   .length = length,
                   .offset = anonymous ? 0 : call.args[5],
                   .prot = static_cast<uint32_t>(prot),
                   .flags = static_cast<uint32_t>(flags),
                   .file = anonymous ? 0 : call.file,
                   .baseline = false};
}

}  // namespace memcgd::client
