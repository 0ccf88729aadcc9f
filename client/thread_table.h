// What is known of the trace's threads and their processes, by their numbers.
//
// The living, and the last few thousand that died: exit_mmap comes after sched_process_exit, and numbers are
// used again.
//
// Kernel counterpart: struct task_struct and its signal_struct (include/linux/sched.h), as far as a trace
// shows them.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_THREAD_TABLE_H_
#define MEMCGD_CLIENT_THREAD_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/node_hash_map.h"
#include "client/event_window.h"
#include "client/file_areas.h"
#include "client/populate_run.h"
#include "client/readahead_run.h"
#include "client/trace_record.h"

namespace memcgd::client {

struct Process {
  int32_t tgid = 0;
  uint32_t threads = 0;    // entries of the thread table that point here
  uint32_t live = 0;       // of those, the living
  bool shares_mm = false;  // vforked, and no exec yet: its end ends no address space
  bool mm_gone = false;    // its exit_mmap was seen
  FileAreas areas;         // of its address space
};

// A system call that was entered and has not returned.
struct Call {
  Syscall syscall = Syscall::kNone;
  std::array<uint64_t, 6> args{};
  uint32_t file = 0;    // of an mmap, as something in between told it
  Slot slot = kNoSlot;  // of an event that stands at the entry's place
  PopulateRun populate;
  Slot area_slot = kNoSlot;   // of an mmap, before the first line of `populate`
  uint64_t populated_to = 0;  // of the other calls, address of the last fault that was told
};

// A fault that waits for what backs it.
struct OpenFault {
  Slot slot = kNoSlot;
  bool from_kernel = false;
  bool alone = false;  // no other line of the thread so far
  uint64_t page = 0;
};

// An exec that may be under way, and where it would stand.
struct PendingExec {
  enum class Sign : uint8_t {
    kNone,
    kMmapGone,      // exit_mmap by a thread that lives: the old address space, or somebody else's
    kKernelFaults,  // writes by the kernel to pages not present: the new address space's, or a read's buffer
    kPerfComm,      // PERF_RECORD_COMM exec: for sure
  };
  Sign sign = Sign::kNone;
  Slot slot = kNoSlot;
  Slot arguments = kNoSlot;
};

// Where this thread's own beginning waits for what it shares with its parent.
struct PendingClone {
  Slot slot = kNoSlot;
  int32_t parent = 0;
  uint64_t parent_records = 0;  // of the parent, when it cloned
  int32_t tgid = -1;            // as perf told it
  bool open() const { return slot != kNoSlot; }
};

struct Thread {
  int32_t tid = 0;
  bool dead = false;
  bool told = true;      // the stream knows it
  uint64_t records = 0;  // of its own
  Process* process = nullptr;
  Call call;
  OpenFault fault;
  PendingExec exec;
  PendingClone clone;
  // kswapd: deletes folios to reclaim them, and is in the middle of that.
  bool reclaims_node = false, reclaiming = false;
  uint64_t reclaimed_pages = 0;
  Slot reads_slot = kNoSlot;  // before the first of an unbroken run of file reads: an exec may begin there
  uint32_t reads = 0;         // lines of that run
  Slot exit_mmap_slot =
      kNoSlot;  // of a dead thread: the end of its address space, should the trace not tell it
  ReadaheadRun readahead;
};

// Threads by their number.  The dead are remembered for a while: exit_mmap comes after sched_process_exit.
class ThreadTable {
 public:
  // nullptr where the number was never seen, or its thread died long ago.
  Thread* Find(int32_t tid) {
    if (last_ != nullptr && last_->tid == tid) return last_;
    const auto at = threads_.find(tid);
    if (at == threads_.end()) return nullptr;
    return last_ = &at->second;
  }

  // A new thread; one that had the number before is forgotten.
  Thread& Begin(int32_t tid, int32_t tgid) {
    Thread& thread = threads_[tid];
    Leave(thread);
    thread = Thread();
    thread.tid = tid;
    Join(thread, tgid);
    return thread;
  }

  // Moves a thread to another process.
  void Move(Thread& thread, int32_t tgid) {
    Leave(thread);
    Join(thread, tgid);
  }

  void Die(Thread& thread) {
    thread.dead = true;
    if (--thread.process->live == 0) thread.process->areas.Clear();
    dead_.push_back(thread.tid);
    if (dead_.size() > kRememberedDead) ForgetOldest();
  }

 private:
  static constexpr size_t kRememberedDead = 4096;

  void Join(Thread& thread, int32_t tgid) {
    Process& process = processes_[tgid];
    // A number that is used again names another process.
    if (process.live == 0) {
      process.shares_mm = false;
      process.mm_gone = false;
      process.areas.Clear();
    }
    process.tgid = tgid;
    ++process.threads;
    ++process.live;
    thread.process = &process;
  }
  void Leave(Thread& thread) {
    if (thread.process == nullptr) return;
    if (!thread.dead) --thread.process->live;
    if (--thread.process->threads == 0) processes_.erase(thread.process->tgid);
    thread.process = nullptr;
  }
  void ForgetOldest() {
    const auto at = threads_.find(dead_.front());
    dead_.pop_front();
    if (at == threads_.end() || !at->second.dead) return;
    if (last_ == &at->second) last_ = nullptr;
    Leave(at->second);
    threads_.erase(at);
  }

  absl::node_hash_map<int32_t, Thread> threads_;
  absl::node_hash_map<int32_t, Process> processes_;
  std::deque<int32_t> dead_;
  Thread* last_ = nullptr;  // most lines are of the same thread as the one before
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_THREAD_TABLE_H_
