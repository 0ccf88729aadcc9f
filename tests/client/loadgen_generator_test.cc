// The experiments' events, applied in process: what they claim to be, the core finds them to be.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "client/loadgen/event_words.h"
#include "client/loadgen/experiment.h"
#include "client/loadgen/file_generator.h"
#include "client/loadgen/generator.h"
#include "server/wire.h"

namespace memcgd::client::loadgen {
namespace {

namespace v1 = memcgd::v1;

// A small case of each kind.
Case SmallCase(ExperimentKind kind, const std::string& trace = "anon") {
  Settings settings;
  settings.cpus = 2;
  if (kind == ExperimentKind::kReplay) {
    auto recording =
        ReadRecording(std::string(MEMCGD_FIDELITY_DIR "/traces/") + trace + "/trace.txt.zst", 512);
    EXPECT_TRUE(recording.ok()) << recording.status();
    settings.recording = std::make_shared<const Recording>(*std::move(recording));
  } else {
    settings.streams = {3};
    settings.cgroups = {20};
    settings.pages = 512;
    settings.sizes_bytes = {1 << 20};
  }
  return CasesOf(kind, settings, "", {}).front();
}

constexpr ExperimentKind kSynthetic[] = {ExperimentKind::kPft,
                                         ExperimentKind::kMmap1,
                                         ExperimentKind::kMultiFaultAllSplit,
                                         ExperimentKind::kMemoryStat,
                                         ExperimentKind::kLruFileReadTwice,
                                         ExperimentKind::kMix};

// All streams of one node, one after the other.
class InProcess {
 public:
  explicit InProcess(const Case& measured, uint32_t batch_events = 500) : case_(measured) {
    node_ = *core::Node::Create(*server::ToCore(measured.spec));
    for (uint32_t stream = 0; stream < measured.streams; ++stream) {
      generators_.push_back(NewGenerator(measured, {stream, measured.streams, batch_events, 42}));
      streams_.push_back(node_->OpenStream("s" + std::to_string(stream)));
    }
    ApplyAll(0, generators_[0]->SetUpNode());
    for (uint32_t i = 0; i < streams_.size(); ++i) ApplyAll(i, generators_[i]->SetUp());
  }

  void Apply(size_t stream, const v1::Batch& batch) {
    server::BatchWork work;
    const absl::Status status = server::ApplyBatch(node_.get(), streams_[stream], batch, &work);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < outcomes.size(); ++i) outcomes[i] += work.result.outcomes[i];
  }
  void ApplyAll(size_t stream, const std::vector<v1::Batch>& batches) {
    for (const v1::Batch& batch : batches) Apply(stream, batch);
  }
  void Run(int rounds) {
    v1::Batch batch;
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < streams_.size(); ++i) {
        units += generators_[i]->Fill(&batch);
        events += EventsOf(batch);
        Apply(i, batch);
      }
    }
  }
  void TearDown() {
    for (size_t i = 0; i < streams_.size(); ++i) ApplyAll(i, generators_[i]->TearDown());
    ApplyAll(0, generators_[0]->TearDownNode());
  }
  uint64_t NotOk() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < outcomes.size(); ++i) sum += i == v1::OUTCOME_OK ? 0 : outcomes[i];
    return sum;
  }
  core::Node& node() { return *node_; }
  int64_t Stat(const std::string& path, std::string_view name) {
    const auto reading = node_->ReadCgroup(path, false, false);
    EXPECT_TRUE(reading.ok()) << reading.status();
    for (const core::StatLine& line : reading->stat) {
      if (line.first == name) return line.second;
    }
    return -1;
  }

  std::array<uint64_t, core::kOutcomes> outcomes{};
  uint64_t units = 0, events = 0;

 private:
  const Case case_;
  std::unique_ptr<core::Node> node_;
  std::vector<std::unique_ptr<Generator>> generators_;
  std::vector<core::EventStream*> streams_;
};

// Nothing but freed pages that wait in a CPU's batch of additions to the LRU lists (31 at most, as in the
// kernel), which hold their cgroup.
void ExpectEmpty(InProcess* run) {
  const core::NodeInfo info = run->node().Info();
  EXPECT_EQ(info.cgroups, 1u) << "the root";
  EXPECT_EQ(info.processes, 0u);
  EXPECT_LE(info.resident_pages, 31u * info.config.cpus);
  EXPECT_LE(info.dying_cgroups, info.resident_pages);
  EXPECT_EQ(run->node().CheckInvariants(), "");
}

TEST(GeneratorTest, EveryEventIsOkAndNothingIsLeftBehind) {
  for (ExperimentKind kind : kSynthetic) {
    for (int rounds : {0, 1, 2, 7}) {  // wherever the cycle is cut
      SCOPED_TRACE(std::string(InfoOf(kind).name) + ", " + std::to_string(rounds));
      InProcess run(SmallCase(kind));
      run.Run(rounds);
      run.TearDown();
      EXPECT_EQ(run.NotOk(), 0u);
      ExpectEmpty(&run);
      EXPECT_EQ(run.node().Info().committed_as_bytes, 0u);
    }
  }
}

TEST(GeneratorTest, TheSameSeedIsTheSameEvents) {
  for (ExperimentKind kind : kSynthetic) {
    const Case measured = SmallCase(kind);
    auto one = NewGenerator(measured, {1, 3, 500, 42}), two = NewGenerator(measured, {1, 3, 500, 42});
    for (int i = 0; i < 5; ++i) {
      v1::Batch first, second;
      EXPECT_EQ(one->Fill(&first), two->Fill(&second));
      EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
    }
  }
}

TEST(GeneratorTest, ABatchIsFilledWithoutNewMemory) {
  for (ExperimentKind kind : kSynthetic) {
    auto generator = NewGenerator(SmallCase(kind), {1, 3, 500, 42});
    v1::Batch batch;
    generator->Fill(&batch);
    const uint64_t* words = batch.words().data();
    for (int i = 0; i < 20; ++i) {
      generator->Fill(&batch);
      EXPECT_EQ(batch.words().data(), words) << InfoOf(kind).name;
    }
  }
}

TEST(GeneratorTest, PftFaultsFreshMemoryInACgroup) {
  InProcess run(SmallCase(ExperimentKind::kPft));
  run.Run(10);
  EXPECT_EQ(run.Stat("/pft", "pgfault"), static_cast<int64_t>(run.units));
  EXPECT_EQ(run.node().Info().processes, 1u) << "threads of one process";
}

TEST(GeneratorTest, MultiFaultAllSplitHasOneAreaForAll) {
  InProcess run(SmallCase(ExperimentKind::kMultiFaultAllSplit));
  run.Run(10);
  EXPECT_EQ(run.Stat("/multi-fault-all-split", "pgfault"), static_cast<int64_t>(run.units));
  EXPECT_EQ(run.node().Info().committed_as_bytes, 3u * 512 * 4096);
}

TEST(GeneratorTest, EveryPageIsReadTwiceAndActivated) {
  InProcess run(SmallCase(ExperimentKind::kLruFileReadTwice));
  run.Run(4);
  EXPECT_GT(run.Stat("/", "pgactivate"), 0);
  EXPECT_NEAR(static_cast<double>(run.units) / static_cast<double>(run.events), 2.0 * 32 / 34, 0.2);
}

TEST(GeneratorTest, OneIdleCgroupInTenIsDying) {
  InProcess run(SmallCase(ExperimentKind::kMemoryStat));
  const core::NodeInfo info = run.node().Info();
  EXPECT_EQ(info.dying_cgroups, 2u);
  run.Run(1);
  EXPECT_GT(run.Stat(FileGenerator::kRoot, "file"), 0) << "read five levels deep";
  EXPECT_GT(run.Stat("/memory-stat/b/c/d/reader-1", "file"), 0);
}

TEST(GeneratorTest, MixDoesWhatItsWeightsSay) {
  auto weights = ParseMixWeights("fault=3,read=1");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->fork, 0u);
  Case measured = SmallCase(ExperimentKind::kMix);
  measured.weights = *weights;
  auto generator = NewGenerator(measured, {0, 1, 8192, 1});
  v1::Batch batch;
  uint64_t faults = 0, reads = 0;
  for (int i = 0; i < 20; ++i) {
    generator->Fill(&batch);
    for (int word = 0; word < batch.words_size(); word += 2) {
      faults += (batch.words(word) & 63) == static_cast<uint64_t>(WordKind::kFault);
      reads += (batch.words(word) & 63) == static_cast<uint64_t>(WordKind::kFileRead);
    }
  }
  EXPECT_NEAR(static_cast<double>(faults) / static_cast<double>(reads), 3, 0.2);
  for (const char* wrong : {"", "fault", "fault=", "fault=x", "fault=0", "swap=1", "fault=1,", "fault=-1"}) {
    EXPECT_FALSE(ParseMixWeights(wrong).ok()) << wrong;
  }
}

TEST(ReplayCopiesTest, CopiesDoNotMeetAndLeaveNothingBehind) {
  for (const char* trace : {"anon", "cow", "dying"}) {
    SCOPED_TRACE(trace);
    const Case measured = SmallCase(ExperimentKind::kReplay, trace);
    const int batches = static_cast<int>(measured.recording->batches.size());
    InProcess once(measured, 512), thrice(measured, 512);
    once.Run(batches);
    thrice.Run(3 * batches);
    once.TearDown();
    thrice.TearDown();
    for (size_t i = 0; i < once.outcomes.size(); ++i) {
      if (i == v1::OUTCOME_OK) continue;
      EXPECT_EQ(thrice.outcomes[i], 3 * once.outcomes[i])
          << "outcome " << i << ": every copy goes as the first";
    }
    ExpectEmpty(&thrice);
  }
}

TEST(ReplayCopiesTest, AFileThatIsNoTraceIsNamed) {
  const auto recording = ReadRecording("/nowhere/trace", 512);
  ASSERT_FALSE(recording.ok());
  EXPECT_NE(recording.status().message().find("/nowhere/trace"), std::string::npos);
}

TEST(CasesTest, AsTheExperimentsSay) {
  std::vector<uint32_t> threads;
  for (const Case& row : CasesOf(ExperimentKind::kPft, {}, "", {})) threads.push_back(row.streams);
  EXPECT_EQ(threads, (std::vector<uint32_t>{1, 3, 5, 7, 8}));
  EXPECT_EQ(CasesOf(ExperimentKind::kMultiFaultAllSplit, {}, "", {}).front().streams, 8u);
  EXPECT_EQ(CasesOf(ExperimentKind::kLruFileReadTwice, {}, "", {}).front().cgroups, 104u);
  EXPECT_EQ(CasesOf(ExperimentKind::kMemoryStat, {}, "", {}).size(), 9u) << "10, 1000, 15000 × 0, 1, 10";
}

// The knee of mmap1: the batch is RAM / CPUs / 256 with small, and RAM / CPUs / 4 with by_policy.
TEST(CasesTest, ALiftIsSoManyTimesTheSmallBatchInBothForms) {
  for (const Forms& forms : {Forms{}, Forms{{"commit_batch", "small"}}}) {
    Settings settings;
    settings.sizes_bytes = {1 << 20};
    const uint64_t divisor = forms.empty() ? 4 : 256;
    std::vector<uint64_t> batches;
    for (const Case& row : CasesOf(ExperimentKind::kMmap1, settings, "", forms)) {
      batches.push_back(row.spec.memory_bytes() / 4096 / row.spec.cpus() / divisor);
    }
    EXPECT_EQ(batches, (std::vector<uint64_t>{2048, 16 * 2048, 64 * 2048}));
  }
}

}  // namespace
}  // namespace memcgd::client::loadgen
