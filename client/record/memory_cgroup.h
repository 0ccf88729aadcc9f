// This kernel's memory cgroups: where they are mounted, and one of a recording's own.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_MEMORY_CGROUP_H_
#define MEMCGD_CLIENT_RECORD_MEMORY_CGROUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::client {

struct MemoryHierarchy {
  bool v2 = false;
  std::string mount_point;
  uint32_t number = 0;  // as trace events have it ("root="); 0 on v2
};
// NOT_FOUND where no hierarchy with the memory controller is mounted.
absl::StatusOr<MemoryHierarchy> FindMemoryHierarchy();
// The thread's memory cgroup, "/" or "/a/b"; NOT_FOUND where the thread is gone.
absl::StatusOr<std::string> CgroupOf(const MemoryHierarchy& hierarchy, int32_t pid);

// Removes the cgroups that recordings left behind which were killed, as far as they are empty.
void RemoveLeftCgroups(const MemoryHierarchy& hierarchy);

// A cgroup below the root that is removed with the object.  Processes that are still in it go to the root.
class OwnCgroup {
 public:
  static absl::StatusOr<std::unique_ptr<OwnCgroup>> Create(const MemoryHierarchy& hierarchy);
  ~OwnCgroup();
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  const std::string& path() const { return path_; }  // "/memcgd-…"
  std::string procs_file() const { return folder_ + "/cgroup.procs"; }

 private:
  OwnCgroup(const MemoryHierarchy& hierarchy, std::string path);

  const std::string path_;
  const std::string folder_;
  const std::string root_procs_file_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_MEMORY_CGROUP_H_
