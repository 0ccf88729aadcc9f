// The bound that a fast read states, tried beside batches: one writer in each of two cgroups, a reader above.
//
// Faults only grow, so the exact value during a read lies between what was applied before it and what had
// been begun after it.  A read that is further from that interval than its bound says is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/memcg_stats.h"
#include "core/node.h"
#include "tests/core/event_log.h"

namespace memcgd::core {
namespace {

using Clock = std::chrono::steady_clock;

// Many, and the writers on the last: more happens between a walk's look at a cgroup and that at its CPUs.
constexpr uint32_t kCpus = 64;
constexpr uint32_t kWriters = 2;
constexpr uint32_t kPages = 1000;
constexpr std::chrono::seconds kMost{4};

NodeConfig With(StatsForm form) {
  NodeConfig config;
  config.cpus = kCpus;
  config.mechanisms.stats = form;
  return config;
}

// Touches pages and gives them back, event by event, in /top/leaf<n>; tells what it has begun and done.
class Writer {
 public:
  Writer(Node& node, uint32_t number)
      : node_(node), stream_(node.OpenStream(std::to_string(number))), number_(number) {
    EventLog log;
    log.DefinePath(1, "/top/leaf" + std::to_string(number));
    log.CgroupCreate(1);
    log.Fork(1, Tid());
    log.Attach(1, Tid());
    log.OnCpu(Cpu()).MmapAnon(Tid(), 0x1000, kPages);
    Apply(log);
  }

  void Run(const std::atomic<bool>& stop) {
    EventLog fault, give_back;
    give_back.OnCpu(Cpu()).DontNeed(Tid(), 0x1000, kPages);
    for (uint32_t page = 0; !stop; page = (page + 1) % kPages) {
      if (page == 0) Apply(give_back);
      fault.clear();
      fault.OnCpu(Cpu()).Write(Tid(), 0x1000 + page);
      begun.fetch_add(1);
      Apply(fault);
      done.fetch_add(1);
    }
  }

  std::atomic<int64_t> begun{0}, done{0};  // faults

 private:
  uint32_t Tid() const { return 100 + number_; }
  uint32_t Cpu() const { return kCpus - 1 - number_; }
  void Apply(const EventLog& log) {
    BatchResult result;
    ASSERT_TRUE(ApplySteps(node_, stream_, log.steps(), 0, log.steps().size(), 100, &result).ok());
  }

  Node& node_;
  EventStream* const stream_;
  const uint32_t number_;
};

int64_t Faults(const CgroupReading& reading) {
  const auto at = std::find_if(reading.stat.begin(), reading.stat.end(),
                               [](const StatLine& line) { return line.first == "pgfault"; });
  return at->second;
}

int64_t Sum(const std::vector<std::unique_ptr<Writer>>& writers, std::atomic<int64_t> Writer::*count) {
  int64_t sum = 0;
  for (const auto& writer : writers) sum += ((*writer).*count).load();
  return sum;
}

class StatBoundTest : public testing::TestWithParam<StatsForm> {};

TEST_P(StatBoundTest, NoFastReadBesideBatchesIsFurtherOffThanItSays) {
  auto node = *Node::Create(With(GetParam()));
  std::vector<std::unique_ptr<Writer>> writers;
  for (uint32_t i = 0; i < kWriters; ++i) writers.push_back(std::make_unique<Writer>(*node, i));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (auto& writer : writers) threads.emplace_back([&writer, &stop] { writer->Run(stop); });
  int64_t off_most = 0;
  int reads = 0;
  // Until a read was off by a good part of a batch: one that never was would prove little.
  const auto end = Clock::now() + kMost;
  for (; (reads < 1000 || off_most < kStatBatch / 2) && Clock::now() < end; ++reads) {
    const int64_t least = Sum(writers, &Writer::done);
    const absl::StatusOr<CgroupReading> read = node->ReadCgroup("/top", false, false, /*fast=*/true);
    const int64_t most = Sum(writers, &Writer::begun);
    if (!read.ok()) {
      ADD_FAILURE() << read.status().ToString();
      break;
    }
    const int64_t off = std::max(least - Faults(*read), Faults(*read) - most);
    if (off <= 0) std::this_thread::sleep_for(std::chrono::microseconds(20));  // writers need the cores too
    off_most = std::max(off_most, off);
    if (off > static_cast<int64_t>(read->error_bound)) {
      ADD_FAILURE() << "off by " << off << ", bound " << read->error_bound;
      break;
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  RecordProperty("off_most", static_cast<int>(off_most));
  EXPECT_GT(off_most, 0) << "in " << reads << " reads: the bound was not tried";
  EXPECT_EQ(Faults(*node->ReadCgroup("/top", false, false)), Sum(writers, &Writer::done));
  EXPECT_EQ(node->CheckInvariants(), "");
}

INSTANTIATE_TEST_SUITE_P(Forms, StatBoundTest,
                         testing::Values(StatsForm::kSpill, StatsForm::kWalk, StatsForm::kRstat));

}  // namespace
}  // namespace memcgd::core
