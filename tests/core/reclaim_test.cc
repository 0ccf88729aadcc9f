// Modelled reclaim, swap, memory.high and OOM, with numbers worked out from the kernel's formulas; and the
// cases from the field that need them.
#include "core/reclaim.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/oom.h"
#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

constexpr uint64_t kBase = 0x10000;  // a page number
constexpr int64_t kMiB = 256;        // pages

NodeConfig Modelled(uint64_t swap_bytes = 0, uint32_t cpus = 1) {
  NodeConfig config = SmallNode(cpus);
  config.reclaim = Reclaim::kModelled;
  config.swap_bytes = swap_bytes;
  config.read_bytes_per_second = uint64_t{1} << 52;  // nothing is on its way: the events' times stand still
  return config;
}

std::string Mib(int64_t pages) { return std::to_string(pages * 4096); }

// ---- formulas

// calculate_high_delay(): HZ = 1000, 64 pages over a high of 100,000: 1 % → 6 ms, 10 % → 639, 17 % → 1849, 18
// % → 2000
TEST(HighDelayTest, GrowsWithTheSquareOfTheOverage) {
  EXPECT_EQ(HighDelayMs(100'000, 100'000, 64), 0);
  EXPECT_EQ(HighDelayMs(101'000, 100'000, 64), 6);
  EXPECT_EQ(HighDelayMs(110'000, 100'000, 64), 639);
  EXPECT_EQ(HighDelayMs(117'000, 100'000, 64), 1849);
  EXPECT_EQ(HighDelayMs(118'000, 100'000, 64), 2000);
  EXPECT_EQ(HighDelayMs(110'000, 100'000, 32), 319);
  EXPECT_EQ(HighDelayMs(PageCounter::kMax, 0, 64), 2000);
  EXPECT_EQ(HighDelayMs(10, 0, 64), 2000);
}

// Case 15 (test_memcg_protection): B has 50M; C min 75M uses 50M, D min 25M uses 50M, E uses 50M
TEST(ProtectionTest, IsSharedAmongSiblingsByWhatTheyClaim) {
  int64_t siblings = 50 * kMiB + 25 * kMiB;  // min(usage, setting) of each
  EXPECT_EQ(EffectiveProtection(50 * kMiB, 150 * kMiB, 75 * kMiB, 50 * kMiB, siblings),
            50 * kMiB * 50 / 75);  // 33.3M
  EXPECT_EQ(EffectiveProtection(50 * kMiB, 150 * kMiB, 25 * kMiB, 50 * kMiB, siblings),
            25 * kMiB * 50 / 75);  // 16.7M
  EXPECT_EQ(EffectiveProtection(50 * kMiB, 150 * kMiB, 0, 50 * kMiB, siblings), 0);
  // memory_recursiveprot: 40 of 100 unclaimed, over the 100 that are used beyond claims: 50 × 40 / 90
  EXPECT_EQ(EffectiveProtection(80, 150, 30, 100, 60), 30 + 40 * 50 / 90);
}

// oom_badness(): adj × total / 1000
TEST(OomPointsTest, AreWhatIsUsedAndWhatIsAdjusted) {
  EXPECT_EQ(OomPoints(100, 20, 3, 0, 6144), 123);
  EXPECT_EQ(OomPoints(100, 20, 3, 500, 6144), 123 + 500 * 6);
  EXPECT_EQ(OomPoints(100, 0, 0, -1000, 6144), 100 - 6000);
}

// ---- files

// Case 8: 400 MB written in 256 MB: the limit is never passed, the cache fills it, nobody dies.
TEST(ReclaimTest, WritingMoreThanTheLimitKeepsWithinIt) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(256 * kMiB));
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < 400 * kMiB; ++page) {
    d.FileAdd(10, file, page);
    d.FileDirty(10, file, page);
  }
  EXPECT_LE(d.PeakPages("/a"), 256 * kMiB);
  EXPECT_GE(d.Stat("/a", "file"), 246 * kMiB);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
  EXPECT_GT(d.Event("/a", "max"), 0);
  EXPECT_GE(d.Stat("/a", "pgsteal_direct"), 144 * kMiB);
}

// Case 9: dirty pages faster than the device writes them.  At the limit the OOM killer may come; held up by
// high it does not.
TEST(ReclaimTest, ADirtyFloodKillsAtTheLimitAndNotBelowHigh) {
  for (bool with_high : {false, true}) {
    NodeConfig config = Modelled();
    config.writeback_bytes_per_second = 64 << 10;  // sixteen pages a second
    NodeDriver d(config);
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
    if (with_high) d.SetKnob(d.Path("/a"), "memory.high", Mib(4 * kMiB * 8 / 10));
    d.Process(10, "/a");
    uint32_t file = d.File(7);
    for (uint32_t page = 0; page < 16 * kMiB; ++page) {
      d.FileAdd(10, file, page);
      d.FileDirty(10, file, page);
      d.Write(10, kBase + page % 64);
    }
    d.Touch(10, kBase + 1000, kMiB / 2);
    if (with_high) {
      EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
      EXPECT_GT(d.Event("/a", "high"), 0);
      EXPECT_GT(d.Reading("/a", false, false).high_delay_us, 0u);
    }
    EXPECT_LE(d.PeakPages("/a"), 4 * kMiB);
  }
}

TEST(ReclaimTest, ACleanFileGivesWayFromTheTailAndComesBackAsARefault) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < 8 * kMiB; ++page) d.FileAdd(10, file, page);
  EXPECT_LE(d.CurrentPages("/a"), 4 * kMiB);
  EXPECT_EQ(d.Stat("/a", "workingset_refault_file"), 0);
  int64_t stolen = d.Stat("/a", "pgsteal_direct");
  EXPECT_EQ(d.Stat("/a", "file"), 8 * kMiB - stolen);
  d.FileRead(10, file, 0, 16);  // the first to go
  EXPECT_EQ(d.Stat("/a", "workingset_refault_file"), 16);
}

// The trace's own reclaim is passed over, its truncations are not.
TEST(ReclaimTest, TheTracesEvictionsAreNotTheModels) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  d.FileAdd(10, file, 1);
  d.FileAdd(10, file, 2);
  d.ReclaimBegin(10);
  d.FileDelete(10, file, 1);
  d.ReclaimEnd(10);
  EXPECT_EQ(d.Stat("/a", "file"), 2);
  d.FileAdd(10, file, 1);  // read again there; a hit here
  EXPECT_EQ(d.Stat("/a", "file"), 2);
  d.FileDelete(10, file, 1);
  EXPECT_EQ(d.Stat("/a", "file"), 1);
}

// A mapped page is kept on its first round, and program text is activated on it.
TEST(ReclaimTest, AMappedFilePageIsKeptOnce) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(2 * kMiB));
  d.Process(10, "/a");
  uint32_t mapped = d.File(7), streamed = d.File(8);
  d.Mmap(10, kBase, 8, kProtRead, kMapPrivate, mapped);
  for (uint32_t page = 0; page < 8; ++page) {
    d.FileAdd(10, mapped, page);
    d.FileFault(10, mapped, page);
    d.Read(10, kBase + page);
  }
  for (uint32_t page = 0; page < 2 * kMiB; ++page) d.FileAdd(10, streamed, page);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 8);
  for (uint32_t page = 0; page < 6 * kMiB; ++page) d.FileAdd(10, streamed, 10'000 + page);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 0);
  // The trace's kernel had it: here the fault is major.
  int64_t major = d.Stat("/a", "pgmajfault");
  d.FileFault(10, mapped, 3);
  d.Read(10, kBase + 3);
  EXPECT_EQ(d.Stat("/a", "pgmajfault"), major + 1);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 1);
}

// ---- protection

// Case 15, and the same one level deeper: what settles is near what the kernel's test allows (29M, 21M, 0).
TEST(ReclaimTest, ProtectionSettlesWhereTheKernelsTestDoes) {
  for (const std::string& top : {std::string("/A"), std::string("/x/y/A")}) {
    NodeDriver d(Modelled());
    for (const char* name : {"", "/B", "/B/C", "/B/D", "/B/E", "/B/F", "/S"}) d.Group(top + name);
    d.SetKnob(d.Path(top), "memory.max", "200M");
    d.SetKnob(d.Path(top + "/B"), "memory.min", "50M");
    d.SetKnob(d.Path(top + "/B/C"), "memory.min", "75M");
    d.SetKnob(d.Path(top + "/B/D"), "memory.min", "25M");
    d.SetKnob(d.Path(top + "/B/F"), "memory.min", "500M");
    uint32_t tid = 10;
    for (const char* name : {"/B/C", "/B/D", "/B/E"}) {
      d.Process(tid, top + name);
      uint32_t file = d.File(tid);
      for (uint32_t page = 0; page < 50 * kMiB; ++page) d.FileAdd(tid, file, page);
      ++tid;
    }
    d.Process(20, top + "/S");
    d.Touch(20, kBase, 148 * kMiB);
    EXPECT_NEAR(static_cast<double>(d.CurrentPages(top + "/B/C")), 29.0 * kMiB, 0.15 * 29 * kMiB);
    EXPECT_NEAR(static_cast<double>(d.CurrentPages(top + "/B/D")), 21.0 * kMiB, 0.2 * 21 * kMiB);
    EXPECT_LT(d.CurrentPages(top + "/B/E"), 3 * kMiB);
    EXPECT_EQ(d.Event(top, "oom_kill"), 0);
    EXPECT_LE(d.PeakPages(top), 200 * kMiB);
  }
}

// memory.low goes when nothing else is left, and says so; memory.min does not.
TEST(ReclaimTest, LowIsTakenAtLastAndMinNever) {
  for (const char* knob : {"memory.low", "memory.min"}) {
    NodeDriver d(Modelled());
    d.Group("/a/kept");
    d.Group("/a/other");
    d.SetKnob(d.Path("/a"), "memory.max", Mib(8 * kMiB));
    d.SetKnob(d.Path("/a/kept"), knob, Mib(6 * kMiB));
    d.Process(10, "/a/kept");
    d.Process(11, "/a/other");
    uint32_t file = d.File(7);
    for (uint32_t page = 0; page < 6 * kMiB; ++page) d.FileAdd(10, file, page);
    d.Touch(11, kBase, 4 * kMiB);
    if (std::string(knob) == "memory.low") {
      EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
      EXPECT_GT(d.LocalEvent("/a/kept", "low"), 0);
      EXPECT_EQ(d.Stat("/a/other", "anon"), 4 * kMiB);
    } else {
      EXPECT_EQ(d.Event("/a", "oom_kill"), 1);
      EXPECT_EQ(d.LocalEvent("/a/kept", "low"), 0);
      EXPECT_EQ(d.Stat("/a/kept", "file"), 6 * kMiB);
    }
  }
}

// ---- memory.high

// Case 10: nothing to reclaim above high: events climb, a delay is at most 2 s, and it goes on.
TEST(ReclaimTest, AboveHighTasksAreHeldUpAndGoOn) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.high", Mib(4 * kMiB));
  d.Process(10, "/a");
  d.Touch(10, kBase, 8 * kMiB);
  EXPECT_EQ(d.Stat("/a", "anon"), 8 * kMiB);
  EXPECT_GT(d.Event("/a", "high"), 0);
  EXPECT_EQ(d.Event("/a", "oom"), 0);
  int64_t batches = 4 * kMiB / 64 + 2;
  int64_t delay_us = static_cast<int64_t>(d.Reading("/a", false, false).high_delay_us);
  EXPECT_GT(delay_us, 2'000'000);
  EXPECT_LE(delay_us, batches * 2'000'000);
  EXPECT_EQ(d.result().high_delay_us, delay_us);
}

// ---- OOM

// Cases 11 and 12: the breached ancestor counts `oom`, both `oom_kill`, and the record names it.
TEST(OomTest, TheBreachedAncestorIsNamed) {
  NodeDriver d(Modelled());
  d.Group("/pod/container");
  d.SetKnob(d.Path("/pod"), "memory.max", Mib(2 * kMiB));
  d.SetKnob(d.Path("/pod/container"), "memory.max", Mib(2 * kMiB));
  d.Process(9, "/pod");  // the pod's own page makes its limit the first to be met
  d.Touch(9, kBase, 1);
  d.Process(10, "/pod/container");
  d.Touch(10, kBase, 3 * kMiB);
  EXPECT_EQ(d.LocalEvent("/pod", "oom"), 1);
  EXPECT_EQ(d.LocalEvent("/pod/container", "oom"), 0);
  EXPECT_EQ(d.Event("/pod", "oom_kill"), 1);
  EXPECT_EQ(d.Event("/pod/container", "oom_kill"), 1);
  std::vector<OomRecord> records = d.node().OomRecords(0, 10);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].breached, "/pod");
  EXPECT_EQ(records[0].charged, "/pod/container");
  EXPECT_EQ(records[0].tid, 10u);
  ASSERT_EQ(records[0].levels.size(), 3u);
  EXPECT_EQ(records[0].levels[1].path, "/pod");
  EXPECT_EQ(records[0].levels[1].max_pages, 2 * kMiB);
  ASSERT_EQ(records[0].victims.size(), 2u);
  EXPECT_EQ(records[0].victims[0].tgid, 10u);
  EXPECT_TRUE(records[0].victims[0].killed);
  EXPECT_FALSE(records[0].victims[1].killed);
  EXPECT_EQ(records[0].consumers[0].path, "/pod/container");
  // Its later events are dropped, and so is what it would have forked.
  uint64_t dropped = d.outcomes(Outcome::kDropped);
  EXPECT_GT(dropped, 0u);
  d.Fork(10, 11);
  d.Touch(11, kBase + 50'000, 10);
  EXPECT_EQ(d.outcomes(Outcome::kDropped), dropped + 12);  // the fork, an mmap, ten touches
  EXPECT_EQ(d.Stat("/pod/container", "anon"), 0);
  d.Fork(9, 10);  // the id is used again, by another's child
  d.Touch(10, kBase + 50'000, 10);
  EXPECT_EQ(d.outcomes(Outcome::kDropped), dropped + 12);
}

// Case 13: memory.oom.group kills all of the cgroup.
TEST(OomTest, AGroupDiesAsOne) {
  NodeDriver d(Modelled());
  d.Group("/a/b");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(2 * kMiB));
  d.SetKnob(d.Path("/a"), "memory.oom.group", "1");
  d.Process(10, "/a");
  d.Process(11, "/a/b");
  d.Touch(10, kBase, 100);
  d.Touch(11, kBase, 3 * kMiB);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 2);
  EXPECT_EQ(d.Event("/a", "oom_group_kill"), 1);
  EXPECT_EQ(d.CurrentPages("/a"), 0);
  EXPECT_TRUE(d.node().OomRecords(0, 1)[0].group);
}

// oom_score_adj decides who dies, at the limit and among equals; children inherit it, threads share it.
TEST(OomTest, TheProcessThatAsksToBeSparedIsAndTheOneThatOffersItselfIsNot) {
  struct Case {
    int32_t adj;
    bool dies;  // 10, which has more than 11
  };
  for (const Case& c : {Case{0, true}, Case{1000, true}, Case{-500, false}, Case{-1000, false}}) {
    NodeDriver d(Modelled());
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", Mib(16 * kMiB));  // 4096 pages: 4 for each of oom_score_adj
    d.Process(10, "/a");
    d.SetOomScoreAdj(10, c.adj);
    d.Process(11, "/a");
    d.Touch(10, kBase, 8 * kMiB);
    d.Touch(11, kBase, 4 * kMiB);
    d.Touch(11, kBase + 10'000, 6 * kMiB);
    d.Flush();
    std::vector<OomRecord> records = d.node().OomRecords(0, 1);
    ASSERT_FALSE(records.empty()) << c.adj;
    for (const OomRecord::Victim& victim : records[0].victims) {
      EXPECT_EQ(victim.oom_score_adj, victim.tgid == 10 ? c.adj : 0);
      EXPECT_EQ(victim.killed, (victim.tgid == 10) == c.dies) << c.adj << " of " << victim.tgid;
    }
  }
}

TEST(OomTest, OomScoreAdjIsInheritedByForkAndKeptByExec) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(kMiB));
  d.Process(10, "/a");
  d.CloneThread(10, 12);
  d.SetOomScoreAdj(12, -300);  // by a thread: of its process
  d.Fork(10, 11);
  d.Exec(11);
  d.SetOomScoreAdj(10, 7);      // the child's is its own by now
  d.SetOomScoreAdj(99, -1000);  // of a thread that nobody knew: it is made, in the root
  d.Touch(11, kBase, 2 * kMiB);
  EXPECT_EQ(d.outcomes(Outcome::kUnknownThread), 2u);  // thread 1, the parent of all, and 99
  std::map<uint32_t, int32_t> adj;
  for (const OomRecord& record : d.node().OomRecords(0, 10)) {
    for (const OomRecord::Victim& victim : record.victims) adj[victim.tgid] = victim.oom_score_adj;
  }
  EXPECT_EQ(adj, (std::map<uint32_t, int32_t>{{10, 7}, {11, -300}}));
}

// A limit below one process's first fault kills at once and never loops.
TEST(OomTest, ALimitBelowOneFaultEndsAtOnce) {
  for (const char* limit : {"0", "4K", "12K"}) {
    NodeDriver d(Modelled());
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", limit);
    d.Process(10, "/a");
    d.Touch(10, kBase, 100);
    EXPECT_EQ(d.Event("/a", "oom_kill"), 1) << limit;
    EXPECT_EQ(d.CurrentPages("/a"), 0) << limit;
  }
}

// Readahead that does not fit fails quietly.
TEST(OomTest, ReadaheadKillsNobody) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(kMiB));
  d.Process(10, "/a");
  d.Touch(10, kBase, kMiB - 5);  // with four tables all but one page
  EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < 64; page += 16) d.FileAdd(10, file, page, 4);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
  EXPECT_EQ(d.Stat("/a", "anon"), kMiB - 5);
  EXPECT_GT(d.outcomes(Outcome::kLimit), 0u);
}

// memory.max written below usage: reclaims, then kills.
TEST(OomTest, WritingMaxBelowUsageReclaimsThenKills) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < 4 * kMiB; ++page) d.FileAdd(10, file, page);
  d.Touch(10, kBase, kMiB);
  d.SetKnob(d.Path("/a"), "memory.max", Mib(2 * kMiB));
  EXPECT_LE(d.CurrentPages("/a"), 2 * kMiB);
  EXPECT_EQ(d.Stat("/a", "anon"), kMiB);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
  d.SetKnob(d.Path("/a"), "memory.max", Mib(kMiB / 2));
  EXPECT_EQ(d.Event("/a", "oom_kill"), 1);
  EXPECT_EQ(d.Stat("/a", "anon"), 0);
}

// ---- memory.reclaim

// Case 16: more than there is: what was had, and EAGAIN.
TEST(ReclaimTest, AskingForMoreThanThereIsGetsWhatThereIs) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < kMiB; ++page) d.FileAdd(10, file, page);
  d.Flush();
  uint64_t reclaimed = 0;
  EXPECT_TRUE(d.node().Reclaim("/a", "256K", &reclaimed).ok());
  EXPECT_GE(reclaimed, uint64_t{256} << 10);
  EXPECT_EQ(d.Stat("/a", "pgsteal_proactive"), static_cast<int64_t>(reclaimed / 4096));
  uint64_t rest = 0;
  absl::Status status = d.node().Reclaim("/a", "1G", &rest);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(rest + reclaimed, uint64_t{1} << 20) << "all that there was";
  EXPECT_EQ(d.Stat("/a", "file"), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(d.node().Reclaim("/a", "-1")));
  EXPECT_TRUE(absl::IsInvalidArgument(d.node().Reclaim("/a", "1M swappiness=300")));
  EXPECT_TRUE(absl::IsNotFound(d.node().Reclaim("/none", "1M")));
}

// ---- swap

TEST(SwapTest, ColdPagesGoToSwapAndComeBackAsMajorFaults) {
  NodeDriver d(Modelled(uint64_t{64} << 20));
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
  d.Process(10, "/a");
  d.Touch(10, kBase, 6 * kMiB);
  int64_t anon = d.Stat("/a", "anon");
  int64_t swap = static_cast<int64_t>(d.Reading("/a", false, false).swap_current_bytes / 4096);
  EXPECT_EQ(anon + swap, 6 * kMiB);
  EXPECT_LE(d.CurrentPages("/a"), 4 * kMiB);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 0);
  int64_t pgfault = d.Stat("/a", "pgfault");
  for (int page = 0; page < 64; ++page) d.Read(10, kBase + page);  // the first ones, long gone
  EXPECT_EQ(d.Stat("/a", "pgfault"), pgfault + 64);
  // They lie in slots 1 to 64.  Windows by swapin_nr_pages(), aligned: 1; 2 and 3, as 2 follows 1; with a hit
  // 4 to 7; with three 8 to 15; and so on by eights to 64.
  EXPECT_EQ(d.Stat("/a", "pgmajfault"), 11);
  EXPECT_GE(d.Stat("/a", "workingset_refault_anon"), 64);
  EXPECT_LE(d.Stat("/a", "workingset_refault_anon"), 64 + 8);
  d.Munmap(10, kBase, 6 * kMiB);
  EXPECT_EQ(d.Reading("/a", false, false).swap_current_bytes, 0u);
  EXPECT_EQ(d.CurrentPages("/a"), 0);
}

// A page that a fork shares is one page in swap, and one when it comes back.
TEST(SwapTest, ASharedPageIsSwappedOnce) {
  NodeDriver d(Modelled(uint64_t{64} << 20));
  d.Group("/a");
  d.Process(10, "/a");
  d.Touch(10, kBase, 64);
  d.Fork(10, 11);
  d.Flush();
  EXPECT_TRUE(absl::IsAborted(d.node().Reclaim("/a", "1G")));
  EXPECT_EQ(d.Stat("/a", "anon"), 0);
  EXPECT_EQ(d.Reading("/a", false, false).swap_current_bytes, 64u * 4096);
  d.Fork(11, 12);  // with entries in swap
  d.Read(12, kBase);
  EXPECT_EQ(d.Stat("/a", "anon"), 1);
  d.WriteProtected(10, kBase);  // a copy of its own
  EXPECT_EQ(d.Stat("/a", "anon"), 2);
  for (uint32_t tid : {10, 11, 12}) d.Exit(tid);
  EXPECT_EQ(d.Stat("/a", "anon"), 0);
  EXPECT_EQ(d.Reading("/a", false, false).swap_current_bytes, 0u);
}

TEST(SwapTest, FullSwapIsCountedAndKillsAtTheLimit) {
  NodeDriver d(Modelled(uint64_t{64} << 20));
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(2 * kMiB));
  d.SetKnob(d.Path("/a"), "memory.swap.max", Mib(kMiB));
  d.Process(10, "/a");
  d.Touch(10, kBase, 4 * kMiB);
  EXPECT_EQ(d.Event("/a", "oom_kill"), 1);
  EXPECT_EQ(d.Reading("/a", false, false).swap_peak_bytes, static_cast<uint64_t>(kMiB) * 4096);
}

// ---- what holds whatever happens

// A mix at the limits: the same state however it is cut, and after saving, loading and forking in the middle.
TEST(ReclaimTest, TheStateDoesNotDependOnCutsNorOnSaving) {
  auto play = [](NodeDriver& d, int from, int to) {
    for (int i = from; i < to; ++i) {
      uint32_t tid = 10 + static_cast<uint32_t>(i % 3);
      d.Write(tid, kBase + static_cast<uint64_t>(i * 7919 % 3000));
      d.FileAdd(tid, 1, static_cast<uint32_t>(i * 31 % 4000));
      if (i % 5 == 0) d.FileDirty(tid, 1, static_cast<uint32_t>(i * 31 % 4000));
      if (i % 3 == 0) d.FileRead(tid, 1, static_cast<uint32_t>(i * 17 % 4000));
      if (i % 400 == 0) d.DontNeed(tid, kBase, 500);
    }
  };
  auto begin = [](NodeDriver& d) {
    d.File(7);
    d.Group("/a/b");
    d.Group("/a/c");
    d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
    d.SetKnob(d.Path("/a/b"), "memory.high", Mib(2 * kMiB));
    d.SetKnob(d.Path("/a/c"), "memory.low", Mib(kMiB));
    d.Process(10, "/a/b");
    d.Process(11, "/a/c");
    d.Process(12, "/a");
    for (uint32_t tid : {10, 11, 12}) d.MmapAnon(tid, kBase, 3000);
  };
  uint64_t hash = 0;
  for (size_t cut : {size_t{8192}, size_t{1}, size_t{37}}) {
    NodeDriver d(Modelled(uint64_t{16} << 20));
    begin(d);
    play(d, 0, 6000);
    d.Flush(cut);
    EXPECT_EQ(d.node().CheckInvariants(), "");
    if (hash == 0) hash = d.node().StateHash();
    EXPECT_EQ(d.node().StateHash(), hash) << cut;
    auto loaded = Node::Load(d.node().Save());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ((*loaded)->StateHash(), hash);
    EXPECT_EQ((*loaded)->CheckInvariants(), "");
    std::unique_ptr<Node> fork = d.node().Fork();
    EXPECT_EQ(fork->StateHash(), hash);
    EXPECT_EQ(fork->CheckInvariants(), "");
  }
}

}  // namespace
}  // namespace memcgd::core
