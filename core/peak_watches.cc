#include "core/peak_watches.h"

#include <algorithm>
#include <iterator>

#include "core/check.h"

namespace memcgd::core {

uint64_t PeakWatches::Open(const Memcg& memcg) {
  const auto first = watches_.lower_bound({memcg.id, 0});
  const auto end = watches_.upper_bound({memcg.id, UINT64_MAX});
  if (static_cast<size_t>(std::distance(first, end)) >= kMost) return 0;
  watches_.emplace(std::pair(memcg.id, ++last_), Watch{});
  return last_;
}

void PeakWatches::Close(MemcgId memcg, uint64_t watcher) { watches_.erase({memcg, watcher}); }

PeakWatches::Peaks PeakWatches::Read(const Memcg& memcg, uint64_t watcher) const {
  const auto found = watches_.find({memcg.id, watcher});
  MEMCG_CHECK(found != watches_.end());
  const auto peak = [](const std::optional<int64_t>& own, const PageCounter& counter) {
    return own.has_value() ? std::max(*own, counter.local_watermark_pages()) : counter.watermark_pages();
  };
  return {peak(found->second.memory_pages, memcg.memory), peak(found->second.swap_pages, memcg.swap)};
}

void PeakWatches::Reset(Memcg& memcg, uint64_t watcher, bool memory, bool swap) {
  MEMCG_CHECK(watches_.contains({memcg.id, watcher}));
  if (memory) ResetCounter(memcg.id, watcher, memcg.memory, &Watch::memory_pages);
  if (swap) ResetCounter(memcg.id, watcher, memcg.swap, &Watch::swap_pages);
}

void PeakWatches::ResetCounter(MemcgId memcg, uint64_t watcher, PageCounter& counter,
                               std::optional<int64_t> Watch::*pages) {
  const int64_t seen = counter.local_watermark_pages();
  const int64_t usage = counter.ResetLocalWatermark();
  for (auto at = watches_.lower_bound({memcg, 0}); at != watches_.end() && at->first.first == memcg; ++at) {
    std::optional<int64_t>& own = at->second.*pages;
    if (at->first.second == watcher) {
      own = usage;
    } else if (own.has_value()) {
      own = std::max(*own, seen);
    }
  }
}

}  // namespace memcgd::core
