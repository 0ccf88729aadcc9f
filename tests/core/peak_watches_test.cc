// Peaks of one's own: of memory and swap, by whoever watches.
#include "core/peak_watches.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

class PeakWatchesTest : public testing::Test {
 protected:
  int64_t Memory(uint64_t watcher) const { return watches_.Read(memcg_, watcher).memory_pages; }

  Memcg memcg_{MemcgId{1}, nullptr, "/a", nullptr};
  PeakWatches watches_;
};

TEST_F(PeakWatchesTest, WhoNeverResetsSeesThePeakOfAllTime) {
  memcg_.memory.Charge(100);
  memcg_.memory.Uncharge(90);
  const uint64_t watcher = watches_.Open(memcg_), other = watches_.Open(memcg_);
  EXPECT_EQ(Memory(watcher), 100);
  watches_.Reset(memcg_, other, true, false);
  EXPECT_EQ(Memory(watcher), 100);
  EXPECT_EQ(memcg_.memory.watermark_pages(), 100) << "memory.peak of everybody else is as it was";
}

// usage 100 → 500 → 200: who reset at 100 has seen 500, whoever else resets at 200.
TEST_F(PeakWatchesTest, AResetTakesNothingFromTheOthers) {
  memcg_.memory.Charge(100);
  const uint64_t first = watches_.Open(memcg_), second = watches_.Open(memcg_);
  watches_.Reset(memcg_, first, true, false);
  EXPECT_EQ(Memory(first), 100) << "begins at the usage";
  memcg_.memory.Charge(400);
  memcg_.memory.Uncharge(300);
  watches_.Reset(memcg_, second, true, false);
  EXPECT_EQ(Memory(first), 500);
  EXPECT_EQ(Memory(second), 200);
  memcg_.memory.Charge(50);
  EXPECT_EQ(Memory(first), 500);
  EXPECT_EQ(Memory(second), 250);
  watches_.Reset(memcg_, first, true, false);
  EXPECT_EQ(Memory(first), 250);
  EXPECT_EQ(memcg_.memory.watermark_pages(), 500);
}

TEST_F(PeakWatchesTest, MemoryAndSwapAreResetApart) {
  memcg_.memory.Charge(10);
  memcg_.swap.Charge(20);
  memcg_.memory.Uncharge(9);
  memcg_.swap.Uncharge(19);
  const uint64_t watcher = watches_.Open(memcg_);
  watches_.Reset(memcg_, watcher, false, true);
  EXPECT_EQ(watches_.Read(memcg_, watcher).memory_pages, 10);
  EXPECT_EQ(watches_.Read(memcg_, watcher).swap_pages, 1);
}

TEST_F(PeakWatchesTest, ACgroupHasSoManyWatchersAndRoomAgainWhenOneGoes) {
  std::vector<uint64_t> watchers;
  for (size_t i = 0; i < PeakWatches::kMost; ++i) watchers.push_back(watches_.Open(memcg_));
  EXPECT_EQ(watches_.Open(memcg_), 0u);
  const Memcg other(MemcgId{2}, nullptr, "/b", nullptr);
  EXPECT_NE(watches_.Open(other), 0u) << "each cgroup for itself";
  watches_.Close(memcg_.id, watchers[3]);
  EXPECT_NE(watches_.Open(memcg_), 0u);
  watches_.Close(memcg_.id, watchers[3]);  // once more does nothing
}

TEST(NodePeaksTest, AWatchTellsThePeakSinceItsOwnReset) {
  NodeDriver d;
  d.Group("/a/b");
  d.Process(10, "/a/b");
  d.Touch(10, 0x1000, 1000);
  d.DontNeed(10, 0x1000, 1000);
  d.Flush();
  auto watch = d.node().OpenPeaks("/a");
  ASSERT_TRUE(watch.ok()) << watch.status();
  auto all = d.node().ReadPeaks(*watch, true, true);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(static_cast<int64_t>(all->memory_peak_bytes / 4096), d.PeakPages("/a"));
  d.Touch(10, 0x2000, 200);
  d.DontNeed(10, 0x2000, 200);
  d.Flush();
  auto since = d.node().ReadPeaks(*watch, false, false);
  ASSERT_TRUE(since.ok());
  EXPECT_GE(since->memory_peak_bytes, 200u * 4096);
  EXPECT_LT(since->memory_peak_bytes, 500u * 4096);
  EXPECT_EQ(since->memory_current_bytes, static_cast<uint64_t>(d.CurrentPages("/a")) * 4096);
  EXPECT_GE(d.PeakPages("/a"), 1000) << "everybody's own peak stays";
}

// Neither a copy nor what is saved knows of watchers, and none of them changes the state.
TEST(NodePeaksTest, AWatchIsNoPartOfTheState) {
  NodeDriver d;
  d.Group("/a");
  d.Process(10, "/a");
  d.Touch(10, 0x1000, 100);
  d.DontNeed(10, 0x1000, 50);
  d.Flush();
  const uint64_t hash = d.node().StateHash();
  auto watch = d.node().OpenPeaks("/a");
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE(d.node().ReadPeaks(*watch, true, true).ok());
  EXPECT_EQ(d.node().StateHash(), hash);
  EXPECT_EQ(d.node().Fork()->StateHash(), hash);
}

TEST(NodePeaksTest, ARemovedCgroupIsNamedAndAnotherOfItsNameIsNotTakenForIt) {
  NodeDriver d;
  d.Group("/a");
  d.Flush();
  EXPECT_TRUE(absl::IsNotFound(d.node().OpenPeaks("/none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(d.node().OpenPeaks("none").status()));
  auto watch = d.node().OpenPeaks("/a");
  ASSERT_TRUE(watch.ok());
  d.Remove("/a");
  d.Group("/a");
  d.Flush();
  const absl::Status status = d.node().ReadPeaks(*watch, false, false).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_NE(status.message().find("\"/a\" was removed"), absl::string_view::npos) << status;
  d.node().ClosePeaks(*watch);
}

TEST(NodePeaksTest, MoreWatchersThanACgroupMayHaveAreRefused) {
  NodeDriver d;
  d.Group("/a");
  d.Flush();
  std::vector<Node::PeakWatch> watches;
  for (size_t i = 0; i < PeakWatches::kMost; ++i) watches.push_back(*d.node().OpenPeaks("/a"));
  const absl::Status status = d.node().OpenPeaks("/a").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  d.node().ClosePeaks(watches[0]);
  EXPECT_TRUE(d.node().OpenPeaks("/a").ok());
}

}  // namespace
}  // namespace memcgd::core
