// The parts, in order: what waits (events, Window), what is known (Thread, ThreadTable, CgroupTable,
// FileTable, ReadaheadRun), how events reach the builder (Emitter), and the rules (Impl).
#include "client/trace_translator.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"

namespace memcgd::client {
namespace {

// ---- Linux numbers (x86-64) ----

constexpr uint8_t kFaultProtection = 1, kFaultWrite = 2, kFaultUser = 4;
constexpr uint64_t kProtReadWrite = 3;
constexpr uint64_t kMapShared = 1, kMapPrivate = 2, kMapTypeMask = 0xf, kMapAnonymous = 0x20;
// Flags with which private anonymous memory is no kMmapAnon: GROWSDOWN, LOCKED, NORESERVE, POPULATE, HUGETLB.
constexpr uint64_t kMapSpecial = 0x100 | 0x2000 | 0x4000 | 0x8000 | 0x40000;
constexpr uint64_t kMapFaultsIn = 0x2000 | 0x8000;  // LOCKED, POPULATE
constexpr uint64_t kMadvDontNeed = 4, kMadvFree = 8, kMadvRemove = 9, kMadvPopulateRead = 22,
                   kMadvPopulateWrite = 23, kMadvDontNeedLocked = 24;
constexpr uint64_t kCloneVm = 0x100, kCloneThread = 0x10000;
constexpr uint64_t kMlockOnFault = 1, kMclOnFault = 4;
constexpr int64_t kMaxErrno = 4095;
constexpr uint64_t kLowestAddress = 65536;  // vm.mmap_min_addr
constexpr int32_t kKthreadd = 2;            // parent of all kernel threads

bool IsError(int64_t ret) { return ret < 0 && ret >= -kMaxErrno; }

// ---- events that wait ----

struct Nothing {};  // a place that turned out to hold no event

struct FaultEvent {
  uint64_t address;
  uint64_t instruction;  // 0: not wanted, or not known
  uint8_t error_code;
};
struct FileEvent {
  WordKind kind;
  uint8_t order;
  uint32_t file;
  uint64_t index;
  uint64_t count;
};
struct RangeEvent {
  WordKind kind;
  uint64_t address;
  uint64_t length;
};
struct BrkEvent {
  uint64_t address;
};
struct MmapEvent {
  uint64_t address;
  uint64_t length;
  uint64_t offset;
  uint32_t prot;
  uint32_t flags;
  uint32_t file;
  bool baseline;
};
struct MremapEvent {
  uint64_t old_address;
  uint64_t old_length;
  uint64_t new_address;
  uint64_t new_length;
  uint32_t flags;
};
struct MprotectEvent {
  uint64_t address, length;
  uint32_t prot;
};
struct MadviseEvent {
  uint64_t address, length;
  uint32_t advice;
};
struct MlockEvent {
  uint64_t address, length;
  bool on_fault;
};
struct MunlockEvent {
  uint64_t address, length;
};
struct CloneEvent {
  uint32_t child;
  bool thread;
  bool shares_mm;
};
struct ExecArgumentsEvent {};
struct ExecEvent {
  uint32_t name;
};
struct ExitEvent {
  bool group_dead;
};
struct ExitMmapEvent {};
struct CommEvent {
  uint32_t name;
};
struct CgroupCreateEvent {
  uint32_t path;
};
struct CgroupRemoveEvent {
  uint32_t path;
};
struct CgroupAttachEvent {
  uint32_t path;
  uint32_t moved;
};
struct ReclaimBeginEvent {};
struct ReclaimEndEvent {
  uint64_t reclaimed_pages;
};
struct MarkVictimEvent {
  uint32_t victim;
};
struct BaselineProcessEvent {
  uint32_t tgid;
  uint32_t name;
};
struct MarkEvent {
  uint64_t id;
};

using Body =
    std::variant<Nothing, FaultEvent, FileEvent, RangeEvent, BrkEvent, MmapEvent, MremapEvent, MprotectEvent,
                 MadviseEvent, MlockEvent, MunlockEvent, CloneEvent, ExecArgumentsEvent, ExecEvent, ExitEvent,
                 ExitMmapEvent, CommEvent, CgroupCreateEvent, CgroupRemoveEvent, CgroupAttachEvent,
                 ReclaimBeginEvent, ReclaimEndEvent, MarkVictimEvent, BaselineProcessEvent, MarkEvent>;

// A place in the window, counted from the trace's beginning.
using Slot = uint64_t;
constexpr Slot kNoSlot = 0;

struct Entry {
  EventPlace place;
  bool open = false;  // what it means is not known yet; `body` is its face value
  Body body;
};

// The entries that wait, in the trace's order, in a ring of fixed size.
class Window {
 public:
  explicit Window(size_t size) : ring_(std::bit_ceil(std::max<size_t>(size, 2))) {}

  bool empty() const { return begin_ == end_; }
  bool full() const { return end_ - begin_ == ring_.size(); }
  Entry& front() { return at(begin_); }
  void PopFront() { ++begin_; }

  // REQUIRES: !full().
  Slot Push(const EventPlace& place, const Body& body, bool open) {
    Entry& entry = at(end_);
    entry.place = place;
    entry.open = open;
    entry.body = body;
    return end_++;
  }
  // nullptr where the entry left the window already, and for kNoSlot.
  Entry* Find(Slot slot) { return slot >= begin_ ? &at(slot) : nullptr; }

 private:
  Entry& at(Slot slot) { return ring_[slot & (ring_.size() - 1)]; }

  std::vector<Entry> ring_;
  Slot begin_ = 1;  // kNoSlot is before all
  Slot end_ = 1;
};

// ---- where readahead leaves its mark ----

// One thread's readahead of one file: what asked for it (a line of mm_filemap_fault, or the line of the read
// that follows the additions) and the pages that were added.  From them follows the page that carries
// PG_readahead, by which the kernel starts the next readahead and where fault-around stops.
//
// Kernel counterpart: mm/readahead.c (page_cache_sync_ra(), page_cache_async_ra()) and mm/filemap.c
// (do_sync_mmap_readahead()).  Differs: a mark that a folio outside the added pages would carry is not known.
class ReadaheadRun {
 public:
  struct Mark {
    uint32_t file;
    uint64_t index;
  };

  bool active() const { return cause_ != Cause::kNone || !added_.empty(); }
  void Forget() { Begin(Cause::kNone, 0, 0); }

  void Fault(uint32_t file, uint64_t index) { Begin(Cause::kFault, file, index); }
  // write(2) adds pages too, and reads none ahead.
  void Write(uint32_t file) { Begin(Cause::kWrite, file, 0); }

  void Add(uint32_t file, uint64_t index, uint64_t pages) {
    if (file != file_) Begin(Cause::kNone, file, 0);
    if (!added_.empty() && added_.back().end == index) {
      added_.back().end = index + pages;
    } else if (added_.size() < kMaxPieces) {
      added_.push_back({index, index + pages});
    }
  }

  // Pages that a write(2) made are dirty then, and nothing was read ahead.
  void Dirty() {
    if (cause_ != Cause::kFault) Forget();
  }

  // The thread goes on: it read pages first … last of `file`, which is what the pages were added for.
  std::optional<Mark> AfterRead(uint32_t file, uint64_t first, uint64_t last, uint64_t window) const {
    if (file != file_) return AtEnd(window);
    if (added_.empty() || cause_ == Cause::kWrite) return std::nullopt;
    const uint64_t begin = added_.front().begin;
    if (begin > first) return Mark{file_, begin};  // asynchronous: the reader met the mark before it
    if (begin != 0) return std::nullopt;
    const uint64_t wanted = last + 1;
    const uint64_t size = InitialSize(wanted, window);
    return IfAdded(size > wanted ? wanted : size / 2);
  }

  // The thread goes on with something else.
  std::optional<Mark> AtEnd(uint64_t window) const {
    if (added_.empty() || cause_ != Cause::kFault) return std::nullopt;
    if (!Contains(fault_index_))
      return Mark{file_, added_.front().begin};                     // asynchronous: the fault met the mark
    if (added_.front().begin >= fault_index_) return std::nullopt;  // of code: straight ahead, no mark
    const uint64_t begin = fault_index_ - std::min(fault_index_, window / 2);
    const uint64_t pages = std::min(window, added_.back().end - std::min(begin, added_.back().end));
    return pages < window / 4 ? std::nullopt : IfAdded(begin + pages - window / 4);
  }

 private:
  enum class Cause : uint8_t { kNone, kFault, kWrite };
  struct Piece {
    uint64_t begin;
    uint64_t end;
  };
  static constexpr size_t kMaxPieces = 4096;  // a readahead with more gaps is not followed to its end
  static constexpr size_t kKeptPieces = 64;   // a thread holds no more than that for its next readahead

  void Begin(Cause cause, uint32_t file, uint64_t fault_index) {
    cause_ = cause;
    file_ = file;
    fault_index_ = fault_index;
    added_.clear();
    if (added_.capacity() > kKeptPieces) added_ = {};
  }
  bool Contains(uint64_t index) const {
    return std::any_of(added_.begin(), added_.end(),
                       [index](const Piece& piece) { return piece.begin <= index && index < piece.end; });
  }
  std::optional<Mark> IfAdded(uint64_t index) const {
    return Contains(index) ? std::optional<Mark>({file_, index}) : std::nullopt;
  }
  // get_init_ra_size().
  static uint64_t InitialSize(uint64_t wanted, uint64_t window) {
    const uint64_t size = std::bit_ceil(std::min(wanted, window));
    if (size <= window / 32) return size * 4;
    return size <= window / 4 ? size * 2 : window;
  }

  Cause cause_ = Cause::kNone;
  uint32_t file_ = 0;
  uint64_t fault_index_ = 0;
  std::vector<Piece> added_;
};

// ---- threads ----

struct Process {
  int32_t tgid = 0;
  uint32_t threads = 0;    // entries of the thread table that point here
  uint32_t live = 0;       // of those, the living
  bool shares_mm = false;  // vforked, and no exec yet: its end ends no address space
  bool mm_gone = false;    // its exit_mmap was seen
};

// A system call that was entered and has not returned.
struct Call {
  Syscall syscall = Syscall::kNone;
  std::array<uint64_t, 6> args{};
  uint32_t file = 0;    // of an mmap, as something in between told it
  Slot slot = kNoSlot;  // of an event that stands at the entry's place
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
    --thread.process->live;
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

// ---- files ----

// Handles of files, and which of them are shared memory.
class FileTable {
 public:
  explicit FileTable(BatchBuilder* builder) : builder_(builder) {}

  uint32_t Handle(TraceOp op, uint32_t dev, uint64_t ino) {
    if (IsVirtual(dev) && ShowsRegularFile(op)) LearnRegular(dev);
    if (dev == last_dev_ && ino == last_ino_) return last_handle_;
    last_dev_ = dev;
    last_ino_ = ino;
    last_handle_ = builder_->FileHandle(dev, ino, IsSharedMemory(dev));
    dev_of_ino_[ino] = dev;
    return last_handle_;
  }

  // writeback_dirty_folio names the disk, not the file system: another number where the file system is on a
  // partition, or where the file is the disk itself.  The inode's number tells which file it was.
  uint32_t DirtyHandle(uint32_t disk, uint64_t ino) {
    if (ino == last_ino_) return last_handle_;
    const auto at = dev_of_ino_.find(ino);
    return Handle(TraceOp::kDirtyFolio, at == dev_of_ino_.end() ? disk : at->second, ino);
  }

 private:
  // Devices without a disk have major number 0: tmpfs and the kernel's own shared memory, but btrfs or
  // overlayfs as well.
  static bool IsVirtual(uint32_t dev) { return dev >> 20 == 0; }
  // Pages of shared memory come to be in shmem_fault() and shmem_get_folio(), which leave none of these
  // lines.
  static bool ShowsRegularFile(TraceOp op) {
    return op == TraceOp::kFilemapAdd || op == TraceOp::kFilemapFault || op == TraceOp::kFilemapGetPages ||
           op == TraceOp::kWriteBegin;
  }
  bool IsSharedMemory(uint32_t dev) const { return IsVirtual(dev) && !regular_.contains(dev); }

  void LearnRegular(uint32_t dev) {
    if (regular_.insert(dev).second && dev == last_dev_) last_ino_ = kNoIno;
  }

  static constexpr uint64_t kNoIno = ~uint64_t{0};

  BatchBuilder* const builder_;
  uint32_t last_dev_ = 0;
  uint64_t last_ino_ = kNoIno;
  uint32_t last_handle_ = 0;
  absl::flat_hash_set<uint32_t> regular_;  // virtual devices that hold files
  absl::flat_hash_map<uint64_t, uint32_t> dev_of_ino_;
};

// ---- cgroups ----

// "/" or "/a/b": no empty, "." or ".." part, at most 255 bytes a part and 4096 in all.
bool IsCgroupPath(std::string_view path) {
  if (path == "/") return true;
  if (path.empty() || path[0] != '/' || path.size() > 4096) return false;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    path.remove_prefix(part.size());
  }
  return true;
}

// The cgroups that the stream made.
class CgroupTable {
 public:
  // False where it exists.  Its ancestors come to exist with it.
  bool Create(std::string_view path) {
    if (path.size() <= 1 || !paths_.emplace(path).second) return false;
    for (size_t end = path.rfind('/'); end != 0; end = path.rfind('/', end - 1)) {
      if (!paths_.emplace(path.substr(0, end)).second) break;
    }
    return true;
  }
  void Remove(std::string_view path) { paths_.erase(std::string(path)); }

 private:
  absl::flat_hash_set<std::string> paths_;
};

// ---- to the builder ----

class Emitter {
 public:
  explicit Emitter(BatchBuilder* builder) : builder_(builder) {}

  uint64_t events() const { return events_; }

  void Emit(const Entry& entry) {
    place_ = &entry.place;
    std::visit(*this, entry.body);
  }

  void operator()(const Nothing&) {}
  void operator()(const FaultEvent& event) {
    if (event.instruction != 0) Address(WordKind::kInstruction, event.instruction, 0);
    Address(WordKind::kFault, event.address, event.error_code);
  }
  void operator()(const FileEvent& event) {
    ++events_;
    builder_->AddFile(*place_, event.kind, event.file, event.index, event.count, event.order);
  }
  void operator()(const RangeEvent& event) {
    ++events_;
    builder_->AddRange(*place_, event.kind, event.address, event.length);
  }
  void operator()(const BrkEvent& event) { Address(WordKind::kBrk, event.address, 0); }
  void operator()(const MmapEvent& event) {
    auto* side = Side();
    auto* mmap = event.baseline ? side->mutable_baseline_area()->mutable_area() : side->mutable_mmap();
    mmap->set_address(event.address);
    mmap->set_length(event.length);
    mmap->set_prot(event.prot);
    mmap->set_flags(event.flags);
    mmap->set_file(event.file);
    mmap->set_offset(event.offset);
  }
  void operator()(const MremapEvent& event) {
    auto* mremap = Side()->mutable_mremap();
    mremap->set_old_address(event.old_address);
    mremap->set_old_length(event.old_length);
    mremap->set_new_address(event.new_address);
    mremap->set_new_length(event.new_length);
    mremap->set_flags(event.flags);
  }
  void operator()(const MprotectEvent& event) {
    auto* mprotect = Side()->mutable_mprotect();
    mprotect->set_address(event.address);
    mprotect->set_length(event.length);
    mprotect->set_prot(event.prot);
  }
  void operator()(const MadviseEvent& event) {
    auto* madvise = Side()->mutable_madvise();
    madvise->set_address(event.address);
    madvise->set_length(event.length);
    madvise->set_advice(event.advice);
  }
  void operator()(const MlockEvent& event) {
    auto* mlock = Side()->mutable_mlock();
    mlock->set_address(event.address);
    mlock->set_length(event.length);
    mlock->set_on_fault(event.on_fault);
  }
  void operator()(const MunlockEvent& event) {
    auto* munlock = Side()->mutable_munlock();
    munlock->set_address(event.address);
    munlock->set_length(event.length);
  }
  void operator()(const CloneEvent& event) {
    auto* clone = Side()->mutable_clone();
    clone->set_child_tid(event.child);
    clone->set_thread(event.thread);
    clone->set_shares_mm(event.shares_mm);
  }
  void operator()(const ExecArgumentsEvent&) { Side()->mutable_exec_arguments(); }
  void operator()(const ExecEvent& event) { Side()->mutable_exec()->set_name(event.name); }
  void operator()(const ExitEvent& event) { Side()->mutable_exit()->set_group_dead(event.group_dead); }
  void operator()(const ExitMmapEvent&) { Side()->mutable_exit_mmap(); }
  void operator()(const CommEvent& event) { Side()->mutable_comm()->set_name(event.name); }
  void operator()(const CgroupCreateEvent& event) { Side()->mutable_cgroup_create()->set_path(event.path); }
  void operator()(const CgroupRemoveEvent& event) { Side()->mutable_cgroup_remove()->set_path(event.path); }
  void operator()(const CgroupAttachEvent& event) {
    auto* attach = Side()->mutable_cgroup_attach();
    attach->set_path(event.path);
    attach->set_moved_tid(event.moved);
  }
  void operator()(const ReclaimBeginEvent&) { Side()->mutable_reclaim_begin(); }
  void operator()(const ReclaimEndEvent& event) {
    Side()->mutable_reclaim_end()->set_reclaimed_pages(event.reclaimed_pages);
  }
  void operator()(const MarkVictimEvent& event) {
    Side()->mutable_mark_victim()->set_victim_tid(event.victim);
  }
  void operator()(const BaselineProcessEvent& event) {
    auto* process = Side()->mutable_baseline_process();
    process->set_tgid(event.tgid);
    process->set_name(event.name);
  }
  void operator()(const MarkEvent& event) { Side()->mutable_mark()->set_id(event.id); }

 private:
  void Address(WordKind kind, uint64_t address, uint32_t error_code) {
    ++events_;
    builder_->AddAddress(*place_, kind, address, error_code);
  }
  memcgd::v1::SideEvent* Side() {
    ++events_;
    return builder_->AddSide(*place_);
  }

  BatchBuilder* const builder_;
  const EventPlace* place_ = nullptr;
  uint64_t events_ = 0;
};

// ---- kinds of records ----

bool IsCgroupOp(TraceOp op) {
  return op == TraceOp::kCgroupMkdir || op == TraceOp::kCgroupRmdir || op == TraceOp::kCgroupRelease ||
         op == TraceOp::kCgroupAttachTask;
}

bool IsExit(TraceOp op) { return op == TraceOp::kExit || op == TraceOp::kPerfExit; }

// What happens in the middle of a fault: reading ahead, and making room.
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

// The kernel writes to a page that is not present: exec does, to the address space that it makes.
bool IsKernelWrite(const TraceRecord& record) {
  return record.op == TraceOp::kPageFault && record.from_kernel && record.error_code == kFaultWrite;
}

bool IsPerfExec(const TraceRecord& record) {
  return record.op == TraceOp::kPerfComm && record.group_dead == 1;
}

// A line that exec leaves between the end of the old address space and sched_process_exec.
bool IsWithinExec(const TraceRecord& record) {
  if (IsWithinFault(record.op)) return true;
  return (record.op == TraceOp::kPageFault && record.from_kernel) || record.op == TraceOp::kFilemapGetPages ||
         record.op == TraceOp::kPerfMmap || record.op == TraceOp::kPerfComm || record.op == TraceOp::kExec;
}

// A line that the run of the new address space's first faults may hold.
bool IsWithinKernelFaults(const TraceRecord& record) {
  return IsWithinFault(record.op) || IsKernelWrite(record) || record.op == TraceOp::kPerfMmap ||
         record.op == TraceOp::kExec;
}

// A line before which a run of file reads may turn out to have been exec's.
bool KeepsReads(const TraceRecord& record) {
  return record.op == TraceOp::kFilemapGetPages || record.op == TraceOp::kFilemapAdd ||
         record.op == TraceOp::kFilemapDelete || record.op == TraceOp::kExitMmap ||
         record.op == TraceOp::kExec || IsKernelWrite(record) || IsPerfExec(record);
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

// ip=0x7f5c0c384cd8; 0 where it is a symbol or is not an address of user memory.
uint64_t InstructionOf(const TraceRecord& record) {
  std::string_view text = record.ip;
  if (text.starts_with("0x")) text.remove_prefix(2);
  uint64_t address = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), address, 16);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && address <= kMaxWordAddress ? address : 0;
}

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

// ---- the rules ----

class TraceTranslator::Impl {
 public:
  Impl(const Options& options, BatchBuilder* builder)
      : options_(options), builder_(builder), window_(options.window), files_(builder), emitter_(builder) {
    if (options.root != 0) root_ = options.root;
  }

  void Add(const TraceRecord& record) {
    if (record.op == TraceOp::kOther || record.op == TraceOp::kLost) return;
    if (IsUnhandledFault(record)) return;
    last_time_ns_ = record.time_ns;
    Thread* thread = threads_.Find(record.tid);
    if (thread != nullptr) Understand(*thread, record);
    if (IsCgroupOp(record.op)) {
      OnCgroup(record);
    } else if (record.tid > 0 && static_cast<uint32_t>(record.tid) <= kMaxWordTid) {
      OnRecord(record, thread);
    }
    Drain();
  }

  void Mark(uint64_t id) {
    PushAt({.cpu = 0, .tid = 0, .time_ns = last_time_ns_}, MarkEvent{id});
    Drain();
  }

  void Finish() {
    for (; !window_.empty(); window_.PopFront()) emitter_.Emit(window_.front());
    counts_.events = emitter_.events();
  }

  const Counts& counts() const { return counts_; }

 private:
  // ---- the window ----

  Slot PushAt(const EventPlace& place, const Body& body, bool open = false) {
    if (window_.full()) ForceFrontOut();
    return window_.Push(place, body, open);
  }
  void Push(const TraceRecord& record, const Body& body) { PushAt(PlaceOf(record), body); }
  Slot PushOpen(const TraceRecord& record, const Body& face_value) {
    return PushAt(PlaceOf(record), face_value, true);
  }

  // What waits at `slot` is understood: it is `body`.  False where it has left the window.
  bool Resolve(Slot slot, const Body& body) {
    Entry* entry = window_.Find(slot);
    if (entry == nullptr) return false;
    entry->body = body;
    entry->open = false;
    return true;
  }
  void ResolveAsItIs(Slot slot) {
    if (Entry* entry = window_.Find(slot)) entry->open = false;
  }

  void ForceFrontOut() {
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

  void Drain() {
    for (; !window_.empty() && !window_.front().open; window_.PopFront()) emitter_.Emit(window_.front());
    counts_.events = emitter_.events();
  }

  EventPlace PlaceOf(const TraceRecord& record) const {
    const uint32_t cpu = options_.cpus != 0 ? record.cpu % options_.cpus : record.cpu;
    return {.cpu = std::min(cpu, kMaxWordCpu),
            .tid = static_cast<uint32_t>(record.tid),
            .time_ns = record.time_ns};
  }
  // Of what concerns no thread.
  EventPlace NodePlaceOf(const TraceRecord& record) const {
    EventPlace place = PlaceOf(record);
    place.tid = 0;
    return place;
  }

  uint64_t PageOf(uint64_t byte) const { return byte / options_.page_size; }
  // Ranges are of whole pages; the kernel rounds their lengths up.
  uint64_t WholePages(uint64_t bytes) const {
    const uint64_t mask = options_.page_size - 1;
    return (bytes + mask) & ~mask;
  }
  // Addresses that are no user memory's are refused by the kernel, and do not fit the protocol.
  bool IsUserRange(uint64_t address, uint64_t length) const {
    return address % options_.page_size == 0 && length != 0 && address <= kMaxWordAddress &&
           length <= kMaxWordAddress - address;
  }

  // ---- what waited for this thread's next record ----

  void Understand(Thread& thread, const TraceRecord& record) {
    ++thread.records;
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

  void OnRecord(const TraceRecord& record, Thread* thread) {
    switch (record.op) {
      case TraceOp::kPageFault:
        return OnPageFault(record);
      case TraceOp::kFilemapAdd:
      case TraceOp::kFilemapGetPages:
      case TraceOp::kWriteBegin:
        return OnFileUse(record);
      case TraceOp::kFilemapDelete:
        return OnFileDelete(record);
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
      case TraceOp::kPerfMmap:
        return OnPerfMmap(record);
      case TraceOp::kPerfComm:
        return OnPerfComm(record, thread);
      default:
        return;
    }
  }

  // ---- threads and their processes ----

  // The thread of the record, with a baseline where it is new.
  Thread& Known(const TraceRecord& record) {
    Thread* thread = threads_.Find(record.tid);
    return thread != nullptr ? *thread : BeginBaseline(record, record.tid, record.tgid, record.comm);
  }
  // The same for what only the living do: a number that died has a new thread then, whose beginning was not
  // seen, or the last thread of a process took over its leader's number in exec.
  Thread& Living(const TraceRecord& record) {
    Thread* thread = threads_.Find(record.tid);
    if (thread != nullptr && !thread->dead) return *thread;
    return BeginBaseline(record, record.tid, record.tgid, record.comm);
  }

  Thread& BeginBaseline(const TraceRecord& record, int32_t tid, int32_t tgid, std::string_view name) {
    if (tgid <= 0) tgid = tid;
    EventPlace place = PlaceOf(record);
    place.tid = static_cast<uint32_t>(tid);
    PushAt(place,
           BaselineProcessEvent{static_cast<uint32_t>(tgid), name.empty() ? 0 : builder_->NameHandle(name)});
    return BeginThread(tid, tgid);
  }

  Thread& BeginThread(int32_t tid, int32_t tgid) {
    if (Thread* former = threads_.Find(tid)) Settle(*former);  // its end was not seen
    return threads_.Begin(tid, tgid);
  }

  // Nothing more comes of this thread: what waits for it is taken as it is.
  void Settle(Thread& thread) {
    ResolveAsItIs(std::exchange(thread.fault, {}).slot);
    ResolveAsItIs(std::exchange(thread.call, {}).slot);
    ResolveAsItIs(std::exchange(thread.clone.slot, kNoSlot));
    AbandonExec(thread);
    ForgetReads(thread);
  }

  // The process that another one's record is about.
  void EnsureProcess(const TraceRecord& record, int32_t pid) {
    const Thread* thread = threads_.Find(pid);
    if (thread == nullptr || thread->dead) BeginBaseline(record, pid, pid, {});
  }

  // ---- faults ----

  // Faults that never reach handle_mm_fault(): in an NMI.  They may come in the middle of another fault.
  bool IsUnhandledFault(const TraceRecord& record) {
    if (record.op != TraceOp::kPageFault || !record.from_kernel ||
        !record.ip.starts_with("copy_from_user_nmi")) {
      return false;
    }
    ++counts_.dropped_faults;
    return true;
  }

  void OnPageFault(const TraceRecord& record) {
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

  void CloseFault(Thread& thread, const TraceRecord& record) {
    const OpenFault fault = std::exchange(thread.fault, {});
    // The kernel faults again at once where it ran with page faults disabled: the first one was not handled.
    const bool again = fault.alone && fault.from_kernel && record.op == TraceOp::kPageFault &&
                       record.from_kernel && record.has_address && PageOf(record.address) == fault.page;
    if (!again) return ResolveAsItIs(fault.slot);
    if (Resolve(fault.slot, Nothing{})) ++counts_.dropped_faults;
  }

  // mm_filemap_fault, mm_filemap_map_pages: what backs the thread's fault.
  void OnFileMapped(const TraceRecord& record) {
    Thread& thread = Known(record);
    const uint32_t file = files_.Handle(record.op, record.dev, record.ino);
    const bool is_fault = record.op == TraceOp::kFilemapFault;
    if (is_fault) thread.readahead.Fault(file, PageOf(record.first_byte));
    if (window_.Find(thread.fault.slot) == nullptr) {
      // A system call that faults pages in, or the kernel reading another address space.
      if (PopulatesFiles(thread.call) && thread.call.file == 0) thread.call.file = file;
      return;
    }
    Push(record, PagesOf(record, is_fault ? WordKind::kFileFault : WordKind::kMapPages, file));
    MoveFaultHere(thread);
  }

  // The file's pages must be there before the fault maps them.
  void MoveFaultHere(Thread& thread) {
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

  // ---- the page cache ----

  // The pages of first_byte … last_byte; one for a fault.
  FileEvent PagesOf(const TraceRecord& record, WordKind kind, uint32_t file) const {
    const uint64_t first = PageOf(record.first_byte);
    const uint64_t last = kind == WordKind::kFileFault ? first : std::max(first, PageOf(record.last_byte));
    return {.kind = kind, .order = 0, .file = file, .index = first, .count = last - first + 1};
  }
  FileEvent FolioOf(const TraceRecord& record, WordKind kind, uint32_t file) const {
    const uint8_t order = std::min<uint8_t>(record.order, 32);
    return {.kind = kind,
            .order = order,
            .file = file,
            .index = PageOf(record.first_byte),
            .count = uint64_t{1} << order};
  }

  // What is charged to the thread's cgroup, or marks pages as accessed by it.
  void OnFileUse(const TraceRecord& record) {
    Thread& thread = Known(record);
    const uint32_t file = files_.Handle(record.op, record.dev, record.ino);
    if (record.op == TraceOp::kWriteBegin) {
      thread.readahead.Write(file);
      Push(record, PagesOf(record, WordKind::kFileWrite, file));
      return;
    }
    CountRead(thread, record);
    if (record.op == TraceOp::kFilemapGetPages) {
      Push(record, PagesOf(record, WordKind::kFileRead, file));
      return;
    }
    const FileEvent folio = FolioOf(record, WordKind::kFileAdd, file);
    thread.readahead.Add(file, folio.index, folio.count);
    Push(record, folio);
  }

  // Kernel threads let go of pages too: that needs no process.
  void OnFileDelete(const TraceRecord& record) {
    Push(record, FolioOf(record, WordKind::kFileDelete, files_.Handle(record.op, record.dev, record.ino)));
  }

  void OnFileDirty(const TraceRecord& record, Thread* thread) {
    const uint32_t file = files_.DirtyHandle(record.dev, record.ino);
    if (thread != nullptr) thread->readahead.Dirty();
    Push(record, FileEvent{WordKind::kFileDirty, 0, file, record.page_index, 1});
  }

  void UnderstandReadahead(Thread& thread, const TraceRecord& record) {
    if (IsWithinFault(record.op) && record.op != TraceOp::kFilemapFault &&
        record.op != TraceOp::kFilemapMapPages) {
      return;
    }
    const uint64_t window = options_.readahead_pages;
    std::optional<ReadaheadRun::Mark> mark;
    if (record.op == TraceOp::kFilemapGetPages) {
      const uint32_t file = files_.Handle(record.op, record.dev, record.ino);
      mark = thread.readahead.AfterRead(file, PageOf(record.first_byte), PageOf(record.last_byte), window);
    } else {
      mark = thread.readahead.AtEnd(window);
    }
    thread.readahead.Forget();
    if (mark.has_value()) Push(record, FileEvent{WordKind::kReadahead, 0, mark->file, mark->index, 1});
  }

  // ---- system calls ----

  void OnSyscallEnter(const TraceRecord& record) {
    Thread& thread = Living(record);
    ResolveAsItIs(thread.call.slot);  // a return that was lost
    thread.call = {.syscall = record.syscall, .args = record.args, .file = 0, .slot = kNoSlot};
    const Body body = AtEntry(record);
    if (!std::holds_alternative<Nothing>(body)) thread.call.slot = PushOpen(record, body);
  }

  // Calls that unmap stand where they begin: the kernel unmaps before it returns, and another thread may get
  // the same addresses before the return is traced.
  Body AtEntry(const TraceRecord& record) const {
    const uint64_t address = record.args[0], length = WholePages(record.args[1]);
    if (!IsUserRange(address, length)) return Nothing{};
    if (record.syscall == Syscall::kMunmap) return RangeEvent{WordKind::kMunmap, address, length};
    if (record.syscall != Syscall::kMadvise) return Nothing{};
    const uint64_t advice = record.args[2];
    if (advice == kMadvDontNeed) return RangeEvent{WordKind::kDontNeed, address, length};
    if (!AdviceUnmaps(advice)) return Nothing{};
    return MadviseEvent{address, length, static_cast<uint32_t>(advice)};
  }

  static bool AdviceUnmaps(uint64_t advice) {
    return advice == kMadvDontNeed || advice == kMadvFree || advice == kMadvRemove ||
           advice == kMadvDontNeedLocked;
  }

  void OnSyscallExit(const TraceRecord& record, Thread& thread) {
    const Call call = std::exchange(thread.call, {});
    const bool failed = IsError(record.ret);
    if (call.slot != kNoSlot) {
      if (failed && call.syscall == record.syscall) {
        Resolve(call.slot, Nothing{});
      } else {
        ResolveAsItIs(call.slot);
      }
    } else if (call.syscall == record.syscall && !failed) {
      const Body body = AtReturn(call, static_cast<uint64_t>(record.ret));
      if (!std::holds_alternative<Nothing>(body)) Push(record, body);
    }
  }

  Body AtReturn(const Call& call, uint64_t ret) const {
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

  Body MmapReturned(const Call& call, uint64_t address) const {
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

  // ---- fork ----

  void OnFork(const TraceRecord& record) {
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

  void BeginChild(Thread& parent, const TraceRecord& record) {
    const int32_t parent_tgid = parent.process->tgid;
    const bool named_thread = record.child_tgid > 0 && record.child_tgid == parent_tgid;
    const std::optional<uint64_t> flags = CloneFlags(parent.call, record.child_tgid, named_thread);
    // What remains open is taken for a thread until it is known; `parent` is no longer valid below.
    const PendingClone pending = {
        .slot = kNoSlot, .parent = parent.tid, .parent_records = parent.records, .tgid = record.child_tgid};
    const bool thread = !flags.has_value() || (*flags & kCloneThread) != 0;
    const bool shares_mm = !flags.has_value() || (*flags & kCloneVm) != 0;
    Thread& child = BeginThread(record.child_pid, thread ? parent_tgid : record.child_pid);
    child.clone = pending;
    if (!thread) child.process->shares_mm = shares_mm;
    const CloneEvent event{static_cast<uint32_t>(record.child_pid), thread, shares_mm};
    if (flags.has_value()) {
      Push(record, event);
    } else {
      child.clone.slot = PushOpen(record, event);
    }
  }

  // What the call that forks says about sharing; clone3 hides it.
  static std::optional<uint64_t> CloneFlags(const Call& call, int32_t child_tgid, bool named_thread) {
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

  // The child's own records tell what it shares.
  void UnderstandClone(Thread& child, const TraceRecord& record) {
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

  void ResolveClone(Thread& child, bool thread, bool shares_mm) {
    const Slot slot = std::exchange(child.clone.slot, kNoSlot);
    if (!Resolve(slot, CloneEvent{static_cast<uint32_t>(child.tid), thread, shares_mm})) return;
    if (thread) return;
    threads_.Move(child, child.tid);
    child.process->shares_mm = shares_mm;
  }

  // ---- exec ----

  // An exec's first sign may be a file read long before the exec is certain: its place is kept as long as the
  // thread does nothing but read files, up to a length that no exec has.
  void CountRead(Thread& thread, const TraceRecord& record) {
    constexpr uint32_t kMaxReads = 64;
    if (++thread.reads == 1) {
      thread.reads_slot = PushOpen(record, Nothing{});
    } else if (thread.reads == kMaxReads) {
      Resolve(std::exchange(thread.reads_slot, kNoSlot), Nothing{});
    }
  }
  void ForgetReads(Thread& thread) {
    Resolve(std::exchange(thread.reads_slot, kNoSlot), Nothing{});
    thread.reads = 0;
  }
  Slot TakeReads(Thread& thread) {
    thread.reads = 0;
    return std::exchange(thread.reads_slot, kNoSlot);
  }

  void BeginExec(Thread& thread, const TraceRecord& record, PendingExec::Sign sign, const Body& face_value) {
    const Slot arguments = TakeReads(thread);
    thread.exec = {.sign = sign, .slot = PushOpen(record, face_value), .arguments = arguments};
  }
  void BeginKernelFaults(Thread& thread, const TraceRecord& record) {
    BeginExec(thread, record, PendingExec::Sign::kKernelFaults, Nothing{});
  }

  void UnderstandExec(Thread& thread, const TraceRecord& record) {
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

  // It was no exec: a buffer that the kernel filled, or the last reference to another process's address
  // space.
  void AbandonExec(Thread& thread) {
    const PendingExec exec = std::exchange(thread.exec, {});
    Resolve(exec.slot, Nothing{});
    Resolve(exec.arguments, Nothing{});
  }

  // It was one, as its entry says.
  void CompleteExec(Thread& thread) {
    const PendingExec exec = std::exchange(thread.exec, {});
    ResolveAsItIs(exec.slot);
    Resolve(exec.arguments, ExecArgumentsEvent{});
    thread.process->shares_mm = false;
    thread.process->mm_gone = false;
  }

  // sched_process_exec.
  void OnExec(const TraceRecord& record) {
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
    Thread* old =
        record.old_pid > 0 && record.old_pid != record.tid ? threads_.Find(record.old_pid) : nullptr;
    if (old == nullptr || old->dead) return;
    EventPlace place = PlaceOf(record);
    place.tid = static_cast<uint32_t>(old->tid);
    PushAt(place, ExitEvent{false});
    EndThread(*old);
  }

  // ---- exit ----

  void OnExit(const TraceRecord& record, Thread* thread) {
    if (thread == nullptr) return BeginDead(record);
    if (thread->dead) return;  // perf tells an exit twice
    const bool group_dead = record.group_dead >= 0 ? record.group_dead == 1 : thread->process->live == 1;
    // Before Linux 6.16 the address space ends first.
    if (thread->exec.sign == PendingExec::Sign::kMmapGone) EndAddressSpace(*thread);
    Push(record, ExitEvent{group_dead});
    Process& process = *thread->process;
    if (group_dead && !traces_exit_mmap_ && !process.shares_mm && !process.mm_gone)
      EndUntraced(*thread, record);
    EndThread(*thread);
  }

  // No exit_mmap was seen so far: it is to come, or this trace has none, and then the address space ends
  // here.
  void EndUntraced(Thread& thread, const TraceRecord& record) {
    if (lacks_exit_mmap_) {
      thread.process->mm_gone = true;
      Push(record, ExitMmapEvent{});
    } else {
      thread.exit_mmap_slot = PushOpen(record, ExitMmapEvent{});
    }
  }

  // A process that was seen only when it ended left nothing that the stream would know.
  void BeginDead(const TraceRecord& record) {
    Thread& thread = BeginThread(record.tid, record.tgid > 0 ? record.tgid : record.tid);
    thread.told = false;
    threads_.Die(thread);
  }

  void EndThread(Thread& thread) {
    Settle(thread);
    threads_.Die(thread);
  }

  void OnExitMmap(const TraceRecord& record) {
    traces_exit_mmap_ = true;
    Thread* thread = threads_.Find(record.tid);
    if (thread != nullptr && thread->dead) {
      const Process& process = *thread->process;
      if (!thread->told || process.mm_gone) return;
      // While other threads live it is one of them, in exec, with the number of its leader.
      if (process.live == 0) return EndAddressSpaceOfDead(*thread, record);
    }
    Thread& living = Living(record);
    if (living.exec.sign != PendingExec::Sign::kNone) AbandonExec(living);
    BeginExec(living, record, PendingExec::Sign::kMmapGone, ExecEvent{0});
  }

  void EndAddressSpaceOfDead(Thread& thread, const TraceRecord& record) {
    thread.process->mm_gone = true;
    const Slot slot = std::exchange(thread.exit_mmap_slot, kNoSlot);
    if (slot == kNoSlot || Resolve(slot, Nothing{})) Push(record, ExitMmapEvent{});
  }

  // What was taken for an exec was the end.
  void EndAddressSpace(Thread& thread) {
    const PendingExec exec = std::exchange(thread.exec, {});
    Resolve(exec.slot, ExitMmapEvent{});
    Resolve(exec.arguments, Nothing{});
    thread.process->mm_gone = true;
  }

  void OnMarkVictim(const TraceRecord& record) {
    if (record.child_pid <= 0) return;
    Known(record);
    EnsureProcess(record, record.child_pid);
    Push(record, MarkVictimEvent{static_cast<uint32_t>(record.child_pid)});
  }

  // ---- perf's own records ----

  void OnPerfMmap(const TraceRecord& record) {
    Thread& thread = Living(record);
    const uint64_t address = record.args[0], length = WholePages(record.args[1]);
    if (!IsUserRange(address, length)) return;
    const uint32_t file = record.ino != 0 ? files_.Handle(record.op, record.dev, record.ino) : 0;
    if (thread.call.syscall == Syscall::kMmap) {  // its return is yet to come
      thread.call.file = file;
      return;
    }
    // mprotect and mremap report what they change as if it were new.
    if (thread.call.syscall == Syscall::kMprotect || thread.call.syscall == Syscall::kMremap) return;
    const bool anonymous = record.path == "//anon" || record.path == "[heap]" || record.path == "[stack]";
    const uint64_t flags = (record.args[4] != 0 ? kMapShared : kMapPrivate) | (anonymous ? kMapAnonymous : 0);
    Push(record, MmapEvent{.address = address,
                           .length = length,
                           .offset = record.args[2],
                           .prot = static_cast<uint32_t>(record.args[3]),
                           .flags = static_cast<uint32_t>(flags),
                           .file = file,
                           .baseline = true});
  }

  void OnPerfComm(const TraceRecord& record, Thread* thread) {
    const uint32_t name = builder_->NameHandle(record.path);
    const bool is_new = thread == nullptr || thread->dead;
    Thread& living = is_new ? BeginBaseline(record, record.tid, record.tgid, record.path) : *thread;
    if (!IsPerfExec(record)) {
      if (!is_new) Push(record, CommEvent{name});
      return;
    }
    if (living.exec.sign == PendingExec::Sign::kKernelFaults) AbandonExec(living);
    if (Entry* entry = window_.Find(living.exec.slot)) {
      entry->body = ExecEvent{name};
      living.exec.sign = PendingExec::Sign::kPerfComm;
    } else {
      BeginExec(living, record, PendingExec::Sign::kPerfComm, ExecEvent{name});
    }
  }

  // ---- cgroups ----

  void OnCgroup(const TraceRecord& record) {
    if (record.op == TraceOp::kCgroupRelease) return;
    if (!IsOurHierarchy(record)) return;
    if (!IsCgroupPath(record.path)) {
      ++counts_.bad_paths;
      return;
    }
    const uint32_t path = builder_->PathHandle(record.path);
    const EventPlace place = NodePlaceOf(record);
    if (record.op == TraceOp::kCgroupRmdir) {
      cgroups_.Remove(record.path);
      PushAt(place, CgroupRemoveEvent{path});
      return;
    }
    if (cgroups_.Create(record.path)) PushAt(place, CgroupCreateEvent{path});
    if (record.op != TraceOp::kCgroupAttachTask || record.child_pid <= 0) return;
    EnsureProcess(record, record.child_pid);
    PushAt(place, CgroupAttachEvent{path, static_cast<uint32_t>(record.child_pid)});
  }

  bool IsOurHierarchy(const TraceRecord& record) {
    if (!root_.has_value() && record.op != TraceOp::kCgroupRmdir) root_ = record.root;
    if (root_ == record.root) return true;
    ++counts_.other_hierarchy;
    return false;
  }

  const Options options_;
  BatchBuilder* const builder_;
  Window window_;
  ThreadTable threads_;
  FileTable files_;
  CgroupTable cgroups_;
  Emitter emitter_;
  std::optional<uint32_t> root_;
  bool traces_exit_mmap_ = false;  // the trace has such lines
  bool lacks_exit_mmap_ = false;   // an exit was followed by none
  int64_t last_time_ns_ = 0;
  Counts counts_;
};

TraceTranslator::TraceTranslator(const Options& options, BatchBuilder* builder)
    : impl_(std::make_unique<Impl>(options, builder)) {}
TraceTranslator::~TraceTranslator() = default;

void TraceTranslator::Add(const TraceRecord& record) { impl_->Add(record); }
void TraceTranslator::Mark(uint64_t id) { impl_->Mark(id); }
void TraceTranslator::Finish() { impl_->Finish(); }
const TraceTranslator::Counts& TraceTranslator::counts() const { return impl_->counts(); }

}  // namespace memcgd::client
