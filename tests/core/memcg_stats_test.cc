#include "core/memcg_stats.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace memcgd::core {
namespace {

TEST(MemcgStatsTest, NamesAreDistinctAndInTheKernelsOrder) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kStats; ++i) names.insert(StatName(static_cast<Stat>(i)));
  EXPECT_EQ(names.size(), kStats);
  EXPECT_EQ(StatName(static_cast<Stat>(0)), "anon");
  EXPECT_EQ(StatName(static_cast<Stat>(1)), "file");
  EXPECT_EQ(StatName(static_cast<Stat>(kMemoryStatLines - 1)), "thp_swpout_fallback");
}

TEST(MemcgStatsTest, PagesAreShownInBytesAndCountsAsTheyAre) {
  std::array<int64_t, kStats> raw{};
  raw[static_cast<size_t>(Stat::kAnon)] = 3;
  raw[static_cast<size_t>(Stat::kPgfault)] = 5;
  raw[static_cast<size_t>(Stat::kKernelStack)] = 7;
  std::array<int64_t, kStats> shown = ShowStats(raw, 65536);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kAnon)], 3 * 65536);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kPgfault)], 5);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kKernelStack)], 7);
}

TEST(MemcgStatsTest, NegativesAreShownAs0) {
  std::array<int64_t, kStats> raw{};
  raw[static_cast<size_t>(Stat::kFile)] = -4;
  EXPECT_EQ(ShowStats(raw, 4096)[static_cast<size_t>(Stat::kFile)], 0);
}

TEST(MemcgStatsTest, DerivedLinesAreSums) {
  std::array<int64_t, kStats> raw{};
  raw[static_cast<size_t>(Stat::kSlabReclaimable)] = 10;
  raw[static_cast<size_t>(Stat::kSlabUnreclaimable)] = 20;
  raw[static_cast<size_t>(Stat::kPagetables)] = 1;
  raw[static_cast<size_t>(Stat::kPgscanKswapd)] = 2;
  raw[static_cast<size_t>(Stat::kPgscanDirect)] = 3;
  raw[static_cast<size_t>(Stat::kPgstealDirect)] = 4;
  std::array<int64_t, kStats> shown = ShowStats(raw, 4096);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kSlab)], 30);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kKernel)], 30 + 4096);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kPgscan)], 5);
  EXPECT_EQ(shown[static_cast<size_t>(Stat::kPgsteal)], 4);
}

}  // namespace
}  // namespace memcgd::core
