#include "client/record/verifier.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace memcgd::client {
namespace {

bool IsCount(std::string_view name) { return name.starts_with("pg") || name.starts_with("workingset_"); }

}  // namespace

Verifier::Verifier(MemoryHierarchy hierarchy, std::string cgroup, Report report)
    : hierarchy_(std::move(hierarchy)),
      cgroup_(std::move(cgroup)),
      report_(std::move(report)),
      base_(ReadKernelStat(hierarchy_, cgroup_)) {}

void Verifier::Sample(int64_t now_ns) {
  std::vector<KernelStat> kernel = ReadKernelStat(hierarchy_, cgroup_);
  if (kernel.empty()) return;
  for (size_t i = 0; i < kernel.size() && i < base_.size(); ++i) {
    if (IsCount(kernel[i].name)) kernel[i].value -= std::min(kernel[i].value, base_[i].value);
  }
  std::lock_guard<std::mutex> lock(mu_);
  waiting_.push_back({++last_id_, now_ns, std::move(kernel)});
}

uint64_t Verifier::TakeDue(int64_t time_ns) {
  std::lock_guard<std::mutex> lock(mu_);
  if (waiting_.empty() || waiting_.front().time_ns >= time_ns) return 0;
  asked_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return asked_.back().id;
}

void Verifier::Answer(const memcgd::v1::State& state) {
  Moment moment;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (asked_.empty() || asked_.front().id != state.id()) return;
    moment = std::move(asked_.front());
    asked_.pop_front();
  }
  report_(moment.time_ns, Compare(moment.kernel, state, cgroup_));
}

}  // namespace memcgd::client
