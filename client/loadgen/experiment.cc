#include "client/loadgen/experiment.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/loadgen/event_words.h"
#include "client/loadgen/fault_generator.h"
#include "client/loadgen/file_generator.h"
#include "client/loadgen/mmap_generator.h"

namespace memcgd::client::loadgen {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

template <typename T>
std::vector<T> Or(const std::vector<T>& given, std::vector<T> otherwise) {
  return given.empty() ? otherwise : given;
}

std::string Plural(uint32_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "4 KiB", "1 GiB".
std::string SizeText(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; unit < 3 && bytes % 1024 == 0 && bytes != 0; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, " ", units[unit]);
}

Case NewCase(ExperimentKind kind, uint32_t streams, uint32_t cpus, uint64_t memory_bytes) {
  Case made;
  made.kind = kind;
  made.streams = streams;
  made.spec.set_cpus(std::max(cpus, std::min<uint32_t>(streams, 1024)));
  made.spec.set_memory_bytes(memory_bytes);
  return made;
}

// One row for each number of threads.
std::vector<Case> ThreadCases(ExperimentKind kind, const std::vector<uint32_t>& threads, uint64_t pages) {
  std::vector<Case> cases;
  for (uint32_t count : threads) {
    Case row = NewCase(kind, count, 8, 128 * kGiB);
    row.label = Plural(count, "thread");
    row.x = count;
    row.pages = pages;
    cases.push_back(row);
  }
  return cases;
}

// The batch of vm_committed_as is RAM / CPUs / 256 with `small`, and 64 times that with `by_policy`: a lift
// of the small batch is made by a node with so much more (or less) RAM.
uint64_t MemoryForLift(uint32_t lift, bool small) { return lift * (small ? 128 * kGiB : 2 * kGiB); }

std::vector<Case> MmapCases(const Settings& settings, std::string_view compared, const Forms& forms) {
  constexpr uint32_t kModelledCpus = 64;
  const auto chosen = forms.find("commit_batch");
  const bool small = chosen != forms.end() && chosen->second == "small";
  const bool batch_compared = compared == "commit_batch";
  std::vector<uint64_t> sizes;
  for (unsigned shift = 12; shift <= 30; shift += 3) sizes.push_back(uint64_t{1} << shift);
  std::vector<Case> cases;
  for (uint32_t threads : Or(settings.streams, {2})) {
    for (uint32_t lift : batch_compared ? std::vector<uint32_t>{0} : Or(settings.lifts, {1, 16, 64})) {
      for (uint64_t size : Or(settings.sizes_bytes, sizes)) {
        Case row = NewCase(ExperimentKind::kMmap1, threads, kModelledCpus,
                           batch_compared ? 128 * kGiB : MemoryForLift(lift, small));
        row.series = Plural(threads, "thread");
        if (!batch_compared) absl::StrAppend(&row.series, ", lift ", lift);
        row.label = absl::StrCat(SizeText(size), ", ", row.series);
        row.x = static_cast<double>(size);
        row.pages = size / kPageSize;
        cases.push_back(row);
      }
    }
  }
  return cases;
}

std::vector<Case> MemoryStatCases(const Settings& settings) {
  std::vector<Case> cases;
  for (uint32_t threads : Or(settings.streams, {1})) {
    for (uint32_t cgroups : Or(settings.cgroups, {10, 1'000, 15'000})) {
      for (double polls : Or(settings.polls, {0, 1, 10})) {
        Case row = NewCase(ExperimentKind::kMemoryStat, threads, 8, 16 * kGiB);
        row.series = absl::StrFormat("%g reads/s", polls);
        row.label = absl::StrFormat("%d cgroups, %s", cgroups, row.series);
        if (settings.streams.size() > 1) absl::StrAppend(&row.label, ", ", Plural(threads, "thread"));
        row.x = cgroups;
        row.cgroups = cgroups;
        row.polls = polls;
        row.poll_path = FileGenerator::kRoot;
        row.pages = settings.pages != 0 ? settings.pages : 65'536;
        cases.push_back(row);
      }
    }
  }
  return cases;
}

std::vector<Case> ReadTwiceCases(const Settings& settings) {
  std::vector<Case> cases;
  for (uint32_t cgroups : Or(settings.cgroups, {104})) {
    for (uint32_t streams : Or(settings.streams, {settings.cpus})) {
      Case row = NewCase(ExperimentKind::kLruFileReadTwice, std::min(streams, cgroups),
                         std::min(cgroups, 1024u), 128 * kGiB);
      row.label = absl::StrCat(cgroups, " cgroups, ", Plural(row.streams, "stream"));
      row.series = settings.cgroups.size() > 1 ? absl::StrCat(cgroups, " cgroups") : "";
      row.x = row.streams;
      row.cgroups = cgroups;
      row.pages = settings.pages != 0 ? settings.pages : 4096;
      cases.push_back(row);
    }
  }
  return cases;
}

std::vector<Case> MixCases(const Settings& settings) {
  std::vector<Case> cases = ThreadCases(ExperimentKind::kMix, Or(settings.streams, {settings.cpus}), 0);
  for (Case& row : cases) row.weights = settings.weights;
  return cases;
}

std::vector<Case> ReplayCases(const Settings& settings) {
  std::vector<Case> cases;
  for (uint32_t streams : Or(settings.streams, {settings.cpus})) {
    Case row = NewCase(ExperimentKind::kReplay, streams, settings.recording->cpus, 128 * kGiB);
    row.spec.set_cpus(settings.recording->cpus);
    row.label = Plural(streams, "stream");
    row.x = streams;
    row.recording = settings.recording;
    cases.push_back(row);
  }
  return cases;
}

}  // namespace

const std::array<ExperimentInfo, 7>& ExperimentList() {
  static const std::array<ExperimentInfo, 7> list = {{
      {ExperimentKind::kPft, "pft", "Threads of one process fault fresh anonymous memory", "faults",
       "threads"},
      {ExperimentKind::kMmap1, "mmap1", "Each thread maps and unmaps, by size and lift of the commit batch",
       "pairs", "bytes mapped", true},
      {ExperimentKind::kMultiFaultAllSplit, "multi-fault-all-split",
       "8 threads of one process in a cgroup fault in parts of one area", "faults", "threads"},
      {ExperimentKind::kMemoryStat, "memory-stat",
       "A file read five levels deep while memory.stat is polled, beside idle and dying cgroups", "pages",
       "cgroups", true},
      {ExperimentKind::kLruFileReadTwice, "lru-file-readtwice",
       "104 cgroups with two readers each, every file read twice", "pages", "streams"},
      {ExperimentKind::kMix, "mix", "Faults, mmap, munmap, fork and file reads by weight", "events",
       "threads"},
      {ExperimentKind::kReplay, "replay", "A recorded trace, over and over, with its ids rewritten", "events",
       "streams"},
  }};
  return list;
}

const ExperimentInfo& InfoOf(ExperimentKind kind) { return ExperimentList()[static_cast<size_t>(kind)]; }

absl::StatusOr<MixWeights> ParseMixWeights(std::string_view text) {
  MixWeights weights{0, 0, 0, 0, 0};
  const std::pair<std::string_view, uint32_t*> known[] = {{"fault", &weights.fault},
                                                          {"mmap", &weights.mmap},
                                                          {"munmap", &weights.munmap},
                                                          {"fork", &weights.fork},
                                                          {"read", &weights.file_read}};
  uint64_t sum = 0;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(std::string(text), ','))) {
    const size_t equals = item.find('=');
    const auto* found = std::find_if(std::begin(known), std::end(known),
                                     [&](const auto& one) { return one.first == item.substr(0, equals); });
    uint32_t value = 0;
    const char* end = item.data() + item.size();
    const bool number = equals != std::string::npos && found != std::end(known) &&
                        std::from_chars(item.data() + equals + 1, end, value).ptr == end &&
                        equals + 1 < item.size() && value <= 1'000'000;
    if (!number) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", item, "\" is no weight: fault=, mmap=, munmap=, fork= or read= with 0 to 1000000 is wanted"));
    }
    *found->second = value;
    sum += value;
  }
  if (sum == 0) return absl::InvalidArgumentError("all weights are 0");
  return weights;
}

std::vector<Case> CasesOf(ExperimentKind kind, const Settings& settings, std::string_view compared,
                          const Forms& forms) {
  switch (kind) {
    case ExperimentKind::kPft:
      return ThreadCases(kind, Or(settings.streams, {1, 3, 5, 7, 8}),
                         settings.pages != 0 ? settings.pages : 65'536);
    case ExperimentKind::kMultiFaultAllSplit:
      return ThreadCases(kind, Or(settings.streams, {8}), settings.pages != 0 ? settings.pages : 65'536);
    case ExperimentKind::kMmap1:
      return MmapCases(settings, compared, forms);
    case ExperimentKind::kMemoryStat:
      return MemoryStatCases(settings);
    case ExperimentKind::kLruFileReadTwice:
      return ReadTwiceCases(settings);
    case ExperimentKind::kMix:
      return MixCases(settings);
    case ExperimentKind::kReplay:
      return ReplayCases(settings);
  }
  return {};
}

std::unique_ptr<Generator> NewGenerator(const Case& measured, const Part& part) {
  switch (measured.kind) {
    case ExperimentKind::kPft:
      return std::make_unique<FaultGenerator>(FaultGenerator::Area::kOwn, measured.pages,
                                              measured.spec.cpus(), part);
    case ExperimentKind::kMultiFaultAllSplit:
      return std::make_unique<FaultGenerator>(FaultGenerator::Area::kPartOfOne, measured.pages,
                                              measured.spec.cpus(), part);
    case ExperimentKind::kMmap1:
      return std::make_unique<MmapGenerator>(measured.pages, measured.spec.cpus(), part);
    case ExperimentKind::kMemoryStat:
      return std::make_unique<FileGenerator>(measured.pages, measured.cgroups, measured.spec.cpus(), part);
    case ExperimentKind::kLruFileReadTwice:
      return std::make_unique<ReadTwiceGenerator>(measured.pages, measured.cgroups, measured.spec.cpus(),
                                                  part);
    case ExperimentKind::kMix:
      return std::make_unique<MixGenerator>(measured.weights, measured.spec.cpus(), part);
    case ExperimentKind::kReplay:
      return std::make_unique<ReplayCopies>(measured.recording, part);
  }
  return nullptr;
}

}  // namespace memcgd::client::loadgen
