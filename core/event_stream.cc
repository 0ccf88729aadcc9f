#include "core/event_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/cgroup_path.h"
#include "core/folio.h"

namespace memcgd::core {
namespace {

constexpr uint64_t kMaxFileIndex = (uint64_t{1} << 32) - 1;  // in pages
constexpr uint64_t kMaxFileRangePages = 1u << 24;

// Checks the events of one batch in order, keeping count of the handles that it defines.
class BatchCheck {
 public:
  BatchCheck(const Batch& batch, const NodeConfig& config, size_t paths, size_t files, size_t names)
      : batch_(batch),
        config_(config),
        end_page_((kMaxAddress + 1) / config.page_size),
        paths_(paths),
        files_(files),
        names_(names) {}

  absl::Status Run() {
    size_t next_wide = 0;
    for (size_t i = 0;;) {
      for (; next_wide < batch_.wide.size() && batch_.wide[next_wide].position <= i; ++next_wide) {
        const WideEvent& wide = batch_.wide[next_wide];
        if (wide.position < i) return Wide(next_wide, "position goes back");
        std::string wrong = WrongWide(wide);
        if (!wrong.empty()) return Wide(next_wide, wrong);
      }
      if (i == batch_.events.size()) break;
      size_t stop = batch_.events.size();  // or the next side event
      if (next_wide < batch_.wide.size()) stop = std::min<size_t>(stop, batch_.wide[next_wide].position);
      for (; i < stop; ++i) {
        if (Holds(batch_.events[i])) continue;
        std::string wrong = WrongEvent(batch_.events[i]);
        if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat("event ", i, ": ", wrong));
      }
    }
    if (next_wide < batch_.wide.size()) {
      return Wide(next_wide, absl::StrCat("position ", batch_.wide[next_wide].position,
                                          " is past the batch's ", batch_.events.size(), " events"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Wide(size_t index, absl::string_view wrong) const {
    return absl::InvalidArgumentError(absl::StrCat("side event ", index, ": ", wrong));
  }

  // The frequent kinds, without a word about what is wrong: WrongEvent() finds that.
  bool Holds(const Event& event) const {
    if (event.cpu() >= config_.cpus || event.tid() == 0) return false;
    if (event.kind() == EventKind::kFault) return true;
    if (event.kind() == EventKind::kMapPages || event.kind() == EventKind::kFileFault) {
      return event.file() - 1 < files_ - 1;
    }
    if (event.kind() != EventKind::kMmapAnon && event.kind() != EventKind::kMunmap) return false;
    return event.pages() > 0 && event.page_number() + event.pages() <= end_page_;
  }

  std::string WrongCpu(uint32_t cpu) const {
    if (cpu < config_.cpus) return "";
    return absl::StrCat("CPU ", cpu, " of a node that has ", config_.cpus);
  }
  std::string WrongThread(uint32_t tid) const {
    return tid >= 1 && tid <= kMaxTid ? "" : absl::StrCat("thread id ", tid, " is not in 1 … ", kMaxTid);
  }
  std::string WrongFile(uint32_t handle) const {
    return handle >= 1 && handle < files_ ? "" : absl::StrCat("file handle ", handle, " was not defined");
  }
  std::string WrongPath(uint32_t handle) const {
    return handle >= 1 && handle < paths_ ? "" : absl::StrCat("path handle ", handle, " was not defined");
  }
  std::string WrongName(uint32_t handle) const {
    return handle < names_ ? "" : absl::StrCat("name handle ", handle, " was not defined");
  }
  std::string WrongRange(uint64_t address, uint64_t length, bool may_be_empty = false) const {
    if (address % config_.page_size != 0) {
      return absl::StrCat("address 0x", absl::Hex(address), " is not a multiple of the page size");
    }
    if (length == 0 && !may_be_empty) return "length is 0";
    if (address > kMaxAddress || length > kMaxAddress + 1 - address) {
      return absl::StrCat("range 0x", absl::Hex(address), " + ", length, " passes 57 bits");
    }
    return "";
  }
  std::string NextHandle(uint32_t handle, size_t& next, absl::string_view kind) const {
    if (handle != next || handle > kMaxHandle) {
      return absl::StrCat(kind, " handle ", handle, " is not the next one, ", next);
    }
    ++next;
    return "";
  }

  std::string WrongEvent(const Event& event) const {
    std::string wrong = WrongCpu(event.cpu());
    if (!wrong.empty()) return wrong;
    switch (event.kind()) {
      case EventKind::kFault:
      case EventKind::kBrk:
      case EventKind::kAccess:
      case EventKind::kInstruction:
        return WrongThread(event.tid());
      case EventKind::kFileFault:
      case EventKind::kMapPages:
        wrong = WrongThread(event.tid());
        return wrong.empty() ? WrongFile(event.file()) : wrong;
      case EventKind::kFileAdd:
      case EventKind::kFileDelete:
        if (event.extra() > FolioArena::kMaxOrder)
          return absl::StrCat("order ", event.extra(), " is over 10");
        if (uint64_t{event.index()} + (uint64_t{1} << event.extra()) > kMaxFileIndex + 1)
          return "folio passes the last page index";
        return WrongFile(event.file());
      case EventKind::kFileRead:
      case EventKind::kFileWrite:
      case EventKind::kFileDirty:
      case EventKind::kReadahead:
        return WrongFile(event.file());
      case EventKind::kMmapAnon:
      case EventKind::kMunmap:
      case EventKind::kDontNeed:
        wrong = WrongThread(event.tid());
        if (!wrong.empty()) return wrong;
        if (event.pages() == 0) return "a range of 0 pages";
        if (event.page_number() + event.pages() > end_page_) return "range passes 57 bits";
        return "";
      case EventKind::kInvalid:
        break;
    }
    return absl::StrCat("unknown kind ", static_cast<uint32_t>(event.kind()));
  }

  std::string WrongWide(const WideEvent& wide) {
    std::string wrong = WrongCpu(wide.cpu);
    if (!wrong.empty()) return wrong;
    return std::visit([&](const auto& body) { return Wrong(wide, body); }, wide.body);
  }

  std::string Wrong(const WideEvent&, const wide::DefinePath& define) {
    absl::Status path = CheckCgroupPath(define.path);
    if (!path.ok()) return std::string(path.message());
    return NextHandle(define.handle, paths_, "path");
  }
  std::string Wrong(const WideEvent&, const wide::DefineFile& define) {
    if (define.dev == UINT32_MAX) return absl::StrCat("no device has the number ", define.dev);
    return NextHandle(define.handle, files_, "file");
  }
  std::string Wrong(const WideEvent&, const wide::DefineName& define) {
    if (define.name.size() > 255) return "name is longer than 255 bytes";
    return NextHandle(define.handle, names_, "name");
  }
  std::string Wrong(const WideEvent&, const wide::Mark&) { return ""; }
  std::string Wrong(const WideEvent& wide, const wide::Mmap& map) { return WrongMap(wide, map); }
  std::string Wrong(const WideEvent& wide, const wide::BaselineArea& area) {
    return WrongMap(wide, area.area);
  }
  std::string WrongMap(const WideEvent& wide, const wide::Mmap& map) const {
    std::string wrong = WrongThread(wide.tid);
    if (!wrong.empty()) return wrong;
    if (map.file != 0) wrong = WrongFile(map.file);
    if (!wrong.empty()) return wrong;
    uint32_t type = map.flags & kMapTypeMask;
    if (type < 1 || type > 3)
      return absl::StrCat("flags 0x", absl::Hex(map.flags), " say neither shared nor private");
    if ((map.flags & kMapAnonymous) == 0 && map.offset % config_.page_size != 0)
      return absl::StrCat("offset ", map.offset, " is not a multiple of the page size");
    return WrongRange(map.address, map.length);
  }
  std::string Wrong(const WideEvent& wide, const wide::Munmap& unmap) {
    std::string wrong = WrongThread(wide.tid);
    return wrong.empty() ? WrongRange(unmap.address, unmap.length) : wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::Brk& brk) {
    if (brk.address > kMaxAddress) return "the break passes 57 bits";
    return WrongThread(wide.tid);
  }
  std::string Wrong(const WideEvent& wide, const wide::Mremap& remap) {
    std::string wrong = WrongThread(wide.tid);
    if (wrong.empty()) wrong = WrongRange(remap.old_address, remap.old_length, true);
    if (wrong.empty()) wrong = WrongRange(remap.new_address, remap.new_length);
    return wrong;
  }
  template <typename RangeCall>
  std::string WrongRangeCall(const WideEvent& wide, const RangeCall& call) const {
    std::string wrong = WrongThread(wide.tid);
    return wrong.empty() ? WrongRange(call.address, call.length, true) : wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::Mprotect& call) { return WrongRangeCall(wide, call); }
  std::string Wrong(const WideEvent& wide, const wide::Madvise& call) { return WrongRangeCall(wide, call); }
  std::string Wrong(const WideEvent& wide, const wide::Mlock& call) {
    return WrongLock(wide, call.address, call.length);
  }
  std::string Wrong(const WideEvent& wide, const wide::Munlock& call) {
    return WrongLock(wide, call.address, call.length);
  }
  // mlock takes any address, and rounds.
  std::string WrongLock(const WideEvent& wide, uint64_t address, uint64_t length) const {
    std::string wrong = WrongThread(wide.tid);
    return wrong.empty() ? WrongRange(address - address % config_.page_size, length, true) : wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::Clone& clone) {
    std::string wrong = WrongThread(wide.tid);
    if (wrong.empty()) wrong = WrongThread(clone.child_tid);
    if (wrong.empty() && clone.child_tid == wide.tid) wrong = "a thread cannot be its own child";
    return wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::Exec& exec) {
    std::string wrong = WrongThread(wide.tid);
    return wrong.empty() ? WrongName(exec.name) : wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::ExecArguments& arguments) {
    if (arguments.pages > 32768) return absl::StrCat(arguments.pages, " argument pages are more than 32768");
    return WrongThread(wide.tid);
  }
  std::string Wrong(const WideEvent& wide, const wide::Exit&) { return WrongThread(wide.tid); }
  std::string Wrong(const WideEvent& wide, const wide::ExitMmap&) { return WrongThread(wide.tid); }
  std::string Wrong(const WideEvent& wide, const wide::Comm& comm) {
    std::string wrong = WrongThread(wide.tid);
    return wrong.empty() ? WrongName(comm.name) : wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::FileRange& range) {
    if (range.op != EventKind::kReadahead &&
        (range.op < EventKind::kFileFault || range.op > EventKind::kFileDirty))
      return "no such operation on a file";
    if (range.count == 0 || range.count > kMaxFileRangePages)
      return absl::StrCat(range.count, " pages are not in 1 … 16777216");
    if (range.order > FolioArena::kMaxOrder) return absl::StrCat("order ", range.order, " is over 10");
    uint64_t folio_pages = uint64_t{1} << range.order;
    uint64_t pages = (range.count + folio_pages - 1) / folio_pages * folio_pages;
    if (range.index > kMaxFileIndex || range.index + pages > kMaxFileIndex + 1) {
      return absl::StrCat("page index ", range.index, " passes the last, ", kMaxFileIndex);
    }
    if (wide.tid > kMaxTid) return WrongThread(wide.tid);
    if (range.op == EventKind::kFileFault || range.op == EventKind::kMapPages) {
      std::string wrong = WrongThread(wide.tid);
      if (!wrong.empty()) return wrong;
    }
    return WrongFile(range.file);
  }
  std::string Wrong(const WideEvent&, const wide::CgroupCreate& create) { return WrongPath(create.path); }
  std::string Wrong(const WideEvent&, const wide::CgroupRemove& remove) { return WrongPath(remove.path); }
  std::string Wrong(const WideEvent&, const wide::CgroupAttach& attach) {
    std::string wrong = WrongPath(attach.path);
    return wrong.empty() ? WrongThread(attach.moved_tid) : wrong;
  }
  std::string Wrong(const WideEvent&, const wide::SetKnob& set) { return WrongPath(set.path); }
  std::string Wrong(const WideEvent&, const wide::SetOvercommit&) { return ""; }
  std::string Wrong(const WideEvent& wide, const wide::MigrateFolio& migrate) {
    std::string wrong = WrongPath(migrate.path);
    if (!wrong.empty()) return wrong;
    if (migrate.file == 0) {
      if (migrate.address > kMaxAddress) return "address passes 57 bits";
      return WrongThread(wide.tid);
    }
    if (migrate.index > kMaxFileIndex) {
      return absl::StrCat("page index ", migrate.index, " passes the last, ", kMaxFileIndex);
    }
    return WrongFile(migrate.file);
  }
  std::string Wrong(const WideEvent& wide, const wide::ReclaimBegin&) { return WrongThread(wide.tid); }
  std::string Wrong(const WideEvent& wide, const wide::ReclaimEnd&) { return WrongThread(wide.tid); }
  std::string Wrong(const WideEvent&, const wide::MarkVictim& victim) {
    return WrongThread(victim.victim_tid);
  }
  std::string Wrong(const WideEvent&, const wide::SetOomScoreAdj& set) {
    if (set.oom_score_adj < -1000 || set.oom_score_adj > 1000)
      return absl::StrCat("oom_score_adj ", set.oom_score_adj, " is not in −1000 … 1000");
    return WrongThread(set.target_tid);
  }
  std::string Wrong(const WideEvent& wide, const wide::BaselineProcess& process) {
    std::string wrong = WrongThread(wide.tid);
    if (wrong.empty()) wrong = WrongThread(process.tgid);
    if (wrong.empty() && process.cgroup != 0) wrong = WrongPath(process.cgroup);
    return wrong.empty() ? WrongName(process.name) : wrong;
  }
  std::string Wrong(const WideEvent& wide, const wide::BaselinePresent& present) {
    std::string wrong = WrongThread(wide.tid);
    if (wrong.empty() && (present.pages == 0 || present.pages > kMaxFileRangePages))
      wrong = "pages are not in 1 … 16777216";
    return wrong.empty() ? WrongRange(present.address, present.pages * config_.page_size) : wrong;
  }
  std::string Wrong(const WideEvent&, const wide::BaselineCached& cached) {
    if (cached.pages == 0 || cached.pages > kMaxFileRangePages) return "pages are not in 1 … 16777216";
    if (cached.index > kMaxFileIndex || cached.index + cached.pages > kMaxFileIndex + 1)
      return "passes the last page index";
    std::string wrong = WrongFile(cached.file);
    return wrong.empty() && cached.cgroup != 0 ? WrongPath(cached.cgroup) : wrong;
  }

  const Batch& batch_;
  const NodeConfig& config_;
  const PageNumber end_page_;  // past the last of an address space
  size_t paths_;
  size_t files_;
  size_t names_;
};

}  // namespace

absl::Status EventStream::Check(const Batch& batch, const NodeConfig& config) const {
  return BatchCheck(batch, config, paths_.size(), files_.size(), names_.size()).Run();
}

}  // namespace memcgd::core
