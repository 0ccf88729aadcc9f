// The experiments: what each varies, what its nodes are, and who makes its events.  docs/loadgen.md describes
// each for its users.
//
// Thread safety: plain values and free functions.
#ifndef MEMCGD_CLIENT_LOADGEN_EXPERIMENT_H_
#define MEMCGD_CLIENT_LOADGEN_EXPERIMENT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/loadgen/generator.h"
#include "client/loadgen/mechanisms.h"
#include "client/loadgen/mix_generator.h"
#include "client/loadgen/replay_copies.h"
#include "memcgd/v1/node.pb.h"

namespace memcgd::client::loadgen {

enum class ExperimentKind : uint8_t {
  kPft,
  kMmap1,
  kMultiFaultAllSplit,
  kMemoryStat,
  kLruFileReadTwice,
  kMix,
  kReplay,
};

// "fault=900,mmap=30,munmap=30,fork=1,read=40"; what is not named has weight 0.
absl::StatusOr<MixWeights> ParseMixWeights(std::string_view text);

// What the user may vary; empty lists and zeros take the experiment's own.
struct Settings {
  std::vector<uint32_t> streams;      // of each node, one worker each
  std::vector<uint64_t> sizes_bytes;  // mmap1
  std::vector<uint32_t> lifts;        // mmap1
  std::vector<uint32_t> cgroups;      // memory-stat, lru-file-readtwice
  std::vector<double> polls;          // memory-stat: reads of memory.stat a second
  uint64_t pages = 0;                 // of an area or a file
  uint32_t cpus = 1;                  // that the workers have: the default of `streams` here and there
  MixWeights weights;
  std::shared_ptr<const Recording> recording;  // replay
};

// One row of an experiment's table.
struct Case {
  ExperimentKind kind = ExperimentKind::kPft;
  std::string label;     // "3 threads"
  std::string series;    // rows of one series are one line of the plot
  double x = 0;          // its place on the plot's axis
  uint32_t streams = 1;  // of each node, one worker each
  uint64_t pages = 0;    // of an area or a file
  uint32_t cgroups = 0;
  double polls = 0;  // reads a second of `poll_path`
  std::string poll_path;
  MixWeights weights;
  std::shared_ptr<const Recording> recording;
  memcgd::v1::NodeSpec spec;  // without mechanisms
};

struct ExperimentInfo {
  ExperimentKind kind;
  std::string_view name;
  std::string_view summary;  // for --help
  std::string_view unit;     // what is counted: "faults"
  std::string_view x_axis;   // of the plot
  bool x_log = false;
};
const std::array<ExperimentInfo, 7>& ExperimentList();
const ExperimentInfo& InfoOf(ExperimentKind kind);

// In the order in which they are measured.  `compared` is the mechanism that the run compares ("": none);
// mmap1 does not sweep the lift of the batch where it is the batch that is compared.
std::vector<Case> CasesOf(ExperimentKind kind, const Settings& settings, std::string_view compared,
                          const Forms& forms);

std::unique_ptr<Generator> NewGenerator(const Case& measured, const Part& part);

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_EXPERIMENT_H_
