#include "core/batch_run.h"

#include <gtest/gtest.h>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

int64_t StatOf(const MarkState& mark, const std::string& path, std::string_view name) {
  for (const CgroupState& cgroup : mark.cgroups) {
    if (cgroup.path != path) continue;
    for (size_t i = 0; i < MemoryStatNames().size(); ++i) {
      if (MemoryStatNames()[i] == name) return cgroup.stat[i];
    }
  }
  return -1;
}

TEST(BatchRunTest, AMarkSeesWhatStandsBeforeItAndNothingAfter) {
  NodeDriver d(SmallNode(2));
  d.Group("/a");
  d.Process(10, "/a");
  d.MmapAnon(10, 0x1000, 100);
  for (uint64_t i = 0; i < 10; ++i) {
    d.OnCpu(i % 2).Write(10, 0x1000 + i);
    d.Mark(i);
  }
  const BatchResult& result = d.result();
  ASSERT_EQ(result.marks.size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(result.marks[i].id, i);
    EXPECT_EQ(StatOf(result.marks[i], "/a", "anon"), static_cast<int64_t>(i + 1) * 4096);
    EXPECT_EQ(StatOf(result.marks[i], "/", "pgfault"), static_cast<int64_t>(i + 1));
    EXPECT_EQ(result.marks[i].committed_as_bytes, 100u * 4096);
  }
}

TEST(BatchRunTest, AMarkListsOnlineGroupsInOrderOfPath) {
  NodeDriver d;
  for (const char* path : {"/b", "/a/x", "/c"}) d.Group(path);
  d.Remove("/b");
  d.Mark(1);
  std::string paths;
  for (const CgroupState& cgroup : d.result().marks[0].cgroups) paths += cgroup.path + " ";
  EXPECT_EQ(paths, "/ /a /a/x /c ");
}

TEST(BatchRunTest, EventsAreCountedByKindAndOutcome) {
  NodeDriver d;
  d.Fork(1, 10);
  d.MmapAnon(10, 0x1000, 1);
  d.Write(10, 0x1000);
  d.Write(10, 0x1000);
  d.Exit(99);
  const BatchResult& result = d.result();
  EXPECT_EQ(result.events[static_cast<size_t>(EventKind::kFault)], 2u);
  EXPECT_EQ(result.events[static_cast<size_t>(EventKind::kMmapAnon)], 1u);
  EXPECT_EQ(result.wide_events, 3u);
  EXPECT_EQ(d.outcomes(Outcome::kOk), 3u);
  EXPECT_EQ(d.outcomes(Outcome::kUnknownThread), 3u);  // 1, and 99 twice
}

TEST(BatchRunTest, ControlEventsThatFailAreNotedWithTheirPlace) {
  NodeDriver d;
  d.Group("/a/b");
  d.Write(10, 0x1000);
  d.Remove("/a");  // has children
  d.Remove("/x");  // is not there
  d.Attach(d.Path("/x"), 10);
  d.SetKnob(d.Path("/a"), "memory.max", "many");
  const BatchResult& result = d.result();
  ASSERT_EQ(result.notables.size(), 4u);
  for (const Notable& notable : result.notables) EXPECT_EQ(notable.position, 1u);
  EXPECT_NE(result.notables[0].detail.find("/a"), std::string::npos);
  EXPECT_EQ(result.notables[3].outcome, Outcome::kInvalid);
}

TEST(BatchRunTest, NotablesAreBounded) {
  NodeDriver d;
  for (int i = 0; i < 100; ++i) {
    d.Remove("/x");
    d.Attach(d.Path("/x"), 10);
  }
  EXPECT_EQ(d.result().notables.size(), BatchResult::kMaxNotables);
}

TEST(BatchRunTest, ACgroupComesWithItsAncestors) {
  NodeDriver d;
  d.Group("/a/b/c");
  d.Flush();
  EXPECT_TRUE(d.node().GetCgroup("/a/b").ok());
}

// /a (max 4096 pages)
// └─ /a/b   victim: oom at /a, oom_kill at /a/b
TEST(BatchRunTest, AnOomKillCountsAtTheBreachedGroupAndTheVictims) {
  NodeDriver d;
  d.Group("/a/b");
  d.SetKnob(d.Path("/a"), "memory.max", "16M");
  d.Process(10, "/a/b");
  d.Wide(0, wide::MarkVictim{10});
  EXPECT_EQ(d.LocalEvent("/a", "oom"), 1);
  EXPECT_EQ(d.LocalEvent("/a/b", "oom_kill"), 1);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 1);
  EXPECT_EQ(d.LocalEvent("/a", "oom_kill"), 0);
}

// Peaks and refusals do not depend on how events were cut into batches.
TEST(BatchRunTest, PeaksAndMaxEventsAreTheSameHoweverBatchesAreCut) {
  int64_t peak = 0, refusals = 0;
  uint64_t hash = 0;
  for (size_t batch : {size_t{1}, size_t{7}, size_t{8192}}) {
    NodeDriver d;
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", "1M");
    d.Process(10, "/a");
    for (int round = 0; round < 20; ++round) {
      d.MmapAnon(10, 0x1000, 200);
      for (uint64_t i = 0; i < 200; ++i) d.Write(10, 0x1000 + i);
      d.Munmap(10, 0x1000, 100 + static_cast<uint64_t>(round));
    }
    d.Flush(batch);
    if (batch == 1) {
      peak = d.PeakPages("/a");
      refusals = d.Event("/a", "max");
      hash = d.node().StateHash();
    }
    EXPECT_EQ(d.PeakPages("/a"), peak);
    EXPECT_EQ(d.Event("/a", "max"), refusals);
    EXPECT_EQ(d.node().StateHash(), hash);
  }
}

TEST(BatchRunTest, TimeIsTheLargestSeenHoweverBatchesAreCut) {
  uint64_t hash = 0;
  for (size_t batch : {size_t{8192}, size_t{1}}) {
    NodeDriver d;
    d.Write(10, 0x1000);
    d.Write(10, 0x1001);
    d.steps().push_back(
        {{Event::Head(EventKind::kFault, 0, 10, 500), Event::AddressBody(0x5000, 6)}, nullptr});
    d.Write(10, 0x1002);  // an earlier time
    d.Flush(batch);
    if (hash == 0) hash = d.node().StateHash();
    EXPECT_EQ(d.node().StateHash(), hash);
  }
}

TEST(BatchRunTest, ABaselineTellsWhatWasThereWithoutCountingFaults) {
  NodeDriver d;
  d.Group("/a");
  uint32_t file = d.File(1);
  d.Wide(10, wide::BaselineProcess{10, d.Path("/a"), 0});
  d.Wide(10, wide::BaselineArea{
                 {0x1000 << 12, 10 << 12, kProtRead | kProtWrite, kMapPrivate | kMapAnonymous, 0, 0}});
  d.Wide(10, wide::BaselinePresent{0x1000 << 12, 5, true});
  d.Wide(0, wide::BaselineCached{file, 0, 8, d.Path("/a"), false, true});
  d.Wide(10, wide::BaselineArea{{0x2000 << 12, 10 << 12, kProtRead, kMapShared, file, 0}});
  d.Wide(10, wide::BaselinePresent{0x2000 << 12, 10, false});
  EXPECT_EQ(d.Stat("/a", "anon"), 5);
  EXPECT_EQ(d.Stat("/a", "file"), 8);
  EXPECT_EQ(d.Stat("/a", "file_dirty"), 8);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 8);
  EXPECT_EQ(d.Stat("/a", "pgfault"), 0);
  EXPECT_EQ(d.CommittedPages(), 10);
}

TEST(BatchRunTest, AFileRangeIsItsEventsInOne) {
  NodeDriver d;
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(1);
  d.FileRange(10, EventKind::kFileAdd, file, 0, 64, 2);
  d.FileRange(10, EventKind::kFileDirty, file, 0, 8);
  EXPECT_EQ(d.Stat("/a", "file"), 64);
  EXPECT_EQ(d.Stat("/a", "file_dirty"), 8);
  d.FileRange(10, EventKind::kFileDelete, file, 0, 64, 2);
  EXPECT_EQ(d.Stat("/a", "file"), 0);
}

}  // namespace
}  // namespace memcgd::core
