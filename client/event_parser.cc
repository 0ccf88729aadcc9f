#include "client/event_parser.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "client/text_scanner.h"

namespace memcgd::client {
namespace {

using Kind = ParsedLine::Kind;

ParsedLine Record(TraceOp op, TraceRecord* record) {
  record->op = op;
  return Parsed(Kind::kRecord);
}

// ---- pieces that several events share ----

// MAJOR:MINOR or MAJOR,MINOR in decimal, within dev_t's 12 and 20 bits.
bool ReadDevice(TextScanner* text, char between, uint32_t* dev) {
  uint64_t major = 0, minor = 0;
  if (!text->ReadDecimal(&major, 0xfff) || !text->Skip(between) || !text->ReadDecimal(&minor, 0xfffff))
    return false;
  *dev = MakeDev(static_cast<uint32_t>(major), static_cast<uint32_t>(minor));
  return true;
}

// FIRST-LAST in bytes.  Both are printed with %lld, so the end of a range without end is "-1".
bool ReadByteRange(TextScanner* text, TraceRecord* record) {
  return text->ReadSignedDecimal(&record->first_byte) && text->Skip('-') &&
         text->ReadSignedDecimal(&record->last_byte) && text->AtValueEnd() &&
         record->first_byte <= record->last_byte;
}

// Finds a numeric field by its name (with the blank before it and the '='), the last of that name: a
// command's name or a path before it may hold the same text.
bool ReadLastField(std::string_view values, std::string_view field, int32_t* value, size_t* at) {
  *at = values.rfind(field);
  if (*at == std::string_view::npos) return false;
  TextScanner text(values.substr(*at + field.size()));
  return text.ReadPid(value) && text.AtValueEnd();
}

// ---- page faults ----

// "0x7f…" or, where the tool resolved it, a symbol ("foo+0x12", "foo+0x1/0x20 [module]"), up to " ip=".
bool ReadFaultAddress(TextScanner* text, TraceRecord* record) {
  const char first = text->Peek();
  if (first >= '0' && first <= '9') {
    return text->ReadHex(&record->address) && text->Skip(" ip=");
  }
  const size_t end = text->rest().find(" ip=");
  if (end == std::string_view::npos || end == 0) return false;
  text->Advance(end + 4);
  record->has_address = false;
  return true;
}

ParsedLine ParsePageFault(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!text.Skip("address=") && !text.Skip("addr=")) return Malformed("a page fault without address=");
  if (!ReadFaultAddress(&text, record)) return Malformed("a page fault with a bad address, or without ip=");
  constexpr std::string_view kErrorCode = " error_code=";
  const std::string_view rest = text.rest();
  // Nearly always one word; a symbol in a module is two.
  size_t end = rest.find(' ');
  if (end == std::string_view::npos || rest.substr(end, kErrorCode.size()) != kErrorCode) {
    end = rest.find(kErrorCode);
  }
  if (end == std::string_view::npos) return Malformed("a page fault without error_code=");
  record->ip = rest.substr(0, end);
  text.Advance(end + kErrorCode.size());
  uint64_t error_code = 0;
  if (!text.ReadNumber(&error_code) || !text.AtValueEnd())
    return Malformed("a page fault with a bad error_code");
  record->error_code = static_cast<uint8_t>(error_code);  // the bits above (SGX, RMP) say nothing to replay
  return Record(TraceOp::kPageFault, record);
}

ParsedLine ParseUserFault(std::string_view values, TraceRecord* record) {
  return ParsePageFault(values, record);
}

ParsedLine ParseKernelFault(std::string_view values, TraceRecord* record) {
  record->from_kernel = true;
  return ParsePageFault(values, record);
}

// ---- page cache ----

// "dev 254:0 ino a7a67a pfn=0x1129de ofs=4096 order=0"; kernels before 6.0 or so have page= before pfn=, and
// no order=.
ParsedLine ParseFilemapChange(TraceOp op, std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!text.Skip("dev ") || !ReadDevice(&text, ':', &record->dev))
    return Malformed("a page-cache event without dev");
  if (!text.Skip(" ino ") || !text.ReadHex(&record->ino)) return Malformed("a page-cache event without ino");
  const size_t ofs = text.rest().find(" ofs=");
  if (ofs == std::string_view::npos) return Malformed("a page-cache event without ofs=");
  text.Advance(ofs + 5);
  if (!text.ReadSignedDecimal(&record->first_byte) || !text.AtValueEnd()) {
    return Malformed("a page-cache event with a bad ofs");
  }
  if (text.Skip(" order=")) {
    constexpr uint64_t kMaxOrder = 51;  // of 4 KiB pages: all of a 64-bit file
    uint64_t order = 0;
    if (!text.ReadDecimal(&order, kMaxOrder) || !text.AtValueEnd()) {
      return Malformed("a page-cache event with a bad order");
    }
    record->order = static_cast<uint8_t>(order);
  }
  return Record(op, record);
}

ParsedLine ParseFilemapAdd(std::string_view values, TraceRecord* record) {
  return ParseFilemapChange(TraceOp::kFilemapAdd, values, record);
}

ParsedLine ParseFilemapDelete(std::string_view values, TraceRecord* record) {
  return ParseFilemapChange(TraceOp::kFilemapDelete, values, record);
}

// "dev=254:0 ino=a7a67a ofs=": what fault, map_pages and get_pages begin with.
bool SkipToOffset(TextScanner* text, TraceRecord* record) {
  return text->Skip("dev=") && ReadDevice(text, ':', &record->dev) && text->Skip(" ino=") &&
         text->ReadHex(&record->ino) && text->Skip(" ofs=");
}

ParsedLine ParseFilemapFault(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!SkipToOffset(&text, record)) return Malformed("mm_filemap_fault without dev=, ino= and ofs=");
  if (!text.ReadSignedDecimal(&record->first_byte) || !text.AtValueEnd()) {
    return Malformed("mm_filemap_fault with a bad ofs");
  }
  return Record(TraceOp::kFilemapFault, record);
}

ParsedLine ParseFilemapRange(TraceOp op, std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!SkipToOffset(&text, record)) return Malformed("a page-cache range without dev=, ino= and ofs=");
  if (!ReadByteRange(&text, record)) return Malformed("a page-cache range that is not FIRST-LAST");
  return Record(op, record);
}

ParsedLine ParseFilemapMapPages(std::string_view values, TraceRecord* record) {
  return ParseFilemapRange(TraceOp::kFilemapMapPages, values, record);
}

ParsedLine ParseFilemapGetPages(std::string_view values, TraceRecord* record) {
  return ParseFilemapRange(TraceOp::kFilemapGetPages, values, record);
}

// "dev 254,0 ino 10952736 pos 4096 len 4096"; older kernels append flags.
ParsedLine ParseWriteBegin(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  uint64_t length = 0;
  if (!text.Skip("dev ") || !ReadDevice(&text, ',', &record->dev) || !text.Skip(" ino ") ||
      !text.ReadDecimal(&record->ino)) {
    return Malformed("a write without dev and ino");
  }
  if (!text.Skip(" pos ") || !text.ReadDecimal(&record->first_byte) || !text.Skip(" len ") ||
      !text.ReadDecimal(&length) || !text.AtValueEnd()) {
    return Malformed("a write without pos and len");
  }
  if (length == 0) return Parsed(Kind::kOther);  // an inclusive range cannot say "nothing"
  if (length - 1 > std::numeric_limits<uint64_t>::max() - record->first_byte) {
    return Malformed("a write beyond the largest file");
  }
  record->last_byte = record->first_byte + (length - 1);
  return Record(TraceOp::kWriteBegin, record);
}

// "bdi 254:0: ino=266338304 index=43810817".  Not every bdi is named by a device number ("btrfs-1"): dev 0.
ParsedLine ParseDirtyFolio(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!text.Skip("bdi ")) return Malformed("a dirtied folio without bdi");
  const size_t ino = text.rest().find(": ino=");
  if (ino == std::string_view::npos) return Malformed("a dirtied folio without ino=");
  TextScanner device(text.rest().substr(0, ino));
  if (!ReadDevice(&device, ':', &record->dev) || !device.AtEnd()) record->dev = 0;
  text.Advance(ino + 6);
  if (!text.ReadDecimal(&record->ino) || !text.Skip(" index=") || !text.ReadDecimal(&record->page_index) ||
      !text.AtValueEnd()) {
    return Malformed("a dirtied folio with a bad ino or index");
  }
  return Record(TraceOp::kDirtyFolio, record);
}

// ---- processes ----

// "comm=make pid=10 child_comm=make child_pid=11": names may hold anything, so it is read from its end.
ParsedLine ParseFork(std::string_view values, TraceRecord* record) {
  size_t at = 0;
  if (!ReadLastField(values, " child_pid=", &record->child_pid, &at))
    return Malformed("a fork without child_pid=");
  return Record(TraceOp::kFork, record);
}

// "filename=/usr/bin/make pid=10 old_pid=10"
ParsedLine ParseExec(std::string_view values, TraceRecord* record) {
  constexpr std::string_view kFilename = "filename=";
  size_t at = 0;
  int32_t pid = 0;
  if (!values.starts_with(kFilename)) return Malformed("an exec without filename=");
  if (!ReadLastField(values, " old_pid=", &record->old_pid, &at))
    return Malformed("an exec without old_pid=");
  if (!ReadLastField(values.substr(0, at), " pid=", &pid, &at)) return Malformed("an exec without pid=");
  record->path = values.substr(kFilename.size(), at - kFilename.size());
  return Record(TraceOp::kExec, record);
}

// "comm=make pid=10 prio=120 group_dead=true"; kernels before 6.16 or so do not say group_dead.
ParsedLine ParseExit(std::string_view values, TraceRecord* record) {
  size_t at = 0;
  int32_t prio = 0;
  if (!ReadLastField(values, " prio=", &prio, &at)) return Malformed("an exit without prio=");
  TextScanner text(values.substr(at));
  if (text.SkipPast('=') && text.SkipPast(' ') && text.Skip("group_dead=")) {
    if (text.Skip("true")) {
      record->group_dead = 1;
    } else if (text.Skip("false")) {
      record->group_dead = 0;
    }
    if (record->group_dead < 0 || !text.AtValueEnd()) return Malformed("an exit with a bad group_dead");
  }
  return Record(TraceOp::kExit, record);
}

ParsedLine ParseExitMmap(std::string_view, TraceRecord* record) { return Record(TraceOp::kExitMmap, record); }

ParsedLine ParseMarkVictim(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!text.Skip("pid=") || !text.ReadPid(&record->child_pid) || !text.AtValueEnd()) {
    return Malformed("mark_victim without pid=");
  }
  return Record(TraceOp::kMarkVictim, record);
}

// "pid=4510 comm=oom oom_score_adj=-500": a thread's number, for all of its process.
ParsedLine ParseOomScoreAdj(std::string_view values, TraceRecord* record) {
  constexpr std::string_view kField = " oom_score_adj=";
  constexpr int32_t kMost = 1000;
  TextScanner text(values);
  if (!text.Skip("pid=") || !text.ReadPid(&record->child_pid) || !text.AtValueEnd()) {
    return Malformed("oom_score_adj_update without pid=");
  }
  int32_t adj = 0;
  size_t at = 0;
  if (!ReadLastField(values, kField, &adj, &at) || adj < -kMost || adj > kMost) {
    return Malformed("oom_score_adj_update without an oom_score_adj of -1000 to 1000");
  }
  record->ret = adj;
  return Record(TraceOp::kOomScoreAdj, record);
}

// ---- cgroups ----

bool ReadUint32(TextScanner* text, uint32_t* value) {
  uint64_t wide = 0;
  if (!text->ReadDecimal(&wide, std::numeric_limits<uint32_t>::max())) return false;
  *value = static_cast<uint32_t>(wide);
  return true;
}

// "root=4 id=20099 level=2 path=/t20/team": the path goes to the line's end, whatever it holds.
ParsedLine ParseCgroup(TraceOp op, std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!text.Skip("root=") || !ReadUint32(&text, &record->root) || !text.Skip(" id=") ||
      !text.ReadDecimal(&record->cgroup_id) || !text.Skip(" level=") || !ReadUint32(&text, &record->level) ||
      !text.Skip(" path=") || text.AtEnd()) {
    return Malformed("a cgroup event without root=, id=, level= and path=");
  }
  record->path = text.rest();
  return Record(op, record);
}

ParsedLine ParseCgroupMkdir(std::string_view values, TraceRecord* record) {
  return ParseCgroup(TraceOp::kCgroupMkdir, values, record);
}

ParsedLine ParseCgroupRmdir(std::string_view values, TraceRecord* record) {
  return ParseCgroup(TraceOp::kCgroupRmdir, values, record);
}

ParsedLine ParseCgroupRelease(std::string_view values, TraceRecord* record) {
  return ParseCgroup(TraceOp::kCgroupRelease, values, record);
}

// "PATH pid=N comm=NAME" where both PATH and NAME may hold anything: the first " pid=N comm=" with no more
// behind it than a name can have.
bool ReadPathAndPid(std::string_view text, TraceRecord* record) {
  constexpr size_t kMaxCommBytes = 15;
  constexpr std::string_view kPid = " pid=";
  for (size_t at = text.find(kPid); at != std::string_view::npos; at = text.find(kPid, at + 1)) {
    TextScanner field(text.substr(at + kPid.size()));
    if (field.ReadPid(&record->child_pid) && field.Skip(" comm=") && field.rest().size() <= kMaxCommBytes) {
      record->path = text.substr(0, at);
      return at != 0;
    }
  }
  return false;
}

ParsedLine ParseCgroupAttach(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  if (!text.Skip("dst_root=") || !ReadUint32(&text, &record->root) || !text.Skip(" dst_id=") ||
      !text.ReadDecimal(&record->cgroup_id) || !text.Skip(" dst_level=") ||
      !ReadUint32(&text, &record->level) || !text.Skip(" dst_path=")) {
    return Malformed("cgroup_attach_task without dst_root=, dst_id=, dst_level= and dst_path=");
  }
  if (!ReadPathAndPid(text.rest(), record))
    return Malformed("cgroup_attach_task without a path, pid= and comm=");
  return Record(TraceOp::kCgroupAttachTask, record);
}

// ---- reclaim ----

ParsedLine ParseReclaimBegin(std::string_view, TraceRecord* record) {
  return Record(TraceOp::kReclaimBegin, record);
}
// "nr_reclaimed=32": pages.
ParsedLine ParseReclaimEnd(std::string_view values, TraceRecord* record) {
  TextScanner text(values);
  uint64_t pages = 0;
  if (!text.Skip("nr_reclaimed=") || !text.ReadDecimal(&pages, std::numeric_limits<int64_t>::max()) ||
      !text.AtValueEnd()) {
    return Malformed("the end of a reclaim without nr_reclaimed=");
  }
  record->ret = static_cast<int64_t>(pages);
  return Record(TraceOp::kReclaimEnd, record);
}

// ---- names → parsers ----

// A hash table made when this is compiled: one probe for nearly every name, known or not.
template <typename Entry, size_t kSlots>
class NameTable {
 public:
  template <size_t kCount>
  explicit constexpr NameTable(const std::array<Entry, kCount>& entries) {
    static_assert(kCount * 2 <= kSlots, "probing is short while half of the slots are free");
    for (const Entry& entry : entries) {
      size_t slot = Slot(entry.name);
      while (!slots_[slot].name.empty()) slot = (slot + 1) % kSlots;
      slots_[slot] = entry;
    }
  }

  const Entry* Find(std::string_view name) const {
    if (name.empty()) return nullptr;
    for (size_t slot = Slot(name); !slots_[slot].name.empty(); slot = (slot + 1) % kSlots) {
      if (slots_[slot].name == name) return &slots_[slot];
    }
    return nullptr;
  }

 private:
  // Length, middle and two of the last characters tell the names in use apart; a clash costs a comparison.
  static constexpr size_t Slot(std::string_view name) {
    const auto at = [name](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(name[i])); };
    const size_t size = name.size();
    return (size * 7 + at(size / 2) * 3 + at(size - 1) + at(size - 1 - size / 4) * 13) % kSlots;
  }

  std::array<Entry, kSlots> slots_{};
};

struct EventEntry {
  std::string_view name;
  ParsedLine (*parse)(std::string_view values, TraceRecord* record) = nullptr;
};

constexpr std::array kEvents = {
    EventEntry{"page_fault_user", ParseUserFault},
    EventEntry{"page_fault_kernel", ParseKernelFault},
    EventEntry{"mm_filemap_add_to_page_cache", ParseFilemapAdd},
    EventEntry{"mm_filemap_delete_from_page_cache", ParseFilemapDelete},
    EventEntry{"mm_filemap_fault", ParseFilemapFault},
    EventEntry{"mm_filemap_map_pages", ParseFilemapMapPages},
    EventEntry{"mm_filemap_get_pages", ParseFilemapGetPages},
    EventEntry{"ext4_write_begin", ParseWriteBegin},
    EventEntry{"ext4_da_write_begin", ParseWriteBegin},
    EventEntry{"writeback_dirty_folio", ParseDirtyFolio},
    EventEntry{"writeback_dirty_page", ParseDirtyFolio},  // its name before 5.18
    EventEntry{"sched_process_fork", ParseFork},
    EventEntry{"sched_process_exec", ParseExec},
    EventEntry{"sched_process_exit", ParseExit},
    EventEntry{"exit_mmap", ParseExitMmap},
    EventEntry{"cgroup_mkdir", ParseCgroupMkdir},
    EventEntry{"cgroup_rmdir", ParseCgroupRmdir},
    EventEntry{"cgroup_release", ParseCgroupRelease},
    EventEntry{"cgroup_attach_task", ParseCgroupAttach},
    EventEntry{"mm_vmscan_memcg_reclaim_begin", ParseReclaimBegin},
    EventEntry{"mm_vmscan_memcg_reclaim_end", ParseReclaimEnd},
    EventEntry{"mark_victim", ParseMarkVictim},
    EventEntry{"oom_score_adj_update", ParseOomScoreAdj},
};
constexpr NameTable<EventEntry, 64> kEventTable(kEvents);

// exec's arguments are addresses of the caller's strings, and newer kernels print the strings as well: none
// is asked for.
constexpr std::array kSyscalls = {
    SyscallEntry{"mmap", Syscall::kMmap, 6},
    SyscallEntry{"munmap", Syscall::kMunmap, 2},
    SyscallEntry{"brk", Syscall::kBrk, 1},
    SyscallEntry{"mremap", Syscall::kMremap, 5},
    SyscallEntry{"madvise", Syscall::kMadvise, 3},
    SyscallEntry{"mprotect", Syscall::kMprotect, 3},
    SyscallEntry{"mlock", Syscall::kMlock, 2},
    SyscallEntry{"mlock2", Syscall::kMlock2, 3},
    SyscallEntry{"munlock", Syscall::kMunlock, 2},
    SyscallEntry{"mlockall", Syscall::kMlockall, 1},
    SyscallEntry{"munlockall", Syscall::kMunlockall, 0},
    SyscallEntry{"clone", Syscall::kClone, 5},
    SyscallEntry{"clone3", Syscall::kClone3, 2},
    SyscallEntry{"fork", Syscall::kFork, 0},
    SyscallEntry{"vfork", Syscall::kVfork, 0},
    SyscallEntry{"execve", Syscall::kExecve, 0},
    SyscallEntry{"execveat", Syscall::kExecveat, 0},
    SyscallEntry{"exit_group", Syscall::kExitGroup, 1},
    SyscallEntry{"process_madvise", Syscall::kProcessMadvise, 5},
};
constexpr NameTable<SyscallEntry, 64> kSyscallTable(kSyscalls);

// ---- system calls ----

constexpr std::string_view kSys = "sys_";
constexpr std::string_view kSysEnter = "sys_enter_";
constexpr std::string_view kSysExit = "sys_exit_";

// "addr: 0, len: 0x2000, …", with types before the names in tracefs' verbose mode.  All values are hex: older
// kernels leave the 0x away ("len: 2000"), newer ones only below ten.
ParsedLine ParseSyscallArgs(const SyscallEntry& entry, std::string_view args, TraceRecord* record) {
  TextScanner text(args);
  for (size_t i = 0; i < entry.args; ++i) {
    if (i != 0 && !text.SkipPast(',')) return Malformed("a system call with too few arguments");
    if (!text.SkipPast(':')) return Malformed("a system call with too few arguments");
    text.SkipBlanks();
    if (!text.ReadHex(&record->args[i]) || !text.AtValueEnd()) {
      return Malformed("a system call with an argument that is not a number");
    }
  }
  record->syscall = entry.syscall;
  return Record(TraceOp::kSyscallEnter, record);
}

ParsedLine ParseSyscallResult(const SyscallEntry& entry, std::string_view result, TraceRecord* record) {
  TextScanner text(result);
  text.SkipBlanks();
  uint64_t value = 0;
  if (!text.ReadHex(&value) || !text.AtValueEnd())
    return Malformed("a system call's return that is not a number");
  record->ret = static_cast<int64_t>(value);
  record->syscall = entry.syscall;
  return Record(TraceOp::kSyscallExit, record);
}

constexpr std::array<bool, 256> kIsEventNameChar = [] {
  std::array<bool, 256> is{};
  for (char c = 'a'; c <= 'z'; ++c) is[static_cast<unsigned char>(c)] = true;
  for (char c = 'A'; c <= 'Z'; ++c) is[static_cast<unsigned char>(c)] = true;
  for (char c = '0'; c <= '9'; ++c) is[static_cast<unsigned char>(c)] = true;
  for (char c : {'_', '.', '-', '$', '@', '/'}) is[static_cast<unsigned char>(c)] = true;
  return is;
}();

}  // namespace

std::span<const SyscallEntry> Syscalls() { return kSyscalls; }

size_t EventNameLength(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && kIsEventNameChar[static_cast<unsigned char>(text[length])]) ++length;
  return length;
}

ParsedLine ParseEvent(std::string_view name, std::string_view values, TraceRecord* record) {
  if (name.starts_with(kSys)) {
    if (name.starts_with(kSysEnter)) {
      const SyscallEntry* entry = kSyscallTable.Find(name.substr(kSysEnter.size()));
      return entry == nullptr ? Parsed(Kind::kOther) : ParseSyscallArgs(*entry, values, record);
    }
    if (name.starts_with(kSysExit)) {
      const SyscallEntry* entry = kSyscallTable.Find(name.substr(kSysExit.size()));
      return entry == nullptr ? Parsed(Kind::kOther) : ParseSyscallResult(*entry, values, record);
    }
    return Parsed(Kind::kOther);
  }
  const EventEntry* entry = kEventTable.Find(name);
  return entry == nullptr ? Parsed(Kind::kOther) : entry->parse(values, record);
}

ParsedLine ParseTracefsSyscallEnter(std::string_view name, std::string_view args, TraceRecord* record) {
  if (!name.starts_with(kSys)) return Malformed("a body that is no event's");
  if (!args.ends_with(")")) return Malformed("a system call without its closing parenthesis");
  const SyscallEntry* entry = kSyscallTable.Find(name.substr(kSys.size()));
  return entry == nullptr ? Parsed(Kind::kOther) : ParseSyscallArgs(*entry, args, record);
}

ParsedLine ParseTracefsSyscallExit(std::string_view name, std::string_view result, TraceRecord* record) {
  if (!name.starts_with(kSys)) return Malformed("a body that is no event's");
  const SyscallEntry* entry = kSyscallTable.Find(name.substr(kSys.size()));
  return entry == nullptr ? Parsed(Kind::kOther) : ParseSyscallResult(*entry, result, record);
}

}  // namespace memcgd::client
