#include "core/node.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/batch_run.h"
#include "core/cgroup_path.h"
#include "core/event_stream.h"
#include "core/growth.h"
#include "core/knobs.h"
#include "core/node_cut.h"
#include "core/peak_watches.h"
#include "core/stat_reader.h"

namespace memcgd::core {
namespace {

absl::Status CheckConfig(const NodeConfig& config) {
  if (config.cpus < 1 || config.cpus > kMaxCpus) {
    return absl::InvalidArgumentError(absl::StrCat("cpus ", config.cpus, " are not in 1 … ", kMaxCpus));
  }
  uint32_t page = config.page_size;
  if (page < 4096 || page > 65536 || (page & (page - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size ", page, " is not a power of two in 4096 … 65536"));
  }
  constexpr uint64_t kMaxBytes = uint64_t{1} << 52;
  if (config.memory_bytes < page || config.memory_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_bytes ", config.memory_bytes, " are not in ", page, " … 2^52"));
  }
  const Mechanisms& forms = config.mechanisms;
  if (config.reclaim > core::Reclaim::kModelled || forms.charge_order > ChargeOrder::kUptodateFirst ||
      forms.commit_batch > CommitBatch::kSmall || forms.css_refs > CssRefs::kPerPage ||
      forms.stats > StatsForm::kRstat || forms.lru_lock > LruLock::kPerNode) {
    return absl::InvalidArgumentError("reclaim or a mechanism has no such form");
  }
  // So slow a disk that the time of what is on its way to it still fits 64 bits.
  constexpr uint64_t kMinRate = 4096;
  for (auto [name, rate] : {std::pair{"writeback_bytes_per_second", config.writeback_bytes_per_second},
                            std::pair{"read_bytes_per_second", config.read_bytes_per_second}}) {
    if (rate < kMinRate || rate > kMaxBytes)
      return absl::InvalidArgumentError(absl::StrCat(name, " ", rate, " is not in ", kMinRate, " … 2^52"));
  }
  if (config.swap_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("swap_bytes ", config.swap_bytes, " are over 2^52"));
  }
  return absl::OkStatus();
}

bool HasDefaultForms(const NodeConfig& config) { return config.mechanisms == Mechanisms{}; }

std::unique_ptr<Machine> MakeMachine(const NodeConfig& config) {
  if (HasDefaultForms(config)) return std::make_unique<Workings<DefaultForms>>(config);
  return std::make_unique<Workings<ChosenForms>>(config);
}

// What the knob asks of the accounting.
void SetKnob(Memcg& memcg, std::string_view knob, const std::string& value, uint32_t page_size) {
  auto pages = [&] { return KnobPages(value, page_size); };
  if (knob == "memory.max") memcg.memory.set_max_pages(pages());
  if (knob == "memory.high") memcg.reclaim.high = pages();
  if (knob == "memory.low") memcg.reclaim.low = pages();
  if (knob == "memory.min") memcg.reclaim.min = pages();
  if (knob == "memory.swap.max") memcg.swap.set_max_pages(pages());
  if (knob == "memory.swap.high") memcg.reclaim.swap_high = pages();
  if (knob == "memory.swappiness") memcg.reclaim.swappiness = static_cast<uint32_t>(std::stoul(value));
  if (knob == "memory.oom.group") memcg.reclaim.oom_group = value == "1";
}

std::string Quoted(std::string_view path) {
  return absl::StrCat("\"", absl::CHexEscape(absl::string_view(path.data(), path.size())), "\"");
}

absl::Status NoCgroup(std::string_view path) {
  return absl::NotFoundError(absl::StrCat("no cgroup ", Quoted(path)));
}

bool IsBelow(std::string_view path, std::string_view ancestor) {
  return ancestor == "/" || (path.substr(0, ancestor.size()) == ancestor &&
                             (path.size() == ancestor.size() || path[ancestor.size()] == '/'));
}

}  // namespace

std::span<const std::string_view> MemoryStatNames() {
  static const auto names = [] {
    std::array<std::string_view, kMemoryStatLines> made;
    for (size_t i = 0; i < kMemoryStatLines; ++i) made[i] = StatName(static_cast<Stat>(i));
    return made;
  }();
  return names;
}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(const NodeConfig& config) {
  absl::Status status = CheckConfig(config);
  if (!status.ok()) return status;
  return std::unique_ptr<Node>(new Node(config));
}

// What batches under way may still add.  Its mutex is held alone.
struct Node::Room {
  Mutex mutex;
  Growth taken ABSL_GUARDED_BY(mutex);
};

Node::Node(const NodeConfig& config)
    : cut_(std::make_unique<Cut>()),
      machine_(MakeMachine(config)),
      peaks_(std::make_unique<PeakWatches>()),
      room_(std::make_unique<Room>()) {}

Node::~Node() = default;

EventStream* Node::OpenStream(std::string_view name) {
  Locked cut(cut_->lock);
  auto found = streams_.find(name);
  if (found == streams_.end()) {
    found = streams_.emplace(std::string(name), std::make_unique<EventStream>(std::string(name))).first;
  }
  return found->second.get();
}

absl::Status Node::Apply(EventStream* stream, const Batch& batch, BatchResult* result) {
  absl::Status status = stream->Check(batch, machine_->config);  // its cpus and page size are constant
  if (!status.ok()) return status;
  Growth growth;
  status = TakeRoom(batch, &growth);
  if (!status.ok()) return status;
  if (HasDefaultForms(machine_->config)) {
    BatchRun<DefaultForms>(*this, *stream, batch, *result).Run();
  } else {
    BatchRun<ChosenForms>(*this, *stream, batch, *result).Run();
  }
  GiveRoom(growth);
  events_.fetch_add(batch.events.size() + batch.wide.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

void Node::SetLimits(const NodeLimits& limits) {
  Locked cut(cut_->lock);
  machine_->limits = limits;
}

NodeSizes Node::Sizes() const {
  return {machine_->arena.used(), machine_->files.size(),
          machine_->table.alive.load(std::memory_order_relaxed), machine_->tree.count()};
}

namespace {

// Marks are answered with every cgroup; so many in all of a batch's answers.
constexpr uint64_t kMostStatesOfBatch = 1u << 20;

absl::Status PassesLimit(absl::string_view what, uint64_t there, uint64_t more, uint64_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat("the node has ", there, " ", what,
                                                   ", the batch could make ", more, " more, and ", limit,
                                                   " are allowed"));
}

absl::Status CheckRoom(const Machine& m, const NodeSizes& there, const Growth& under_way,
                       const Growth& more) {
  const NodeLimits& limits = m.limits;
  const bool is_short =
      limits.memory_is_short != nullptr && limits.memory_is_short->load(std::memory_order_relaxed);
  if (is_short && more.events > 0)
    return absl::ResourceExhaustedError("the server's memory is used up: only what frees is applied");
  const auto passes = [](uint64_t there, uint64_t under_way, uint64_t more, uint64_t limit) {
    return more > 0 && there + under_way + more > limit;
  };
  if (passes(there.pages, under_way.pages, more.pages, limits.pages))
    return PassesLimit("pages", there.pages, more.pages, limits.pages);
  if (passes(m.arena.end(), under_way.large_pages, more.large_pages, NodeLimits::kMostPages))
    return PassesLimit("pages in large folios", m.arena.end(), more.large_pages, NodeLimits::kMostPages);
  if (passes(there.files, under_way.files, more.files, limits.files))
    return PassesLimit("files", there.files, more.files, limits.files);
  if (passes(there.processes, under_way.processes, more.processes, limits.processes))
    return PassesLimit("processes", there.processes, more.processes, limits.processes);
  if (passes(there.cgroups, under_way.cgroups, more.cgroups, limits.cgroups))
    return PassesLimit("cgroups", there.cgroups, more.cgroups, limits.cgroups);
  if (more.marks > 1 && more.marks * there.cgroups > kMostStatesOfBatch) {
    return absl::ResourceExhaustedError(absl::StrCat("the batch asks ", more.marks, " times for ",
                                                     there.cgroups, " cgroups: ask in several batches"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Node::TakeRoom(const Batch& batch, Growth* taken) {
  *taken = RoughGrowth(batch);
  const NodeSizes there = Sizes();
  Locked lock(room_->mutex);
  if (!CheckRoom(*machine_, there, room_->taken, *taken).ok()) {
    *taken = GrowthOf(batch, machine_->table);
    absl::Status status = CheckRoom(*machine_, there, room_->taken, *taken);
    if (!status.ok()) return status;
  }
  room_->taken += *taken;
  return absl::OkStatus();
}

void Node::GiveRoom(const Growth& taken) {
  Locked lock(room_->mutex);
  room_->taken -= taken;
}

absl::Status Node::CreateCgroup(std::string_view path) {
  if (!machine_->MayGrow()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cgroup ", Quoted(path), ": the node may not grow just now"));
  }
  Locked cut(cut_->lock);
  return CreateCgroupAtCut(path, false);
}

absl::Status Node::RemoveCgroup(std::string_view path) {
  Locked cut(cut_->lock);
  return RemoveCgroupAtCut(path, false);
}

absl::Status Node::SetKnobs(std::string_view path, const std::map<std::string, std::string>& knobs) {
  Locked cut(cut_->lock);
  return SetKnobsAtCut(path, knobs);
}

absl::Status Node::CreateCgroupAtCut(std::string_view path, bool with_ancestors) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  if (machine_->tree.Find(path) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat("cgroup ", Quoted(path), " exists"));
  const NodeLimits& limits = machine_->limits;
  const auto depth = static_cast<uint64_t>(std::count(path.begin(), path.end(), '/'));
  if (depth > limits.cgroup_depth) {
    return absl::ResourceExhaustedError(absl::StrCat("cgroup ", Quoted(path), " would be ", depth,
                                                     " levels deep; ", limits.cgroup_depth, " are allowed"));
  }
  if (machine_->tree.count() >= limits.cgroups) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cgroup ", Quoted(path), ": the node has ", machine_->tree.count(), " cgroups; no more are allowed"));
  }
  Memcg* parent = machine_->tree.Find(ParentPath(path));
  if (parent == nullptr) {
    if (!with_ancestors) {
      return absl::NotFoundError(
          absl::StrCat("cgroup ", Quoted(path), " has no parent: make ", Quoted(ParentPath(path)), " first"));
    }
    status = CreateCgroupAtCut(ParentPath(path), true);
    if (!status.ok()) return status;
    parent = machine_->tree.Find(ParentPath(path));
  }
  if (machine_->tree.all().size() >= Raw(MemcgId::kNone)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cgroup ", Quoted(path), ": the node has used all of its ", Raw(MemcgId::kNone), " ids"));
  }
  machine_->AddCpuStats(machine_->tree.Create(path, *parent).id);
  return absl::OkStatus();
}

absl::Status Node::RemoveCgroupAtCut(std::string_view path, bool happened) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  if (path == "/") return absl::FailedPreconditionError("cgroup \"/\", the root, cannot be removed");
  Memcg* memcg = machine_->tree.Find(path);
  if (memcg == nullptr) return NoCgroup(path);
  if (memcg->children > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cgroup ", Quoted(path), " has ", memcg->children, " children: remove them first"));
  }
  if (memcg->processes > 0 && !happened) {
    return absl::FailedPreconditionError(
        absl::StrCat("cgroup ", Quoted(path), " has ", memcg->processes, " processes"));
  }
  machine_->tree.TakeOffline(*memcg);
  Charges<ChosenForms> charges(*machine_);
  for (std::unique_ptr<CpuSlot>& slot : machine_->cpus) charges.DrainStock(*slot);
  FreeDyingAtCut();
  return absl::OkStatus();
}

// Frees what holds no page, process or descendant any more; a freed cgroup may have been its parent's last.
void Node::FreeDyingAtCut() {
  MemcgTree& tree = machine_->tree;
  for (auto next = tree.dying().begin(); next != tree.dying().end();) {
    Memcg& memcg = tree.Get(MemcgId{*next++});
    if (memcg.children > 0 || memcg.dying_children > 0 || memcg.processes > 0 || memcg.spaces > 0) continue;
    if (memcg.refs.load(std::memory_order_relaxed) > 0) continue;
    EndStats(*machine_, memcg);
    tree.Free(memcg.id);
  }
}

absl::Status Node::SetKnobsAtCut(std::string_view path, const std::map<std::string, std::string>& knobs) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  Memcg* memcg = machine_->tree.Find(path);
  if (memcg == nullptr) return NoCgroup(path);
  if (memcg->parent == nullptr && !knobs.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the root cgroup has no ", knobs.begin()->first));
  }
  std::map<std::string, std::string> checked;
  for (const auto& [knob, value] : knobs) {
    absl::StatusOr<std::string> shown = CheckKnob(knob, value, machine_->config.knob_sizes());
    if (!shown.ok()) return shown.status();
    checked[knob] = *shown;
  }
  for (const auto& [knob, value] : checked) {
    memcg->knobs[knob] = value;
    SetKnob(*memcg, knob, value, machine_->config.page_size);
  }
  if (machine_->config.reclaim != core::Reclaim::kModelled) return absl::OkStatus();
  // As writing the file does: what is over it goes, and at the last somebody is killed.
  WithReclaim([&](auto& workings, CpuSlot& slot) {
    if (checked.contains("memory.high") && memcg->memory.usage_pages() > memcg->reclaim.high)
      workings.reclaimer.ShrinkTo(slot, *memcg, memcg->reclaim.high);
    while (checked.contains("memory.max") && memcg->memory.usage_pages() > memcg->memory.max_pages()) {
      workings.reclaimer.ShrinkTo(slot, *memcg, memcg->memory.max_pages());
      if (memcg->memory.usage_pages() <= memcg->memory.max_pages()) break;
      if (!workings.oom.Kill(slot, *memcg, *memcg, 0)) break;
    }
  });
  FreeDyingAtCut();
  return absl::OkStatus();
}

// At a cut, with a CPU to work on.
void Node::WithReclaim(const auto& work) {
  CpuSlot& slot = *machine_->cpus[0];
  slot.now_ns = std::max(slot.now_ns, machine_->time_ns.load(std::memory_order_relaxed));
  if (HasDefaultForms(machine_->config)) {
    work(static_cast<Workings<DefaultForms>&>(*machine_), slot);
  } else {
    work(static_cast<Workings<ChosenForms>&>(*machine_), slot);
  }
}

absl::Status Node::Reclaim(std::string_view path, std::string_view request, uint64_t* reclaimed_bytes) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  absl::StatusOr<ReclaimRequest> asked = ParseReclaimRequest(request, machine_->config.page_size);
  if (!asked.ok()) return asked.status();
  if (machine_->config.reclaim != core::Reclaim::kModelled)
    return absl::FailedPreconditionError("the node does not reclaim: make it with reclaim \"modelled\"");
  Locked cut(cut_->lock);
  Memcg* memcg = machine_->tree.Find(path);
  if (memcg == nullptr) return NoCgroup(path);
  int64_t reclaimed = 0;
  WithReclaim([&](auto& workings, CpuSlot& slot) {
    reclaimed = workings.reclaimer.Proactive(slot, *memcg, asked->pages, asked->swappiness);
  });
  FreeDyingAtCut();
  if (reclaimed_bytes != nullptr)
    *reclaimed_bytes = static_cast<uint64_t>(reclaimed) * machine_->config.page_size;
  if (reclaimed >= asked->pages) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("EAGAIN: reclaimed ", reclaimed * machine_->config.page_size, " of ",
                                         asked->pages * machine_->config.page_size, " bytes of cgroup ",
                                         Quoted(path)));
}

absl::StatusOr<Node::PeakWatch> Node::OpenPeaks(std::string_view path) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  Locked cut(cut_->lock);
  Memcg* memcg = machine_->tree.Find(path);
  if (memcg == nullptr) return NoCgroup(path);
  const uint64_t watcher = peaks_->Open(*memcg);
  if (watcher == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cgroup ", Quoted(path), " has ", PeakWatches::kMost, " watches of its peaks already"));
  }
  return PeakWatch{std::string(path), Raw(memcg->id), watcher};
}

absl::StatusOr<PeakReading> Node::ReadPeaks(const PeakWatch& watch, bool reset_memory, bool reset_swap) {
  Locked cut(cut_->lock);
  Memcg* memcg = machine_->tree.Find(watch.path);
  if (memcg == nullptr || Raw(memcg->id) != watch.cgroup)
    return absl::NotFoundError(absl::StrCat("cgroup ", Quoted(watch.path), " was removed"));
  const PeakWatches::Peaks peaks = peaks_->Read(*memcg, watch.watcher);
  peaks_->Reset(*memcg, watch.watcher, reset_memory, reset_swap);
  const auto bytes = [page = machine_->config.page_size](int64_t pages) {
    return static_cast<uint64_t>(pages) * page;
  };
  return PeakReading{bytes(peaks.memory_pages), bytes(peaks.swap_pages), bytes(memcg->memory.usage_pages()),
                     bytes(memcg->swap.usage_pages())};
}

void Node::ClosePeaks(const PeakWatch& watch) {
  Locked cut(cut_->lock);
  peaks_->Close(MemcgId{static_cast<uint32_t>(watch.cgroup)}, watch.watcher);
}

std::vector<OomRecord> Node::OomRecords(uint64_t after_sequence, size_t limit) {
  Locked cut(cut_->lock);
  std::vector<OomRecord> records;
  for (const OomRecord& record : machine_->oom_records) {
    if (record.sequence > after_sequence && records.size() < limit) records.push_back(record);
  }
  return records;
}

namespace {

// By MemcgId: removed cgroups below it that are not freed yet.
std::vector<uint64_t> CountDying(const MemcgTree& tree) {
  std::vector<uint64_t> below(tree.all().size());
  for (uint32_t id : tree.dying()) {
    for (const Memcg* level = tree.Get(MemcgId{id}).parent; level != nullptr; level = level->parent) {
      ++below[Raw(level->id)];
    }
  }
  return below;
}

CgroupInfo InfoOf(const Memcg& memcg, const std::vector<uint64_t>& dying_below) {
  CgroupInfo info;
  info.path = memcg.path;
  info.id = Raw(memcg.id);
  if (memcg.parent != nullptr) info.knobs = DefaultKnobs();  // the root has none
  for (const auto& [knob, value] : memcg.knobs) info.knobs[knob] = value;
  info.processes = memcg.processes;
  info.children = memcg.children;
  info.dying_descendants = dying_below[Raw(memcg.id)];
  return info;
}

}  // namespace

absl::StatusOr<CgroupInfo> Node::GetCgroup(std::string_view path) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  Locked cut(cut_->lock);
  FreeDyingAtCut();
  Memcg* memcg = machine_->tree.Find(path);
  if (memcg == nullptr) return NoCgroup(path);
  return InfoOf(*memcg, CountDying(machine_->tree));
}

absl::StatusOr<std::vector<CgroupInfo>> Node::ListCgroups(std::string_view below, std::string_view after,
                                                          size_t limit) {
  absl::Status status = CheckCgroupPath(below);
  if (!status.ok()) return status;
  Locked cut(cut_->lock);
  FreeDyingAtCut();
  if (machine_->tree.Find(below) == nullptr) return NoCgroup(below);
  std::vector<uint64_t> dying_below = CountDying(machine_->tree);
  std::vector<CgroupInfo> infos;
  const auto& online = machine_->tree.online();
  for (auto it = online.upper_bound(after); it != online.end() && infos.size() < limit; ++it) {
    if (IsBelow(it->first, below)) infos.push_back(InfoOf(*it->second, dying_below));
  }
  return infos;
}

absl::StatusOr<CgroupReading> Node::ReadCgroup(std::string_view path, bool local, bool v1, bool fast) {
  absl::Status status = CheckCgroupPath(path);
  if (!status.ok()) return status;
  auto read = [&]() -> absl::StatusOr<CgroupReading> {
    Memcg* memcg = machine_->tree.Find(path);
    if (memcg == nullptr) return NoCgroup(path);
    return ReadReading(*machine_, *memcg, local, v1, fast);
  };
  if (fast) {  // beside batches
    SharedLocked cut(cut_->lock);
    return read();
  }
  Locked cut(cut_->lock);
  return read();
}

NodeSample Node::SampleCgroups(absl::FunctionRef<void(const CgroupSample&)> show) {
  {
    SharedLocked cut(cut_->lock);
    SampleAll(*machine_, show);
  }
  return SampleNode();
}

NodeSample Node::SampleNode() {
  SharedLocked cut(cut_->lock);
  NodeSample sample;
  sample.resident_bytes = machine_->ResidentPages() << machine_->page_shift;
  sample.memory_bytes = machine_->config.memory_bytes;
  sample.swap_bytes = machine_->config.swap_bytes;
  sample.committed_as_bytes = static_cast<uint64_t>(machine_->commit.CommittedAsPages())
                              << machine_->page_shift;
  sample.commit_limit_bytes = static_cast<uint64_t>(machine_->commit.LimitPages()) << machine_->page_shift;
  sample.events = events_.load(std::memory_order_relaxed);
  sample.streams = streams_.size();
  sample.cgroups = machine_->tree.online().size();
  sample.dying_cgroups = machine_->tree.dying().size();
  sample.oom_calls = machine_->oom_calls.load(std::memory_order_relaxed);
  sample.time_ns = machine_->time_ns.load(std::memory_order_relaxed);
  return sample;
}

absl::Status Node::WatchFileReads(std::string_view path, MissRatio* reads) {
  Locked cut(cut_->lock);
  Memcg* memcg = machine_->tree.Find(path);
  if (memcg == nullptr) return NoCgroup(path);
  memcg->file_reads = reads;
  machine_->file_reads_watched |= reads != nullptr;
  return absl::OkStatus();
}

NodeInfo Node::Info() {
  Locked cut(cut_->lock);
  FreeDyingAtCut();
  NodeInfo info;
  info.config = machine_->config;
  info.events = events_.load(std::memory_order_relaxed);
  info.streams = streams_.size();
  info.cgroups = machine_->tree.online().size();
  info.dying_cgroups = machine_->tree.dying().size();
  info.processes = machine_->table.alive.load(std::memory_order_relaxed);
  info.resident_pages = machine_->ResidentPages();
  info.committed_as_bytes = static_cast<uint64_t>(machine_->commit.CommittedAsPages())
                            << machine_->page_shift;
  info.commit_limit_bytes = static_cast<uint64_t>(machine_->commit.LimitPages()) << machine_->page_shift;
  info.counters = Counters();
  return info;
}

MechanismCounters Node::Counters() {
  MechanismCounters counters;
  for (const std::unique_ptr<CpuSlot>& slot : machine_->cpus) counters += slot->counters;
  counters.commit_spills = machine_->commit.spills();
  counters.stat_flushes = StatFlushes(*machine_);
  return counters;
}

void Node::SetOvercommit(const wide::SetOvercommit& set) {
  Locked cut(cut_->lock);
  SetOvercommitAtCut(set);
}

void Node::SetOvercommitAtCut(const wide::SetOvercommit& set) {
  CommitAccount::Policy policy = machine_->commit.policy();
  policy.mode = set.policy;
  if (set.kbytes != 0 || set.ratio_percent != 0) {  // setting one of the two zeroes the other
    policy.kbytes = set.kbytes;
    policy.ratio_percent = set.kbytes != 0 ? 0 : set.ratio_percent;
  }
  machine_->commit.SetPolicy(policy);
  machine_->config.overcommit = policy.mode;
  machine_->config.overcommit_ratio = policy.ratio_percent;
  machine_->config.overcommit_kbytes = policy.kbytes;
}

MarkState Node::ReadAllAtCut(uint64_t mark_id) {
  MarkState state;
  state.id = mark_id;
  state.committed_as_bytes = static_cast<uint64_t>(machine_->commit.CommittedAsPages())
                             << machine_->page_shift;
  std::map<MemcgId, std::array<int64_t, kStats>> exact = ReadExact(*machine_);
  for (const auto& [path, memcg] : machine_->tree.online()) {
    std::array<int64_t, kStats> shown = ShowStats(exact[memcg->id], machine_->config.page_size);
    state.cgroups.push_back({path, {shown.begin(), shown.begin() + kMemoryStatLines}});
  }
  return state;
}

}  // namespace memcgd::core
