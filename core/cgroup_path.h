// Rules of cgroup paths: "/" or "/a/b"; no empty, "." or ".." part, no NUL or newline, at most 255 bytes a
// part and 4096 in all.
#ifndef MEMCGD_CORE_CGROUP_PATH_H_
#define MEMCGD_CORE_CGROUP_PATH_H_

#include <string_view>

#include "absl/status/status.h"

namespace memcgd::core {

// OK, or INVALID_ARGUMENT that names the path and what is wrong with it.
absl::Status CheckCgroupPath(std::string_view path);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CGROUP_PATH_H_
