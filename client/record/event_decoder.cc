#include "client/record/event_decoder.h"

#include <traceevent/event-parse.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "client/event_parser.h"
#include "client/text_scanner.h"

namespace memcgd::client {
namespace {

// What a field's value becomes in a record.
enum class To : uint8_t {
  kAddress,
  kIp,
  kErrorCode,
  kDev,
  kIno,
  kFirstPage,  // first_byte = value pages
  kLastPage,   // last_byte = the last of that page
  kFirstByte,
  kLength,  // last_byte = first_byte + value − 1
  kOrder,
  kPageIndex,
  kDeviceName,  // text "MAJOR:MINOR"
  kChildPid,
  kOldPid,
  kGroupDead,
  kRoot,
  kLevel,
  kCgroupId,
  kPath,  // text
  kRet,
  kSkip,  // read by TakeTaskEvent()
};

struct FieldDefinition {
  const char* name = nullptr;
  To to = To::kSkip;
};

struct EventDefinition {
  const char* system;
  const char* event;
  TraceOp op;
  std::array<FieldDefinition, 5> fields{};
};

constexpr EventDefinition kNewTask{
    "task", "task_newtask", TraceOp::kOther, {{{"pid"}, {"comm"}, {"clone_flags"}}}};
constexpr EventDefinition kRename{"task", "task_rename", TraceOp::kOther, {{{"pid"}, {"newcomm"}}}};

constexpr std::array<FieldDefinition, 5> kFault = {
    {{"address", To::kAddress}, {"ip", To::kIp}, {"error_code", To::kErrorCode}}};
constexpr std::array<FieldDefinition, 5> kFolio = {
    {{"s_dev", To::kDev}, {"i_ino", To::kIno}, {"index", To::kFirstPage}, {"order", To::kOrder}}};
constexpr std::array<FieldDefinition, 5> kPages = {
    {{"s_dev", To::kDev}, {"i_ino", To::kIno}, {"index", To::kFirstPage}, {"last_index", To::kLastPage}}};
constexpr std::array<FieldDefinition, 5> kWrite = {
    {{"dev", To::kDev}, {"ino", To::kIno}, {"pos", To::kFirstByte}, {"len", To::kLength}}};
constexpr std::array<FieldDefinition, 5> kCgroup = {
    {{"root", To::kRoot}, {"id", To::kCgroupId}, {"level", To::kLevel}, {"path", To::kPath}}};

constexpr EventDefinition kDefinitions[] = {
    kNewTask,
    kRename,
    {"exceptions", "page_fault_user", TraceOp::kPageFault, kFault},
    {"exceptions", "page_fault_kernel", TraceOp::kPageFault, kFault},
    {"filemap", "mm_filemap_add_to_page_cache", TraceOp::kFilemapAdd, kFolio},
    {"filemap", "mm_filemap_delete_from_page_cache", TraceOp::kFilemapDelete, kFolio},
    {"filemap",
     "mm_filemap_fault",
     TraceOp::kFilemapFault,
     {{{"s_dev", To::kDev}, {"i_ino", To::kIno}, {"index", To::kFirstPage}}}},
    {"filemap", "mm_filemap_map_pages", TraceOp::kFilemapMapPages, kPages},
    {"filemap", "mm_filemap_get_pages", TraceOp::kFilemapGetPages, kPages},
    {"ext4", "ext4_write_begin", TraceOp::kWriteBegin, kWrite},
    {"ext4", "ext4_da_write_begin", TraceOp::kWriteBegin, kWrite},
    {"writeback",
     "writeback_dirty_folio",
     TraceOp::kDirtyFolio,
     {{{"name", To::kDeviceName}, {"ino", To::kIno}, {"index", To::kPageIndex}}}},
    {"sched", "sched_process_fork", TraceOp::kFork, {{{"child_pid", To::kChildPid}}}},
    {"sched", "sched_process_exec", TraceOp::kExec, {{{"filename", To::kPath}, {"old_pid", To::kOldPid}}}},
    {"sched", "sched_process_exit", TraceOp::kExit, {{{"group_dead", To::kGroupDead}}}},
    {"mmap", "exit_mmap", TraceOp::kExitMmap},
    {"cgroup", "cgroup_mkdir", TraceOp::kCgroupMkdir, kCgroup},
    {"cgroup", "cgroup_rmdir", TraceOp::kCgroupRmdir, kCgroup},
    {"cgroup", "cgroup_release", TraceOp::kCgroupRelease, kCgroup},
    {"cgroup",
     "cgroup_attach_task",
     TraceOp::kCgroupAttachTask,
     {{{"dst_root", To::kRoot},
       {"dst_id", To::kCgroupId},
       {"dst_level", To::kLevel},
       {"dst_path", To::kPath},
       {"pid", To::kChildPid}}}},
    {"vmscan", "mm_vmscan_memcg_reclaim_begin", TraceOp::kReclaimBegin},
    {"vmscan", "mm_vmscan_memcg_reclaim_end", TraceOp::kReclaimEnd, {{{"nr_reclaimed", To::kRet}}}},
    {"oom", "mark_victim", TraceOp::kMarkVictim, {{{"pid", To::kChildPid}}}},
    {"oom",
     "oom_score_adj_update",
     TraceOp::kOomScoreAdj,
     {{{"pid", To::kChildPid}, {"oom_score_adj", To::kRet}}}},
};
constexpr int kSyscallEnter = std::size(kDefinitions), kSyscallExit = kSyscallEnter + 1;

// The event's own fields, and those that begin each: include/linux/trace_events.h, struct trace_entry.
constexpr size_t kTypeOffset = 0, kFlagsOffset = 2, kPreemptOffset = 3, kPidOffset = 4, kHeadBytes = 8;
constexpr uint8_t kIrqsOff = 0x01, kNeedReschedLazy = 0x02, kNeedResched = 0x04, kHardirq = 0x08,
                  kSoftirq = 0x10, kNmi = 0x40, kBhOff = 0x80;

// Left out by whoever traces: they tell nothing that the others do not, and fork and exec would be told apart
// by them in another way than in traces without.
bool IsTraced(Syscall syscall) {
  return syscall != Syscall::kExecve && syscall != Syscall::kExecveat && syscall != Syscall::kExitGroup;
}

TraceFlags FlagsOf(uint8_t flags, uint8_t preempt) {
  TraceFlags out;
  out.irqs_off = (flags & kIrqsOff) != 0;
  out.bh_off = (flags & kBhOff) != 0;
  out.need_resched = (flags & (kNeedResched | kNeedReschedLazy)) != 0;
  out.context = (flags & kNmi) != 0       ? TraceContext::kNmi
                : (flags & kHardirq) != 0 ? TraceContext::kHardirq
                : (flags & kSoftirq) != 0 ? TraceContext::kSoftirq
                                          : TraceContext::kTask;
  out.preempt_depth = preempt & 0xf;
  out.migrate_disable = preempt >> 4;
  return out;
}

// Not every bdi is named by a device number ("btrfs-1"): 0.
uint32_t DeviceOf(std::string_view name) {
  TextScanner text(name);
  uint64_t major = 0, minor = 0;
  if (!text.ReadDecimal(&major, 0xfff) || !text.Skip(':') || !text.ReadDecimal(&minor, 0xfffff) ||
      !text.AtEnd())
    return 0;
  return MakeDev(static_cast<uint32_t>(major), static_cast<uint32_t>(minor));
}

uint64_t PageSize() {
  static const auto size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void Store(To to, uint64_t value, TraceRecord* record) {
  switch (to) {
    case To::kAddress:
      record->address = value;
      break;
    case To::kErrorCode:
      record->error_code = static_cast<uint8_t>(value);
      break;
    case To::kDev:
      record->dev = static_cast<uint32_t>(value);
      break;
    case To::kIno:
      record->ino = value;
      break;
    case To::kFirstPage:
      record->first_byte = value * PageSize();
      break;
    case To::kLastPage:
      record->last_byte = (value + 1) * PageSize() - 1;
      break;
    case To::kFirstByte:
      record->first_byte = value;
      break;
    case To::kLength:
      record->last_byte = record->first_byte + value - 1;
      break;
    case To::kOrder:
      record->order = static_cast<uint8_t>(value);
      break;
    case To::kPageIndex:
      record->page_index = value;
      break;
    case To::kChildPid:
      record->child_pid = static_cast<int32_t>(value);
      break;
    case To::kOldPid:
      record->old_pid = static_cast<int32_t>(value);
      break;
    case To::kGroupDead:
      record->group_dead = value != 0 ? 1 : 0;
      break;
    case To::kRoot:
      record->root = static_cast<uint32_t>(value);
      break;
    case To::kLevel:
      record->level = static_cast<uint32_t>(value);
      break;
    case To::kCgroupId:
      record->cgroup_id = value;
      break;
    case To::kRet:
      record->ret = static_cast<int64_t>(value);
      break;
    case To::kIp:
    case To::kDeviceName:
    case To::kPath:
    case To::kSkip:
      break;
  }
}

template <typename Value>
Value ReadAt(const RawEvent& event, size_t offset) {
  Value value{};
  if (offset + sizeof value <= event.size) std::memcpy(&value, event.data + offset, sizeof value);
  return value;
}

// Older kernels have no order, and no group_dead.
bool MayBeMissing(To to) { return to == To::kOrder || to == To::kGroupDead; }

}  // namespace

EventDecoder::EventDecoder() : tep_(tep_alloc()) {
  tep_set_loglevel(TEP_LOG_NONE);
  tep_set_local_bigendian(tep_, TEP_LITTLE_ENDIAN);
  tep_set_file_bigendian(tep_, TEP_LITTLE_ENDIAN);
  tep_set_long_size(tep_, sizeof(long));
}

EventDecoder::~EventDecoder() { tep_free(tep_); }

std::vector<EventName> EventDecoder::Events() {
  std::vector<EventName> events;
  for (const EventDefinition& definition : kDefinitions)
    events.push_back({definition.system, definition.event});
  for (const SyscallEntry& entry : Syscalls()) {
    if (!IsTraced(entry.syscall)) continue;
    const std::string name(entry.name);
    events.push_back({"syscalls", absl::StrCat("sys_enter_", name)});
    events.push_back({"syscalls", absl::StrCat("sys_exit_", name)});
  }
  return events;
}

absl::Status EventDecoder::AddEvent(const EventName& name, const std::string& format) {
  if (tep_parse_event(tep_, format.c_str(), format.size(), name.system) != TEP_ERRNO__SUCCESS)
    return absl::InternalError(absl::StrCat("the format of event ", name.event, " is not understood"));
  tep_event* event = tep_find_event_by_name(tep_, name.system, name.event.c_str());
  if (event == nullptr) return absl::InternalError(absl::StrCat("there is no format of event ", name.event));
  Layout layout;
  const auto add = [&layout](const tep_format_field* field) {
    Field& out = layout.fields[layout.field_count++];
    if (field == nullptr) return;  // size 0 reads as 0
    out.offset = static_cast<uint16_t>(field->offset);
    out.size = static_cast<uint8_t>(field->size);
    out.is_signed = (field->flags & TEP_FIELD_IS_SIGNED) != 0;
    out.is_dynamic = (field->flags & TEP_FIELD_IS_DYNAMIC) != 0;
    out.is_relative = (field->flags & TEP_FIELD_IS_RELATIVE) != 0;
    out.is_text = !out.is_dynamic && (field->flags & TEP_FIELD_IS_ARRAY) != 0;
  };
  for (size_t i = 0; i < std::size(kDefinitions); ++i) {
    const EventDefinition& definition = kDefinitions[i];
    if (std::string_view(definition.system) != name.system || definition.event != name.event) continue;
    layout.definition = static_cast<int>(i);
    for (const FieldDefinition& wanted : definition.fields) {
      if (wanted.name == nullptr) break;
      const tep_format_field* field = tep_find_field(event, wanted.name);
      if (field == nullptr && !MayBeMissing(wanted.to))
        return absl::InternalError(absl::StrCat("event ", name.event, " has no field ", wanted.name));
      add(field);
    }
  }
  for (const SyscallEntry& entry : Syscalls()) {
    const bool enter = name.event == absl::StrCat("sys_enter_", std::string(entry.name));
    if (!enter && name.event != absl::StrCat("sys_exit_", std::string(entry.name))) continue;
    layout.definition = enter ? kSyscallEnter : kSyscallExit;
    layout.syscall = entry.syscall;
    const size_t wanted = enter ? entry.args : 1;
    const tep_format_field* field = event->format.fields;  // the first is the call's number
    for (size_t i = 0; i < wanted; ++i) {
      field = field == nullptr ? nullptr : field->next;
      if (field == nullptr)
        return absl::InternalError(absl::StrCat("event ", name.event, " has too few fields"));
      add(field);
    }
  }
  const auto id = static_cast<size_t>(event->id);
  if (layouts_.size() <= id) layouts_.resize(id + 1);
  layouts_[id] = layout;
  return absl::OkStatus();
}

uint64_t EventDecoder::Number(const RawEvent& event, const Field& field) {
  switch (field.size) {
    case 1:
      return ReadAt<uint8_t>(event, field.offset);
    case 2:
      return field.is_signed ? static_cast<uint64_t>(ReadAt<int16_t>(event, field.offset))
                             : ReadAt<uint16_t>(event, field.offset);
    case 4:
      return field.is_signed ? static_cast<uint64_t>(ReadAt<int32_t>(event, field.offset))
                             : ReadAt<uint32_t>(event, field.offset);
    case 8:
      return ReadAt<uint64_t>(event, field.offset);
    default:
      return 0;
  }
}

std::string_view EventDecoder::Text(const RawEvent& event, const Field& field) {
  size_t offset = field.offset, size = field.size;
  if (field.is_dynamic) {
    const auto location = ReadAt<uint32_t>(event, field.offset);
    offset = (location & 0xffff) + (field.is_relative ? field.offset + sizeof location : 0);
    size = location >> 16;
  }
  if (offset > event.size || size > event.size - offset) return "";
  return {event.data + offset, strnlen(event.data + offset, size)};
}

void EventDecoder::FillHead(const RawEvent& event, ThreadNames* names, TraceRecord* record) {
  *record = TraceRecord();
  record->cpu = event.cpu;
  record->time_ns = event.time_ns;
  record->tid = ReadAt<int32_t>(event, kPidOffset);
  record->flags = FlagsOf(ReadAt<uint8_t>(event, kFlagsOffset), ReadAt<uint8_t>(event, kPreemptOffset));
  const ThreadNames::Thread& thread = names->Find(record->tid);
  record->tgid = thread.tgid;
  record->comm = thread.name();
}

void EventDecoder::TakeTaskEvent(const Layout& layout, const RawEvent& event, ThreadNames* names) {
  const auto pid = static_cast<int32_t>(Number(event, layout.fields[0]));
  const std::string_view comm = Text(event, layout.fields[1]);
  if (kDefinitions[layout.definition].event == kNewTask.event) {
    names->NewTask(ReadAt<int32_t>(event, kPidOffset), pid, comm, Number(event, layout.fields[2]));
  } else {
    names->Rename(pid, comm);
  }
}

void EventDecoder::FillSyscall(const Layout& layout, const RawEvent& event, TraceRecord* record) {
  record->syscall = layout.syscall;
  if (layout.definition == kSyscallExit) {
    record->op = TraceOp::kSyscallExit;
    record->ret = static_cast<int64_t>(Number(event, layout.fields[0]));
    return;
  }
  record->op = TraceOp::kSyscallEnter;
  for (size_t i = 0; i < layout.field_count; ++i) record->args[i] = Number(event, layout.fields[i]);
}

bool EventDecoder::Decode(const RawEvent& event, ThreadNames* names, TraceRecord* record) {
  const size_t id = ReadAt<uint16_t>(event, kTypeOffset);
  if (event.size < kHeadBytes || id >= layouts_.size() || layouts_[id].definition < 0) return false;
  const Layout& layout = layouts_[id];
  if (layout.definition >= kSyscallEnter) {
    FillHead(event, names, record);
    FillSyscall(layout, event, record);
    return true;
  }
  const EventDefinition& definition = kDefinitions[layout.definition];
  if (definition.op == TraceOp::kOther) {
    TakeTaskEvent(layout, event, names);
    return false;
  }
  if (definition.op == TraceOp::kExec) {
    const auto tid = ReadAt<int32_t>(event, kPidOffset);
    names->Exec(tid, static_cast<int32_t>(Number(event, layout.fields[1])));
  }
  FillHead(event, names, record);
  record->op = definition.op;
  for (size_t i = 0; i < layout.field_count; ++i) {
    const Field& field = layout.fields[i];
    switch (const To to = definition.fields[i].to) {
      case To::kPath:
        record->path = Text(event, field);
        break;
      case To::kDeviceName:
        record->dev = DeviceOf(Text(event, field));
        break;
      case To::kIp: {
        std::array<char, 18> digits{'0', 'x'};
        ip_.assign(digits.begin(),
                   std::to_chars(digits.begin() + 2, digits.end(), Number(event, field), 16).ptr);
        record->ip = ip_;
        break;
      }
      default:
        if (field.size != 0) Store(to, Number(event, field), record);
    }
  }
  record->from_kernel =
      definition.op == TraceOp::kPageFault && definition.event[sizeof("page_fault_") - 1] == 'k';
  if (record->op == TraceOp::kWriteBegin && record->last_byte + 1 == record->first_byte)
    return false;  // of nothing
  if (record->op == TraceOp::kExit) names->Exit(record->tid);
  return true;
}

}  // namespace memcgd::client
