// Calls that fault pages in, and the areas of files that they may be of.
#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "client/linux_numbers.h"
#include "client/record_kind.h"
#include "client/translation.h"

namespace memcgd::client {

void Translation::OnFilePopulated(Thread& thread, const TraceRecord& record, const FileEvent& event) {
  Call& call = thread.call;
  // Shared memory needs no lines: the model makes its pages at the call.
  if (call.populate.lost() || files_.IsSharedMemory(record.dev)) return;
  if (call.syscall == Syscall::kMmap) {
    // The area must be there before its faults, and its address is known at the return only.
    if (call.area_slot == kNoSlot) call.area_slot = PushOpen(record, Nothing{});
    if (window_.Find(call.area_slot) == nullptr) {
      LosePopulated(call);
      return;
    }
  }
  const Slot hint = PushOpen(record, Nothing{});
  call.populate.Add(event, hint, PushOpen(record, Nothing{}));
  if (call.syscall != Syscall::kMmap) TellPopulated(*thread.process, call, call.populate.Take(false));
}

void Translation::LosePopulated(Call& call) {
  for (const PopulateRun::Line& line : call.populate.Take(true)) {
    Resolve(line.hint, Nothing{});
    Resolve(line.fault, Nothing{});
  }
  call.populate.Lose();
  ++counts_.unresolved;
}

void Translation::TellPopulated(const Process& process, Call& call,
                                const std::vector<PopulateRun::Line>& lines) {
  for (const PopulateRun::Line& line : lines) {
    const std::optional<FaultEvent> fault = PopulatedFault(process, call, line);
    const bool told = fault.has_value() && Resolve(line.hint, line.event);
    if (!told) Resolve(line.hint, Nothing{});
    Resolve(line.fault, told && line.ends ? Body(*fault) : Nothing{});
    if (told) call.populated_to = fault->address;
    if (fault.has_value() && !told) ++counts_.unresolved;
  }
}

// Where mm_filemap_map_pages alone tells of the fault, its page is the first of those mapped that the call is
// of.
std::optional<FaultEvent> Translation::PopulatedFault(const Process& process, const Call& call,
                                                      const PopulateRun::Line& line) const {
  constexpr uint64_t kMostPages = 512;  // a page table's: more are never mapped around a fault
  const auto& args = call.args;
  const bool all = call.syscall == Syscall::kMlockall;
  const uint64_t begin = all ? 0 : args[0] - args[0] % options_.page_size;
  const uint64_t length = all ? kMaxWordAddress : WholePages(args[1] + args[0] % options_.page_size);
  const uint64_t end =
      length <= kMaxWordAddress - std::min(begin, kMaxWordAddress) ? begin + length : kMaxWordAddress;
  const uint64_t last =
      line.has_page ? line.page : line.event.index + std::min(line.event.count, kMostPages) - 1;
  for (uint64_t page = line.page; page <= last; ++page) {
    FileArea area;
    if (!process.areas.Find(line.event.file, page, begin, end, call.populated_to, &area)) continue;
    const bool advised = call.syscall == Syscall::kMadvise;
    const bool write = advised ? args[2] == kMadvPopulateWrite : area.writable && !area.shared;
    return FaultEvent{process.areas.AddressOf(area, page), 0, write ? kFaultWrite : uint8_t{0}};
  }
  return std::nullopt;
}

// An mmap that returned: the area, then what it faulted in.
void Translation::FinishPopulatedMmap(Thread& thread, Call& call, const TraceRecord& record,
                                      const Body& mmap) {
  if (!Resolve(call.area_slot, mmap)) {
    if (!call.populate.lost()) LosePopulated(call);
    Push(record, mmap);
    return;
  }
  const std::vector<PopulateRun::Line> lines = call.populate.Take(true);
  call.args[0] = static_cast<uint64_t>(record.ret);  // from here on it is where the kernel put it
  TellPopulated(*thread.process, call, lines);
}

// The call ended without telling where its area is, or failed.
void Translation::AbandonPopulated(Thread& thread, Call& call) {
  if (call.syscall != Syscall::kMmap) {
    // Pages that were faulted in before it failed stay, and its address is known.
    TellPopulated(*thread.process, call, call.populate.Take(true));
    return;
  }
  for (const PopulateRun::Line& line : call.populate.Take(true)) {
    Resolve(line.hint, Nothing{});
    Resolve(line.fault, Nothing{});
  }
  Resolve(call.area_slot, Nothing{});
}

// What a call that succeeded changed of the areas that map files.
void Translation::ChangeAreas(Process& process, const Call& call, uint64_t ret) {
  const auto& args = call.args;
  const uint64_t length = WholePages(args[1]);
  const auto end_of = [length](uint64_t address) { return address + length; };
  FileAreas& areas = process.areas;
  switch (call.syscall) {
    case Syscall::kMmap:
      if (!IsUserRange(ret, length)) return;
      if ((args[3] & kMapAnonymous) != 0) return areas.Unmap(ret, end_of(ret));
      return areas.Map({.address = ret,
                        .end = end_of(ret),
                        .first_index = PageOf(args[5]),
                        .file = call.file,
                        .shared = (args[3] & kMapTypeMask & kMapShared) != 0,
                        .writable = (args[2] & kProtWrite) != 0});
    case Syscall::kMunmap:
      if (IsUserRange(args[0], length)) areas.Unmap(args[0], end_of(args[0]));
      return;
    case Syscall::kMprotect:
      if (IsUserRange(args[0], length)) areas.Protect(args[0], end_of(args[0]), (args[2] & kProtWrite) != 0);
      return;
    case Syscall::kMremap:
      if (!IsUserRange(args[0], length) || !IsUserRange(ret, WholePages(args[2]))) return;
      return areas.Move(args[0], end_of(args[0]), ret, ret + WholePages(args[2]));
    default:
      return;
  }
}

}  // namespace memcgd::client
