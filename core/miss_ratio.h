// How often reads of file pages would miss in a cache of any size, from one pass over them.
//
// Source: Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC Construction with SHARDS", FAST '15, with a
// fixed number of samples and the adjustment of the first bucket (SHARDS-adj).  A read's reuse distance is
// the number of different pages read since the last read of the same page; a cache that holds the n pages
// read last misses it where that is ≥ n, or where there was none.  Only pages whose hash is below a threshold
// are followed.  The threshold begins at "all": up to max_samples different pages the curve is exact, then
// the threshold sinks and distances and counts are scaled up.
//
// Differs from what a kernel's reclaim would do: it is the curve of plain LRU; two lists do better on
// streams.
//
// Kernel counterpart: none; mm/workingset.c measures one distance of this kind, that of a refault.
//
// Thread safety: all of it.
#ifndef MEMCGD_CORE_MISS_RATIO_H_
#define MEMCGD_CORE_MISS_RATIO_H_

#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/mutex.h"
#include "core/units.h"

namespace memcgd::core {

struct MissRatioCurve {
  struct Point {
    uint64_t cache_pages = 0;
    double miss_ratio = 1;
  };
  uint64_t references = 0;
  uint64_t distinct_pages = 0;
  double sampling_rate = 1;   // 1: the curve is exact, but that distances from 128 on are within 1/128
  std::vector<Point> points;  // from no cache to one where only first reads miss
};

class MissRatio {
 public:
  static constexpr size_t kMaxSamples = 32768;  // exact up to 128 MiB of pages of 4 KiB

  explicit MissRatio(size_t max_samples = kMaxSamples);

  // Pages first … last of the file are read.
  void Read(FileId file, PageIndex first, PageIndex last) ABSL_LOCKS_EXCLUDED(mutex_);
  MissRatioCurve Curve() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Page = std::pair<FileId, PageIndex>;
  static constexpr uint32_t kHashes = 1u << 24;

  static uint32_t HashOf(const Page& page);
  double Rate() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<double>(threshold_) / kHashes;
  }
  void ReadSampled(const Page& page, uint32_t hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LowerThreshold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Times of last reads, in a Fenwick tree: how many lie after one is the distance.
  void Mark(uint32_t time, int32_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t CountThrough(uint32_t time) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Renumber() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_samples_;

  Mutex mutex_;
  uint64_t references_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t threshold_ ABSL_GUARDED_BY(mutex_) = kHashes;
  // Followed pages and when each was read last: 1, 2, 3 …, renumbered when the tree is full.
  absl::flat_hash_map<Page, uint32_t> last_read_ ABSL_GUARDED_BY(mutex_);
  std::priority_queue<std::pair<uint32_t, Page>> by_hash_ ABSL_GUARDED_BY(mutex_);
  std::vector<int32_t> tree_ ABSL_GUARDED_BY(mutex_);
  uint32_t now_ ABSL_GUARDED_BY(mutex_) = 0;
  // Reads, scaled to all pages: first ones, and those by distance.
  double first_reads_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> by_distance_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MISS_RATIO_H_
