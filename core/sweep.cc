#include "core/sweep.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/cgroup_path.h"
#include "core/knobs.h"
#include "core/memcg_tree.h"

namespace memcgd::core {
namespace {

absl::string_view Piece(std::string_view text) { return {text.data(), text.size()}; }
std::string Quoted(std::string_view path) { return absl::StrCat("\"", absl::CHexEscape(Piece(path)), "\""); }

// Insertions, deletions and exchanges of a byte between the two (Levenshtein).
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, change});
    }
  }
  return row[b.size()];
}

uint64_t LineOf(const std::vector<StatLine>& lines, std::string_view name) {
  const auto at =
      std::find_if(lines.begin(), lines.end(), [&](const StatLine& line) { return line.first == name; });
  return at == lines.end() ? 0 : static_cast<uint64_t>(at->second);
}

CgroupOutcome OutcomeOf(const CgroupReading& reading) {
  CgroupOutcome outcome;
  outcome.peak_bytes = reading.peak_bytes;
  outcome.usage_bytes = reading.current_bytes.value_or(
      reading.root_usage.has_value() ? reading.root_usage->anon_and_file_bytes : 0);
  outcome.refaults_file = LineOf(reading.stat, "workingset_refault_file");
  outcome.refaults_anon = LineOf(reading.stat, "workingset_refault_anon");
  outcome.major_faults = LineOf(reading.stat, "pgmajfault");
  outcome.pgscan = LineOf(reading.stat, "pgscan");
  outcome.pgsteal = LineOf(reading.stat, "pgsteal");
  outcome.high_events = LineOf(reading.events, "high");
  outcome.high_delay_us = reading.high_delay_us;
  outcome.max_events = LineOf(reading.events, "max");
  outcome.oom_kills = LineOf(reading.events, "oom_kill");
  return outcome;
}

constexpr uint64_t CgroupOutcome::*kCounts[] = {
    &CgroupOutcome::refaults_file, &CgroupOutcome::refaults_anon, &CgroupOutcome::major_faults,
    &CgroupOutcome::pgscan,        &CgroupOutcome::pgsteal,       &CgroupOutcome::high_events,
    &CgroupOutcome::high_delay_us, &CgroupOutcome::max_events,    &CgroupOutcome::oom_kills};

bool Names(std::string_view ancestor, std::string_view path) {
  return ancestor == "/" ||
         (path.starts_with(ancestor) && (path.size() == ancestor.size() || path[ancestor.size()] == '/'));
}

}  // namespace

// ---- the events

Sweep::Sweep(std::unique_ptr<Node> base, bool is_new)
    : base_(std::move(base)), is_new_(is_new), config_(base_->Info().config) {
  absl::StatusOr<std::vector<CgroupInfo>> there = base_->ListCgroups("/", "", SIZE_MAX);
  for (CgroupInfo& info : *there) paths_.insert(std::move(info.path));
}

absl::Status Sweep::Add(const Batch& batch, std::shared_ptr<const void> owner) {
  absl::Status status = names_.Check(batch, config_);
  if (!status.ok()) return status;
  const auto saw = [this](int64_t time_ns) {
    first_ns_ = std::min(first_ns_, time_ns);
    last_ns_ = std::max(last_ns_, time_ns);
  };
  for (const WideEvent& wide : batch.wide) {
    const bool happened = !std::holds_alternative<wide::DefinePath>(wide.body) &&
                          !std::holds_alternative<wide::DefineFile>(wide.body) &&
                          !std::holds_alternative<wide::DefineName>(wide.body);
    if (happened) saw(wide.time_ns);
    if (const auto* path = std::get_if<wide::DefinePath>(&wide.body)) names_.DefinePath(path->path);
    if (std::holds_alternative<wide::DefineFile>(wide.body)) names_.DefineFile(FileId::kNone);
    if (const auto* name = std::get_if<wide::DefineName>(&wide.body)) names_.DefineName(name->name);
    if (const auto* create = std::get_if<wide::CgroupCreate>(&wide.body)) {
      for (std::string_view path = names_.Path(create->path); path != "/"; path = ParentPath(path)) {
        paths_.emplace(path);
      }
    }
  }
  if (!batch.events.empty()) {
    saw(batch.base_time_ns + int64_t{1000} * batch.events.front().time_us());
    saw(batch.base_time_ns + int64_t{1000} * batch.events.back().time_us());
  }
  events_ += batch.events.size() + batch.wide.size();
  batches_.push_back({batch, std::move(owner)});
  return absl::OkStatus();
}

// ---- the points

absl::Status Sweep::Prepare(std::vector<SweepPoint> points, std::vector<std::string> cgroups,
                            bool miss_ratio) {
  points_ = std::move(points);
  cgroups_ = std::move(cgroups);
  miss_ratio_ = miss_ratio;
  for (const std::string& path : cgroups_) {
    absl::Status status = CheckPath(path);
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < points_.size(); ++i) {
    absl::Status status = CheckPoint(i);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat("point ", i, ": ", status.message()));
  }
  watched_ = {cgroups_.begin(), cgroups_.end()};
  knobs_.clear();
  overcommit_ = false;
  for (const SweepPoint& point : points_) {
    for (const KnobChange& change : point.knobs) {
      watched_.insert(change.path);
      knobs_.emplace(change.path, change.knob);
    }
    overcommit_ |= point.overcommit.has_value();
  }
  steps_.clear();
  for (const HeldBatch& held : batches_) Cut(held);
  return absl::OkStatus();
}

absl::Status Sweep::CheckPoint(size_t index) const {
  const SweepPoint& point = points_[index];
  for (const KnobChange& change : point.knobs) {
    absl::Status status = CheckPath(change.path);
    if (!status.ok()) return status;
    if (change.path == "/") {
      return absl::FailedPreconditionError(absl::StrCat("the root cgroup has no ", change.knob));
    }
    status = CheckKnob(change.knob, change.value, config_.knob_sizes()).status();
    if (!status.ok()) return status;
  }
  if (point.mechanisms.has_value() && !is_new_) {
    return absl::FailedPreconditionError(
        "a live node's fork keeps the mechanisms that it has: start from a new node to change them");
  }
  if (!is_new_ && config_.reclaim == Reclaim::kModelled &&
      point.reclaim.value_or(Reclaim::kModelled) != Reclaim::kModelled) {
    return absl::FailedPreconditionError(
        "the live node models its reclaim, and a fork of it cannot but go on");
  }
  return absl::OkStatus();
}

absl::Status Sweep::CheckPath(std::string_view path) const {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok() || paths_.contains(path)) return status;
  const std::string_view nearest = *std::min_element(
      paths_.begin(), paths_.end(),
      [&](const std::string& a, const std::string& b) { return Distance(a, path) < Distance(b, path); });
  return absl::NotFoundError(absl::StrCat(
      "no cgroup ", Quoted(path), " at the beginning or in the events; the nearest is ", Quoted(nearest)));
}

std::vector<std::string_view> Sweep::WatchedAtOrAbove(std::string_view path) const {
  std::vector<std::string_view> above;  // ancestors first, as their order is
  for (const std::string& one : watched_) {
    if (Names(one, path)) above.push_back(one);
  }
  return above;
}

bool Sweep::IsSpecial(const WideEvent& event) const {
  if (const auto* create = std::get_if<wide::CgroupCreate>(&event.body)) {
    return !WatchedAtOrAbove(names_.Path(create->path)).empty();
  }
  if (const auto* remove = std::get_if<wide::CgroupRemove>(&event.body)) {
    return watched_.contains(names_.Path(remove->path));
  }
  if (const auto* set = std::get_if<wide::SetKnob>(&event.body)) {
    return knobs_.contains({names_.Path(set->path), set->knob});
  }
  if (std::holds_alternative<wide::SetOvercommit>(event.body)) return overcommit_;
  return std::holds_alternative<wide::Mark>(event.body);
}

namespace {

// The path that a special event is about.
std::string PathOf(const EventStream& names, const WideBody& body) {
  if (const auto* create = std::get_if<wide::CgroupCreate>(&body)) return names.Path(create->path);
  if (const auto* remove = std::get_if<wide::CgroupRemove>(&body)) return names.Path(remove->path);
  if (const auto* set = std::get_if<wide::SetKnob>(&body)) return names.Path(set->path);
  return "";
}

}  // namespace

// Special events get a step each, marks none, and what is between them one.
void Sweep::Cut(const HeldBatch& held) {
  const Batch& batch = held.batch;
  const auto is_special = [this](const WideEvent& event) { return IsSpecial(event); };
  if (std::none_of(batch.wide.begin(), batch.wide.end(), is_special)) {
    steps_.push_back(std::make_unique<Step>(Step{batch, {}, nullptr, ""}));
    return;
  }
  auto next = std::make_unique<Step>();
  size_t first = 0;
  const auto finish = [&](size_t end) {
    next->batch = {batch.base_time_ns, batch.events.subspan(first, end - first), next->wide};
    if (!next->batch.events.empty() || !next->wide.empty()) steps_.push_back(std::move(next));
    next = std::make_unique<Step>();
    first = end;
  };
  const auto take = [&](const WideEvent& event) {
    next->wide.push_back(event);
    next->wide.back().position = event.position - static_cast<uint32_t>(first);
  };
  for (const WideEvent& event : batch.wide) {
    if (!is_special(event)) {
      take(event);
      continue;
    }
    finish(event.position);
    if (std::holds_alternative<wide::Mark>(event.body)) continue;
    take(event);
    next->special = &event;
    next->path = PathOf(names_, event.body);
    finish(event.position);
  }
  finish(batch.events.size());
}

// ---- one point

class Sweep::PointRun {
 public:
  PointRun(const Sweep& sweep, size_t index) : sweep_(sweep), point_(sweep.points_[index]) {
    if (sweep.is_new_) {
      NodeConfig config = sweep.config_;
      config.mechanisms = point_.mechanisms.value_or(config.mechanisms);
      config.reclaim = point_.reclaim.value_or(config.reclaim);
      node_ = *Node::Create(config);
    } else {
      node_ = sweep.base_->Fork(point_.reclaim);
    }
    for (const std::string& path : sweep.cgroups_) {
      Cgroup& cgroup = cgroups_[path];
      cgroup.sum.path = path;
      if (sweep.miss_ratio_ && index == 0) cgroup.reads = std::make_unique<MissRatio>();
    }
  }

  absl::StatusOr<PointOutcome> Run(absl::FunctionRef<bool(uint64_t events)> went_on) {
    // No stream of the server's has this name.
    EventStream* stream = node_->OpenStream("");
    if (point_.overcommit.has_value()) node_->SetOvercommit(*point_.overcommit);
    for (const std::string& path : sweep_.watched_) Appear(path);
    for (const std::unique_ptr<Step>& step : sweep_.steps_) {
      absl::Status status = Apply(stream, *step);
      if (!status.ok()) return status;
      if (!went_on(step->batch.events.size() + step->batch.wide.size()))
        return absl::CancelledError("the sweep was cancelled");
    }
    return Finish();
  }

 private:
  struct Cgroup {
    bool alive = false;
    CgroupOutcome base;  // what it had counted when it was first seen
    CgroupOutcome sum;
    std::unique_ptr<MissRatio> reads;
  };

  absl::Status Apply(EventStream* stream, const Step& step) {
    if (step.special == nullptr) return node_->Apply(stream, step.batch, &result_);
    const WideBody& body = step.special->body;
    if (std::holds_alternative<wide::SetOvercommit>(body) && point_.overcommit.has_value())
      return absl::OkStatus();
    if (const auto* set = std::get_if<wide::SetKnob>(&body)) {
      const auto same = [&](const KnobChange& change) {
        return change.path == step.path && change.knob == set->knob;
      };
      if (std::any_of(point_.knobs.begin(), point_.knobs.end(), same)) return absl::OkStatus();
    }
    if (std::holds_alternative<wide::CgroupRemove>(body)) Look(step.path);
    absl::Status status = node_->Apply(stream, step.batch, &result_);
    if (!status.ok()) return status;
    if (std::holds_alternative<wide::CgroupRemove>(body)) Leave(step.path);
    if (std::holds_alternative<wide::CgroupCreate>(body)) {
      for (std::string_view path : sweep_.WatchedAtOrAbove(step.path)) Appear(path);
    }
    return absl::OkStatus();
  }

  // Where the cgroup is new: its knobs, and what it counts from.
  void Appear(std::string_view path) {
    if (alive_.contains(path)) return;
    absl::StatusOr<CgroupReading> reading = node_->ReadCgroup(path, /*local=*/false, /*v1=*/false);
    if (!reading.ok()) return;
    alive_.emplace(path);
    std::map<std::string, std::string> knobs;
    for (const KnobChange& change : point_.knobs) {
      if (change.path == path) knobs[change.knob] = change.value;
    }
    const auto cgroup = cgroups_.find(path);
    if (cgroup != cgroups_.end()) {
      cgroup->second.base = OutcomeOf(*reading);
      if (cgroup->second.reads != nullptr)
        node_->WatchFileReads(path, cgroup->second.reads.get()).IgnoreError();
    }
    if (!knobs.empty()) node_->SetKnobs(path, knobs).IgnoreError();  // they were checked, and it is there
  }

  // Adds what the cgroup counted in this life.
  void Look(std::string_view path) {
    const auto at = cgroups_.find(path);
    if (at == cgroups_.end() || !alive_.contains(path)) return;
    const absl::StatusOr<CgroupReading> reading = node_->ReadCgroup(path, false, false);
    if (!reading.ok()) return;
    Cgroup& cgroup = at->second;
    const CgroupOutcome now = OutcomeOf(*reading);
    cgroup.sum.peak_bytes = std::max(cgroup.sum.peak_bytes, now.peak_bytes);
    cgroup.sum.usage_bytes = now.usage_bytes;
    // Walked statistics may go back where a cgroup below ends.
    for (const auto count : kCounts)
      cgroup.sum.*count += now.*count - std::min(now.*count, cgroup.base.*count);
    cgroup.base = now;
  }

  void Leave(std::string_view path) {
    if (!node_->GetCgroup(path).ok()) alive_.erase(alive_.find(path));
  }

  PointOutcome Finish() {
    PointOutcome outcome;
    for (const std::string& path : sweep_.cgroups_) {
      Look(path);
      Cgroup& cgroup = cgroups_.find(path)->second;
      if (cgroup.reads != nullptr) cgroup.sum.miss_ratio = cgroup.reads->Curve();
      outcome.cgroups.push_back(cgroup.sum);
    }
    outcome.committed_as_bytes = node_->Info().committed_as_bytes;
    outcome.outcomes = result_.outcomes;
    return outcome;
  }

  const Sweep& sweep_;
  const SweepPoint& point_;
  // Before the node, which tells some of them what is read.
  std::map<std::string, Cgroup, std::less<>> cgroups_;
  std::set<std::string, std::less<>> alive_;
  std::unique_ptr<Node> node_;
  BatchResult result_;
};

absl::StatusOr<PointOutcome> Sweep::Run(size_t point,
                                        absl::FunctionRef<bool(uint64_t events)> went_on) const {
  return PointRun(*this, point).Run(went_on);
}

}  // namespace memcgd::core
