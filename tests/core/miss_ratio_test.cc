#include "core/miss_ratio.h"

#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>
#include <vector>

namespace memcgd::core {
namespace {

constexpr FileId kFile{1};

double RatioAt(const MissRatioCurve& curve, uint64_t pages) {
  double ratio = 1;
  for (const MissRatioCurve::Point& point : curve.points) {
    if (point.cache_pages <= pages) ratio = point.miss_ratio;
  }
  return ratio;
}

// Stack distances by the book: a list, the page read last in front.
class ExactStack {
 public:
  void Read(PageIndex page) {
    ++references_;
    uint64_t distance = 0;
    for (auto at = stack_.begin(); at != stack_.end(); ++at, ++distance) {
      if (*at != page) continue;
      ++by_distance_[distance];
      stack_.erase(at);
      break;
    }
    stack_.push_front(page);
  }
  double RatioAt(uint64_t pages) const {
    uint64_t hits = 0;
    for (const auto& [distance, reads] : by_distance_) hits += distance < pages ? reads : 0;
    return 1 - static_cast<double>(hits) / static_cast<double>(references_);
  }

 private:
  std::list<PageIndex> stack_;
  std::map<uint64_t, uint64_t> by_distance_;
  uint64_t references_ = 0;
};

TEST(MissRatioTest, DistancesAreThoseOfTheStack) {
  // a b c b a a: first a, b, c; then b after {c} = 1, a after {b, c} = 2, a after nothing = 0.
  MissRatio ratio;
  for (PageIndex page : {1, 2, 3, 2, 1, 1}) ratio.Read(kFile, page, page);
  const MissRatioCurve curve = ratio.Curve();
  EXPECT_EQ(curve.references, 6u);
  EXPECT_EQ(curve.distinct_pages, 3u);
  EXPECT_EQ(curve.sampling_rate, 1);
  ASSERT_EQ(curve.points.size(), 4u);
  EXPECT_DOUBLE_EQ(RatioAt(curve, 0), 1);
  EXPECT_DOUBLE_EQ(RatioAt(curve, 1), 5.0 / 6);
  EXPECT_DOUBLE_EQ(RatioAt(curve, 2), 4.0 / 6);
  EXPECT_DOUBLE_EQ(RatioAt(curve, 3), 3.0 / 6);
}

TEST(MissRatioTest, ALoopMissesUntilItFitsAsAWhole) {
  MissRatio ratio;
  for (int round = 0; round < 10; ++round) ratio.Read(kFile, 0, 99);
  const MissRatioCurve curve = ratio.Curve();
  EXPECT_DOUBLE_EQ(RatioAt(curve, 99), 1);
  EXPECT_DOUBLE_EQ(RatioAt(curve, 100), 0.1);  // the first round's
}

TEST(MissRatioTest, APageOfAnotherFileIsAnotherPage) {
  MissRatio ratio;
  ratio.Read(FileId{1}, 7, 7);
  ratio.Read(FileId{2}, 7, 7);
  EXPECT_EQ(ratio.Curve().distinct_pages, 2u);
}

TEST(MissRatioTest, WithoutReadsTheCurveIsOnePoint) {
  const MissRatioCurve curve = MissRatio().Curve();
  EXPECT_EQ(curve.references, 0u);
  ASSERT_EQ(curve.points.size(), 1u);
  EXPECT_EQ(curve.points[0].miss_ratio, 1);
}

// Few samples: times are renumbered many times over.
TEST(MissRatioTest, IsExactAsLongAsAllPagesAreFollowed) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::minstd_rand random(seed);
    MissRatio ratio(100);
    ExactStack exact;
    for (int i = 0; i < 20000; ++i) {
      const PageIndex page = random() % 100 * (random() % 100) / 100;
      ratio.Read(kFile, page, page);
      exact.Read(page);
    }
    const MissRatioCurve curve = ratio.Curve();
    ASSERT_EQ(curve.sampling_rate, 1);
    for (const MissRatioCurve::Point& point : curve.points) {
      EXPECT_NEAR(point.miss_ratio, exact.RatioAt(point.cache_pages), 1e-9) << point.cache_pages;
    }
  }
}

// 512 samples of some 4,000 pages, read by Zipf's law.  The paper has a mean error of some 0.02 for so few.
TEST(MissRatioTest, SampledItIsNearTheExactCurve) {
  constexpr int kReads = 30'000;
  std::vector<double> weights;
  for (int page = 1; page <= 5000; ++page) weights.push_back(1.0 / page);
  std::discrete_distribution<int> page_of(weights.begin(), weights.end());
  std::mt19937 random(3);
  MissRatio ratio(512);
  ExactStack exact;
  for (int i = 0; i < kReads; ++i) {
    const auto page = static_cast<PageIndex>(page_of(random));
    ratio.Read(kFile, page, page);
    exact.Read(page);
  }
  const MissRatioCurve curve = ratio.Curve();
  EXPECT_LT(curve.sampling_rate, 0.2);
  EXPECT_EQ(curve.references, static_cast<uint64_t>(kReads));
  for (uint64_t pages : {100, 250, 500, 1000, 2000, 4000}) {
    EXPECT_NEAR(RatioAt(curve, pages), exact.RatioAt(pages), 0.05) << pages;
  }
}

TEST(MissRatioTest, LongDistancesAreWithinAHundredAndTwentyEighth) {
  MissRatio ratio;
  for (int round = 0; round < 2; ++round) ratio.Read(kFile, 0, 9999);
  const MissRatioCurve curve = ratio.Curve();
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_GE(curve.points[1].cache_pages, 10'000u);
  EXPECT_LE(curve.points[1].cache_pages, 10'000u + 10'000 / 128 + 1);
  EXPECT_DOUBLE_EQ(curve.points[1].miss_ratio, 0.5);
}

}  // namespace
}  // namespace memcgd::core
