#include "client/loadgen/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace memcgd::client::loadgen {

// Bits above the sub-bucket's: 0 for values below 2 × 128, which have a bucket each.
size_t Histogram::BucketOf(uint64_t value) {
  const auto width = static_cast<unsigned>(std::bit_width(value));
  const unsigned shift = width > kSubBits + 1 ? width - kSubBits - 1 : 0;
  return (static_cast<size_t>(shift) << kSubBits) + static_cast<size_t>(value >> shift);
}

uint64_t Histogram::LastValueOf(size_t bucket) {
  const size_t octave = bucket >> kSubBits;
  const unsigned shift = octave < 2 ? 0 : static_cast<unsigned>(octave - 1);
  const uint64_t first = static_cast<uint64_t>(bucket - (static_cast<size_t>(shift) << kSubBits)) << shift;
  return first + (uint64_t{1} << shift) - 1;
}

Histogram::Histogram() : counts_(BucketOf(kMaxValue) + 1) {}

void Histogram::Record(uint64_t value) {
  value = std::min(value, kMaxValue);
  ++counts_[BucketOf(value)];
  ++count_;
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::Clear() {
  std::fill(counts_.begin(), counts_.end(), 0);
  count_ = max_ = 0;
  sum_ = 0;
}

double Histogram::Mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

uint64_t Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(percent / 100 * static_cast<double>(count_));
  const auto rank = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count_);
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::min(LastValueOf(i), max_);
  }
  return max_;
}

}  // namespace memcgd::client::loadgen
