// Two and four streams on one node at once, each with processes of its own, cgroups and files in common.
// Every interleaving is legal; what must hold is that nothing is lost: the invariants after the join, and
// zero once all has ended.
//
//   /              all CPUs of the node, one per stream, shared by pairs where there are four
//   ├─ shared      every stream's processes move in and out
//   │  └─ inner
//   └─ own<n>      made and removed by stream n again and again; dies with pages charged
//
// MEMCGD_STRESS_ROUNDS=<n> makes it longer; MEMCGD_SEED=<n> gives the streams other choices.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/node.h"
#include "tests/core/event_log.h"

namespace memcgd::core {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr uint64_t kRounds = 50;
#else
constexpr uint64_t kRounds = 400;
#endif
constexpr uint32_t kFiles = 4;  // the last is tmpfs
constexpr uint32_t kProcesses = 6;
constexpr uint32_t kSharedPath = 1, kInnerPath = 2, kOwnPath = 3;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// One stream's events, applied as they are made.
class Feeder {
 public:
  Feeder(Node& node, uint32_t number, uint32_t cpus, uint64_t seed)
      : node_(node),
        stream_(node.OpenStream("stream" + std::to_string(number))),
        number_(number),
        cpus_(cpus),
        random_(seed * 1000 + number) {
    log_.DefinePath(kSharedPath, "/shared");
    log_.DefinePath(kInnerPath, "/shared/inner");
    log_.DefinePath(kOwnPath, "/own" + std::to_string(number));
    for (uint32_t file = 1; file <= kFiles; ++file) log_.DefineFile(file, 0x800001, file, file == kFiles);
    for (uint32_t i = 0; i < kProcesses; ++i) log_.Fork(Init(), Tid(i));
    Flush(8192);
  }

  void Round() {
    for (int i = 0; i < 200; ++i) One();
    Flush(1 + Below(200));
  }

  // Everything of this stream ends.
  void End() {
    for (uint32_t i = 0; i < kProcesses; ++i) log_.Exit(Tid(i));
    log_.Exit(Init());
    for (uint32_t file = 1; file <= kFiles; ++file) {
      for (uint32_t index = 0; index < 4 * kIndices; ++index) log_.FileDelete(0, file, index);
    }
    log_.CgroupRemove(kOwnPath);
    Flush(8192);
  }
  const absl::Status& status() const { return status_; }

 private:
  static constexpr uint32_t kIndices = 64;

  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  uint32_t Init() const { return 1000 * (number_ + 1); }
  uint32_t Tid(uint32_t process) const { return Init() + 1 + process; }
  uint32_t AnyFile() { return 1 + Below(kFiles); }
  uint64_t AnyPage() { return 0x1000 + Below(256); }

  void One() {
    // Mostly a CPU of its own, sometimes one that another stream uses too.
    log_.OnCpu(Below(16) > 0 ? number_ % cpus_ : Below(cpus_));
    uint32_t tid = Tid(Below(kProcesses));
    uint32_t file = AnyFile(), index = Below(kIndices);
    switch (Below(30)) {
      case 0:
        return log_.FileAdd(tid, file, index, 0);
      case 1:
        return log_.FileAdd(tid, file, index & ~7u, Below(4));
      case 2:
      case 3:
        return log_.FileDelete(tid, file, index, 0);
      case 4: {
        log_.ReclaimBegin(tid);
        log_.FileDelete(tid, file, index, 0);
        return log_.ReclaimEnd(tid);
      }
      case 5:
        return log_.FileRead(tid, file, index, 1 + Below(8));
      case 6:
        return log_.FileDirty(tid, file, index);
      case 7:
      case 8:
      case 9: {
        uint64_t page = AnyPage();
        log_.Mmap(tid, page, 32, kProtRead | kProtWrite, Below(2) == 0 ? kMapShared : kMapPrivate, file,
                  index);
        log_.MapPages(tid, file, index, 16);
        log_.FileFault(tid, file, index);
        return log_.Fault(tid, page, kFaultUser | (Below(3) == 0 ? kFaultWrite : 0));
      }
      case 10:
      case 11:
      case 12:
        return log_.Write(tid, AnyPage());
      case 13:
        return log_.MmapAnon(tid, AnyPage(), 1 + Below(64));
      case 14:
        return log_.Munmap(tid, AnyPage(), 1 + Below(64));
      case 15:
        return log_.Mmap(tid, AnyPage(), 16, kProtRead | kProtWrite,
                         kMapShared | kMapAnonymous | kMapPopulate);
      case 16:
        return log_.Madvise(tid, AnyPage(), 32, Below(2) == 0 ? kMadvFree : kMadvDontNeed);
      case 17:
        return Below(2) == 0 ? log_.Mlock(tid, AnyPage(), 16) : log_.Munlock(tid, AnyPage(), 256);
      case 18: {
        uint32_t child = Tid(Below(kProcesses));
        if (child != tid) log_.Fork(tid, child);
        return;
      }
      case 19:
        return Below(2) == 0 ? log_.Exec(tid, 2) : log_.Exit(tid);
      case 20:
        return log_.Attach(1 + Below(3), tid);
      case 21:
        return Below(8) > 0 ? void() : log_.CgroupCreate(1 + Below(3));
      case 22:
        return Below(8) > 0 ? void() : log_.CgroupRemove(kOwnPath);
      case 23:
      case 24:
        return log_.Wide(tid,
                         wide::MigrateFolio{1 + Below(2), Below(2) == 0 ? file : 0, index, AnyPage() << 12});
      case 27: {  // a large folio, mapped as a whole, read, and gone from under its mappings
        uint64_t page = AnyPage();
        log_.FileAdd(tid, file, index & ~15u, 4);
        log_.Mmap(tid, page, 16, kProtRead, kMapShared, file, index & ~15u);
        log_.MapPages(tid, file, index & ~15u, 16);
        log_.Fault(tid, page, kFaultUser);
        log_.FileRead(tid, file, index, 4);
        log_.FileRead(tid, file, index & ~15u, 1);
        return Below(2) == 0 ? log_.Munmap(tid, page, 16) : log_.FileDelete(tid, file, index & ~15u, 4);
      }
      case 28:
        for (int again = 0; again < 40; ++again) log_.Madvise(tid, 0x1000, 256, kMadvFree);
        return;
      case 29:
        return log_.Fault(tid, AnyPage(), kFaultUser | kFaultFetch | (Below(2) == 0 ? kFaultWrite : 0));
      case 25: {
        if (Below(8) > 0) return;
        constexpr OvercommitPolicy kPolicies[] = {OvercommitPolicy::kGuess, OvercommitPolicy::kAlways,
                                                  OvercommitPolicy::kNever};
        return log_.Wide(tid, wide::SetOvercommit{kPolicies[Below(3)], 50 + Below(50), 0});
      }
      case 26: {
        if (Below(8) > 0) return log_.SetOomScoreAdj(tid, static_cast<int32_t>(Below(2001)) - 1000);
        return log_.SetKnob(1 + Below(2), "memory.max",
                            Below(3) == 0 ? "max" : std::to_string(Below(4096) << 12));
      }
      default:
        return Below(16) > 0 ? void() : log_.Mark(1);
    }
  }

  void Flush(size_t batch) {
    BatchResult result;
    absl::Status status = ApplySteps(node_, stream_, log_.steps(), 0, log_.steps().size(), batch, &result);
    if (!status.ok()) status_ = status;
    log_.clear();
  }

  Node& node_;
  EventStream* const stream_;
  const uint32_t number_;
  const uint32_t cpus_;
  std::mt19937_64 random_;
  EventLog log_;
  absl::Status status_;
};

void ExpectNothingLeft(Node& node) {
  // Each CPU's batches and stock go back; a removal drains the stocks.
  EventLog log;
  for (uint32_t cpu = 0; cpu < node.Info().config.cpus; ++cpu) {
    log.OnCpu(cpu);
    log.ReclaimBegin(1);
    log.ReclaimEnd(1);
  }
  log.Exit(1);
  BatchResult result;
  EventStream* stream = node.OpenStream("end");
  ASSERT_TRUE(ApplySteps(node, stream, log.steps(), 0, log.steps().size(), 8192, &result).ok());
  for (const char* path : {"/shared/inner", "/shared", "/last"}) {
    (void)node.CreateCgroup(path);
    ASSERT_TRUE(node.RemoveCgroup(path).ok()) << path;
  }
  ASSERT_EQ(node.CheckInvariants(), "");
  NodeInfo info = node.Info();
  EXPECT_EQ(info.processes, 0u);
  EXPECT_EQ(info.cgroups, 1u);
  EXPECT_EQ(info.dying_cgroups, 0u);
  EXPECT_EQ(info.resident_pages, 0u);
  EXPECT_EQ(info.committed_as_bytes, 0u);
  absl::StatusOr<CgroupReading> root = node.ReadCgroup("/", false, true);
  ASSERT_TRUE(root.ok());
  int64_t in = -1, out = -1;
  for (const auto& [name, value] : root->stat) {
    if (name == "total_pgpgin") in = value;
    if (name == "total_pgpgout") out = value;
    bool counts_events = name.find("pg") != name.npos || name.find("workingset") != name.npos ||
                         name.find("limit") != name.npos;
    if (!counts_events) {
      EXPECT_EQ(value, 0) << name;
    }
  }
  EXPECT_GT(in, 0);
  EXPECT_EQ(in, out);  // with statistics that are walked, freed groups have taken theirs along
}

void Stress(uint32_t threads, uint32_t cpus, const Mechanisms& mechanisms = {}) {
  uint64_t rounds = FromEnvironment("MEMCGD_STRESS_ROUNDS", kRounds),
           seed = FromEnvironment("MEMCGD_SEED", 1);
  SCOPED_TRACE("MEMCGD_SEED=" + std::to_string(seed));
  NodeConfig config;
  config.cpus = cpus;
  config.mechanisms = mechanisms;
  std::unique_ptr<Node> node = *Node::Create(config);
  ASSERT_TRUE(node->CreateCgroup("/shared").ok());
  ASSERT_TRUE(node->CreateCgroup("/shared/inner").ok());
  std::vector<std::unique_ptr<Feeder>> feeders;
  for (uint32_t i = 0; i < threads; ++i) feeders.push_back(std::make_unique<Feeder>(*node, i, cpus, seed));
  std::atomic<bool> done{false};
  // Reads, saves and hashes at cuts while the streams run.
  std::thread reader([&] {
    const Node::PeakWatch peaks = *node->OpenPeaks("/");
    for (int i = 0; !done.load(std::memory_order_relaxed); ++i) {
      EXPECT_TRUE(node->ReadCgroup("/", false, i % 2 == 0, i % 4 != 0).ok());  // mostly beside batches
      (void)node->ReadCgroup("/shared", false, false, true);
      EXPECT_TRUE(node->ListCgroups("/", "", 100).ok());
      (void)node->GetCgroup("/shared");
      if (i % 16 == 0) node->StateHash();
      const PeakReading peak = *node->ReadPeaks(peaks, i % 4 == 0, i % 4 == 1);
      EXPECT_GE(peak.memory_peak_bytes, peak.memory_current_bytes);
      std::this_thread::yield();
    }
    node->ClosePeaks(peaks);
  });
  std::vector<std::thread> crew;
  for (std::unique_ptr<Feeder>& feeder : feeders) {
    crew.emplace_back([&feeder, rounds] {
      for (uint64_t round = 0; round < rounds; ++round) feeder->Round();
    });
  }
  for (std::thread& thread : crew) thread.join();
  done.store(true, std::memory_order_relaxed);
  reader.join();
  for (std::unique_ptr<Feeder>& feeder : feeders) ASSERT_TRUE(feeder->status().ok()) << feeder->status();
  ASSERT_EQ(node->CheckInvariants(), "");
  for (std::unique_ptr<Feeder>& feeder : feeders) feeder->End();
  ASSERT_EQ(node->CheckInvariants(), "");
  ExpectNothingLeft(*node);
}

TEST(StressTest, TwoStreamsLoseNothing) { Stress(2, 2); }
TEST(StressTest, TwoStreamsOnOneCpuLoseNothing) { Stress(2, 1); }
TEST(StressTest, FourStreamsLoseNothing) { Stress(4, 4); }
TEST(StressTest, FourStreamsOnTwoCpusLoseNothing) { Stress(4, 2); }
TEST(StressTest, OlderFormsLoseNothing) {
  Stress(2, 2,
         {ChargeOrder::kUptodateFirst, CommitBatch::kSmall, CssRefs::kPerPage, StatsForm::kRstat,
          LruLock::kPerNode});
}
TEST(StressTest, RstatLosesNothing) { Stress(2, 2, {.stats = StatsForm::kRstat}); }
TEST(StressTest, OneLockForAllListsLosesNothing) { Stress(2, 2, {.lru_lock = LruLock::kPerNode}); }

}  // namespace
}  // namespace memcgd::core
