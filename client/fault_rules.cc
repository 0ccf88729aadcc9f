#include <utility>
#include <variant>

#include "client/linux_numbers.h"
#include "client/record_kind.h"
#include "client/translation.h"

namespace memcgd::client {

bool Translation::IsUnhandledFault(const TraceRecord& record) {
  if (record.op != TraceOp::kPageFault) return false;
  if (!record.from_kernel) {
    traced_depth_ = record.flags.preempt_depth;  // user mode runs with none
    return false;
  }
  // faulthandler_disabled()
  const bool disabled = InInterrupt(record) || record.flags.preempt_depth > traced_depth_;
  if (!disabled && !record.ip.starts_with("copy_from_user_nmi")) return false;
  ++counts_.dropped_faults;
  return true;
}

void Translation::OnPageFault(const TraceRecord& record) {
  Thread& thread = Living(record);
  if (!record.has_address) {
    ++counts_.no_address;
    return;
  }
  // No area can be there: a null pointer; the kernel's half, for example the vsyscall page.
  if (record.address < kLowestAddress || record.address > kMaxWordAddress) {
    ++counts_.dropped_faults;
    return;
  }
  if (IsKernelWrite(record) && thread.exec.sign == PendingExec::Sign::kNone)
    BeginKernelFaults(thread, record);
  // No area that a file backs reads without a line of the file: anonymous memory, or the vdso.  Where the
  // instruction was tells them apart.
  const bool reads_absent_page = (record.error_code & (kFaultProtection | kFaultWrite)) == 0 &&
                                 (record.error_code & kFaultUser) != 0 && !record.from_kernel;
  const uint64_t instruction = reads_absent_page ? InstructionOf(record) : 0;
  thread.fault = {.slot = PushOpen(record, FaultEvent{record.address, instruction, record.error_code}),
                  .from_kernel = record.from_kernel,
                  .alone = true,
                  .page = PageOf(record.address)};
}

void Translation::CloseFault(Thread& thread, const TraceRecord& record) {
  const OpenFault fault = std::exchange(thread.fault, {});
  // The kernel faults again at once where it ran with page faults disabled: the first one was not handled.
  const bool again = fault.alone && fault.from_kernel && record.op == TraceOp::kPageFault &&
                     record.from_kernel && record.has_address && PageOf(record.address) == fault.page;
  if (!again) return ResolveAsItIs(fault.slot);
  if (Resolve(fault.slot, Nothing{})) ++counts_.dropped_faults;
}

void Translation::OnFileMapped(const TraceRecord& record) {
  Thread& thread = Known(record);
  const uint32_t file = files_.Handle(record.op, record.dev, record.ino);
  const bool is_fault = record.op == TraceOp::kFilemapFault;
  if (is_fault) thread.readahead.Fault(file, PageOf(record.first_byte));
  const FileEvent event = PagesOf(record, is_fault ? WordKind::kFileFault : WordKind::kMapPages, file);
  if (window_.Find(thread.fault.slot) == nullptr) {
    // A system call that faults pages in, or the kernel reading another address space.
    if (!PopulatesFiles(thread.call)) return;
    if (thread.call.file == 0) thread.call.file = file;
    return OnFilePopulated(thread, record, event);
  }
  if (is_fault) thread.process->areas.Learn(thread.fault.page * options_.page_size, file, event.index);
  Push(record, event);
  MoveFaultHere(thread);
}

void Translation::MoveFaultHere(Thread& thread) {
  Entry* entry = window_.Find(thread.fault.slot);
  if (entry == nullptr) {  // forced out by the line above
    thread.fault = {};
    return;
  }
  FaultEvent event = std::get<FaultEvent>(entry->body);
  event.instruction = 0;
  const EventPlace place = entry->place;
  Resolve(thread.fault.slot, Nothing{});
  thread.fault.slot = PushAt(place, event, true);
}

}  // namespace memcgd::client
