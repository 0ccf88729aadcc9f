#include "client/record/kernel_stat.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/record/proc_file.h"

namespace memcgd::client {
namespace {

struct Names {
  const char* v2;
  const char* v1;  // of the recursive lines
};
constexpr std::array kNames = {
    Names{"anon", "total_rss"},
    Names{"file", "total_cache"},
    Names{"shmem", "total_shmem"},
    Names{"file_mapped", "total_mapped_file"},
    Names{"file_dirty", "total_dirty"},
    Names{"inactive_anon", "total_inactive_anon"},
    Names{"active_anon", "total_active_anon"},
    Names{"inactive_file", "total_inactive_file"},
    Names{"active_file", "total_active_file"},
    Names{"unevictable", "total_unevictable"},
    Names{"pgfault", "total_pgfault"},
    Names{"pgmajfault", "total_pgmajfault"},
    Names{"workingset_refault_anon", "total_workingset_refault_anon"},
    Names{"workingset_refault_file", "total_workingset_refault_file"},
};

}  // namespace

std::vector<KernelStat> ReadKernelStat(const MemoryHierarchy& hierarchy, const std::string& cgroup) {
  std::vector<KernelStat> found;
  const absl::StatusOr<std::string> text =
      ReadSmallFile(absl::StrCat(hierarchy.mount_point, cgroup, "/memory.stat"));
  if (!text.ok()) return found;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto* const names = std::find_if(kNames.begin(), kNames.end(), [&](const Names& one) {
      return pair.first == (hierarchy.v2 ? one.v2 : one.v1);
    });
    uint64_t value = 0;
    if (names != kNames.end() && absl::SimpleAtoi(pair.second, &value)) found.push_back({names->v2, value});
  }
  return found;
}

std::vector<StatDifference> Compare(const std::vector<KernelStat>& kernel, const memcgd::v1::State& model,
                                    const std::string& cgroup) {
  std::vector<StatDifference> all;
  const auto state = std::find_if(model.cgroups().begin(), model.cgroups().end(),
                                  [&](const auto& one) { return one.path() == cgroup; });
  for (const Names& names : kNames) {
    const auto value = std::find_if(kernel.begin(), kernel.end(),
                                    [&](const KernelStat& one) { return one.name == names.v2; });
    const auto column = std::find(model.stat_names().begin(), model.stat_names().end(), names.v2);
    if (value == kernel.end() || column == model.stat_names().end()) continue;
    const auto at = static_cast<int>(column - model.stat_names().begin());
    // A cgroup of which no event told is one with nothing in it.
    const int64_t modelled = state == model.cgroups().end() ? 0 : state->stat(at);
    all.push_back({names.v2, static_cast<int64_t>(value->value), modelled});
  }
  return all;
}

}  // namespace memcgd::client
