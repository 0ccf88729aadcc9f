#include "server/memory_budget.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr std::chrono::seconds kRetryDelay{5};
constexpr std::chrono::seconds kTrimEvery{1};

uint64_t ResidentBytes() {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * page;
}

// memory.max of the process' cgroup, v2; UINT64_MAX where there is none.
uint64_t CgroupMaxBytes() {
  std::ifstream groups("/proc/self/cgroup");
  uint64_t most = UINT64_MAX;
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    // Limits above it hold too.
    for (std::string path = line.substr(3);; path.erase(path.rfind('/'))) {
      uint64_t bytes = 0;
      if (std::ifstream("/sys/fs/cgroup" + path + "/memory.max") >> bytes) most = std::min(most, bytes);
      if (path.find('/') == path.npos) break;
    }
  }
  return most;
}

uint64_t BudgetOf(uint64_t bytes) {
  if (bytes != 0) return bytes;
  const uint64_t machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(machine, CgroupMaxBytes()) / 10 * 9;
}

}  // namespace

MemoryBudget::MemoryBudget(uint64_t bytes) : limit_bytes_(BudgetOf(bytes)) {}

absl::Status MemoryBudget::CheckNew(std::string_view what) const {
  const uint64_t used = used_bytes();
  if (used < limit_bytes_ / 100 * 90) return absl::OkStatus();
  return WithRetry(
      WithReason(absl::ResourceExhaustedError(Cat("no new ", what, ": the server has used ", used >> 20,
                                                  " of ", limit_bytes_ >> 20, " MiB (--memory-budget)")),
                 "MEMORY_BUDGET"),
      kRetryDelay);
}

void MemoryBudget::SetUsed(uint64_t bytes) {
  used_bytes_.store(bytes, std::memory_order_relaxed);
  is_short_.store(bytes >= limit_bytes_ / 100 * 95, std::memory_order_relaxed);
}

void MemoryBudget::Sample(std::chrono::steady_clock::time_point now) {
  SetUsed(ResidentBytes());
  if (reads_ahead() || now - last_trim_ < kTrimEvery) return;
  last_trim_ = now;
  malloc_trim(0);
  SetUsed(ResidentBytes());
}

}  // namespace memcgd::server
