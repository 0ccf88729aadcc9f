// One line of a recorded trace, in the words of the kernel's tracepoints, whatever text it came from
// (tracefs, trace-cmd report, perf script).  The readers fill it, trace_translator.h makes events of it.
//
// Kernel counterpart: the tracepoints' own field names (include/trace/events/*.h).
//
// Thread safety: a plain value.  The string_views point into the reader's buffer and hold until the next
// TraceReader::Next().
#ifndef MEMCGD_CLIENT_TRACE_RECORD_H_
#define MEMCGD_CLIENT_TRACE_RECORD_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace memcgd::client {

enum class TraceOp : uint8_t {
  kOther,            // a well-formed line of an event that replay has no use for
  kPageFault,        // exceptions:page_fault_user and page_fault_kernel (from_kernel)
  kFilemapAdd,       // mm_filemap_add_to_page_cache: dev, ino, first_byte = ofs, order
  kFilemapDelete,    // mm_filemap_delete_from_page_cache: the same
  kFilemapFault,     // mm_filemap_fault: dev, ino, first_byte
  kFilemapMapPages,  // mm_filemap_map_pages: dev, ino, first_byte..last_byte (inclusive)
  kFilemapGetPages,  // mm_filemap_get_pages (a read): dev, ino, first_byte..last_byte (inclusive)
  kWriteBegin,       // ext4_write_begin, ext4_da_write_begin: dev, ino, first_byte..last_byte (inclusive)
  kDirtyFolio,       // writeback_dirty_folio: dev, ino, page_index
  kSyscallEnter,     // syscall, args as the syscall takes them
  kSyscallExit,      // syscall, ret
  kFork,             // sched_process_fork: child_pid (and PERF_RECORD_FORK: child_tgid too)
  kExec,             // sched_process_exec: path = filename, old_pid
  kExit,             // sched_process_exit: group_dead (-1 where the line does not say)
  kExitMmap,         // mmap:exit_mmap
  kCgroupMkdir,      // root, cgroup_id, level, path
  kCgroupRmdir,
  kCgroupRelease,
  kCgroupAttachTask,  // root, cgroup_id, level, path, child_pid = the pid moved
  kReclaimBegin,  // mm_vmscan_memcg_reclaim_begin and its direct/kswapd siblings are kOther but for this one
  kReclaimEnd,    // mm_vmscan_memcg_reclaim_end: ret = pages
  kMarkVictim,    // mark_victim: child_pid = the victim
  kOomScoreAdj,   // oom_score_adj_update: child_pid = whose, ret = what it is now
  kPerfMmap,  // PERF_RECORD_MMAP / MMAP2: args = {address, length, file offset, prot, shared}, dev, ino, path
  kPerfComm,  // PERF_RECORD_COMM: path = the name; group_dead = 1 where it says "exec"
  kPerfExit,  // PERF_RECORD_EXIT: child_pid = the thread, child_tgid its group
  kLost,      // lost events: lost_events of them (0: an unknown number)
};

enum class Syscall : uint8_t {
  kNone,
  kMmap,
  kMunmap,
  kBrk,
  kMremap,
  kMadvise,
  kMprotect,
  kMlock,
  kMlock2,
  kMunlock,
  kMlockall,
  kMunlockall,
  kClone,
  kClone3,
  kFork,
  kVfork,
  kExecve,
  kExecveat,
  kExitGroup,
  kProcessMadvise,
};

// Device numbers as dev_t prints them: major << 20 | minor, the kernel's own MKDEV.
constexpr uint32_t MakeDev(uint32_t major, uint32_t minor) { return major << 20 | minor; }

// What ran when the line was written, by the third of the flags' columns.
enum class TraceContext : uint8_t { kTask, kSoftirq, kHardirq, kNmi };

// The columns that tracefs prints between CPU and time ("d.s2."), all clear where the line has none.
//
// Kernel counterpart: trace_print_lat_fmt() in kernel/trace/trace_output.c.
struct TraceFlags {
  bool irqs_off = false;
  bool bh_off = false;
  bool need_resched = false;
  TraceContext context = TraceContext::kTask;
  uint8_t preempt_depth = 0;    // 15 where it is more
  uint8_t migrate_disable = 0;  // the same; before 5.15 the depth of the big kernel lock
};

struct TraceRecord {
  TraceOp op = TraceOp::kOther;
  Syscall syscall = Syscall::kNone;
  uint8_t order = 0;  // log2 of the folio's pages
  uint8_t error_code =
      0;  // page fault bits: 0 protection, 1 write, 2 user, 3 reserved, 4 fetch, 5 key, 6 shadow stack
  bool from_kernel = false;  // page_fault_kernel
  bool has_address = true;   // false: the address was printed as a symbol that cannot be resolved
  int8_t group_dead = -1;
  TraceFlags flags;
  uint32_t cpu = 0;
  int32_t tid = 0;
  int32_t tgid = -1;     // -1: the line does not say
  int64_t time_ns = 0;   // the trace's own clock
  uint64_t address = 0;  // page faults
  uint32_t dev = 0;      // MakeDev()
  uint64_t ino = 0;
  uint64_t first_byte = 0;  // offsets in a file, bytes
  uint64_t last_byte = 0;   // inclusive
  uint64_t page_index = 0;  // kDirtyFolio
  std::array<uint64_t, 6> args{};
  int64_t ret = 0;  // a syscall's return: an address, or −errno; kReclaimEnd: pages; kOomScoreAdj
  int32_t child_pid = 0;
  int32_t child_tgid = -1;
  int32_t old_pid = 0;  // kExec: the thread's number before the exec made it its group's leader
  uint32_t root = 0;    // cgroup hierarchy number
  uint32_t level = 0;
  uint64_t cgroup_id = 0;
  uint64_t lost_events = 0;
  std::string_view comm;
  std::string_view path;  // cgroup path, file name, or executable
  std::string_view ip;    // page faults: the text of ip= (a symbol for kernel faults)
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRACE_RECORD_H_
