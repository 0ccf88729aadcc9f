#include "client/tracefs_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "client/event_parser.h"

namespace memcgd::client {
namespace {

constexpr size_t kCommWidth = 16;
constexpr int64_t kNsPerSecond = 1'000'000'000;

// Appends pieces to a line.  absl::StrAppend takes twice the time, and there are 50,000 lines a second.
class Line {
 public:
  explicit Line(std::string* text) : text_(*text) {}

  Line& operator<<(std::string_view piece) {
    text_.append(piece);
    return *this;
  }
  Line& operator<<(char piece) {
    text_.push_back(piece);
    return *this;
  }
  Line& Number(int64_t value) { return Digits(value, 10); }
  Line& Unsigned(uint64_t value) { return Digits(value, 10); }
  Line& Hex(uint64_t value) { return Digits(value, 16); }
  Line& Padded(uint64_t value, size_t width) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
    const auto size = static_cast<size_t>(end - digits.begin());
    text_.append(width > size ? width - size : 0, '0');
    text_.append(digits.data(), size);
    return *this;
  }
  Line& Name(std::string_view name) {
    for (const char c : name) text_.push_back(static_cast<unsigned char>(c) < ' ' ? '?' : c);
    return *this;
  }
  Line& Device(uint32_t dev, char between) {
    Unsigned(dev >> 20) << between;
    return Unsigned(dev & ((1U << 20) - 1));
  }
  Line& Blanks(size_t count) {
    text_.append(count, ' ');
    return *this;
  }

 private:
  template <typename Value>
  Line& Digits(Value value, int base) {
    std::array<char, 24> digits;
    text_.append(digits.data(), std::to_chars(digits.begin(), digits.end(), value, base).ptr);
    return *this;
  }

  std::string& text_;
};

std::string_view SyscallName(Syscall syscall) {
  for (const SyscallEntry& entry : Syscalls()) {
    if (entry.syscall == syscall) return entry.name;
  }
  return "";
}

char Depth(uint8_t depth) { return depth == 0 ? '.' : "0123456789abcdef"[depth & 0xf]; }

void AppendFlags(const TraceFlags& flags, Line& line) {
  line << (flags.irqs_off ? (flags.bh_off ? 'D' : 'd') : (flags.bh_off ? 'b' : '.'))
       << (flags.need_resched ? 'N' : '.') << ".shz"[static_cast<size_t>(flags.context)]
       << Depth(flags.preempt_depth) << Depth(flags.migrate_disable);
}

//            comm-PID     (   TGID) [cpu] d.s2. seconds.fraction:
void AppendHead(const TraceRecord& record, Line& line) {
  const std::string_view comm = record.comm.substr(0, kCommWidth - 1);
  line.Blanks(kCommWidth - comm.size()).Name(comm) << '-';
  line.Number(record.tid) << " (";
  if (record.tgid >= 0) {
    line.Number(record.tgid);
  } else {
    line << "-------";
  }
  line << ") [";
  line.Padded(record.cpu, 3) << "] ";
  AppendFlags(record.flags, line);
  line << ' ';
  line.Number(record.time_ns / kNsPerSecond) << '.';
  line.Padded(static_cast<uint64_t>(record.time_ns % kNsPerSecond), 9) << ": ";
}

void AppendPageFault(const TraceRecord& record, Line& line) {
  line << (record.from_kernel ? "page_fault_kernel: address=" : "page_fault_user: address=");
  if (record.has_address) {
    (line << "0x").Hex(record.address);
  } else {
    line << '?';
  }
  (line << " ip=" << record.ip << " error_code=0x").Hex(record.error_code);
}

void AppendFilemapChange(std::string_view event, const TraceRecord& record, Line& line) {
  (line << event << ": dev ").Device(record.dev, ':') << " ino ";
  line.Hex(record.ino) << " pfn=0x0 ofs=";
  line.Number(static_cast<int64_t>(record.first_byte)) << " order=";
  line.Unsigned(record.order);
}

void AppendFilemapUse(std::string_view event, const TraceRecord& record, Line& line) {
  (line << event << ": dev=").Device(record.dev, ':') << " ino=";
  line.Hex(record.ino) << " ofs=";
  line.Number(static_cast<int64_t>(record.first_byte));
  if (record.op != TraceOp::kFilemapFault) (line << '-').Number(static_cast<int64_t>(record.last_byte));
}

void AppendWriteBegin(const TraceRecord& record, Line& line) {
  (line << "ext4_da_write_begin: dev ").Device(record.dev, ',') << " ino ";
  line.Unsigned(record.ino) << " pos ";
  line.Unsigned(record.first_byte) << " len ";
  line.Unsigned(record.last_byte - record.first_byte + 1);
}

void AppendDirtyFolio(const TraceRecord& record, Line& line) {
  (line << "writeback_dirty_folio: bdi ").Device(record.dev, ':') << ": ino=";
  line.Unsigned(record.ino) << " index=";
  line.Unsigned(record.page_index);
}

void AppendSyscallEnter(const TraceRecord& record, Line& line) {
  for (const SyscallEntry& entry : Syscalls()) {
    if (entry.syscall != record.syscall) continue;
    line << "sys_" << entry.name << '(';
    for (size_t i = 0; i < entry.args; ++i) (line << (i == 0 ? "a: 0x" : ", a: 0x")).Hex(record.args[i]);
    line << ')';
  }
}

void AppendSyscallExit(const TraceRecord& record, Line& line) {
  (line << "sys_" << SyscallName(record.syscall) << " -> 0x").Hex(static_cast<uint64_t>(record.ret));
}

void AppendFork(const TraceRecord& record, Line& line) {
  (line << "sched_process_fork: comm=").Name(record.comm) << " pid=";
  (line.Number(record.tid) << " child_comm=").Name(record.comm) << " child_pid=";
  line.Number(record.child_pid);
}

void AppendExec(const TraceRecord& record, Line& line) {
  (line << "sched_process_exec: filename=").Name(record.path) << " pid=";
  (line.Number(record.tid) << " old_pid=").Number(record.old_pid);
}

void AppendExit(const TraceRecord& record, Line& line) {
  (line << "sched_process_exit: comm=").Name(record.comm) << " pid=";
  line.Number(record.tid) << " prio=0";
  if (record.group_dead >= 0) line << (record.group_dead != 0 ? " group_dead=true" : " group_dead=false");
}

void AppendCgroup(std::string_view event, const TraceRecord& record, Line& line) {
  (line << event << ": root=").Unsigned(record.root) << " id=";
  (line.Unsigned(record.cgroup_id) << " level=").Unsigned(record.level) << " path=";
  line.Name(record.path);
}

void AppendAttach(const TraceRecord& record, Line& line) {
  (line << "cgroup_attach_task: dst_root=").Unsigned(record.root) << " dst_id=";
  (line.Unsigned(record.cgroup_id) << " dst_level=").Unsigned(record.level) << " dst_path=";
  (line.Name(record.path) << " pid=").Number(record.child_pid) << " comm=";
  line.Name(record.comm.substr(0, kCommWidth - 1));
}

void AppendOomScoreAdj(const TraceRecord& record, Line& line) {
  (line << "oom_score_adj_update: pid=").Number(record.child_pid) << " comm= oom_score_adj=";
  line.Number(record.ret);
}

void AppendLost(const TraceRecord& record, Line& line) {
  (line << "CPU:").Unsigned(record.cpu) << " [LOST ";
  if (record.lost_events != 0) line.Unsigned(record.lost_events) << ' ';
  line << "EVENTS]";
}

void AppendBody(const TraceRecord& record, Line& line) {
  switch (record.op) {
    case TraceOp::kPageFault:
      return AppendPageFault(record, line);
    case TraceOp::kFilemapAdd:
      return AppendFilemapChange("mm_filemap_add_to_page_cache", record, line);
    case TraceOp::kFilemapDelete:
      return AppendFilemapChange("mm_filemap_delete_from_page_cache", record, line);
    case TraceOp::kFilemapFault:
      return AppendFilemapUse("mm_filemap_fault", record, line);
    case TraceOp::kFilemapMapPages:
      return AppendFilemapUse("mm_filemap_map_pages", record, line);
    case TraceOp::kFilemapGetPages:
      return AppendFilemapUse("mm_filemap_get_pages", record, line);
    case TraceOp::kWriteBegin:
      return AppendWriteBegin(record, line);
    case TraceOp::kDirtyFolio:
      return AppendDirtyFolio(record, line);
    case TraceOp::kSyscallEnter:
      return AppendSyscallEnter(record, line);
    case TraceOp::kSyscallExit:
      return AppendSyscallExit(record, line);
    case TraceOp::kFork:
      return AppendFork(record, line);
    case TraceOp::kExec:
      return AppendExec(record, line);
    case TraceOp::kExit:
      return AppendExit(record, line);
    case TraceOp::kExitMmap:
      line << "exit_mmap: ";
      return;
    case TraceOp::kCgroupMkdir:
      return AppendCgroup("cgroup_mkdir", record, line);
    case TraceOp::kCgroupRmdir:
      return AppendCgroup("cgroup_rmdir", record, line);
    case TraceOp::kCgroupRelease:
      return AppendCgroup("cgroup_release", record, line);
    case TraceOp::kCgroupAttachTask:
      return AppendAttach(record, line);
    case TraceOp::kReclaimBegin:
      line << "mm_vmscan_memcg_reclaim_begin: ";
      return;
    case TraceOp::kReclaimEnd:
      (line << "mm_vmscan_memcg_reclaim_end: nr_reclaimed=").Number(record.ret);
      return;
    case TraceOp::kMarkVictim:
      (line << "mark_victim: pid=").Number(record.child_pid);
      return;
    case TraceOp::kOomScoreAdj:
      return AppendOomScoreAdj(record, line);
    case TraceOp::kLost:
      return AppendLost(record, line);
    case TraceOp::kOther:
    case TraceOp::kPerfMmap:
    case TraceOp::kPerfComm:
    case TraceOp::kPerfExit:
      return;
  }
}

bool HasLine(TraceOp op) {
  return op != TraceOp::kOther && op != TraceOp::kPerfMmap && op != TraceOp::kPerfComm &&
         op != TraceOp::kPerfExit;
}

}  // namespace

void AppendTracefsLine(const TraceRecord& record, std::string* text) {
  if (!HasLine(record.op)) return;
  Line line(text);
  if (record.op != TraceOp::kLost) AppendHead(record, line);
  AppendBody(record, line);
  line << '\n';
}

}  // namespace memcgd::client
