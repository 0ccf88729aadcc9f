#include "core/cgroup_path.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace memcgd::core {
namespace {

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxPartBytes = 255;

absl::Status Refuse(std::string_view path, std::string_view why) {
  absl::string_view shown(path.data(), path.size() < 200 ? path.size() : 200);
  return absl::InvalidArgumentError(absl::StrCat("cgroup path \"", absl::CHexEscape(shown),
                                                 path.size() > 200 ? "…" : "", "\" ",
                                                 absl::string_view(why.data(), why.size())));
}

}  // namespace

absl::Status CheckCgroupPath(std::string_view path) {
  if (path.empty() || path[0] != '/') return Refuse(path, "does not begin with /");
  if (path.size() > kMaxPathBytes) return Refuse(path, "is longer than 4096 bytes");
  if (path == "/") return absl::OkStatus();
  if (path.find('\0') != path.npos || path.find('\n') != path.npos) {
    return Refuse(path, "holds a NUL or a newline");
  }
  for (size_t begin = 1; begin <= path.size();) {
    size_t end = path.find('/', begin);
    if (end == path.npos) end = path.size();
    std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return Refuse(path, "has an empty part");
    if (part == "." || part == "..") return Refuse(path, "has a part . or ..");
    if (part.size() > kMaxPartBytes) return Refuse(path, "has a part longer than 255 bytes");
    begin = end + 1;
  }
  return absl::OkStatus();
}

}  // namespace memcgd::core
