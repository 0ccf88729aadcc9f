// Each mechanism in both forms: what it counts, what it saves, how far its reads are off.
#include "core/mechanisms.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "core/memcg_stats.h"
#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

NodeConfig With(const Mechanisms& mechanisms, uint32_t cpus = 2) {
  NodeConfig config = SmallNode(cpus);
  config.mechanisms = mechanisms;
  return config;
}
Mechanisms With(ChargeOrder order) { return {.charge_order = order}; }
Mechanisms With(CommitBatch batch) { return {.commit_batch = batch}; }
Mechanisms With(CssRefs refs) { return {.css_refs = refs}; }
Mechanisms With(StatsForm stats) { return {.stats = stats}; }
Mechanisms With(LruLock lock) { return {.lru_lock = lock}; }

MechanismCounters Counters(NodeDriver& d) {
  d.Flush();
  return d.node().Info().counters;
}

TEST(MechanismsTest, AnUnknownFormIsRefused) {
  NodeConfig config = SmallNode();
  config.mechanisms.stats = static_cast<StatsForm>(3);
  EXPECT_EQ(Node::Create(config).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- charge order

NodeConfig Refusing(ChargeOrder order) {
  NodeConfig config = With(With(order));
  config.reclaim = Reclaim::kNone;
  return config;
}

// /a, at most 100 pages beside three page tables
TEST(ChargeOrderTest, ARefusedFirstTouchHasWastedItsBarrierInTheOlderOrderOnly) {
  for (ChargeOrder order : {ChargeOrder::kChargeFirst, ChargeOrder::kUptodateFirst}) {
    NodeDriver d(Refusing(order));
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", std::to_string(103 * 4096));
    d.Process(10, "/a");
    d.Touch(10, 0x1000, 150);
    MechanismCounters counters = Counters(d);
    bool older = order == ChargeOrder::kUptodateFirst;
    EXPECT_EQ(d.outcomes(Outcome::kLimit), 50u);
    EXPECT_EQ(counters.barriers, older ? 150u : 100u);
    EXPECT_EQ(counters.barriers_before_refusal, older ? 50u : 0u);
    EXPECT_EQ(d.Stat("/a", "anon"), 100);
    EXPECT_EQ(d.Stat("/a", "pgfault"), 150);  // failed ones count too
    EXPECT_EQ(d.CurrentPages("/a"), 103);
    EXPECT_GE(d.Event("/a", "max"), 50);
  }
}

TEST(ChargeOrderTest, ARefusedCopyLeavesTheSharedPageAsItWas) {
  for (ChargeOrder order : {ChargeOrder::kChargeFirst, ChargeOrder::kUptodateFirst}) {
    NodeDriver d(Refusing(order));
    d.Group("/a");
    // 64 pages and 3 page tables; the child's 3, its PGD's 2 pages and its stack's 4
    d.SetKnob(d.Path("/a"), "memory.max", std::to_string(76 * 4096));
    d.Process(10, "/a");
    d.Touch(10, 0x1000, 64);
    d.Fork(10, 11);
    d.WriteProtected(11, 0x1000);
    d.Flush();
    EXPECT_EQ(d.outcomes(Outcome::kLimit), 1u);
    EXPECT_EQ(Counters(d).barriers_before_refusal, order == ChargeOrder::kUptodateFirst ? 1u : 0u);
    EXPECT_EQ(d.Stat("/a", "anon"), 64);
    d.Exit(11);
    EXPECT_EQ(d.Stat("/a", "anon"), 64);
    d.Exit(10);
    EXPECT_EQ(d.Stat("/a", "anon"), 0);
  }
}

// ---- commit batch

// 128 GiB and 64 CPUs: batches of 2048 and 131,072 pages; 128 MiB are 32,768.
TEST(CommitBatchTest, AMapAndUnmapOf128MibSpillsTwiceWithTheSmallBatchAndNeverWithThatOfGuess) {
  for (CommitBatch batch : {CommitBatch::kByPolicy, CommitBatch::kSmall}) {
    for (OvercommitPolicy policy :
         {OvercommitPolicy::kGuess, OvercommitPolicy::kAlways, OvercommitPolicy::kNever}) {
      NodeConfig config = With(With(batch), 64);
      config.memory_bytes = uint64_t{128} << 30;
      config.overcommit = policy;
      NodeDriver d(config);
      d.Fork(1, 10);
      for (int i = 0; i < 100; ++i) {
        d.MmapAnon(10, 0x100000, 32768);
        d.Munmap(10, 0x100000, 32768);
      }
      bool small = batch == CommitBatch::kSmall || policy == OvercommitPolicy::kNever;
      EXPECT_EQ(Counters(d).commit_spills, small ? 200u : 0u);
      EXPECT_EQ(d.CommittedPages(), 0);
    }
  }
}

TEST(CommitBatchTest, ASwitchOfThePolicyKeepsTheSumAndMakesTheFastReadExact) {
  NodeConfig config = With(With(CommitBatch::kByPolicy), 4);
  NodeDriver d(config);
  d.Fork(1, 10);
  for (uint32_t cpu = 0; cpu < 4; ++cpu) d.OnCpu(cpu).MmapAnon(10, 0x100000 * (cpu + 1), 1000);
  EXPECT_EQ(d.CommittedPages(), 4000);
  d.Flush();
  d.node().SetOvercommit({OvercommitPolicy::kNever, 100, 0});
  EXPECT_EQ(d.CommittedPages(), 4000);
  EXPECT_EQ(d.node().Info().config.overcommit, OvercommitPolicy::kNever);
}

// ---- references

TEST(CssRefsTest, ADyingGroupIsFreedWithItsLastPageInBothForms) {
  for (CssRefs refs : {CssRefs::kCoalesced, CssRefs::kPerPage}) {
    NodeDriver d(With(With(refs)));
    d.Group("/a");
    d.Process(10, "/a");
    uint32_t file = d.File(1);
    for (uint32_t i = 0; i < 100; ++i) d.FileAdd(10, file, i);
    d.Exit(10);
    d.Remove("/a");
    d.Flush();
    for (uint32_t i = 0; i < 100; ++i) {
      EXPECT_EQ(d.node().Info().dying_cgroups, 1u) << i;
      d.FileDelete(1, file, i);
      d.Drain();  // a batch may hold the last reference
      d.Flush();
      ASSERT_EQ(d.node().CheckInvariants(), "");
    }
    EXPECT_EQ(d.node().Info().dying_cgroups, 0u);
  }
}

TEST(CssRefsTest, CoalescedIsFarFewerChangesOfTheSharedCount) {
  std::map<CssRefs, uint64_t> operations;
  for (CssRefs refs : {CssRefs::kCoalesced, CssRefs::kPerPage}) {
    NodeDriver d(With(With(refs)));
    d.Group("/a");
    d.Process(10, "/a");
    d.Touch(10, 0x1000, 6385);  // and 13 + 1 + 1 page tables
    operations[refs] = Counters(d).css_ref_operations;
  }
  EXPECT_GE(operations[CssRefs::kPerPage], 6400u);
  EXPECT_EQ(operations[CssRefs::kCoalesced], 100u);
}

// ---- statistics

int64_t LineOf(const CgroupReading& reading, std::string_view name) {
  for (const auto& [line, value] : reading.stat) {
    if (line == name) return value;
  }
  ADD_FAILURE() << "no line " << name;
  return -1;
}

// /a/b/c/d/e, events on three CPUs
TEST(StatsFormTest, AFastReadIsWithinItsBoundOfTheExactOne) {
  for (StatsForm form : {StatsForm::kSpill, StatsForm::kWalk, StatsForm::kRstat}) {
    NodeDriver d(With(With(form), 3));
    d.Group("/a/b/c/d/e");
    d.Process(10, "/a/b/c/d/e");
    d.Process(11, "/a/b");
    std::mt19937 random(5);
    int64_t off_most = 0;
    for (int i = 0; i < 500; ++i) {
      for (int j = 0; j < 8; ++j) {
        d.OnCpu(random() % 3);
        d.Touch(random() % 2 == 0 ? 10 : 11, 0x1000 + random() % 4000, 1 + random() % 8);
        if (random() % 50 == 0) d.Munmap(10, 0x1000 + random() % 4000, 100);
      }
      d.Flush();
      for (const char* path : {"/", "/a/b", "/a/b/c/d/e"}) {
        absl::StatusOr<CgroupReading> fast = d.node().ReadCgroup(path, false, false, true);
        ASSERT_TRUE(fast.ok());
        absl::StatusOr<CgroupReading> exact = d.node().ReadCgroup(path, false, false);
        ASSERT_TRUE(exact.ok());
        EXPECT_EQ(exact->error_bound, 0u);
        for (const char* line : {"anon", "inactive_anon"}) {
          int64_t off = std::abs(LineOf(*fast, line) - LineOf(*exact, line)) / 4096;
          ASSERT_LE(off, static_cast<int64_t>(fast->error_bound)) << path << " " << line;
          off_most = std::max(off_most, off);
        }
        int64_t faults_off = std::abs(LineOf(*fast, "pgfault") - LineOf(*exact, "pgfault"));
        ASSERT_LE(faults_off, static_cast<int64_t>(fast->error_bound));
      }
    }
    EXPECT_EQ(off_most == 0, form == StatsForm::kWalk);  // the bound is of something
  }
}

// A group is made, faults and dies, 10,000 times: its parent's events never go back, but where readers walk.
TEST(StatsFormTest, EventsOfDeadGroupsStayInTheirAncestorsButWhereReadersWalk) {
  for (StatsForm form : {StatsForm::kSpill, StatsForm::kWalk, StatsForm::kRstat}) {
    NodeDriver d(With(With(form)));
    d.Group("/a");
    d.Path("/a/b");
    d.Flush();
    int64_t last = 0;
    bool went_back = false;
    for (int round = 0; round < 10000; ++round) {
      d.Group("/a/b");
      d.Process(10, "/a/b");
      d.Touch(10, 0x1000, 3);
      d.Exit(10);
      d.Remove("/a/b");
      d.Drain();
      d.Flush();
      absl::StatusOr<CgroupReading> reading = d.node().ReadCgroup("/a", false, false, true);
      ASSERT_TRUE(reading.ok());
      int64_t faults = LineOf(*reading, "pgfault");
      went_back |= faults < last;
      last = faults;
    }
    if (form == StatsForm::kWalk) {
      EXPECT_EQ(d.Stat("/a", "pgfault"), 0);
    } else {
      EXPECT_FALSE(went_back);
      EXPECT_EQ(d.Stat("/a", "pgfault"), 30000);
    }
    EXPECT_EQ(d.Stat("/a", "anon"), 0);
  }
}

TEST(StatsFormTest, RstatFlushesWhenEnoughHasChangedOrTwoSecondsHavePassed) {
  NodeDriver d(With(With(StatsForm::kRstat)));
  d.Group("/a");
  d.Process(10, "/a");
  d.Touch(10, 0x1000, 10);
  d.Flush();
  auto fast = [&] { return LineOf(*d.node().ReadCgroup("/a", false, false, true), "pgfault"); };
  EXPECT_EQ(fast(), 0);
  d.Touch(10, 0x2000, 200);  // more than 64 × 2 updates
  d.Flush();
  EXPECT_GE(fast(), 128);
  uint64_t flushes = d.node().Info().counters.stat_flushes;
  fast();
  EXPECT_EQ(d.node().Info().counters.stat_flushes, flushes);
  Event later{Event::Head(EventKind::kFault, 0, 10, 0),
              Event::AddressBody(0x5000 << 12, kFaultUser | kFaultWrite)};
  BatchResult result;
  ASSERT_TRUE(d.node().Apply(d.stream(), {int64_t{3'000'000'000}, {&later, 1}, {}}, &result).ok());
  EXPECT_EQ(fast(), 211);
}

// ---- the lock of the lists

// 50 groups take turns.
TEST(LruLockTest, OneLockPerGroupIsTakenFarLessOftenThanTheNodes) {
  std::map<LruLock, uint64_t> acquisitions;
  for (LruLock lock : {LruLock::kPerMemcg, LruLock::kPerNode}) {
    NodeDriver d(With(With(lock), 1));
    for (uint32_t i = 0; i < 50; ++i) {
      std::string path = "/g" + std::to_string(i);
      d.Group(path);
      d.Process(100 + i, path);
    }
    for (uint32_t page = 0; page < 310; ++page) {
      for (uint32_t i = 0; i < 50; ++i) d.Write(100 + i, 0x1000 + page);
    }
    acquisitions[lock] = Counters(d).lru_lock_acquisitions;
    ASSERT_EQ(d.node().CheckInvariants(), "");
  }
  // Every batch of 31 holds folios of 31 groups: each group's lock once, or the node's once.
  EXPECT_EQ(acquisitions[LruLock::kPerNode], 500u);
  EXPECT_EQ(acquisitions[LruLock::kPerMemcg], 500u * 31);
}

// ---- a folio's change of cgroup

// /a, one process; /b
struct MigrateTest : testing::Test {
  NodeDriver d{SmallNode(2)};
  uint32_t file = 0;
  MigrateTest() {
    d.Group("/a");
    d.Group("/b");
    d.Process(10, "/a");
    file = d.File(1);
  }
  void MigratePage(uint32_t index) { d.Wide(10, wide::MigrateFolio{d.Path("/b"), file, index, 0}); }
  void MigrateAt(uint64_t page) { d.Wide(10, wide::MigrateFolio{d.Path("/b"), 0, 0, page << 12}); }
};

TEST_F(MigrateTest, TheChargeTheListAndTheStatisticsGoAlong) {
  d.Mmap(10, 0x1000, 4, kProtRead, kMapShared, file);
  for (uint32_t i = 0; i < 4; ++i) d.FileAdd(10, file, i);
  d.MapPages(10, file, 0, 4);
  d.Read(10, 0x1000);
  d.FileDirty(10, file, 2);
  d.Drain();
  MigratePage(1);
  MigratePage(2);
  EXPECT_EQ(d.Stat("/a", "file"), 2);
  EXPECT_EQ(d.Stat("/b", "file"), 2);
  EXPECT_EQ(d.Stat("/b", "file_mapped"), 2);
  EXPECT_EQ(d.Stat("/b", "file_dirty"), 1);
  EXPECT_EQ(d.Stat("/b", "inactive_file"), 2);
  EXPECT_EQ(d.Stat("/", "file"), 4);
  d.Munmap(10, 0x1000, 4);  // counted where the page is now
  EXPECT_EQ(d.Stat("/b", "file_mapped"), 0);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 0);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 0u);
}

TEST_F(MigrateTest, AnAnonymousPageOfOneProcessMovesAndOneThatIsSharedStays) {
  d.Touch(10, 0x1000, 2);
  d.Drain();
  MigrateAt(0x1000);
  EXPECT_EQ(d.Stat("/b", "anon"), 1);
  EXPECT_EQ(d.Stat("/b", "inactive_anon"), 1);
  d.Fork(10, 11);
  MigrateAt(0x1001);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 1u);
  EXPECT_EQ(d.Stat("/a", "anon"), 1);
  d.Exit(11);
  d.Exit(10);
  EXPECT_EQ(d.Stat("/b", "anon"), 0);
}

TEST_F(MigrateTest, WhatIsOnNoListCannotBeIsolated) {
  d.FileAdd(10, file, 0);  // in the CPU's batch
  MigratePage(0);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 1u);
  d.Drain();
  MigratePage(0);
  EXPECT_EQ(d.Stat("/b", "file"), 1);
  MigratePage(7);
  EXPECT_EQ(d.outcomes(Outcome::kUnseenPage), 1u);
}

}  // namespace
}  // namespace memcgd::core
