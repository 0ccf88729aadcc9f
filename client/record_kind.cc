#include "client/record_kind.h"

#include <charconv>

#include "client/batch_builder.h"
#include "client/linux_numbers.h"

namespace memcgd::client {

bool IsCgroupOp(TraceOp op) {
  return op == TraceOp::kCgroupMkdir || op == TraceOp::kCgroupRmdir || op == TraceOp::kCgroupRelease ||
         op == TraceOp::kCgroupAttachTask;
}

bool IsExit(TraceOp op) { return op == TraceOp::kExit || op == TraceOp::kPerfExit; }

bool IsWithinFault(TraceOp op) {
  switch (op) {
    case TraceOp::kFilemapAdd:
    case TraceOp::kFilemapDelete:
    case TraceOp::kFilemapFault:
    case TraceOp::kFilemapMapPages:
    case TraceOp::kDirtyFolio:
    case TraceOp::kReclaimBegin:
    case TraceOp::kReclaimEnd:
    case TraceOp::kMarkVictim:
      return true;
    default:
      return false;
  }
}

bool IsKernelWrite(const TraceRecord& record) {
  return record.op == TraceOp::kPageFault && record.from_kernel && record.error_code == kFaultWrite;
}

bool IsPerfExec(const TraceRecord& record) {
  return record.op == TraceOp::kPerfComm && record.group_dead == 1;
}

bool IsWithinExec(const TraceRecord& record) {
  if (IsWithinFault(record.op)) return true;
  return (record.op == TraceOp::kPageFault && record.from_kernel) || record.op == TraceOp::kFilemapGetPages ||
         record.op == TraceOp::kPerfMmap || record.op == TraceOp::kPerfComm || record.op == TraceOp::kExec;
}

bool IsWithinKernelFaults(const TraceRecord& record) {
  return IsWithinFault(record.op) || IsKernelWrite(record) || record.op == TraceOp::kPerfMmap ||
         record.op == TraceOp::kExec;
}

bool KeepsReads(const TraceRecord& record) {
  return record.op == TraceOp::kFilemapGetPages || record.op == TraceOp::kFilemapAdd ||
         record.op == TraceOp::kFilemapDelete || record.op == TraceOp::kExitMmap ||
         record.op == TraceOp::kExec || IsKernelWrite(record) || IsPerfExec(record);
}

bool InInterrupt(const TraceRecord& record) { return record.flags.context != TraceContext::kTask; }

bool IsKswapd(const TraceRecord& record) {
  constexpr std::string_view kName = "kswapd";
  if (!record.comm.starts_with(kName) || record.comm.size() == kName.size()) return false;
  const std::string_view number = record.comm.substr(kName.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos &&
         (record.tgid <= 0 || record.tgid == record.tid);
}

bool PopulatesFiles(const Call& call) {
  switch (call.syscall) {
    case Syscall::kMmap:
      return (call.args[3] & kMapFaultsIn) != 0;
    case Syscall::kMlock:
    case Syscall::kMlock2:
    case Syscall::kMlockall:
      return true;
    case Syscall::kMadvise:
      return call.args[2] == kMadvPopulateRead || call.args[2] == kMadvPopulateWrite;
    default:
      return false;
  }
}

uint64_t InstructionOf(const TraceRecord& record) {
  std::string_view text = record.ip;
  if (text.starts_with("0x")) text.remove_prefix(2);
  uint64_t address = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), address, 16);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && address <= kMaxWordAddress ? address : 0;
}

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace memcgd::client
