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

namespace {

// Racing raisers must not lose a higher value to a lower one: compare until it holds.  True where it rose.
bool Raise(std::atomic<int64_t>& watermark, int64_t usage) {
  int64_t seen = watermark.load(std::memory_order_relaxed);
  while (usage > seen) {
    if (watermark.compare_exchange_weak(seen, usage, std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace

// One comparison where no peak is passed, as the local watermark is never above the other.
void PageCounter::RaiseWatermark(int64_t usage) {
  if (Raise(local_watermark_, usage)) Raise(watermark_, usage);
}

int64_t PageCounter::ResetLocalWatermark() {
  local_watermark_.store(usage_pages(), std::memory_order_relaxed);
  return local_watermark_pages();
}

void PageCounter::Restore(int64_t usage, int64_t watermark, int64_t failcnt) {
  usage_.store(usage, std::memory_order_relaxed);
  watermark_.store(watermark, std::memory_order_relaxed);
  local_watermark_.store(watermark, std::memory_order_relaxed);  // nobody watches it yet
  failcnt_.store(failcnt, std::memory_order_relaxed);
}

}  // namespace memcgd::core
