#include "server/kubepods.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"

namespace memcgd::server {
namespace {

constexpr std::string_view kSlice = ".slice", kScope = ".scope", kPods = "kubepods", kPod = "pod";
constexpr size_t kLeastIdBytes = 12;  // Docker's short form

bool IsHexWith(std::string_view text, char separator) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [separator](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == separator;
  });
}

// "pod<uid>" of cgroupfs, "kubepods-…-pod<uid>.slice" of systemd (a prefix before kubepods is kubelet's own).
std::optional<std::string> PodUid(std::string_view part) {
  const bool systemd = part.ends_with(kSlice) && part.find(kPods) != part.npos;
  char separator = '-';
  if (systemd) {
    part.remove_suffix(kSlice.size());
    const size_t at = part.rfind("-pod");
    if (at == part.npos) return std::nullopt;
    part.remove_prefix(at + 1);
    separator = '_';
  }
  if (!part.starts_with(kPod) || !IsHexWith(part.substr(kPod.size()), separator)) return std::nullopt;
  std::string uid(part.substr(kPod.size()));
  std::replace(uid.begin(), uid.end(), '_', '-');
  return uid;
}

// "<id>" of cgroupfs, "<runtime>-<id>.scope" of systemd; empty where it is none.
std::string_view ContainerId(std::string_view part) {
  if (part.ends_with(kScope)) {
    part.remove_suffix(kScope.size());
    if (part.starts_with("crio-conmon-")) return {};  // its monitor
    part.remove_prefix(part.rfind('-') + 1);          // npos + 1 is 0
  }
  return part.size() >= kLeastIdBytes && IsHexWith(part, '0') ? part : std::string_view();
}

}  // namespace

KubernetesNames NamesOfPath(std::string_view path) {
  KubernetesNames names;
  bool below_kubepods = false;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(part.size());
    if (!names.pod_uid.empty()) {
      if (path.empty()) names.container_id = ContainerId(part);
      break;
    }
    below_kubepods |= part.find(kPods) != part.npos;
    if (!below_kubepods) continue;
    if (std::optional<std::string> uid = PodUid(part)) names.pod_uid = *std::move(uid);
  }
  return names;
}

}  // namespace memcgd::server
