#include "client/record/running.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/record/proc_file.h"
#include "client/record/trace_instance.h"
#include "client/text_scanner.h"
#include "client/trace_record.h"

namespace memcgd::client {
namespace {

namespace fs = std::filesystem;

// /proc/PID/pagemap and /proc/kpageflags: Documentation/admin-guide/mm/pagemap.rst.
constexpr uint64_t kPresent = uint64_t{1} << 63, kOfFile = uint64_t{1} << 61, kExclusive = uint64_t{1} << 56;
constexpr uint64_t kFrameMask = (uint64_t{1} << 55) - 1;
constexpr uint64_t kPageDirty = uint64_t{1} << 4, kPageActive = uint64_t{1} << 6;
constexpr uint64_t kMapShared = 1, kMapPrivate = 2, kMapAnonymous = 0x20, kMapGrowsDown = 0x100;
constexpr size_t kEntriesAtOnce = 4096;

std::vector<int32_t> NumbersOf(absl::string_view text) {
  std::vector<int32_t> numbers;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    int32_t number = 0;
    if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
  }
  return numbers;
}

std::vector<int32_t> NumbersIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  return text.ok() ? NumbersOf(*text) : std::vector<int32_t>();
}

std::vector<int32_t> ThreadsOf(int32_t pid) {
  std::vector<int32_t> threads;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(absl::StrCat("/proc/", pid, "/task"), gone)) {
    int32_t tid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &tid)) threads.push_back(tid);
  }
  return threads;
}

// A file of 64-bit entries.
class Entries {
 public:
  explicit Entries(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Entries() {
    if (fd_ >= 0) close(fd_);
  }
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;

  // As many as could be read.
  size_t Read(uint64_t first, size_t count, uint64_t* entries) const {
    const ssize_t got =
        fd_ < 0 ? 0
                : pread(fd_, entries, count * sizeof *entries, static_cast<off_t>(first * sizeof *entries));
    return got < 0 ? 0 : static_cast<size_t>(got) / sizeof *entries;
  }
  uint64_t At(uint64_t index) const {
    uint64_t entry = 0;
    return Read(index, 1, &entry) == 1 ? entry : 0;
  }

 private:
  const int fd_;
};

// A line of /proc/PID/maps.
struct Area {
  uint64_t begin = 0, end = 0, offset = 0, ino = 0;
  uint32_t prot = 0, dev = 0;
  bool shared = false;
  std::string path;
};

bool ParseArea(absl::string_view line, Area* area) {
  TextScanner text(std::string_view(line.data(), line.size()));
  uint64_t major = 0, minor = 0;
  if (!text.ReadHex(&area->begin) || !text.Skip('-') || !text.ReadHex(&area->end) || !text.Skip(' '))
    return false;
  const std::string_view rights = text.rest().substr(0, 4);
  if (rights.size() < 4) return false;
  area->prot = (rights[0] == 'r' ? 1 : 0) | (rights[1] == 'w' ? 2 : 0) | (rights[2] == 'x' ? 4 : 0);
  area->shared = rights[3] == 's';
  text.Advance(4);
  if (!text.Skip(' ') || !text.ReadHex(&area->offset) || !text.Skip(' ') || !text.ReadHex(&major) ||
      !text.Skip(':') || !text.ReadHex(&minor) || !text.Skip(' ') || !text.ReadDecimal(&area->ino))
    return false;
  area->dev = MakeDev(static_cast<uint32_t>(major), static_cast<uint32_t>(minor));
  text.SkipBlanks();
  area->path = std::string(text.rest());
  return true;
}

// Pages that the kernel itself shows a process, of no account.
bool IsKernels(const Area& area) {
  return area.path.starts_with("[v") || area.path == "[uprobes]" || area.end > kMaxWordAddress;
}

// Shared memory is a file of tmpfs, one without a name too.
bool IsShmem(const Area& area) {
  if (area.dev >> 20 != 0) return false;
  if (area.path.starts_with("/memfd:") || area.path.starts_with("/SYSV") ||
      area.path.starts_with("/dev/zero"))
    return true;
  struct statfs info {};
  return statfs(area.path.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

class BaselineWriter {
 public:
  BaselineWriter(const MemoryHierarchy& hierarchy, Feed* feed)
      : hierarchy_(hierarchy), feed_(*feed), page_size_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) {
    NameCgroups();
  }

  void Tell(int32_t pid) {
    const absl::StatusOr<std::string> maps = ReadSmallFile(absl::StrCat("/proc/", pid, "/maps"));
    const absl::StatusOr<std::string> cgroup = CgroupOf(hierarchy_, pid);
    if (!maps.ok() || !cgroup.ok()) return;
    place_ = {.cpu = 0, .tid = static_cast<uint32_t>(pid), .time_ns = TraceClockNs()};
    TellProcess(pid, *cgroup);
    const Entries pagemap(absl::StrCat("/proc/", pid, "/pagemap"));
    for (const absl::string_view line : absl::StrSplit(*maps, '\n', absl::SkipEmpty())) {
      Area area;
      if (ParseArea(line, &area) && !IsKernels(area)) TellArea(area, pagemap, *cgroup);
      if (feed_.builder()->size() > 4096) feed_.Send();
    }
    feed_.Send();
  }

 private:
  // A frame's cgroup is told by the number of its folder.
  void NameCgroups() {
    std::error_code gone;
    for (const auto& entry : fs::recursive_directory_iterator(hierarchy_.mount_point, gone)) {
      struct stat info {};
      if (!entry.is_directory(gone) || stat(entry.path().c_str(), &info) != 0) continue;
      cgroups_[info.st_ino] = entry.path().string().substr(hierarchy_.mount_point.size());
    }
  }

  // By a record, so that the translation knows the cgroup too.
  uint32_t CgroupHandle(const std::string& path) {
    if (path == "/" || path.empty()) return 0;
    if (made_.insert(path).second) {
      TraceRecord record;
      record.op = TraceOp::kCgroupMkdir;
      record.root = hierarchy_.number;
      record.path = path;
      record.time_ns = place_.time_ns;
      feed_.Add(record);
      feed_.Flush();
    }
    return feed_.builder()->PathHandle(path);
  }

  void TellProcess(int32_t pid, const std::string& cgroup) {
    const uint32_t handle = CgroupHandle(cgroup);
    const uint32_t name = feed_.builder()->NameHandle(ReadProcessStatus(pid).name);
    std::vector<int32_t> threads = client::ThreadsOf({pid});
    std::stable_partition(threads.begin(), threads.end(), [pid](int32_t tid) { return tid == pid; });
    for (const int32_t tid : threads) {
      EventPlace place = place_;
      place.tid = static_cast<uint32_t>(tid);
      auto* process = feed_.builder()->AddSide(place)->mutable_baseline_process();
      process->set_tgid(static_cast<uint32_t>(pid));
      process->set_cgroup(handle);
      process->set_name(name);
    }
  }

  void TellArea(const Area& area, const Entries& pagemap, const std::string& cgroup) {
    const bool of_file = area.ino != 0;
    const uint32_t file = of_file ? feed_.builder()->FileHandle(area.dev, area.ino, IsShmem(area)) : 0;
    auto* map = feed_.builder()->AddSide(place_)->mutable_baseline_area()->mutable_area();
    map->set_address(area.begin);
    map->set_length(area.end - area.begin);
    map->set_prot(area.prot);
    map->set_flags(static_cast<uint32_t>((area.shared ? kMapShared : kMapPrivate) |
                                         (of_file ? 0 : kMapAnonymous) |
                                         (area.path == "[stack]" ? kMapGrowsDown : 0)));
    map->set_file(file);
    map->set_offset(of_file ? area.offset : 0);
    TellPages(area, file, pagemap, cgroup);
    // What a later brk(2) grows or shrinks.
    if (area.path == "[heap]") feed_.builder()->AddAddress(place_, WordKind::kBrk, area.end, 0);
  }

  // Runs of pages of a kind.
  struct Run {
    uint64_t first = 0, pages = 0;  // page numbers of the address space
    bool anonymous = false;
    bool tell_cached = false;  // no other process's area told of them
    uint64_t flags = 0;
    uint64_t cgroup_number = 0;
  };

  void TellPages(const Area& area, uint32_t file, const Entries& pagemap, const std::string& cgroup) {
    std::vector<uint64_t> entries(kEntriesAtOnce);
    Run run;
    const uint64_t end = area.end / page_size_;
    for (uint64_t page = area.begin / page_size_; page < end;) {
      const size_t got = pagemap.Read(page, std::min<uint64_t>(entries.size(), end - page), entries.data());
      if (got == 0) break;
      for (size_t i = 0; i < got; ++i, ++page) {
        Run one;
        if (!Look(entries[i], page, file, &one)) continue;
        const bool goes_on = run.pages != 0 && run.first + run.pages == page &&
                             run.anonymous == one.anonymous && run.tell_cached == one.tell_cached &&
                             run.flags == one.flags && run.cgroup_number == one.cgroup_number;
        if (goes_on) {
          ++run.pages;
          continue;
        }
        TellRun(area, file, run, cgroup);
        run = one;
      }
    }
    TellRun(area, file, run, cgroup);
  }

  // False where there is nothing to tell: no page, or one that another process has told of and shares.
  bool Look(uint64_t entry, uint64_t page, uint32_t file, Run* run) {
    if ((entry & kPresent) == 0) return false;
    run->first = page;
    run->pages = 1;
    run->anonymous = (entry & kOfFile) == 0;
    const uint64_t frame = entry & kFrameMask;
    if (run->anonymous) return frame == 0 || (entry & kExclusive) != 0 || seen_.insert(frame).second;
    if (file == 0) return false;
    run->tell_cached = frame == 0 || seen_.insert(frame).second;
    if (frame == 0 || !run->tell_cached) return true;
    run->flags = page_flags_.At(frame) & (kPageDirty | kPageActive);
    run->cgroup_number = page_cgroups_.At(frame);
    return true;
  }

  void TellRun(const Area& area, uint32_t file, const Run& run, const std::string& cgroup) {
    if (run.pages == 0) return;
    if (run.tell_cached) {
      const auto charged = cgroups_.find(run.cgroup_number);
      const uint32_t handle = CgroupHandle(charged != cgroups_.end() ? charged->second : cgroup);
      EventPlace place = place_;
      place.tid = 0;
      auto* cached = feed_.builder()->AddSide(place)->mutable_baseline_cached();
      cached->set_file(file);
      cached->set_index(run.first - area.begin / page_size_ + area.offset / page_size_);
      cached->set_pages(run.pages);
      cached->set_cgroup(handle);
      cached->set_active((run.flags & kPageActive) != 0);
      cached->set_dirty((run.flags & kPageDirty) != 0);
    }
    auto* present = feed_.builder()->AddSide(place_)->mutable_baseline_present();
    present->set_address(run.first * page_size_);
    present->set_pages(run.pages);
    present->set_anonymous(run.anonymous);
  }

  const MemoryHierarchy& hierarchy_;
  Feed& feed_;
  const uint64_t page_size_;
  const Entries page_flags_{"/proc/kpageflags"};
  const Entries page_cgroups_{"/proc/kpagecgroup"};
  absl::flat_hash_map<uint64_t, std::string> cgroups_;  // by their folders' inode numbers
  absl::flat_hash_set<std::string> made_;
  absl::flat_hash_set<uint64_t> seen_;  // frames told of
  EventPlace place_;
};

}  // namespace

std::vector<int32_t> ProcessesBelow(int32_t pid) {
  std::vector<int32_t> found;
  if (StartTimeOf(pid) != 0) found.push_back(pid);
  for (size_t i = 0; i < found.size(); ++i) {
    for (const int32_t tid : ThreadsOf(found[i])) {
      for (const int32_t child : NumbersIn(absl::StrCat("/proc/", found[i], "/task/", tid, "/children")))
        found.push_back(child);
    }
  }
  return found;
}

std::vector<int32_t> ProcessesIn(const MemoryHierarchy& hierarchy, const std::string& cgroup) {
  const std::string top = hierarchy.mount_point + cgroup;
  std::vector<int32_t> found = NumbersIn(top + "/cgroup.procs");
  std::error_code gone;
  for (const auto& entry : fs::recursive_directory_iterator(top, gone)) {
    if (!entry.is_directory(gone)) continue;
    for (const int32_t pid : NumbersIn(entry.path().string() + "/cgroup.procs")) found.push_back(pid);
  }
  return found;
}

std::vector<int32_t> ThreadsOf(const std::vector<int32_t>& processes) {
  std::vector<int32_t> threads;
  for (const int32_t pid : processes) {
    for (const int32_t tid : ThreadsOf(pid)) threads.push_back(tid);
  }
  return threads;
}

void SendBaseline(const MemoryHierarchy& hierarchy, const std::vector<int32_t>& processes, Feed* feed) {
  BaselineWriter writer(hierarchy, feed);
  for (const int32_t pid : processes) writer.Tell(pid);
}

}  // namespace memcgd::client
