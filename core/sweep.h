// What if: one sequence of events, applied from one beginning under several sets of changes.
//
// Events are kept once and shared; each point runs on a fork of the base or, where that has applied nothing,
// on a new node like it.  A change of a cgroup's knob is written when the cgroup appears, and what the events
// write to the same knob is passed over; so is the events' overcommit policy where the point has one of its
// own.  For that the batches are cut at these events: how events are cut into batches changes nothing.
//
// Thread safety: Add() and Prepare() by one thread at a time; then Run() by any.
//
// Invariants:
//  1. A point's outcome depends on the base, the events and the point alone.
//  2. The base is never applied to.
#ifndef MEMCGD_CORE_SWEEP_H_
#define MEMCGD_CORE_SWEEP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/event.h"
#include "core/event_stream.h"
#include "core/mechanisms.h"
#include "core/miss_ratio.h"
#include "core/node.h"

namespace memcgd::core {

struct KnobChange {
  std::string path;
  std::string knob;
  std::string value;
};

struct SweepPoint {
  std::vector<KnobChange> knobs = {};
  std::optional<wide::SetOvercommit> overcommit = std::nullopt;
  std::optional<Mechanisms> mechanisms = std::nullopt;
  std::optional<Reclaim> reclaim = std::nullopt;
};

// What came of a cgroup, it and those below it.  Counts are of the sweep's events; where the cgroup was
// removed and made again, of all its lives.
struct CgroupOutcome {
  std::string path;
  uint64_t peak_bytes = 0;   // the largest of its lives
  uint64_t usage_bytes = 0;  // at the end, or just before it was removed
  uint64_t refaults_file = 0;
  uint64_t refaults_anon = 0;
  uint64_t major_faults = 0;
  uint64_t pgscan = 0;
  uint64_t pgsteal = 0;
  uint64_t high_events = 0;
  uint64_t high_delay_us = 0;
  uint64_t max_events = 0;
  uint64_t oom_kills = 0;
  std::optional<MissRatioCurve> miss_ratio;
};

struct PointOutcome {
  std::vector<CgroupOutcome> cgroups;
  uint64_t committed_as_bytes = 0;
  std::array<uint64_t, kOutcomes> outcomes{};  // events by Outcome
};

class Sweep {
 public:
  // `is_new`: the base has applied no event, so that points may choose their mechanisms.
  Sweep(std::unique_ptr<Node> base, bool is_new);

  // The next batch.  INVALID_ARGUMENT as Node::Apply() refuses one.  The batch's spans are the owner's, which
  // is kept.
  absl::Status Add(const Batch& batch, std::shared_ptr<const void> owner);
  uint64_t events() const { return events_; }
  // From the first event to the last.
  int64_t duration_ns() const { return first_ns_ < last_ns_ ? last_ns_ - first_ns_ : 0; }

  // The points that Run() runs, and the cgroups that are looked at.  INVALID_ARGUMENT and FAILED_PRECONDITION
  // name the point; NOT_FOUND names the path and the nearest that there is.
  absl::Status Prepare(std::vector<SweepPoint> points, std::vector<std::string> cgroups, bool miss_ratio);
  size_t points() const { return points_.size(); }

  // Calls went_on(events applied since the last call) again and again; CANCELLED where that returns false.
  absl::StatusOr<PointOutcome> Run(size_t point, absl::FunctionRef<bool(uint64_t events)> went_on) const;

 private:
  struct HeldBatch {
    Batch batch;
    std::shared_ptr<const void> owner;
  };
  // A batch or part of one.  Where `special` is set, it is the only event.
  struct Step {
    Batch batch;
    std::vector<WideEvent> wide;  // the batch's, where they are not the held batch's own
    const WideEvent* special = nullptr;
    std::string path;  // of a special event about a cgroup
  };
  class PointRun;

  absl::Status CheckPoint(size_t index) const;
  absl::Status CheckPath(std::string_view path) const;
  // The path's handle is known once the batches before it were seen.
  bool IsSpecial(const WideEvent& event) const;
  void Cut(const HeldBatch& held);
  // The paths at or above that one which the points or the looks are about.
  std::vector<std::string_view> WatchedAtOrAbove(std::string_view path) const;

  const std::unique_ptr<Node> base_;
  const bool is_new_;
  const NodeConfig config_;  // the base's

  EventStream names_{""};  // the handles that the events define
  std::vector<HeldBatch> batches_;
  uint64_t events_ = 0;
  int64_t first_ns_ = INT64_MAX;
  int64_t last_ns_ = INT64_MIN;
  std::set<std::string, std::less<>> paths_;  // of the base and of the events

  std::vector<SweepPoint> points_;
  std::vector<std::string> cgroups_;
  bool miss_ratio_ = false;
  std::set<std::string, std::less<>> watched_;           // paths of changes and of cgroups_
  std::set<std::pair<std::string, std::string>> knobs_;  // path and knob that a point changes
  bool overcommit_ = false;                              // a point has a policy of its own
  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_SWEEP_H_
