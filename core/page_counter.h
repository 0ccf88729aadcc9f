// Hierarchical charge against limits, lock-free.
//
// Kernel counterpart: mm/page_counter.c.  A charge walks leaf → root and adds speculatively at each level; a
// level over its limit subtracts again there and at all levels below, so a refusal leaves no residue. Between
// the add and the subtraction another charge can be refused that would have fitted: the kernel's own
// inaccuracy, bounded by the pages of the charges under way.
//
// There are two watermarks, as in the kernel since 6.12: the peak of all time, and the local one, which is
// set back to the usage for those who watch peaks of their own (peak_watches.h).
//
// Thread safety: all of it, but that nobody charges while the local watermark is set back.
//
// Invariant: where nobody charges, usage ≤ local watermark ≤ watermark.
#ifndef MEMCGD_CORE_PAGE_COUNTER_H_
#define MEMCGD_CORE_PAGE_COUNTER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace memcgd::core {

class PageCounter {
 public:
  static constexpr int64_t kMax = INT64_MAX / 4096;  // "max": no limit

  explicit PageCounter(PageCounter* parent) : parent_(parent) {}

  // False where a level would pass its limit; that level is then *failed (may be null) and its failcnt rises.
  bool TryCharge(int64_t pages, PageCounter** failed);
  // Charges past every limit.
  void Charge(int64_t pages);
  void Uncharge(int64_t pages);

  int64_t usage_pages() const { return usage_.load(std::memory_order_relaxed); }
  int64_t max_pages() const { return max_.load(std::memory_order_relaxed); }
  void set_max_pages(int64_t pages) { max_.store(pages, std::memory_order_relaxed); }
  int64_t watermark_pages() const { return watermark_.load(std::memory_order_relaxed); }
  int64_t local_watermark_pages() const { return local_watermark_.load(std::memory_order_relaxed); }
  // Sets the local watermark back to the usage, and returns that.
  int64_t ResetLocalWatermark();
  // Pages that may still be charged here; 0 where it is over its limit.
  int64_t margin_pages() const { return std::max<int64_t>(0, max_pages() - usage_pages()); }
  int64_t failcnt() const { return failcnt_.load(std::memory_order_relaxed); }
  PageCounter* parent() const { return parent_; }

  // For loading a saved state.
  void Restore(int64_t usage, int64_t watermark, int64_t failcnt);

 private:
  void RaiseWatermark(int64_t usage);

  // All relaxed: a counter orders nothing but itself.
  std::atomic<int64_t> usage_{0};
  std::atomic<int64_t> max_{kMax};
  std::atomic<int64_t> watermark_{0};
  std::atomic<int64_t> local_watermark_{0};
  std::atomic<int64_t> failcnt_{0};
  PageCounter* const parent_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PAGE_COUNTER_H_
