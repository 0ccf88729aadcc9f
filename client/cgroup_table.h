// The cgroups that the stream made, by their paths.
//
// Memory: the paths of live cgroups.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_CGROUP_TABLE_H_
#define MEMCGD_CLIENT_CGROUP_TABLE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"

namespace memcgd::client {

// "/" or "/a/b": no empty, "." or ".." part, at most 255 bytes a part and 4096 in all.
inline bool IsCgroupPath(std::string_view path) {
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

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_CGROUP_TABLE_H_
