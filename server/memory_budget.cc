#include "server/memory_budget.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr std::chrono::seconds kRetryDelay{5};
constexpr uint64_t kLastBytes = uint64_t{16} << 20;
constexpr std::chrono::seconds kTrimEvery{1};
constexpr std::chrono::milliseconds kLookEvery{20};

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

MemoryBudget::MemoryBudget(uint64_t bytes)
    : limit_bytes_(BudgetOf(bytes)),
      short_bytes_(std::min(limit_bytes_ / 100 * 95, limit_bytes_ - kLastBytes)),
      statm_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) {}

MemoryBudget::~MemoryBudget() {
  if (statm_ >= 0) close(statm_);
}

absl::Status MemoryBudget::CheckNew(std::string_view what) const {
  const uint64_t used = used_bytes();
  if (used < std::min(limit_bytes_ / 100 * 90, short_bytes_)) return absl::OkStatus();
  return WithRetry(
      WithReason(absl::ResourceExhaustedError(Cat("no new ", what, ": the server has used ", used >> 20,
                                                  " of ", limit_bytes_ >> 20, " MiB (--memory-budget)")),
                 "MEMORY_BUDGET"),
      kRetryDelay);
}

// "SIZE RESIDENT …" in pages.
void MemoryBudget::Look() {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  char text[128] = {};
  uint64_t resident = 0;
  if (pread(statm_, text, sizeof(text) - 1, 0) <= 0) return;
  if (std::sscanf(text, "%*u %" SCNu64, &resident) != 1) return;
  used_bytes_.store(resident * page, std::memory_order_relaxed);
  is_short_.store(resident * page >= short_bytes_, std::memory_order_relaxed);
}

void MemoryBudget::Refresh(std::chrono::steady_clock::time_point now) {
  auto last = last_look_.load(std::memory_order_relaxed);
  if (now - last < kLookEvery) return;
  if (last_look_.compare_exchange_strong(last, now, std::memory_order_relaxed)) Look();
}

void MemoryBudget::Sample(std::chrono::steady_clock::time_point now) {
  last_look_.store(now, std::memory_order_relaxed);
  Look();
  if (reads_ahead() || now - last_trim_ < kTrimEvery) return;
  last_trim_ = now;
  malloc_trim(0);
  Look();
}

}  // namespace memcgd::server
