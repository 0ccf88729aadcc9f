#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "client/loadgen/histogram.h"
#include "client/loadgen/random.h"

namespace memcgd::client::loadgen {
namespace {

TEST(HistogramTest, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 0; value < 256; ++value) histogram.Record(value);
  for (uint64_t percent : {25, 50, 75, 100}) {
    EXPECT_EQ(histogram.Percentile(static_cast<double>(percent)), 256 * percent / 100 - 1);
  }
}

TEST(HistogramTest, NothingRecordedIsZero) {
  EXPECT_EQ(Histogram().Percentile(99), 0u);
  EXPECT_EQ(Histogram().max(), 0u);
}

TEST(HistogramTest, TheLargestIsExactAndBounds) {
  Histogram histogram;
  histogram.Record(1'000'003);
  EXPECT_EQ(histogram.max(), 1'000'003u);
  EXPECT_EQ(histogram.Percentile(50), 1'000'003u);
  histogram.Record(UINT64_MAX);
  EXPECT_EQ(histogram.max(), Histogram::kMaxValue);
}

// Every value of every size: a percentile is never below it and at most 1/128 above.
TEST(HistogramTest, NoBucketIsWiderThanItSays) {
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t value = random.Next() >> (24 + random.Below(40));
    Histogram histogram;
    if (i % 100 != 0) {
      histogram.Record(value);
      histogram.Record(Histogram::kMaxValue);
      const uint64_t shown = histogram.Percentile(50);
      ASSERT_GE(shown, value);
      ASSERT_LE(shown - value, value / 128);
    }
  }
}

// Exponential with a mean of a millisecond: the quantile of p is −ln(1 − p).
TEST(HistogramTest, PercentilesOfAKnownDistribution) {
  constexpr double kMeanNs = 1e6;
  Histogram histogram;
  Random random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    histogram.Record(static_cast<uint64_t>(-std::log(random.Unit()) * kMeanNs));
  }
  for (double percent : {50.0, 90.0, 99.0, 99.9}) {
    const double exact = -std::log(1 - percent / 100) * kMeanNs;
    EXPECT_NEAR(static_cast<double>(histogram.Percentile(percent)), exact, 0.02 * exact) << "p" << percent;
  }
  EXPECT_NEAR(histogram.Mean(), kMeanNs, 0.01 * kMeanNs);
}

// Against the sorted values themselves.
TEST(HistogramTest, PercentilesAreThoseOfTheSortedValues) {
  Random random(3);
  std::vector<uint64_t> values;
  Histogram histogram;
  for (int i = 0; i < 10'000; ++i) {
    values.push_back(random.Next() >> (30 + random.Below(20)));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double percent : {1.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 10'000)) - 1;
    const uint64_t shown = histogram.Percentile(percent);
    EXPECT_GE(shown, values[rank]);
    EXPECT_LE(shown - values[rank], values[rank] / 128);
  }
}

TEST(HistogramTest, MergedIsAsIfRecordedInOne) {
  Random random(5);
  Histogram one, other, both;
  for (int i = 0; i < 5'000; ++i) {
    const uint64_t value = random.Below(1'000'000'000);
    (i % 3 == 0 ? one : other).Record(value);
    both.Record(value);
  }
  one.Merge(other);
  EXPECT_EQ(one.count(), both.count());
  EXPECT_EQ(one.max(), both.max());
  for (double percent : {50.0, 99.0, 99.9}) EXPECT_EQ(one.Percentile(percent), both.Percentile(percent));
}

TEST(PoissonArrivalsTest, TheGapsHaveTheMeanAndTheSpreadOfAnExponential) {
  PoissonArrivals arrivals(10'000, 1);
  double sum = 0, squares = 0;
  uint64_t before = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const uint64_t at = arrivals.NextNs();
    ASSERT_GE(at, before);
    const auto gap = static_cast<double>(at - before);
    sum += gap;
    squares += gap * gap;
    before = at;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 100'000, 1'000);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), mean, 0.02 * mean);
}

}  // namespace
}  // namespace memcgd::client::loadgen
