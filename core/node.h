// One modelled machine: its cgroups, processes, page cache, CPUs, and the streams that feed it.
//
// Thread safety: all of it.  Apply() of different streams run side by side; everything that changes the tree
// of cgroups, a knob or a policy, and every exact read, stands at a *cut*: all streams at an event's end.
#ifndef MEMCGD_CORE_NODE_H_
#define MEMCGD_CORE_NODE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/event.h"
#include "core/knobs.h"
#include "core/mechanisms.h"

namespace memcgd::core {

// What makes room where a limit is met.
enum class Reclaim : uint8_t {
  kRecorded = 0,  // the trace says what was evicted and killed; charges are forced
  kNone = 1,      // nothing: the charge is refused, and with it its fault (Outcome::kLimit)
  kModelled = 2,  // the model's own reclaim, swap and OOM; the trace's evictions and kills are left out
};

struct NodeConfig {
  uint32_t cpus = 1;  // 1 … kMaxCpus
  uint64_t memory_bytes = uint64_t{16} << 30;
  uint64_t swap_bytes = 0;
  uint32_t page_size = 4096;  // a power of two, 4096 … 65536
  bool zero_page = true;
  OvercommitPolicy overcommit = OvercommitPolicy::kGuess;
  uint32_t overcommit_ratio = 50;  // percent
  uint64_t overcommit_kbytes = 0;  // where not 0 it takes the ratio's place
  Reclaim reclaim = Reclaim::kRecorded;
  uint64_t writeback_bytes_per_second = uint64_t{200} << 20;  // of modelled reclaim; 4096 … 2^52
  uint64_t read_bytes_per_second = uint64_t{3} << 29;         // the same
  Mechanisms mechanisms;

  KnobSizes knob_sizes() const { return {page_size, memory_bytes, swap_bytes}; }
};

// What a node may grow to.  The largest are those of its tables.
struct NodeLimits {
  static constexpr uint64_t kMostPages = 3u << 26;
  static constexpr uint64_t kMostFiles = (1u << 24) - (1u << 20);
  static constexpr uint64_t kMostProcesses = (1u << 21) - (1u << 18);
  static constexpr uint64_t kMostCgroups = 1u << 22;

  uint64_t pages = kMostPages;          // descriptors: resident, in swap, or evicted while mapped
  uint64_t files = kMostFiles;          // ever named, and objects of shared anonymous memory
  uint64_t processes = kMostProcesses;  // alive
  uint64_t cgroups = kMostCgroups;      // dying ones too
  uint64_t cgroup_depth = 2048;         // levels below the root
  uint64_t areas = UINT64_MAX;          // of one address space, as vm.max_map_count
  // Where it says so nothing may grow: the server's memory is used up.  Outlives the node.
  const std::atomic<bool>* memory_is_short = nullptr;
};

// How much of it there is.
struct NodeSizes {
  uint64_t pages = 0;
  uint64_t files = 0;
  uint64_t processes = 0;
  uint64_t cgroups = 0;
};

// One line of memory.stat or memory.events: bytes or a count.
using StatLine = std::pair<std::string_view, int64_t>;

// The names of memory.stat (v2), in the kernel's order.
std::span<const std::string_view> MemoryStatNames();

struct CgroupState {
  std::string path;
  std::vector<int64_t> stat;  // in the order of MemoryStatNames(), recursive
};

// The answer to a mark.
struct MarkState {
  uint64_t id = 0;
  uint64_t committed_as_bytes = 0;
  std::vector<CgroupState> cgroups;  // in order of path
};

struct Notable {
  uint32_t position = 0;  // the event's index among the frequent ones (wide events: their position)
  Outcome outcome = Outcome::kOk;
  std::string detail;
};

// What one call of the OOM killer saw and did.
struct OomRecord {
  struct Level {
    std::string path;
    int64_t usage_pages = 0;
    int64_t max_pages = 0;  // INT64_MAX / 4096: no limit
    int64_t swap_pages = 0;
    int64_t swap_max_pages = 0;
  };
  struct Victim {
    uint32_t tgid = 0;
    std::string comm;
    std::string cgroup;
    int64_t points = 0;
    int64_t rss_pages = 0;
    int64_t swap_pages = 0;
    int64_t pagetable_pages = 0;
    int32_t oom_score_adj = 0;
    bool killed = false;
  };
  struct Consumer {
    std::string path;
    int64_t anon_pages = 0;  // of the cgroup itself, each
    int64_t file_pages = 0;
    int64_t shmem_pages = 0;
    int64_t kernel_pages = 0;
  };
  // File pages that were left below the limit, and why none of them could be had.
  struct FileLeft {
    int64_t pages = 0;
    int64_t dirty_pages = 0;
    int64_t writeback_pages = 0;
    int64_t shmem_pages = 0;        // without swap, or not swapped by the model
    int64_t unevictable_pages = 0;  // of any kind
    int64_t protected_pages = 0;    // memory.min
  };
  static constexpr size_t kMostVictims = 16;
  static constexpr size_t kMostConsumers = 8;

  uint64_t sequence = 0;  // 1, 2, … of the node
  int64_t time_ns = 0;
  std::string breached;  // whose limit was met; "/": the node's memory
  std::string charged;   // for whom
  uint32_t tid = 0;      // whose event it was; 0: none's (a knob)
  std::string comm;
  std::vector<Level> levels;        // from the charged cgroup to the root
  std::vector<Victim> victims;      // candidates, the most points first
  std::vector<Consumer> consumers;  // below the limit, the largest first
  FileLeft file_left;
  bool group = false;  // memory.oom.group: all of a cgroup was killed
};

struct BatchResult {
  static constexpr size_t kMaxNotables = 16;
  std::array<uint64_t, kOutcomes> outcomes{};  // by Outcome
  std::array<uint64_t, kEventKinds> events{};  // frequent events by kind
  uint64_t wide_events = 0;
  uint64_t ptes_walked = 0;  // page-table entries copied by fork or unmapped
  std::vector<Notable> notables;
  std::vector<MarkState> marks;
  int64_t high_delay_us = 0;   // for which memory.high would have held the batch's tasks up
  std::vector<uint64_t> ooms;  // sequence numbers of the OOM killer's calls
};

struct CgroupInfo {
  std::string path;
  uint64_t id = 0;
  std::map<std::string, std::string> knobs;
  uint64_t processes = 0;
  uint64_t children = 0;
  uint64_t dying_descendants = 0;
};

struct CgroupReading {
  std::optional<uint64_t> current_bytes;  // none for the root
  uint64_t peak_bytes = 0;
  std::vector<StatLine> stat;
  std::vector<StatLine> events;
  std::vector<StatLine> swap_events;
  uint64_t swap_current_bytes = 0;
  uint64_t swap_peak_bytes = 0;
  uint64_t high_delay_us = 0;  // for which memory.high held tasks up, with all below it
  struct RootUsage {
    uint64_t anon_and_file_bytes = 0;
    uint64_t total_less_free_bytes = 0;
  };
  std::optional<RootUsage> root_usage;
  // No line of `stat` is further from the exact value than so many pages or counts; 0: it is exact.  Where
  // readers walk: from the sum of each cgroup's exact value at the moment at which the reader came by.
  uint64_t error_bound = 0;
};

// What one who watches peaks is told.
struct PeakReading {
  uint64_t memory_peak_bytes = 0;
  uint64_t swap_peak_bytes = 0;
  uint64_t memory_current_bytes = 0;
  uint64_t swap_current_bytes = 0;
};

struct NodeInfo {
  NodeConfig config;  // as it is now
  uint64_t events = 0;
  uint64_t streams = 0;
  uint64_t cgroups = 0;
  uint64_t dying_cgroups = 0;
  uint64_t processes = 0;
  uint64_t resident_pages = 0;
  uint64_t committed_as_bytes = 0;
  uint64_t commit_limit_bytes = 0;
  MechanismCounters counters;  // since the node was made or loaded
};

// One ordered sequence of events.  Holds the handles that the stream gave; made and owned by its Node.
class EventStream;
class MissRatio;
class PeakWatches;
struct Growth;
struct CgroupSample;
struct Machine;
struct NodeSample;

class Node {
 public:
  // An error names the field and its range.
  static absl::StatusOr<std::unique_ptr<Node>> Create(const NodeConfig& config);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // The stream of that name, made where it is new.
  EventStream* OpenStream(std::string_view name);

  // Before the first batch.
  void SetLimits(const NodeLimits& limits);
  // Without a cut, each number right by itself.
  NodeSizes Sizes() const;

  // Checks the whole batch, then applies all of it.  INVALID_ARGUMENT ("event 17: …", "side event 3: …") or
  // RESOURCE_EXHAUSTED (it could pass a limit) means that nothing was applied.  One thread at a time per
  // stream.
  absl::Status Apply(EventStream* stream, const Batch& batch, BatchResult* result);

  // Each stands at a cut.  NOT_FOUND, ALREADY_EXISTS, INVALID_ARGUMENT and FAILED_PRECONDITION name the path.
  absl::Status CreateCgroup(std::string_view path);
  absl::Status RemoveCgroup(std::string_view path);
  // All knobs or, where one is refused, none.
  absl::Status SetKnobs(std::string_view path, const std::map<std::string, std::string>& knobs);
  absl::StatusOr<CgroupInfo> GetCgroup(std::string_view path);
  // Those at or below `below` ("/" for all) whose path comes after `after` ("" for all), at most `limit`.
  absl::StatusOr<std::vector<CgroupInfo>> ListCgroups(std::string_view below, std::string_view after,
                                                      size_t limit);
  // v1: the names and the local and total_ fields of cgroup v1.  fast: what the node's form of statistics
  // serves a reader, within `error_bound`; else the exact, flushed values.
  absl::StatusOr<CgroupReading> ReadCgroup(std::string_view path, bool local, bool v1, bool fast = false);
  // Shows every cgroup that is online, in order of path, beside batches: fast reads, each number right by
  // itself.  `show` may not call the node, and is done quickly: no cgroup comes or goes meanwhile.
  // Returns SampleNode().
  NodeSample SampleCgroups(absl::FunctionRef<void(const CgroupSample&)> show);
  // The node alone, beside batches.
  NodeSample SampleNode();
  // memory.reclaim: "N" or "N swappiness=S" (0 … 200, or max: anonymous pages only).  ABORTED, as EAGAIN,
  // where less was to be had, with how much it was; FAILED_PRECONDITION where the node's model does not
  // reclaim.
  absl::Status Reclaim(std::string_view path, std::string_view request, uint64_t* reclaimed_bytes = nullptr);
  // Peaks of memory and swap of its own, as an open file has them (peak_watches.h): the cgroup's own until
  // they are reset.  NOT_FOUND; RESOURCE_EXHAUSTED where the cgroup has 64 watchers already.
  struct PeakWatch {
    std::string path;
    uint64_t cgroup = 0;
    uint64_t watcher = 0;
  };
  absl::StatusOr<PeakWatch> OpenPeaks(std::string_view path);
  // The peaks; those to be reset begin anew after it.  NOT_FOUND where the cgroup was removed.
  absl::StatusOr<PeakReading> ReadPeaks(const PeakWatch& watch, bool reset_memory, bool reset_swap);
  void ClosePeaks(const PeakWatch& watch);
  // Calls of the OOM killer after that one, the oldest first, of the last kMostOomRecords.
  static constexpr size_t kMostOomRecords = 1024;
  std::vector<OomRecord> OomRecords(uint64_t after_sequence, size_t limit);
  // `reads` is told every read of file pages, by read(2) and by faults, of the cgroup and those below it, and
  // outlives the node or the cgroup; null: nobody is told any more.
  absl::Status WatchFileReads(std::string_view path, MissRatio* reads);
  // vm.overcommit_memory and, where one of the two is not 0, vm.overcommit_ratio or vm.overcommit_kbytes.
  void SetOvercommit(const wide::SetOvercommit& set);
  NodeInfo Info();
  // Info()'s, without a cut: beside batches, each number right by itself.
  MechanismCounters Counters();

  // The whole state, streams and handles included, with a format version; INVALID_ARGUMENT or DATA_LOSS where
  // it cannot be read.
  std::string Save();
  static absl::StatusOr<std::unique_ptr<Node>> Load(std::string_view bytes);
  // A copy of the whole state, at a cut, that goes on by itself: the same events give both the same state.
  // Its reclaim may be another, its mechanisms count from 0.
  std::unique_ptr<Node> Fork(std::optional<core::Reclaim> reclaim = std::nullopt);
  // Of the flushed state: equal states have equal hashes, however their events were cut into batches.
  uint64_t StateHash();
  // Recomputes every total from the pages; empty, or what is wrong.
  std::string CheckInvariants();

 private:
  template <class Forms>
  friend class BatchRun;
  friend class Snapshot;

  explicit Node(const NodeConfig& config);

  // Room for the batch, held until GiveRoom().
  absl::Status TakeRoom(const Batch& batch, Growth* taken);
  void GiveRoom(const Growth& taken);

  // What control events and unary calls share; the cut is held alone.
  absl::Status CreateCgroupAtCut(std::string_view path, bool with_ancestors);
  // An event's removal happened: processes that the stream did not see leave do not stop it.
  absl::Status RemoveCgroupAtCut(std::string_view path, bool happened);
  absl::Status SetKnobsAtCut(std::string_view path, const std::map<std::string, std::string>& knobs);
  void SetOvercommitAtCut(const wide::SetOvercommit& set);
  MarkState ReadAllAtCut(uint64_t mark_id);
  void FreeDyingAtCut();
  void WithReclaim(const auto& work);

  // The cut: batches hold it shared, for all that they do but for control events; whoever holds it alone has
  // every stream at an event's end.  Thread safety of the rest: each part's own.
  struct Cut;
  struct Room;
  std::unique_ptr<Cut> cut_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<PeakWatches> peaks_;                                        // under the cut, alone
  std::map<std::string, std::unique_ptr<EventStream>, std::less<>> streams_;  // under the cut, alone
  std::atomic<uint64_t> events_{0};
  std::unique_ptr<Room> room_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_NODE_H_
