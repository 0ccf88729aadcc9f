// How much memory the process may take, and what it does without before it takes more.
//
//   from 80 %   streams read a batch only once the one before is acknowledged; the allocator gives back
//               what it keeps
//   from 90 %   no new streams, nodes and sweeps
//   from 95 %   batches that could make anything grow are refused; those that only free are applied
//
// Measured is what the kernel says is resident, every 20 ms: nothing is counted where memory is taken.  What
// is taken in 20 ms is what the last 5 % are for.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_MEMORY_BUDGET_H_
#define MEMCGD_SERVER_MEMORY_BUDGET_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace memcgd::server {

class MemoryBudget {
 public:
  // 0 bytes: nine tenths of the machine's memory, or of what the process' cgroup may have where that is less.
  explicit MemoryBudget(uint64_t bytes);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  bool reads_ahead() const { return used_bytes() < limit_bytes_ / 100 * 80; }
  // RESOURCE_EXHAUSTED where nothing new of that kind may begin.
  absl::Status CheckNew(std::string_view what) const;
  // Whether nothing may grow.
  const std::atomic<bool>& is_short() const { return is_short_; }

  // Looks again; by one thread, often.
  void Sample(std::chrono::steady_clock::time_point now);

 private:
  void SetUsed(uint64_t bytes);

  const uint64_t limit_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
  std::atomic<bool> is_short_{false};
  std::chrono::steady_clock::time_point last_trim_{};
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_MEMORY_BUDGET_H_
