// What a node reports: the events of a stream, as the core applies them.
//
// Frequent events are two 64-bit words, with the very bits they have on the wire (docs/protocol.md), so that
// nothing is decoded twice.  Rare or wide ones are WideEvents, each with its position among the frequent
// ones.
//
// Thread safety: plain values.
#ifndef MEMCGD_CORE_EVENT_H_
#define MEMCGD_CORE_EVENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace memcgd::core {

enum class EventKind : uint8_t {
  kInvalid = 0,
  kFault = 1,      // address body: a page fault, error code as x86 has it
  kFileFault = 2,  // file body: this thread's coming fault asked for that page of the file (mm_filemap_fault)
  kMapPages = 3,   // file body, extra = pages − 1: this thread's coming fault mapped them around it
  kFileAdd = 4,    // file body, extra = order: a folio was added to the page cache
  kFileDelete = 5,  // file body, extra = order: a folio was deleted from the page cache
  kFileRead = 6,    // file body, extra = pages − 1: read(2) of cached pages
  kFileWrite = 7,   // file body, extra = pages − 1: write(2)
  kFileDirty = 8,   // file body: the folio became dirty
  kMmapAnon = 9,    // range body: mmap of private, readable, writable anonymous memory
  kMunmap = 10,     // range body
  kDontNeed = 11,   // range body: madvise(MADV_DONTNEED)
  kBrk = 12,        // address body: the program break after the call
  kAccess = 13,     // address body: a mapped page was touched (from a sampler; no fault)
  kInstruction =
      14,           // address body: the instruction of this thread's coming fault, where no file backs a read
  kReadahead = 15,  // file body: the page carries PG_readahead
};
inline constexpr int kEventKinds = 16;

// head: bits 0–5 kind, 6–15 CPU, 16–37 thread id, 38–63 microseconds after the batch's base time.
// body: address  bits 0–56 address in bytes, 57–63 error code (protection, write, user, reserved, fetch, key,
//                shadow stack)
//       file     bits 0–23 file handle, 24–55 page index, 56–63 extra
//       range    bits 0–44 page number, 45–63 pages
struct Event {
  uint64_t head = 0;
  uint64_t body = 0;

  EventKind kind() const { return static_cast<EventKind>(head & 63); }
  uint32_t cpu() const { return head >> 6 & 1023; }
  uint32_t tid() const { return head >> 16 & 0x3fffff; }
  uint32_t time_us() const { return static_cast<uint32_t>(head >> 38); }
  // Whether it is of the same kind, CPU and thread.
  bool IsLike(const Event& other) const { return (head ^ other.head) << 26 == 0; }

  uint64_t address() const { return body & ((uint64_t{1} << 57) - 1); }
  uint32_t error_code() const { return static_cast<uint32_t>(body >> 57); }
  uint32_t file() const { return body & 0xffffff; }
  uint32_t index() const { return static_cast<uint32_t>(body >> 24); }
  uint32_t extra() const { return static_cast<uint32_t>(body >> 56); }
  uint64_t page_number() const { return body & ((uint64_t{1} << 45) - 1); }
  uint64_t pages() const { return body >> 45; }

  static uint64_t Head(EventKind kind, uint32_t cpu, uint32_t tid, uint32_t time_us) {
    return static_cast<uint64_t>(kind) | uint64_t{cpu} << 6 | uint64_t{tid} << 16 | uint64_t{time_us} << 38;
  }
  static uint64_t AddressBody(uint64_t address, uint32_t error_code) {
    return address | uint64_t{error_code} << 57;
  }
  static uint64_t FileBody(uint32_t file, uint32_t index, uint32_t extra) {
    return file | uint64_t{index} << 24 | uint64_t{extra} << 56;
  }
  static uint64_t RangeBody(uint64_t page_number, uint64_t pages) { return page_number | pages << 45; }
};
static_assert(sizeof(Event) == 16);

inline constexpr uint32_t kMaxCpus = 1024;
inline constexpr uint32_t kMaxTid = (1u << 22) - 1;
inline constexpr uint32_t kMaxHandle = (1u << 24) - 1;
inline constexpr uint64_t kMaxAddress = (uint64_t{1} << 57) - 1;
inline constexpr uint32_t kMaxEventTimeUs = (1u << 26) - 1;

// Error code bits of a fault.
inline constexpr uint32_t kFaultProtection = 1;
inline constexpr uint32_t kFaultWrite = 2;
inline constexpr uint32_t kFaultUser = 4;
inline constexpr uint32_t kFaultFetch = 16;

// PROT_* and MAP_* bits of x86-64 Linux.
inline constexpr uint32_t kProtRead = 1, kProtWrite = 2, kProtExec = 4;
inline constexpr uint32_t kMapShared = 1, kMapPrivate = 2, kMapTypeMask = 0xf, kMapFixed = 0x10,
                          kMapAnonymous = 0x20, kMapGrowsDown = 0x100, kMapLocked = 0x2000,
                          kMapNoReserve = 0x4000, kMapPopulate = 0x8000, kMapHugetlb = 0x40000,
                          kMapFixedNoReplace = 0x100000;
inline constexpr uint32_t kMremapDontUnmap = 4;
inline constexpr uint32_t kMadvNormal = 0, kMadvRandom = 1, kMadvSequential = 2, kMadvDontNeed = 4,
                          kMadvFree = 8, kMadvRemove = 9, kMadvDontNeedLocked = 24, kMadvPopulateRead = 22,
                          kMadvPopulateWrite = 23, kMadvGuardInstall = 102;

// vm.overcommit_memory.
enum class OvercommitPolicy : uint8_t { kGuess = 0, kAlways = 1, kNever = 2 };

// The wide events; docs of the fields stand in proto/memcgd/v1/events.proto.
namespace wide {
struct DefinePath {
  uint32_t handle = 0;
  std::string path;
};
struct DefineFile {
  uint32_t handle = 0;
  uint32_t dev = 0;
  uint64_t ino = 0;
  bool shmem = false;
};
struct DefineName {
  uint32_t handle = 0;
  std::string name;
};
struct Mark {
  uint64_t id = 0;
};
struct Mmap {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t prot = 0;
  uint32_t flags = 0;
  uint32_t file = 0;
  uint64_t offset = 0;
};
struct Munmap {
  uint64_t address = 0;
  uint64_t length = 0;
};
struct Brk {
  uint64_t address = 0;
};
struct Mremap {
  uint64_t old_address = 0;
  uint64_t old_length = 0;
  uint64_t new_address = 0;
  uint64_t new_length = 0;
  uint32_t flags = 0;
};
struct Mprotect {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t prot = 0;
};
struct Madvise {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t advice = 0;
};
struct Mlock {
  uint64_t address = 0;
  uint64_t length = 0;
  bool on_fault = false;
};
struct Munlock {
  uint64_t address = 0;
  uint64_t length = 0;
};
struct Clone {
  uint32_t child_tid = 0;
  bool thread = false;
  bool shares_mm = false;
};
struct Exec {
  uint32_t name = 0;
};
struct ExecArguments {
  uint32_t pages = 0;
};
struct Exit {
  bool group_dead = false;
};
struct ExitMmap {};
struct Comm {
  uint32_t name = 0;
};
struct FileRange {
  EventKind op = EventKind::kInvalid;
  uint32_t file = 0;
  uint64_t index = 0;
  uint64_t count = 0;
  uint32_t order = 0;
};
struct CgroupCreate {
  uint32_t path = 0;
};
struct CgroupRemove {
  uint32_t path = 0;
};
struct CgroupAttach {
  uint32_t path = 0;
  uint32_t moved_tid = 0;
};
struct SetKnob {
  uint32_t path = 0;
  std::string knob;
  std::string value;
};
struct SetOvercommit {
  OvercommitPolicy policy = OvercommitPolicy::kGuess;
  uint32_t ratio_percent = 0;
  uint64_t kbytes = 0;
};
// A folio changes its cgroup: of the file, or (file 0) what the thread has mapped at the address.
struct MigrateFolio {
  uint32_t path = 0;
  uint32_t file = 0;
  uint64_t index = 0;
  uint64_t address = 0;
};
struct ReclaimBegin {};
struct ReclaimEnd {
  uint64_t reclaimed_pages = 0;
};
struct MarkVictim {
  uint32_t victim_tid = 0;
};
struct SetOomScoreAdj {
  uint32_t target_tid = 0;
  int32_t oom_score_adj = 0;  // −1000 … 1000
};
struct BaselineProcess {
  uint32_t tgid = 0;
  uint32_t cgroup = 0;
  uint32_t name = 0;
};
struct BaselineArea {
  Mmap area;
};
struct BaselinePresent {
  uint64_t address = 0;
  uint64_t pages = 0;
  bool anonymous = false;
};
struct BaselineCached {
  uint32_t file = 0;
  uint64_t index = 0;
  uint64_t pages = 0;
  uint32_t cgroup = 0;
  bool active = false;
  bool dirty = false;
};
}  // namespace wide

using WideBody =
    std::variant<wide::DefinePath, wide::DefineFile, wide::DefineName, wide::Mark, wide::Mmap, wide::Munmap,
                 wide::Brk, wide::Mremap, wide::Mprotect, wide::Madvise, wide::Mlock, wide::Munlock,
                 wide::Clone, wide::Exec, wide::Exit, wide::ExitMmap, wide::Comm, wide::ExecArguments,
                 wide::FileRange, wide::CgroupCreate, wide::CgroupRemove, wide::CgroupAttach, wide::SetKnob,
                 wide::SetOvercommit, wide::ReclaimBegin, wide::ReclaimEnd, wide::MarkVictim,
                 wide::BaselineProcess, wide::BaselineArea, wide::BaselinePresent, wide::BaselineCached,
                 wide::MigrateFolio, wide::SetOomScoreAdj>;

struct WideEvent {
  uint32_t position = 0;  // frequent events of the batch that come before it
  uint32_t cpu = 0;
  uint32_t tid = 0;
  int64_t time_ns = 0;  // absolute, the node's clock
  WideBody body;
};

// A batch, in order.  The spans are the caller's.
struct Batch {
  int64_t base_time_ns = 0;
  std::span<const Event> events;
  std::span<const WideEvent> wide;
};

// What became of an event; the numbers are the wire's.
enum class Outcome : uint8_t {
  kOk = 1,
  kNoArea = 2,
  kUnknownThread = 3,
  kUnseenPage = 4,
  kEnomem = 5,
  kLimit = 6,
  kNoCgroup = 7,
  kCacheMismatch = 8,
  kDropped = 9,
  kInvalid = 10,
};
inline constexpr int kOutcomes = 11;

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_EVENT_H_
