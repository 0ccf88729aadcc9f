#include "core/sweep.h"

#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

// Events as a sweep holds them: batches of `batch` events.
class SweepTest : public testing::Test {
 protected:
  void NewBase(const NodeConfig& config = SmallNode(2)) {
    sweep_ = std::make_unique<Sweep>(*Node::Create(config), true);
  }

  absl::Status Add(const EventLog& log, size_t batch = 64) {
    for (size_t begin = 0; begin < log.steps().size(); begin += batch) {
      struct Owned {
        std::vector<Event> events;
        std::vector<WideEvent> wide;
      };
      auto owned = std::make_shared<Owned>();
      for (size_t i = begin; i < std::min(begin + batch, log.steps().size()); ++i) {
        if (log.steps()[i].wide == nullptr) {
          owned->events.push_back(log.steps()[i].event);
        } else {
          owned->wide.push_back(*log.steps()[i].wide);
          owned->wide.back().position = static_cast<uint32_t>(owned->events.size());
        }
      }
      absl::Status status = sweep_->Add({0, owned->events, owned->wide}, owned);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  PointOutcome Run(size_t point) {
    absl::StatusOr<PointOutcome> outcome = sweep_->Run(point, [](uint64_t) { return true; });
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? *std::move(outcome) : PointOutcome{};
  }

  // A cgroup /job whose one process touches 100 pages, reads 50 pages of a file twice and ends.
  static EventLog Job() {
    EventLog log;
    log.DefinePath(1, "/top/job");
    log.DefineFile(1, 0x800001, 7);
    log.Touch(1, 0x9000, 3);
    log.CgroupCreate(1);
    log.Fork(1, 10);
    log.Attach(1, 10);
    log.Touch(10, 0x1000, 100);
    for (uint32_t i = 0; i < 50; ++i) log.FileAdd(10, 1, i);
    for (uint32_t round = 0; round < 2; ++round) {
      for (uint32_t i = 0; i < 50; i += 10) log.FileRead(10, 1, i, 10);
    }
    log.Munmap(10, 0x1000, 40);
    return log;
  }

  std::unique_ptr<Sweep> sweep_;
};

TEST_F(SweepTest, APointWithoutChangesIsWhatTheNodeWouldBe) {
  NewBase();
  ASSERT_TRUE(Add(Job()).ok());
  ASSERT_TRUE(sweep_->Prepare({{}}, {"/top/job", "/top", "/"}, true).ok());
  const PointOutcome outcome = Run(0);
  NodeDriver d(SmallNode(2));
  const EventLog job = Job();
  BatchResult result;
  ASSERT_TRUE(ApplySteps(d.node(), d.stream(), job.steps(), 0, job.steps().size(), 64, &result).ok());
  for (const CgroupOutcome& cgroup : outcome.cgroups) {
    const CgroupReading reading = *d.node().ReadCgroup(cgroup.path, false, false);
    EXPECT_EQ(cgroup.peak_bytes, reading.peak_bytes) << cgroup.path;
    if (cgroup.path != "/") {
      EXPECT_EQ(cgroup.usage_bytes, reading.current_bytes);
    }
  }
  EXPECT_EQ(outcome.committed_as_bytes, d.node().Info().committed_as_bytes);
  EXPECT_EQ(outcome.outcomes, result.outcomes);
  // 50 pages twice, in order: the second round misses until all 50 fit.
  ASSERT_TRUE(outcome.cgroups[0].miss_ratio.has_value());
  const MissRatioCurve& curve = *outcome.cgroups[0].miss_ratio;
  EXPECT_EQ(curve.references, 100u);
  EXPECT_EQ(curve.distinct_pages, 50u);
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_EQ(curve.points[1].cache_pages, 50u);
  EXPECT_DOUBLE_EQ(curve.points[1].miss_ratio, 0.5);
}

TEST_F(SweepTest, OutcomesDoNotDependOnHowEventsWereCut) {
  std::vector<PointOutcome> outcomes;
  for (size_t batch : {1, 3, 17, 4096}) {
    NewBase();
    ASSERT_TRUE(Add(Job(), batch).ok());
    ASSERT_TRUE(sweep_
                    ->Prepare({{.knobs = {{"/top/job", "memory.max", "256K"}}, .reclaim = Reclaim::kNone}},
                              {"/top/job"}, true)
                    .ok());
    outcomes.push_back(Run(0));
  }
  for (const PointOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.cgroups[0].peak_bytes, outcomes[0].cgroups[0].peak_bytes);
    EXPECT_EQ(outcome.cgroups[0].max_events, outcomes[0].cgroups[0].max_events);
    EXPECT_EQ(outcome.outcomes, outcomes[0].outcomes);
  }
}

TEST_F(SweepTest, AKnobIsWrittenAtTheCreationOfItsCgroup) {
  NewBase();
  ASSERT_TRUE(Add(Job()).ok());
  const auto limit = [](const char* path, const char* value) {
    return SweepPoint{.knobs = {{path, "memory.max", value}}, .reclaim = Reclaim::kNone};
  };
  // 64 pages; /top is made together with /top/job.
  ASSERT_TRUE(
      sweep_
          ->Prepare({limit("/top/job", "256K"), limit("/top", "256K"), limit("/top", "max")}, {"/top"}, false)
          .ok());
  for (size_t point : {0, 1}) {
    const PointOutcome outcome = Run(point);
    EXPECT_EQ(outcome.cgroups[0].peak_bytes, 64u * 4096) << point;
    EXPECT_GT(outcome.outcomes[static_cast<size_t>(Outcome::kLimit)], 0u);
  }
  EXPECT_EQ(Run(2).cgroups[0].peak_bytes, 150u * 4096 + 42 * 4096);  // with the stock of 64
}

TEST_F(SweepTest, WhatTheEventsWriteToAChangedKnobIsPassedOver) {
  EventLog log = Job();
  log.SetKnob(1, "memory.max", "1M");
  log.SetKnob(1, "memory.high", "1M");
  log.Touch(10, 0x3000, 400);
  NewBase();
  ASSERT_TRUE(Add(log).ok());
  ASSERT_TRUE(sweep_
                  ->Prepare({{.reclaim = Reclaim::kNone},
                             {.knobs = {{"/top/job", "memory.max", "max"}}, .reclaim = Reclaim::kNone}},
                            {"/top/job"}, false)
                  .ok());
  EXPECT_LE(Run(0).cgroups[0].peak_bytes, 1u << 20);
  EXPECT_GT(Run(1).cgroups[0].peak_bytes, 1u << 20);
}

TEST_F(SweepTest, APointsPolicyHoldsAgainstTheEvents) {
  EventLog log = Job();
  log.Wide(0, wide::SetOvercommit{OvercommitPolicy::kNever, 1, 0});
  log.Mmap(10, 0x100000, 1 << 20, kProtRead | kProtWrite, kMapPrivate | kMapAnonymous);
  NewBase();
  ASSERT_TRUE(Add(log).ok());
  ASSERT_TRUE(
      sweep_->Prepare({{}, {.overcommit = wide::SetOvercommit{OvercommitPolicy::kAlways, 0, 0}}}, {}, false)
          .ok());
  EXPECT_EQ(Run(0).outcomes[static_cast<size_t>(Outcome::kEnomem)], 1u);
  EXPECT_EQ(Run(1).outcomes[static_cast<size_t>(Outcome::kEnomem)], 0u);
}

TEST_F(SweepTest, ACgroupsLivesAddUp) {
  EventLog log = Job();
  log.Exit(10);
  log.CgroupRemove(1);
  log.CgroupCreate(1);
  log.Fork(1, 11);
  log.Attach(1, 11);
  log.Touch(11, 0x1000, 20);
  log.Exit(11);
  log.CgroupRemove(1);
  NewBase();
  ASSERT_TRUE(Add(log).ok());
  ASSERT_TRUE(sweep_
                  ->Prepare({{.knobs = {{"/top/job", "memory.max", "128K"}}, .reclaim = Reclaim::kNone}},
                            {"/top/job"}, false)
                  .ok());
  const PointOutcome outcome = Run(0);
  EXPECT_EQ(outcome.cgroups[0].peak_bytes, 32u * 4096);  // the limit, written to both
}

TEST_F(SweepTest, AForkedBaseIsNotTouchedAndCountsFromWhereItIs) {
  NodeDriver d(SmallNode(2));
  d.Group("/job");
  d.Process(10, "/job");
  d.Touch(10, 0x1000, 10);
  d.Flush();
  const uint64_t before = d.node().StateHash();
  sweep_ = std::make_unique<Sweep>(d.node().Fork(), false);
  EventLog log;
  log.Touch(10, 0x2000, 1000);
  ASSERT_TRUE(Add(log).ok());
  ASSERT_TRUE(sweep_
                  ->Prepare({{}, {.knobs = {{"/job", "memory.max", "1M"}}, .reclaim = Reclaim::kNone}},
                            {"/job"}, false)
                  .ok());
  EXPECT_GE(Run(0).cgroups[0].usage_bytes, 1010u * 4096);
  EXPECT_LE(Run(1).cgroups[0].usage_bytes, 1u << 20);
  EXPECT_EQ(d.node().StateHash(), before);
}

TEST_F(SweepTest, AForkOfARecordedNodeMayModelReclaim) {
  NodeDriver d(SmallNode(2));
  d.Group("/job");
  d.Process(10, "/job");
  const uint32_t file = d.File(7);
  for (uint32_t i = 0; i < 600; ++i) d.FileAdd(10, file, i);
  for (uint32_t i = 0; i < 600; i += 3) d.FileDirty(10, file, i);
  d.Touch(10, 0x1000, 100);
  d.Flush();
  sweep_ = std::make_unique<Sweep>(d.node().Fork(), false);
  EventLog log;
  log.DefineFile(1, 0x800001, 7);
  for (uint32_t i = 0; i < 600; i += 10) log.FileRead(10, 1, i, 10);
  ASSERT_TRUE(Add(log).ok());
  ASSERT_TRUE(sweep_
                  ->Prepare({{.knobs = {{"/job", "memory.max", "2M"}}, .reclaim = Reclaim::kModelled}},
                            {"/job"}, false)
                  .ok());
  const PointOutcome outcome = Run(0);
  EXPECT_LE(outcome.cgroups[0].usage_bytes, 2u << 20);
  EXPECT_GT(outcome.cgroups[0].pgsteal, 150u);
  EXPECT_GT(outcome.cgroups[0].refaults_file, 0u);
  EXPECT_EQ(outcome.cgroups[0].oom_kills, 0u);
}

TEST_F(SweepTest, WhatCannotBeIsRefusedByName) {
  NewBase();
  ASSERT_TRUE(Add(Job()).ok());
  absl::Status status = sweep_->Prepare({{}}, {"/top/jop"}, false);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("the nearest is \"/top/job\""), absl::string_view::npos) << status;
  status = sweep_->Prepare({{}, {.knobs = {{"/top", "memory.max", "-1"}}}}, {}, false);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find("point 1: memory.max"), 0u) << status;
  EXPECT_EQ(sweep_->Prepare({{.knobs = {{"/", "memory.max", "1M"}}}}, {}, false).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(sweep_->Prepare({{.knobs = {{"top", "memory.max", "1M"}}}}, {}, false).code(),
            absl::StatusCode::kInvalidArgument);
  EventLog bad;
  bad.CgroupCreate(99);
  EXPECT_EQ(Add(bad).code(), absl::StatusCode::kInvalidArgument);
  Sweep forked((*Node::Create(SmallNode()))->Fork(), false);
  EXPECT_EQ(forked.Prepare({{.mechanisms = Mechanisms{}}}, {}, false).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(SweepTest, ARunThatIsToldToStopStops) {
  NewBase();
  ASSERT_TRUE(Add(Job(), 8).ok());
  ASSERT_TRUE(sweep_->Prepare({{}}, {}, false).ok());
  uint64_t events = 0;
  const auto outcome = sweep_->Run(0, [&](uint64_t went_on) {
    events += went_on;
    return events < 50;
  });
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(events, 60u);
}

TEST_F(SweepTest, MechanismsMayDifferOnANewNode) {
  NewBase();
  ASSERT_TRUE(Add(Job()).ok());
  ASSERT_TRUE(
      sweep_->Prepare({{}, {.mechanisms = Mechanisms{.stats = StatsForm::kRstat}}}, {"/top/job"}, false)
          .ok());
  EXPECT_EQ(Run(0).cgroups[0].usage_bytes, Run(1).cgroups[0].usage_bytes);
}

TEST_F(SweepTest, DurationIsFromTheFirstEventToTheLast) {
  NewBase();
  EventLog log;
  for (int i = 0; i < 11; ++i) log.Write(10, 0x1000);
  ASSERT_TRUE(Add(log).ok());
  EXPECT_EQ(sweep_->duration_ns(), 10'000);
  EXPECT_EQ(sweep_->events(), 11u);
}

}  // namespace
}  // namespace memcgd::core
