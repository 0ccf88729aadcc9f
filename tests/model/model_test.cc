// Seeded random events, sensible and hostile, go to the naive model and to the real node; every statistic of
// every cgroup is equal at every mark, however the events are cut into batches, and over a save and load.
//
// A failure prints its seed; MEMCGD_SEED=<seed> runs that one alone, MEMCGD_SEEDS=<n> as many. MEMCGD_MARKS=1
// asks for a mark after every event, so that the first failure names the event that did it.
#include "tests/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/memcg_stats.h"
#include "core/node.h"
#include "tests/core/event_log.h"

namespace memcgd::core {
namespace {

constexpr size_t kEventsPerSeed = 2000;
constexpr uint32_t kDrainer = 999;  // a thread that nothing else uses
const std::vector<std::string> kPaths = {"/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f/g", "/h", "/drain"};
constexpr uint32_t kDrainPath = 8;  // its handle
constexpr uint32_t kFiles = 5;      // handles 1 … 5, of which the last two are tmpfs

struct Expectation {
  std::map<std::string, model::Stats> stats;
  int64_t committed_pages = 0;
};

// A random sequence of events and what the model says at its marks.
class Sequence {
 public:
  explicit Sequence(uint64_t seed)
      : random_(seed), config_(MakeConfig()), log_(Shift()), model_(ModelConfig()) {
    for (size_t i = 0; i < kPaths.size(); ++i)
      Do([&] { log_.DefinePath(static_cast<uint32_t>(i) + 1, kPaths[i]); });
    for (uint32_t i = 1; i <= kFiles; ++i) Do([&] { log_.DefineFile(i, 0x800001, i, i > kFiles - 2); });
    for (uint32_t i = 1; i <= 3; ++i) Do([&] { log_.CgroupCreate(i); });
    while (log_.steps().size() - expected_.size() < kEventsPerSeed) {
      log_.OnCpu(Below(config_.cpus));
      if (Below(100) == 0) Mark();
      if (mark_all_ && log_.steps().size() > 20) Mark();
      Do([&] { Below(10) == 0 ? Hostile() : Sensible(); });
    }
    // Every CPU gives up its batches and its stock, so that what is charged is what is used.
    for (uint32_t cpu = 0; cpu < config_.cpus; ++cpu) {
      log_.OnCpu(cpu);
      Do([&] { log_.ReclaimBegin(kDrainer); });
      Do([&] { log_.ReclaimEnd(kDrainer); });
    }
    Do([&] { log_.CgroupCreate(kDrainPath); });
    Do([&] { log_.CgroupRemove(kDrainPath); });
    Mark();
  }

  const NodeConfig& config() const { return config_; }
  const std::vector<Step>& steps() const { return log_.steps(); }
  const std::vector<Expectation>& expected() const { return expected_; }
  const model::Model& model() const { return model_; }

 private:
  NodeConfig MakeConfig() {
    NodeConfig config;
    config.cpus = 1 + Below(4);
    config.zero_page = Below(2) == 0;
    config.page_size = Below(8) == 0 ? 65536 : 4096;
    config.memory_bytes = uint64_t{1} << 40;
    return config;
  }
  uint32_t Shift() const { return config_.page_size == 4096 ? 12 : 16; }
  model::Model::Config ModelConfig() const { return {Shift(), 0, config_.zero_page}; }

  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  template <typename T>
  const T& OneOf(const std::vector<T>& values) {
    return values[Below(static_cast<uint32_t>(values.size()))];
  }

  // Applies to the model what `emit` adds to the log.
  template <typename Emit>
  void Do(Emit emit) {
    size_t from = log_.steps().size();
    emit();
    for (size_t i = from; i < log_.steps().size(); ++i) {
      const Step& step = log_.steps()[i];
      step.wide == nullptr ? model_.Apply(step.event) : model_.Apply(*step.wide);
    }
  }
  void Mark() {
    log_.Mark(expected_.size());
    expected_.push_back({model_.Read(), model_.CommittedPages()});
  }

  std::vector<uint32_t> LiveThreads() {
    std::vector<uint32_t> tids;
    for (const auto& [tid, thread] : model_.threads()) {
      if (tid != kDrainer && model_.Alive(tid) != nullptr) tids.push_back(tid);
    }
    return tids;
  }
  uint32_t LiveThread() {
    std::vector<uint32_t> tids = LiveThreads();
    return tids.empty() ? 10 : OneOf(tids);
  }
  // An id that may or may not be in use.
  uint32_t AnyThread() { return 10 + Below(20); }
  uint32_t AnyFile() { return 1 + Below(kFiles); }
  uint32_t AnyIndex() { return Below(48); }
  uint32_t AnyPath() { return 1 + Below(static_cast<uint32_t>(kPaths.size()) - 1); }
  uint32_t AnyOrder() { return Below(4) == 0 ? 1 + Below(3) : 0; }
  // Few places, so that areas overlap; some at the ends of page-table leaves.
  uint64_t AnyPage() { return (1 + Below(3)) * 512 + 480 + Below(64); }

  const model::Mm* Space(uint32_t tid) {
    const model::Thread* thread = model_.Alive(tid);
    return thread == nullptr ? nullptr : thread->process->mm;
  }
  const model::Area* AreaAt(uint32_t tid, uint64_t page) {
    const model::Mm* mm = Space(tid);
    if (mm == nullptr) return nullptr;
    for (const auto& [first, area] : mm->areas) {
      if (page >= area.first && page < area.end) return &area;
    }
    return nullptr;
  }
  const model::Area* AnyArea(uint32_t tid) {
    const model::Mm* mm = Space(tid);
    if (mm == nullptr || mm->areas.empty()) return nullptr;
    return &std::next(mm->areas.begin(), Below(static_cast<uint32_t>(mm->areas.size())))->second;
  }
  uint32_t HandleOf(const model::File* file) {
    for (uint32_t handle = 1; handle <= kFiles; ++handle) {
      if (model_.FileOf(handle) == file) return handle;
    }
    return 0;
  }

  // One step or a few that belong together, as a trace has them.
  void Sensible() {
    uint32_t tid = LiveThread();
    switch (Below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return Touch(tid);
      case 5:
        return NewProcess(tid);
      case 6:
        return EndThread(tid);
      case 7:
      case 8:
        return NewArea(tid);
      case 9:
      case 10:
        return ChangeArea(tid);
      case 11:
      case 12:
      case 13:
        return MapFileFault(tid);
      case 14:
        return log_.FileAdd(Below(4) == 0 ? 0 : tid, AnyFile(), AnyIndex(), AnyOrder());
      case 15:
        return log_.FileDelete(Below(4) == 0 ? 0 : tid, AnyFile(), AnyIndex(), AnyOrder());
      case 16:
        return Below(2) == 0 ? log_.FileDirty(tid, AnyFile(), AnyIndex())
                             : log_.Readahead(tid, AnyFile(), AnyIndex());
      case 17:
        return log_.FileRead(tid, AnyFile(), AnyIndex(), 1 + Below(8));
      case 18:
        if (Below(16) == 0) return log_.SetOomScoreAdj(AnyThread(), static_cast<int32_t>(Below(2001)) - 1000);
        return Below(2) == 0 ? Cgroups(tid) : Baselines(tid);
      default:
        return Below(3) == 0 ? Policy() : Reclaim(tid);
    }
  }

  // The page of a touch lies in an area, or its thread waits for no page of a file (where no area tells, the
  // node goes by heuristics, which the model leaves out).
  bool Guessed(uint32_t tid, uint64_t page) {
    const model::Thread* thread = model_.Alive(tid);
    return thread != nullptr && thread->map_file != nullptr && AreaAt(tid, page) == nullptr;
  }
  void Touch(uint32_t tid) {
    const model::Area* area = AnyArea(tid);
    uint64_t page = AnyPage();
    if (area != nullptr && Below(8) > 0)
      page = area->first + Below(static_cast<uint32_t>(area->end - area->first));
    if (Guessed(tid, page)) return;
    Fault(tid, page);
  }
  void Fault(uint32_t tid, uint64_t page) {
    uint32_t code = kFaultUser | (Below(3) > 0 ? kFaultWrite : 0) | (Below(6) == 0 ? kFaultProtection : 0);
    log_.Fault(tid, page, code);
  }

  void NewProcess(uint32_t tid) {
    uint32_t child = AnyThread();
    if (child == tid) return;
    switch (Below(5)) {
      case 0:
        return log_.CloneThread(tid, child);
      case 1:
        return log_.Vfork(tid, child);
      case 2:
        return log_.Exec(tid, 1 + Below(3));
      case 3:
        return log_.Wide(tid, wide::Exec{0});
      default:
        return log_.Fork(tid, child);
    }
  }
  void EndThread(uint32_t tid) {
    if (LiveThreads().size() < 6 && Below(3) > 0) return;
    switch (Below(3)) {
      case 0:
        return log_.Exit(tid);
      case 1:
        return log_.ExitThread(tid);
      default:
        return log_.Wide(tid, wide::Exit{true});
    }
  }

  void NewArea(uint32_t tid) {
    uint64_t page = AnyPage(), pages = 1 + Below(24);
    if (Below(4) == 0) return log_.MmapAnon(tid, page, pages);
    if (Below(10) == 0) return log_.Brk(tid, page);
    uint32_t prot = kProtRead | (Below(3) > 0 ? kProtWrite : 0);
    uint32_t flags = (Below(2) == 0 ? kMapShared : kMapPrivate) | (Below(2) == 0 ? kMapAnonymous : 0) |
                     (Below(6) == 0 ? kMapNoReserve : 0) | (Below(8) == 0 ? kMapPopulate : 0) |
                     (Below(8) == 0 ? kMapLocked : 0) | kMapFixed;
    uint32_t file = (flags & kMapAnonymous) != 0 ? 0 : AnyFile();
    log_.Mmap(tid, page, pages, prot, flags, file, Below(40));
  }

  void ChangeArea(uint32_t tid) {
    const model::Area* area = AnyArea(tid);
    if (area == nullptr) return NewArea(tid);
    uint64_t size = area->end - area->first;
    uint64_t page = area->first + Below(static_cast<uint32_t>(size));
    uint64_t pages = 1 + Below(static_cast<uint32_t>(area->end - page));
    switch (Below(10)) {
      case 0:
        return log_.Munmap(tid, page, pages);
      case 1:
        return log_.DontNeed(tid, page, pages);
      case 2:
        return log_.Mprotect(tid, page, pages, Below(2) == 0 ? kProtRead : kProtRead | kProtWrite);
      case 3:
        return log_.Mlock(tid, page, pages, Below(3) == 0);
      case 4:
        return log_.Munlock(tid, page, pages);
      case 5:
        return log_.Madvise(tid, page, pages,
                            OneOf(std::vector<uint32_t>{kMadvFree, kMadvRemove, kMadvDontNeed}));
      case 6:
        return log_.Madvise(tid, page, pages, Below(2) == 0 ? kMadvPopulateRead : kMadvPopulateWrite);
      case 7:
        return log_.Mremap(tid, page, pages, page, 1 + Below(20));
      case 8:
        return log_.Mremap(tid, page, pages, AnyPage() + 2048, 1 + Below(20));
      default:
        return log_.Mremap(tid, page, pages, AnyPage() + 2048, pages, kMremapDontUnmap);
    }
  }

  // The events of a fault on a page of a file: hints, a page read in on a miss, the hint again, the fault.
  void MapFileFault(uint32_t tid) {
    const model::Area* area = AnyArea(tid);
    uint32_t file = area == nullptr ? 0 : HandleOf(area->file);
    if (file == 0) return NewArea(tid);
    uint64_t page = area->first + Below(static_cast<uint32_t>(area->end - area->first));
    uint32_t index = static_cast<uint32_t>(area->file_index + (page - area->first));
    if (Below(3) == 0) {
      uint32_t first = index - std::min(index, Below(8));
      log_.MapPages(tid, file, first, 1 + Below(16));
      if (Below(2) == 0) return Fault(tid, page);
    }
    log_.FileFault(tid, file, index);
    const model::File& cache = *model_.FileOf(file);
    if (!cache.pages.contains(index) && Below(8) > 0) {
      uint32_t order = AnyOrder();
      log_.FileAdd(tid, file, index >> order << order, order);
      log_.FileFault(tid, file, index);
    }
    if (Below(8) > 0) Fault(tid, page);
  }

  void Cgroups(uint32_t tid) {
    switch (Below(4)) {
      case 0:
        return log_.CgroupCreate(AnyPath());
      case 1:
        return log_.CgroupRemove(AnyPath());
      default:
        return log_.Attach(AnyPath(), tid);
    }
  }
  void Baselines(uint32_t tid) {
    switch (Below(4)) {
      case 0:
        return log_.Wide(AnyThread(), wide::BaselineProcess{AnyThread(), Below(2) == 0 ? 0 : AnyPath(), 0});
      case 1:
        return log_.Wide(
            0, wide::BaselineCached{AnyFile(), AnyIndex(), 1 + Below(40), Below(2) == 0 ? 0 : AnyPath(),
                                    Below(2) == 0, Below(2) == 0});
      default: {
        const model::Area* area = AnyArea(tid);
        if (area == nullptr) return;
        log_.Wide(tid, wide::BaselinePresent{area->first << Shift(), area->end - area->first, Below(2) == 0});
      }
    }
  }
  void Policy() {
    OvercommitPolicy policy = OneOf(std::vector<OvercommitPolicy>{
        OvercommitPolicy::kGuess, OvercommitPolicy::kAlways, OvercommitPolicy::kNever});
    log_.Wide(0, wide::SetOvercommit{policy, 0, uint64_t{1} << 40});
  }
  void Reclaim(uint32_t tid) {
    log_.ReclaimBegin(tid);
    log_.FileDelete(tid, AnyFile(), AnyIndex(), 0);
    if (Below(4) > 0) log_.ReclaimEnd(tid);
  }

  // Events that no sane trace holds, but a broken or truncated one does.
  void Hostile() {
    uint32_t tid = AnyThread();
    switch (Below(12)) {
      case 0:
        return log_.Exit(tid);
      case 1:
        return log_.ExitThread(tid);
      case 2:
        return log_.Wide(tid, wide::ExitMmap{});
      case 3: {
        uint64_t page = AnyPage();
        return Guessed(tid, page) ? void() : Fault(tid, page);
      }
      case 4:
        return log_.Munmap(tid, AnyPage(), 1 + Below(2000));
      case 5:
        return log_.MmapAnon(tid, AnyPage(), 1 + Below(40));
      case 6:
        return log_.FileFault(tid, AnyFile(), AnyIndex());
      case 7:
        return log_.FileDelete(AnyThread(), AnyFile(), AnyIndex(), Below(5));
      case 8:
        return log_.FileAdd(AnyThread(), AnyFile(), AnyIndex(), Below(6));
      case 9:
        return tid == 15 ? void() : log_.Fork(tid, 15);
      case 10:
        return log_.CgroupRemove(AnyPath());
      default:
        return log_.Mprotect(tid, AnyPage(), 1 + Below(200), Below(8));
    }
  }

  const bool mark_all_ = std::getenv("MEMCGD_MARKS") != nullptr;
  std::mt19937_64 random_;
  const NodeConfig config_;
  EventLog log_;
  model::Model model_;
  std::vector<Expectation> expected_;
};

std::map<std::string, int64_t> Lines(const model::Stats& stats, int64_t page_size) {
  return {{"anon", stats.anon * page_size},
          {"file", stats.file * page_size},
          {"shmem", stats.shmem * page_size},
          {"file_mapped", stats.file_mapped * page_size},
          {"file_dirty", stats.file_dirty * page_size},
          {"pagetables", stats.pagetables * page_size},
          {"kernel_stack", stats.kernel_stack * page_size},
          {"pgfault", stats.pgfault},
          {"pgmajfault", stats.pgmajfault}};
}

// What stands before the mark, for the reader of a failure.
std::string Before(const Sequence& sequence, uint64_t mark) {
  std::string text = "after";
  const std::vector<Step>& steps = sequence.steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    const wide::Mark* found =
        steps[i].wide == nullptr ? nullptr : std::get_if<wide::Mark>(&steps[i].wide->body);
    if (found == nullptr || found->id != mark) continue;
    for (size_t j = i - std::min<size_t>(i, 6); j < i; ++j) {
      const Event& event = steps[j].event;
      if (const WideEvent* wide = steps[j].wide.get()) {
        text +=
            "\n  wide body " + std::to_string(wide->body.index()) + " of thread " + std::to_string(wide->tid);
        if (auto* map = std::get_if<wide::Mmap>(&wide->body)) {
          text += ": mmap page " + std::to_string(map->address >> 12) + " + " +
                  std::to_string(map->length >> 12) + " prot " + std::to_string(map->prot) + " flags " +
                  std::to_string(map->flags) + " file " + std::to_string(map->file);
        }
      } else {
        text += "\n  kind " + std::to_string(static_cast<int>(event.kind())) + " of thread " +
                std::to_string(event.tid()) + ": body " + std::to_string(event.page_number()) + " + " +
                std::to_string(event.pages()) + ", address " + std::to_string(event.address() >> 12) +
                " code " + std::to_string(event.error_code()) + ", file " + std::to_string(event.file()) +
                " index " + std::to_string(event.index()) + " extra " + std::to_string(event.extra());
      }
    }
  }
  return text;
}

void ExpectMark(const Sequence& sequence, const MarkState& mark, const Expectation& expected) {
  int64_t page_size = sequence.config().page_size;

  EXPECT_EQ(mark.committed_as_bytes, static_cast<uint64_t>(expected.committed_pages * page_size))
      << "at mark " << mark.id << " " << Before(sequence, mark.id);
  ASSERT_EQ(mark.cgroups.size(), expected.stats.size()) << "at mark " << mark.id;
  for (const CgroupState& cgroup : mark.cgroups) {
    auto found = expected.stats.find(cgroup.path);
    ASSERT_NE(found, expected.stats.end()) << cgroup.path;
    std::map<std::string, int64_t> lines = Lines(found->second, page_size);
    for (size_t i = 0; i < MemoryStatNames().size(); ++i) {
      auto line = lines.find(std::string(MemoryStatNames()[i]));
      if (line == lines.end()) continue;
      EXPECT_EQ(cgroup.stat[i], line->second) << "at mark " << mark.id << ", " << cgroup.path << " "
                                              << line->first << " " << Before(sequence, mark.id);
    }
  }
}

// After the drains at the sequence's end: pages in and out, and what is charged.
void ExpectDrained(const Sequence& sequence, Node& node) {
  uint64_t page_size = sequence.config().page_size;
  std::map<std::string, model::Stats> recursive = sequence.model().Read();
  for (const auto& [path, local] : sequence.model().ReadLocal()) {
    absl::StatusOr<CgroupReading> reading = node.ReadCgroup(path, false, true);
    ASSERT_TRUE(reading.ok()) << reading.status();
    const model::Stats& total = recursive.at(path);
    std::map<std::string, int64_t> lines = {
        {"pgpgin", local.pgpgin},         {"total_pgpgin", total.pgpgin},
        {"pgpgout", local.pgpgout},       {"total_pgpgout", total.pgpgout},
        {"pgfault", local.pgfault},       {"total_pgfault", total.pgfault},
        {"pgmajfault", local.pgmajfault}, {"total_pgmajfault", total.pgmajfault}};
    size_t compared = 0;
    for (const auto& [name, value] : reading->stat) {
      auto line = lines.find(std::string(name));
      if (line == lines.end()) continue;
      ++compared;
      EXPECT_EQ(value, line->second) << path << " " << name;
    }
    EXPECT_EQ(compared, lines.size());
    if (path != "/") {
      EXPECT_EQ(reading->current_bytes, static_cast<uint64_t>(total.charged) * page_size) << path;
    }
  }
}

struct Run {
  std::unique_ptr<Node> node;
  EventStream* stream = nullptr;
  BatchResult result;
};

Run Start(const Sequence& sequence, const Mechanisms& mechanisms = {}) {
  Run run;
  NodeConfig config = sequence.config();
  config.mechanisms = mechanisms;
  run.node = *Node::Create(config);
  run.stream = run.node->OpenStream("events");
  return run;
}

void ExpectMarks(const Sequence& sequence, const BatchResult& result) {
  ASSERT_EQ(result.marks.size(), sequence.expected().size());
  for (size_t i = 0; i < result.marks.size() && !testing::Test::HasFailure(); ++i) {
    ExpectMark(sequence, result.marks[i], sequence.expected()[i]);
  }
}

void CheckSeed(uint64_t seed) {
  SCOPED_TRACE("MEMCGD_SEED=" + std::to_string(seed));
  Sequence sequence(seed);
  const std::vector<Step>& steps = sequence.steps();
  uint64_t hash = 0;
  for (size_t batch : {size_t{8192}, size_t{7}, size_t{1}}) {
    SCOPED_TRACE("batches of " + std::to_string(batch));
    Run run = Start(sequence);
    absl::Status status = ApplySteps(*run.node, run.stream, steps, 0, steps.size(), batch, &run.result);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(run.node->CheckInvariants(), "");
    ExpectMarks(sequence, run.result);
    ExpectDrained(sequence, *run.node);
    if (batch == 8192) hash = run.node->StateHash();
    ASSERT_EQ(run.node->StateHash(), hash);
    if (testing::Test::HasFailure()) return;
  }
  SCOPED_TRACE("saved and loaded in the middle");
  Run run = Start(sequence);
  size_t middle = steps.size() / 2;
  ASSERT_TRUE(ApplySteps(*run.node, run.stream, steps, 0, middle, 100, &run.result).ok());
  ASSERT_EQ(run.node->CheckInvariants(), "");
  std::string saved = run.node->Save();
  absl::StatusOr<std::unique_ptr<Node>> loaded = Node::Load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ((*loaded)->CheckInvariants(), "");
  ASSERT_TRUE((*loaded)->Save() == saved);
  run.node = *std::move(loaded);
  run.stream = run.node->OpenStream("events");
  ASSERT_TRUE(ApplySteps(*run.node, run.stream, steps, middle, steps.size(), 100, &run.result).ok());
  ASSERT_EQ(run.node->CheckInvariants(), "");
  ExpectMarks(sequence, run.result);
  ASSERT_EQ(run.node->StateHash(), hash);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 40;  // ten times slower there
constexpr uint64_t kFormSeeds = 4;
#else
constexpr uint64_t kSeeds = 200;
constexpr uint64_t kFormSeeds = 20;
#endif

// Each mechanism's older form, alone, and all at once.
std::map<std::string, Mechanisms> OlderForms() {
  std::map<std::string, Mechanisms> forms;
  forms["uptodate_first"].charge_order = ChargeOrder::kUptodateFirst;
  forms["small"].commit_batch = CommitBatch::kSmall;
  forms["per_page"].css_refs = CssRefs::kPerPage;
  forms["walk"].stats = StatsForm::kWalk;
  forms["rstat"].stats = StatsForm::kRstat;
  forms["per_node"].lru_lock = LruLock::kPerNode;
  forms["all"] = {ChargeOrder::kUptodateFirst, CommitBatch::kSmall, CssRefs::kPerPage, StatsForm::kRstat,
                  LruLock::kPerNode};
  return forms;
}

// Every line of every mark; with `walk` a freed cgroup's events are gone, states are not.
void ExpectSameMarks(const BatchResult& result, const BatchResult& defaults, bool walk) {
  ASSERT_EQ(result.marks.size(), defaults.marks.size());
  for (size_t i = 0; i < result.marks.size() && !testing::Test::HasFailure(); ++i) {
    const MarkState& mark = result.marks[i];
    EXPECT_EQ(mark.committed_as_bytes, defaults.marks[i].committed_as_bytes);
    ASSERT_EQ(mark.cgroups.size(), defaults.marks[i].cgroups.size());
    for (size_t j = 0; j < mark.cgroups.size(); ++j) {
      const CgroupState& expected = defaults.marks[i].cgroups[j];
      ASSERT_EQ(mark.cgroups[j].path, expected.path);
      for (size_t line = 0; line < expected.stat.size(); ++line) {
        if (walk && UnitOf(static_cast<Stat>(line)) == StatUnit::kCount) {
          EXPECT_LE(mark.cgroups[j].stat[line], expected.stat[line]) << MemoryStatNames()[line];
          continue;
        }
        EXPECT_EQ(mark.cgroups[j].stat[line], expected.stat[line])
            << "mark " << mark.id << " " << expected.path << " " << MemoryStatNames()[line];
      }
    }
  }
}

void CheckForms(uint64_t seed) {
  SCOPED_TRACE("MEMCGD_SEED=" + std::to_string(seed));
  Sequence sequence(seed);
  const std::vector<Step>& steps = sequence.steps();
  Run defaults = Start(sequence);
  ASSERT_TRUE(
      ApplySteps(*defaults.node, defaults.stream, steps, 0, steps.size(), 8192, &defaults.result).ok());
  for (const auto& [name, mechanisms] : OlderForms()) {
    SCOPED_TRACE(name);
    uint64_t hash = 0;
    for (size_t batch : {size_t{8192}, size_t{7}}) {
      Run run = Start(sequence, mechanisms);
      ASSERT_TRUE(ApplySteps(*run.node, run.stream, steps, 0, steps.size(), batch, &run.result).ok());
      ASSERT_EQ(run.node->CheckInvariants(), "");
      bool walk = mechanisms.stats == StatsForm::kWalk;
      ExpectSameMarks(run.result, defaults.result, walk);
      if (!walk) ExpectDrained(sequence, *run.node);
      std::string saved = run.node->Save();
      absl::StatusOr<std::unique_ptr<Node>> loaded = Node::Load(saved);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      ASSERT_EQ((*loaded)->CheckInvariants(), "");
      ASSERT_TRUE((*loaded)->Save() == saved);
      if (batch == 8192) hash = run.node->StateHash();
      ASSERT_EQ(run.node->StateHash(), hash);
    }
  }
}

TEST(ModelTest, OlderFormsOfTheMechanismsGiveTheSameAnswers) {
  if (const char* seed = std::getenv("MEMCGD_SEED")) return CheckForms(std::strtoull(seed, nullptr, 10));
  for (uint64_t seed = 1; seed <= kFormSeeds && !HasFailure(); ++seed) CheckForms(seed);
}

TEST(ModelTest, EveryStatisticIsTheModelsHoweverEventsAreCutAndOverSaveAndLoad) {
  if (const char* seed = std::getenv("MEMCGD_SEED")) return CheckSeed(std::strtoull(seed, nullptr, 10));
  const char* count = std::getenv("MEMCGD_SEEDS");
  uint64_t seeds = count == nullptr ? kSeeds : std::strtoull(count, nullptr, 10);
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) CheckSeed(seed);
}

}  // namespace
}  // namespace memcgd::core
