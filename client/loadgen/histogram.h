// How long things took: counts in buckets whose width grows with the value, after Gil Tene's HdrHistogram.
//
// Values are 0 … 2^40 − 1 (nanoseconds: 18 minutes), larger ones count as the largest.  Values below 256 have
// a bucket each; above, each doubling is cut into 128 buckets.  A percentile is the upper end of its bucket:
// never less than the true value and at most 1/128 (0.8 %) more.  The largest value is exact.
//
// 34 KiB each; recording is a few instructions and allocates nothing.  Debian 12 has no C or C++ library of
// this kind.
//
// Thread safety: one thread at a time; each worker has its own, merged at the end.
#ifndef MEMCGD_CLIENT_LOADGEN_HISTOGRAM_H_
#define MEMCGD_CLIENT_LOADGEN_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memcgd::client::loadgen {

class Histogram {
 public:
  static constexpr uint64_t kMaxValue = (uint64_t{1} << 40) - 1;

  Histogram();

  void Record(uint64_t value);
  void Merge(const Histogram& other);
  void Clear();

  uint64_t count() const { return count_; }
  uint64_t max() const { return max_; }
  double Mean() const;
  // The smallest bucket's end that at least `percent` of the values (0 < percent ≤ 100) do not exceed; 0
  // where there are none.
  uint64_t Percentile(double percent) const;

 private:
  static constexpr unsigned kSubBits = 7;

  static size_t BucketOf(uint64_t value);
  static uint64_t LastValueOf(size_t bucket);

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_HISTOGRAM_H_
