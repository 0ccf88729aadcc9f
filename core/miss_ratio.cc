#include "core/miss_ratio.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace memcgd::core {
namespace {

// Distances below 128 have a bucket each, those above 128 buckets for each power of two.
constexpr int kBits = 7;
constexpr uint64_t kExact = uint64_t{1} << kBits;

size_t BucketOf(uint64_t distance) {
  if (distance < kExact) return distance;
  const int shift = static_cast<int>(std::bit_width(distance)) - kBits - 1;
  return (static_cast<uint64_t>(shift) << kBits) + (distance >> shift);
}
// The smallest cache that has what is in the bucket: one page more than its longest distance.
uint64_t CacheOf(size_t bucket) {
  if (bucket < kExact) return bucket + 1;
  const uint64_t shift = (bucket >> kBits) - 1;
  return ((bucket & (kExact - 1)) + kExact + 1) << shift;
}

// Steps of the curve that are smaller are left out, but for the last.
constexpr double kSmallestStep = 1.0 / 256;

}  // namespace

MissRatio::MissRatio(size_t max_samples) : max_samples_(max_samples), tree_(4 * max_samples + 1) {}

// splitmix64's mixing of both numbers.
uint32_t MissRatio::HashOf(const Page& page) {
  uint64_t hash = page.second * 0x9e3779b97f4a7c15 + Raw(page.first) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
  return static_cast<uint32_t>((hash ^ hash >> 31) % kHashes);
}

void MissRatio::Read(FileId file, PageIndex first, PageIndex last) {
  Locked lock(mutex_);
  references_ += last - first + 1;
  for (PageIndex index = first; index <= last; ++index) {
    const Page page(file, index);
    const uint32_t hash = HashOf(page);
    if (hash < threshold_) ReadSampled(page, hash);
  }
}

void MissRatio::ReadSampled(const Page& page, uint32_t hash) {
  if (now_ + 1 == tree_.size()) Renumber();
  const auto [at, is_new] = last_read_.try_emplace(page, 0);
  const double weight = 1 / Rate();
  if (is_new) {
    first_reads_ += weight;
    by_hash_.emplace(hash, page);
  } else {
    const uint64_t after = last_read_.size() - CountThrough(at->second);
    const size_t bucket = BucketOf(static_cast<uint64_t>(std::llround(static_cast<double>(after) * weight)));
    if (by_distance_.size() <= bucket) by_distance_.resize(bucket + 1);
    by_distance_[bucket] += weight;
    Mark(at->second, -1);
  }
  at->second = ++now_;
  Mark(now_, 1);
  if (last_read_.size() > max_samples_) LowerThreshold();
}

// To the highest hash that is followed; pages of that hash are followed no more.
void MissRatio::LowerThreshold() {
  threshold_ = by_hash_.top().first;
  while (!by_hash_.empty() && by_hash_.top().first >= threshold_) {
    const auto at = last_read_.find(by_hash_.top().second);
    Mark(at->second, -1);
    last_read_.erase(at);
    by_hash_.pop();
  }
}

void MissRatio::Mark(uint32_t time, int32_t step) {
  for (; time < tree_.size(); time += time & (~time + 1)) tree_[time] += step;
}

uint32_t MissRatio::CountThrough(uint32_t time) const {
  int32_t count = 0;
  for (; time > 0; time &= time - 1) count += tree_[time];
  return static_cast<uint32_t>(count);
}

void MissRatio::Renumber() {
  std::vector<std::pair<uint32_t, Page>> order;
  order.reserve(last_read_.size());
  for (const auto& [page, time] : last_read_) order.emplace_back(time, page);
  std::sort(order.begin(), order.end());
  std::fill(tree_.begin(), tree_.end(), 0);
  now_ = 0;
  for (const auto& [time, page] : order) {
    last_read_[page] = ++now_;
    Mark(now_, 1);
  }
}

MissRatioCurve MissRatio::Curve() {
  Locked lock(mutex_);
  MissRatioCurve curve;
  curve.references = references_;
  curve.distinct_pages = static_cast<uint64_t>(std::llround(first_reads_));
  curve.sampling_rate = Rate();
  curve.points.push_back({0, 1});
  if (references_ == 0) return curve;
  const auto all = static_cast<double>(references_);
  double sampled = first_reads_;
  for (double reads : by_distance_) sampled += reads;
  // SHARDS-adj: what the sample has too few of, or too many, are reads of pages that are read all the time.
  double hits = all - sampled;
  for (size_t bucket = 0; bucket < by_distance_.size(); ++bucket) {
    if (by_distance_[bucket] == 0) continue;
    hits += by_distance_[bucket];
    const double ratio = std::clamp(1 - hits / all, 0.0, 1.0);
    const bool last = bucket + 1 == by_distance_.size();
    if (curve.points.back().miss_ratio - ratio >= kSmallestStep || last)
      curve.points.push_back({CacheOf(bucket), ratio});
  }
  return curve;
}

}  // namespace memcgd::core
