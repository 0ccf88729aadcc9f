#include "core/page_counter.h"

#include "core/check.h"

namespace memcgd::core {

bool PageCounter::TryCharge(int64_t pages, PageCounter** failed) {
  for (PageCounter* level = this; level != nullptr; level = level->parent_) {
    int64_t usage = level->usage_.fetch_add(pages, std::memory_order_relaxed) + pages;
    if (usage > level->max_pages()) {
      level->usage_.fetch_sub(pages, std::memory_order_relaxed);
      level->failcnt_.fetch_add(1, std::memory_order_relaxed);
      for (PageCounter* undo = this; undo != level; undo = undo->parent_) {
        undo->usage_.fetch_sub(pages, std::memory_order_relaxed);
      }
      if (failed != nullptr) *failed = level;
      return false;
    }
    level->RaiseWatermark(usage);
  }
  return true;
}

void PageCounter::Charge(int64_t pages) {
  for (PageCounter* level = this; level != nullptr; level = level->parent_) {
    level->RaiseWatermark(level->usage_.fetch_add(pages, std::memory_order_relaxed) + pages);
  }
}

void PageCounter::Uncharge(int64_t pages) {
  for (PageCounter* level = this; level != nullptr; level = level->parent_) {
    int64_t before = level->usage_.fetch_sub(pages, std::memory_order_relaxed);
    MEMCG_CHECK(before >= pages);
  }
}

void PageCounter::RaiseWatermark(int64_t usage) {
  // As the kernel: racing raisers may lose a higher value to a lower one for a moment, so compare until it
  // holds.
  int64_t seen = watermark_.load(std::memory_order_relaxed);
  while (usage > seen && !watermark_.compare_exchange_weak(seen, usage, std::memory_order_relaxed)) {
  }
}

void PageCounter::Restore(int64_t usage, int64_t watermark, int64_t failcnt) {
  usage_.store(usage, std::memory_order_relaxed);
  watermark_.store(watermark, std::memory_order_relaxed);
  failcnt_.store(failcnt, std::memory_order_relaxed);
}

}  // namespace memcgd::core
