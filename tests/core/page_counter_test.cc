#include "core/page_counter.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace memcgd::core {
namespace {

// root ← middle (max 100) ← leaf
struct Levels {
  PageCounter root{nullptr}, middle{&root}, leaf{&middle};
  Levels() { middle.set_max_pages(100); }
};

TEST(PageCounterTest, AChargeShowsAtEveryLevel) {
  Levels t;
  EXPECT_TRUE(t.leaf.TryCharge(60, nullptr));
  EXPECT_EQ(t.leaf.usage_pages(), 60);
  EXPECT_EQ(t.middle.usage_pages(), 60);
  EXPECT_EQ(t.root.usage_pages(), 60);
}

TEST(PageCounterTest, RefusalLeavesNoResidue) {
  Levels t;
  ASSERT_TRUE(t.leaf.TryCharge(60, nullptr));
  PageCounter* failed = nullptr;
  EXPECT_FALSE(t.leaf.TryCharge(41, &failed));
  EXPECT_EQ(failed, &t.middle);
  EXPECT_EQ(t.leaf.usage_pages(), 60);
  EXPECT_EQ(t.middle.usage_pages(), 60);
  EXPECT_EQ(t.root.usage_pages(), 60);
  EXPECT_EQ(t.middle.failcnt(), 1);
  EXPECT_EQ(t.leaf.failcnt(), 0);
}

TEST(PageCounterTest, TheLimitItselfFits) {
  Levels t;
  EXPECT_TRUE(t.leaf.TryCharge(100, nullptr));
  EXPECT_FALSE(t.leaf.TryCharge(1, nullptr));
}

TEST(PageCounterTest, AChargeByForcePassesTheLimit) {
  Levels t;
  t.leaf.Charge(150);
  EXPECT_EQ(t.middle.usage_pages(), 150);
  EXPECT_FALSE(t.leaf.TryCharge(1, nullptr));
}

TEST(PageCounterTest, TheWatermarkStaysAtThePeak) {
  Levels t;
  t.leaf.Charge(80);
  t.leaf.Uncharge(50);
  t.leaf.Charge(10);
  EXPECT_EQ(t.leaf.watermark_pages(), 80);
  EXPECT_EQ(t.root.watermark_pages(), 80);
}

// Two watermarks: the local one begins anew at the usage, the other stays.
TEST(PageCounterTest, TheLocalWatermarkBeginsAnewWhereItIsReset) {
  Levels t;
  t.leaf.Charge(80);
  t.leaf.Uncharge(50);
  EXPECT_EQ(t.leaf.local_watermark_pages(), 80);
  EXPECT_EQ(t.leaf.ResetLocalWatermark(), 30);
  EXPECT_EQ(t.leaf.local_watermark_pages(), 30);
  t.leaf.Charge(10);
  EXPECT_EQ(t.leaf.local_watermark_pages(), 40);
  EXPECT_EQ(t.leaf.watermark_pages(), 80);
  EXPECT_EQ(t.middle.local_watermark_pages(), 80) << "a level for itself";
  t.leaf.Charge(50);
  EXPECT_EQ(t.leaf.local_watermark_pages(), 90);
  EXPECT_EQ(t.leaf.watermark_pages(), 90);
}

TEST(PageCounterTest, ARefusalAboveRaisesTheWatermarkBelowOnly) {
  Levels t;
  EXPECT_FALSE(t.leaf.TryCharge(101, nullptr));
  EXPECT_EQ(t.leaf.watermark_pages(), 101);
  EXPECT_EQ(t.middle.watermark_pages(), 0);
  EXPECT_EQ(t.root.watermark_pages(), 0);
}

TEST(PageCounterTest, RacingChargesNeitherPassTheLimitNorGetLost) {
  Levels t;
  std::vector<std::thread> crew;
  std::atomic<int64_t> held{0};
  for (int i = 0; i < 4; ++i) {
    crew.emplace_back([&] {
      for (int round = 0; round < 5000; ++round) {
        if (!t.leaf.TryCharge(30, nullptr)) continue;
        EXPECT_LE(held.fetch_add(30) + 30, 100);
        held.fetch_sub(30);
        t.leaf.Uncharge(30);
      }
    });
  }
  for (std::thread& thread : crew) thread.join();
  EXPECT_EQ(t.leaf.usage_pages(), 0);
  EXPECT_EQ(t.root.usage_pages(), 0);
}

TEST(PageCounterDeathTest, UnchargingMoreThanIsThereEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PageCounter counter(nullptr);
  EXPECT_DEATH(counter.Uncharge(1), "broken invariant");
}

}  // namespace
}  // namespace memcgd::core
