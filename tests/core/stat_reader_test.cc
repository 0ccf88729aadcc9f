#include "core/stat_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

std::vector<std::string> Names(const CgroupReading& reading) {
  std::vector<std::string> names;
  for (const auto& [name, value] : reading.stat) names.emplace_back(name);
  return names;
}

TEST(StatReaderTest, V2HasTheKernelsLinesInTheKernelsOrder) {
  NodeDriver d;
  std::vector<std::string> names = Names(d.Reading("/", false, false));
  std::vector<std::string> first(names.begin(), names.begin() + 12);
  EXPECT_EQ(first, (std::vector<std::string>{"anon", "file", "kernel", "kernel_stack", "pagetables",
                                             "sec_pagetables", "percpu", "sock", "vmalloc", "shmem", "zswap",
                                             "zswapped"}));
  EXPECT_EQ(names.back(), "thp_swpout_fallback");
  EXPECT_EQ(names.size(), MemoryStatNames().size());
}

TEST(StatReaderTest, V1HasLocalLinesTheLimitAndTotals) {
  NodeDriver d;
  std::vector<std::string> names = Names(d.Reading("/", false, true));
  ASSERT_EQ(names.size() % 2, 1u);
  size_t half = names.size() / 2;
  EXPECT_EQ(names[0], "cache");
  EXPECT_EQ(names[1], "rss");
  EXPECT_EQ(names[half], "hierarchical_memory_limit");
  for (size_t i = 0; i < half; ++i) EXPECT_EQ(names[half + 1 + i], "total_" + names[i]);
}

TEST(StatReaderTest, EventsAreV2s) {
  NodeDriver d;
  std::string names;
  for (const auto& [name, value] : d.Reading("/", false, false).events) names += std::string(name) + " ";
  EXPECT_EQ(names, "low high max oom oom_kill oom_group_kill sock_throttled ");
}

TEST(StatReaderTest, AReadIsExactWhateverIsPendingAndChangesNothing) {
  NodeDriver d(SmallNode(4));
  d.Group("/a/b");
  d.Process(10, "/a/b");
  d.MmapAnon(10, 0x1000, 100);
  for (uint64_t i = 0; i < 7; ++i) d.OnCpu(i % 4).Write(10, 0x1000 + i);
  d.Flush();
  uint64_t hash = d.node().StateHash();
  std::string saved = d.node().Save();
  EXPECT_EQ(d.Stat("/a", "anon"), 7);
  EXPECT_EQ(d.Local("/a/b", "anon"), 7);
  EXPECT_EQ(d.V1("/", "total_rss"), 7);
  EXPECT_EQ(d.node().StateHash(), hash);
  EXPECT_TRUE(d.node().Save() == saved);
}

TEST(StatReaderTest, PeakIsTheLargestUsage) {
  NodeDriver d;
  d.Group("/a");
  d.Process(10, "/a");
  d.Touch(10, 0x1000, 100);
  d.Munmap(10, 0x1000, 100);
  EXPECT_EQ(d.PeakPages("/a"), 128);
  EXPECT_LT(d.CurrentPages("/a"), 128);
}

}  // namespace
}  // namespace memcgd::core
