// How much memory the process may take, and what it does without before it takes more.
//
//   from 80 %   streams read a batch only once the one before is acknowledged; the allocator gives back
//               what it keeps
//   from 90 %   no new streams, nodes and sweeps
//   from 95 %   batches that could make anything grow are refused; those that only free are applied
//
// Measured is what the kernel says is resident, every 20 ms: nothing is counted where memory is taken.  What
// is taken in 20 ms is what the last 5 % are for, or the last 16 MiB where those are more: a node's table of
// pages grows by 6 MiB at a time.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_MEMORY_BUDGET_H_
#define MEMCGD_SERVER_MEMORY_BUDGET_H_

#include <algorithm>
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
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  bool reads_ahead() const { return used_bytes() < std::min(limit_bytes_ / 100 * 80, short_bytes_); }
  // RESOURCE_EXHAUSTED where nothing new of that kind may begin.
  absl::Status CheckNew(std::string_view what) const;
  // Whether nothing may grow.
  const std::atomic<bool>& is_short() const { return is_short_; }

  // Looks again where the last look is 20 ms ago: who is about to take memory, as the thread that looks may
  // not run on a busy machine.
  void Refresh(std::chrono::steady_clock::time_point now);
  // Looks again, and has the allocator give back what it keeps where memory is short.  By one thread, often.
  void Sample(std::chrono::steady_clock::time_point now);

 private:
  void Look();

  const uint64_t limit_bytes_, short_bytes_;
  const int statm_;  // open for good: descriptors may be short when memory is
  std::atomic<uint64_t> used_bytes_{0};
  std::atomic<bool> is_short_{false};
  std::atomic<std::chrono::steady_clock::time_point> last_look_{};
  std::chrono::steady_clock::time_point last_trim_{};
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_MEMORY_BUDGET_H_
