#include "client/record/memory_cgroup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/record/own_name.h"
#include "client/record/proc_file.h"

namespace memcgd::client {
namespace {

// A removal fails for a moment while the last process is on its way out.
constexpr int kRemovals = 50;
constexpr useconds_t kBetweenRemovalsUs = 10'000;

bool HasWord(absl::string_view text, absl::string_view word) {
  for (const absl::string_view one : absl::StrSplit(text, absl::ByAnyChar(" ,\n"))) {
    if (one == word) return true;
  }
  return false;
}

bool RemoveFolder(const std::string& folder) { return rmdir(folder.c_str()) == 0 || errno == ENOENT; }

}  // namespace

absl::StatusOr<MemoryHierarchy> FindMemoryHierarchy() {
  const absl::StatusOr<std::string> mounts = ReadSmallFile("/proc/self/mounts");
  if (!mounts.ok()) return mounts.status();
  for (const absl::string_view line : absl::StrSplit(*mounts, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');  // what, where, type, options
    if (fields.size() < 4) continue;
    MemoryHierarchy found;
    found.mount_point = fields[1];
    if (fields[2] == "cgroup2") {
      const absl::StatusOr<std::string> controllers =
          ReadSmallFile(found.mount_point + "/cgroup.controllers");
      found.v2 = controllers.ok() && HasWord(*controllers, "memory");
      if (found.v2) return found;
    } else if (fields[2] == "cgroup" && HasWord(fields[3], "memory")) {
      const absl::StatusOr<std::string> cgroups = ReadSmallFile("/proc/cgroups");
      found.number = cgroups.ok() ? static_cast<uint32_t>(NumberOfLine(*cgroups, "memory", 0)) : 0;
      return found;
    }
  }
  return absl::NotFoundError("no hierarchy with the memory controller is mounted");
}

absl::StatusOr<std::string> CgroupOf(const MemoryHierarchy& hierarchy, int32_t pid) {
  const absl::StatusOr<std::string> text = ReadSmallFile(absl::StrCat("/proc/", pid, "/cgroup"));
  if (!text.ok()) return absl::NotFoundError(absl::StrCat("no process ", pid));
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));  // number:controllers:path
    if (fields.size() < 3) continue;
    if (hierarchy.v2 ? fields[0] == "0" : HasWord(fields[1], "memory")) return fields[2];
  }
  return absl::NotFoundError(absl::StrCat("process ", pid, " has no memory cgroup"));
}

void RemoveLeftCgroups(const MemoryHierarchy& hierarchy) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(hierarchy.mount_point, ignored)) {
    if (entry.is_directory(ignored) && IsLeftBehind(entry.path().filename().string()))
      RemoveFolder(entry.path().string());
  }
}

OwnCgroup::OwnCgroup(const MemoryHierarchy& hierarchy, std::string path)
    : path_(std::move(path)),
      folder_(hierarchy.mount_point + path_),
      root_procs_file_(hierarchy.mount_point + "/cgroup.procs") {}

absl::StatusOr<std::unique_ptr<OwnCgroup>> OwnCgroup::Create(const MemoryHierarchy& hierarchy) {
  const std::string path = absl::StrCat("/", OwnName());
  const std::string folder = hierarchy.mount_point + path;
  if (mkdir(folder.c_str(), 0755) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("making the cgroup ", folder));
  std::unique_ptr<OwnCgroup> cgroup(new OwnCgroup(hierarchy, path));
  if (access(absl::StrCat(folder, "/memory.stat").c_str(), R_OK) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat("the memory controller is not enabled below ", hierarchy.mount_point));
  return cgroup;
}

OwnCgroup::~OwnCgroup() {
  for (int i = 0; i < kRemovals && !RemoveFolder(folder_); ++i) {
    const absl::StatusOr<std::string> pids = ReadSmallFile(procs_file());
    if (!pids.ok()) break;
    for (const absl::string_view pid : absl::StrSplit(*pids, '\n', absl::SkipEmpty()))
      WriteSmallFile(root_procs_file_, {pid.data(), pid.size()}).IgnoreError();
    usleep(kBetweenRemovalsUs);
  }
}

}  // namespace memcgd::client
