#include "server/wire.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string>
#include <utility>

#include "server/content_hash.h"
#include "server/errors.h"
#include "server/limits.h"
#include "server/path_text.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

namespace wide = core::wide;

static_assert(std::endian::native == std::endian::little, "Batch.words is read in place as core::Event");
static_assert(static_cast<int>(core::Outcome::kInvalid) == v1::OUTCOME_INVALID &&
                  core::kOutcomes == v1::Outcome_ARRAYSIZE,
              "the core's outcomes have the wire's numbers");

absl::StatusOr<core::OvercommitPolicy> ToCore(v1::OvercommitPolicy policy) {
  switch (policy) {
    case v1::OVERCOMMIT_POLICY_UNSPECIFIED:
    case v1::OVERCOMMIT_POLICY_GUESS:
      return core::OvercommitPolicy::kGuess;
    case v1::OVERCOMMIT_POLICY_ALWAYS:
      return core::OvercommitPolicy::kAlways;
    case v1::OVERCOMMIT_POLICY_NEVER:
      return core::OvercommitPolicy::kNever;
    default:
      return absl::InvalidArgumentError(Cat("overcommit policy ", static_cast<int>(policy), " is unknown"));
  }
}

v1::OvercommitPolicy ToWire(core::OvercommitPolicy policy) {
  switch (policy) {
    case core::OvercommitPolicy::kGuess:
      return v1::OVERCOMMIT_POLICY_GUESS;
    case core::OvercommitPolicy::kAlways:
      return v1::OVERCOMMIT_POLICY_ALWAYS;
    case core::OvercommitPolicy::kNever:
      return v1::OVERCOMMIT_POLICY_NEVER;
  }
  return v1::OVERCOMMIT_POLICY_UNSPECIFIED;
}

// Forms of the mechanisms, and of reclaim: the wire's numbers are the core's plus one, and 0 is the default.
static_assert(v1::CHARGE_ORDER_UPTODATE_FIRST == static_cast<int>(core::ChargeOrder::kUptodateFirst) + 1 &&
              v1::COMMIT_BATCH_SMALL == static_cast<int>(core::CommitBatch::kSmall) + 1 &&
              v1::CSS_REFS_PER_PAGE == static_cast<int>(core::CssRefs::kPerPage) + 1 &&
              v1::STATS_FORM_RSTAT == static_cast<int>(core::StatsForm::kRstat) + 1 &&
              v1::LRU_LOCK_PER_NODE == static_cast<int>(core::LruLock::kPerNode) + 1 &&
              v1::RECLAIM_MODE_MODELLED == static_cast<int>(core::Reclaim::kModelled) + 1);

// `forms` is the number of values that the wire's enum has, the unspecified one included.
template <typename Form>
absl::Status SetForm(std::string_view field, int wire, int forms, Form* form) {
  if (wire < 0 || wire >= forms) {
    return BadField(std::string(field), Cat("form ", wire, " is unknown"));
  }
  if (wire != 0) *form = static_cast<Form>(wire - 1);
  return absl::OkStatus();
}

absl::StatusOr<core::Mechanisms> ToCore(const v1::Mechanisms& from) {
  core::Mechanisms to;
  absl::Status status = SetForm("spec.mechanisms.charge_order", from.charge_order(),
                                v1::ChargeOrder_ARRAYSIZE, &to.charge_order);
  status.Update(SetForm("spec.mechanisms.commit_batch", from.commit_batch(), v1::CommitBatch_ARRAYSIZE,
                        &to.commit_batch));
  status.Update(SetForm("spec.mechanisms.css_refs", from.css_refs(), v1::CssRefs_ARRAYSIZE, &to.css_refs));
  status.Update(SetForm("spec.mechanisms.stats", from.stats(), v1::StatsForm_ARRAYSIZE, &to.stats));
  status.Update(SetForm("spec.mechanisms.lru_lock", from.lru_lock(), v1::LruLock_ARRAYSIZE, &to.lru_lock));
  if (!status.ok()) return status;
  return to;
}

void FillMechanisms(const core::Mechanisms& from, v1::Mechanisms* to) {
  to->set_charge_order(static_cast<v1::ChargeOrder>(static_cast<int>(from.charge_order) + 1));
  to->set_commit_batch(static_cast<v1::CommitBatch>(static_cast<int>(from.commit_batch) + 1));
  to->set_css_refs(static_cast<v1::CssRefs>(static_cast<int>(from.css_refs) + 1));
  to->set_stats(static_cast<v1::StatsForm>(static_cast<int>(from.stats) + 1));
  to->set_lru_lock(static_cast<v1::LruLock>(static_cast<int>(from.lru_lock) + 1));
}

absl::StatusOr<core::EventKind> ToCore(v1::FileRange::Op op) {
  switch (op) {
    case v1::FileRange::OP_ADD:
      return core::EventKind::kFileAdd;
    case v1::FileRange::OP_DELETE:
      return core::EventKind::kFileDelete;
    case v1::FileRange::OP_FAULT:
      return core::EventKind::kFileFault;
    case v1::FileRange::OP_MAP_PAGES:
      return core::EventKind::kMapPages;
    case v1::FileRange::OP_READ:
      return core::EventKind::kFileRead;
    case v1::FileRange::OP_WRITE:
      return core::EventKind::kFileWrite;
    case v1::FileRange::OP_DIRTY:
      return core::EventKind::kFileDirty;
    case v1::FileRange::OP_READAHEAD:
      return core::EventKind::kReadahead;
    default:
      return absl::InvalidArgumentError(Cat("file range operation ", static_cast<int>(op), " is unknown"));
  }
}

wide::Mmap ToCore(const v1::Mmap& from) {
  return {.address = from.address(),
          .length = from.length(),
          .prot = from.prot(),
          .flags = from.flags(),
          .file = from.file(),
          .offset = from.offset()};
}

// Handles and the mark.
bool ConvertName(const v1::SideEvent& from, core::WideBody* to) {
  switch (from.event_case()) {
    case v1::SideEvent::kDefinePath:
      *to = wide::DefinePath{from.define_path().handle(), from.define_path().path()};
      return true;
    case v1::SideEvent::kDefineFile: {
      const v1::DefineFile& file = from.define_file();
      *to = wide::DefineFile{file.handle(), file.dev(), file.ino(), file.shmem()};
      return true;
    }
    case v1::SideEvent::kDefineName:
      *to = wide::DefineName{from.define_name().handle(), from.define_name().name()};
      return true;
    case v1::SideEvent::kMark:
      *to = wide::Mark{from.mark().id()};
      return true;
    default:
      return false;
  }
}

// What changes an address space.
bool ConvertAddressSpace(const v1::SideEvent& from, core::WideBody* to) {
  switch (from.event_case()) {
    case v1::SideEvent::kMmap:
      *to = ToCore(from.mmap());
      return true;
    case v1::SideEvent::kMunmap:
      *to = wide::Munmap{from.munmap().address(), from.munmap().length()};
      return true;
    case v1::SideEvent::kBrk:
      *to = wide::Brk{from.brk().address()};
      return true;
    case v1::SideEvent::kMremap: {
      const v1::Mremap& move = from.mremap();
      *to = wide::Mremap{move.old_address(), move.old_length(), move.new_address(), move.new_length(),
                         move.flags()};
      return true;
    }
    case v1::SideEvent::kMprotect:
      *to = wide::Mprotect{from.mprotect().address(), from.mprotect().length(), from.mprotect().prot()};
      return true;
    case v1::SideEvent::kMadvise:
      *to = wide::Madvise{from.madvise().address(), from.madvise().length(), from.madvise().advice()};
      return true;
    case v1::SideEvent::kMlock:
      *to = wide::Mlock{from.mlock().address(), from.mlock().length(), from.mlock().on_fault()};
      return true;
    case v1::SideEvent::kMunlock:
      *to = wide::Munlock{from.munlock().address(), from.munlock().length()};
      return true;
    default:
      return false;
  }
}

// Life of threads and processes, and reclaim as the trace recorded it.
bool ConvertProcess(const v1::SideEvent& from, core::WideBody* to) {
  switch (from.event_case()) {
    case v1::SideEvent::kClone:
      *to = wide::Clone{from.clone().child_tid(), from.clone().thread(), from.clone().shares_mm()};
      return true;
    case v1::SideEvent::kExec:
      *to = wide::Exec{from.exec().name()};
      return true;
    case v1::SideEvent::kExecArguments:
      *to = wide::ExecArguments{from.exec_arguments().pages()};
      return true;
    case v1::SideEvent::kExit:
      *to = wide::Exit{from.exit().group_dead()};
      return true;
    case v1::SideEvent::kExitMmap:
      *to = wide::ExitMmap{};
      return true;
    case v1::SideEvent::kComm:
      *to = wide::Comm{from.comm().name()};
      return true;
    case v1::SideEvent::kSetOomScoreAdj: {
      const v1::SetOomScoreAdj& set = from.set_oom_score_adj();
      *to = wide::SetOomScoreAdj{set.target_tid(), set.oom_score_adj()};
      return true;
    }
    case v1::SideEvent::kReclaimBegin:
      *to = wide::ReclaimBegin{};
      return true;
    case v1::SideEvent::kReclaimEnd:
      *to = wide::ReclaimEnd{from.reclaim_end().reclaimed_pages()};
      return true;
    case v1::SideEvent::kMarkVictim:
      *to = wide::MarkVictim{from.mark_victim().victim_tid()};
      return true;
    default:
      return false;
  }
}

// Cgroups and what existed before the stream; the policy is an enum and converted apart.
bool ConvertCgroupOrBaseline(const v1::SideEvent& from, core::WideBody* to) {
  switch (from.event_case()) {
    case v1::SideEvent::kCgroupCreate:
      *to = wide::CgroupCreate{from.cgroup_create().path()};
      return true;
    case v1::SideEvent::kCgroupRemove:
      *to = wide::CgroupRemove{from.cgroup_remove().path()};
      return true;
    case v1::SideEvent::kCgroupAttach:
      *to = wide::CgroupAttach{from.cgroup_attach().path(), from.cgroup_attach().moved_tid()};
      return true;
    case v1::SideEvent::kSetKnob:
      *to = wide::SetKnob{from.set_knob().path(), from.set_knob().knob(), from.set_knob().value()};
      return true;
    case v1::SideEvent::kMigrateFolio: {
      const v1::MigrateFolio& migrate = from.migrate_folio();
      *to = wide::MigrateFolio{migrate.path(), migrate.file(), migrate.index(), migrate.address()};
      return true;
    }
    case v1::SideEvent::kBaselineProcess: {
      const v1::BaselineProcess& process = from.baseline_process();
      *to = wide::BaselineProcess{process.tgid(), process.cgroup(), process.name()};
      return true;
    }
    case v1::SideEvent::kBaselineArea:
      *to = wide::BaselineArea{ToCore(from.baseline_area().area())};
      return true;
    case v1::SideEvent::kBaselinePresent: {
      const v1::BaselinePresent& present = from.baseline_present();
      *to = wide::BaselinePresent{present.address(), present.pages(), present.anonymous()};
      return true;
    }
    case v1::SideEvent::kBaselineCached: {
      const v1::BaselineCached& cached = from.baseline_cached();
      *to = wide::BaselineCached{cached.file(),   cached.index(),  cached.pages(),
                                 cached.cgroup(), cached.active(), cached.dirty()};
      return true;
    }
    default:
      return false;
  }
}

absl::Status ConvertBody(const v1::SideEvent& from, core::WideBody* to) {
  switch (from.event_case()) {
    case v1::SideEvent::EVENT_NOT_SET:
      return absl::InvalidArgumentError("no event that this server knows is set");
    case v1::SideEvent::kFileRange: {
      const v1::FileRange& range = from.file_range();
      const absl::StatusOr<core::EventKind> op = ToCore(range.op());
      if (!op.ok()) return op.status();
      *to = wide::FileRange{*op, range.file(), range.index(), range.count(), range.order()};
      return absl::OkStatus();
    }
    case v1::SideEvent::kSetOvercommit: {
      const absl::StatusOr<core::OvercommitPolicy> policy = ToCore(from.set_overcommit().policy());
      if (!policy.ok()) return policy.status();
      *to =
          wide::SetOvercommit{*policy, from.set_overcommit().ratio_percent(), from.set_overcommit().kbytes()};
      return absl::OkStatus();
    }
    default:
      break;
  }
  if (ConvertName(from, to) || ConvertAddressSpace(from, to) || ConvertProcess(from, to) ||
      ConvertCgroupOrBaseline(from, to)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(Cat("event ", static_cast<int>(from.event_case()), " is not handled"));
}

absl::Status ConvertSide(const v1::Batch& batch, BatchWork* work) {
  work->wide.clear();
  work->wide.resize(batch.side_size());
  work->wide_kinds.fill(0);
  size_t marks = 0;
  for (int i = 0; i < batch.side_size(); ++i) {
    const v1::SideEvent& from = batch.side(i);
    core::WideEvent& to = work->wide[i];
    to.position = from.position();
    to.cpu = from.cpu();
    to.tid = from.tid();
    if (__builtin_add_overflow(batch.base_time_ns(), from.time_offset_ns(), &to.time_ns)) {
      return absl::InvalidArgumentError(Cat("side event ", i, ": its time does not fit 64 bits"));
    }
    const absl::Status status = ConvertBody(from, &to.body);
    if (!status.ok())
      return absl::InvalidArgumentError(Cat("side event ", i, ": ", std::string(status.message())));
    if (from.has_mark() && ++marks > kMaxBatchMarks) {
      return absl::InvalidArgumentError(
          Cat("side event ", i, ": more than ", kMaxBatchMarks, " marks in a batch"));
    }
    ++work->wide_kinds[to.body.index()];
  }
  return absl::OkStatus();
}

// The field of the batch that a message of the core is about: "event 17: …" or "side event 3: …".
std::string FieldOf(std::string_view message) {
  const auto number_after = [&message](std::string_view prefix) {
    const size_t end = message.find(':');
    return end == message.npos || end < prefix.size() ? std::string_view()
                                                      : message.substr(prefix.size(), end - prefix.size());
  };
  constexpr std::string_view kFrequent = "event ", kSide = "side event ";
  if (message.starts_with(kFrequent)) {
    size_t index = 0;
    if (absl::SimpleAtoi(Piece(number_after(kFrequent)), &index)) return Cat("batch.words[", 2 * index, "]");
  } else if (message.starts_with(kSide)) {
    return Cat("batch.side[", number_after(kSide), "]");
  }
  return "batch";
}

}  // namespace

absl::StatusOr<core::Batch> ToCore(const v1::Batch& batch, BatchWork* work) {
  const size_t words = batch.words_size();
  if (words % 2 != 0) {
    return absl::InvalidArgumentError(
        Cat("event ", words / 2, ": has one word; ", words, " words are not pairs"));
  }
  if (words / 2 + batch.side_size() > kMaxBatchEvents) {
    return absl::InvalidArgumentError(
        Cat(words / 2 + batch.side_size(), " events in a batch; at most ", kMaxBatchEvents, " are allowed"));
  }
  const absl::Status status = ConvertSide(batch, work);
  if (!status.ok()) return status;
  // Two uint64_t in a row have the size, alignment and bits of an Event, which has nothing but two uint64_t.
  static_assert(sizeof(core::Event) == 2 * sizeof(uint64_t) && alignof(core::Event) == alignof(uint64_t));
  return core::Batch{.base_time_ns = batch.base_time_ns(),
                     .events = {reinterpret_cast<const core::Event*>(batch.words().data()), words / 2},
                     .wide = work->wide};
}

namespace {

// What the core says of the batch, for the wire.
absl::Status Malformed(const v1::Batch& batch, const absl::Status& status) {
  const std::string message(status.message());
  return WithReason(About(absl::Status(status.code(), Cat("batch ", batch.sequence(), ": ", message)),
                          {.type = "batch", .name = "", .field = FieldOf(message)}),
                    "MALFORMED_BATCH", {{"sequence", Cat(batch.sequence())}});
}

}  // namespace

absl::Status ApplyBatch(core::Node* node, core::EventStream* stream, const v1::Batch& batch,
                        BatchWork* work) {
  work->result = core::BatchResult();
  const absl::StatusOr<core::Batch> converted = ToCore(batch, work);
  absl::Status status = converted.ok() ? node->Apply(stream, *converted, &work->result) : converted.status();
  return status.ok() ? status : Malformed(batch, status);
}

uint64_t HashOf(const v1::Batch& batch) {
  ContentHash hash;
  hash.Add(static_cast<uint64_t>(batch.base_time_ns()));
  hash.AddWords(batch.words().data(), batch.words_size());
  std::string bytes;
  for (const v1::SideEvent& event : batch.side()) {
    // Side events hold no map: equal ones have equal bytes.
    event.SerializeToString(&bytes);
    hash.AddBytes(bytes);
  }
  return hash.Value();
}

namespace {

using OutcomeCounts = google::protobuf::RepeatedPtrField<v1::OutcomeCount>;

void AddOutcomes(const std::array<uint64_t, core::kOutcomes>& from, OutcomeCounts* counts) {
  for (size_t outcome = 0; outcome < from.size(); ++outcome) {
    const uint64_t count = from[outcome];
    if (count == 0) continue;
    auto at = std::find_if(counts->begin(), counts->end(), [outcome](const v1::OutcomeCount& entry) {
      return entry.outcome() == static_cast<v1::Outcome>(outcome);
    });
    if (at == counts->end()) {
      counts->Add()->set_outcome(static_cast<v1::Outcome>(outcome));
      at = counts->end() - 1;
    }
    at->set_count(at->count() + count);
  }
}

}  // namespace

void AddToAck(uint64_t sequence, const core::BatchResult& result, v1::Ack* ack) {
  ack->set_applied_through(sequence);
  AddOutcomes(result.outcomes, ack->mutable_outcomes());
  ack->set_high_delay_us(ack->high_delay_us() +
                         static_cast<uint64_t>(std::max<int64_t>(result.high_delay_us, 0)));
  for (const uint64_t oom : result.ooms) ack->add_ooms(oom);
  if (ack->ooms_size() > kMaxOomsPerAck) {
    ack->mutable_ooms()->erase(ack->ooms().begin(), ack->ooms().end() - kMaxOomsPerAck);
  }
  for (const core::Notable& from : result.notables) {
    if (static_cast<size_t>(ack->notables_size()) == kMaxNotablesPerAck) break;
    v1::Notable* to = ack->add_notables();
    to->set_sequence(sequence);
    to->set_position(from.position);
    to->set_outcome(static_cast<v1::Outcome>(from.outcome));
    to->set_detail(PathToText(from.detail));  // may name a path
  }
}

void FillState(const core::MarkState& from, v1::State* to) {
  to->set_id(from.id);
  to->set_committed_as_bytes(from.committed_as_bytes);
  for (const std::string_view name : core::MemoryStatNames()) to->add_stat_names(std::string(name));
  to->mutable_cgroups()->Reserve(static_cast<int>(from.cgroups.size()));
  for (const core::CgroupState& cgroup : from.cgroups) {
    v1::CgroupState* state = to->add_cgroups();
    state->set_path(PathToText(cgroup.path));
    state->mutable_stat()->Add(cgroup.stat.begin(), cgroup.stat.end());
  }
}

absl::StatusOr<core::NodeConfig> ToCore(const v1::NodeSpec& spec) {
  const absl::StatusOr<core::OvercommitPolicy> policy = ToCore(spec.overcommit());
  if (!policy.ok()) return BadField("spec.overcommit", std::string(policy.status().message()));
  const absl::StatusOr<core::Mechanisms> mechanisms = ToCore(spec.mechanisms());
  if (!mechanisms.ok()) return mechanisms.status();
  core::NodeConfig config;
  const absl::Status reclaim =
      SetForm("spec.reclaim", spec.reclaim(), v1::ReclaimMode_ARRAYSIZE, &config.reclaim);
  if (!reclaim.ok()) return reclaim;
  if (spec.cpus() != 0) config.cpus = spec.cpus();
  if (spec.memory_bytes() != 0) config.memory_bytes = spec.memory_bytes();
  config.swap_bytes = spec.swap_bytes();
  if (spec.page_size() != 0) config.page_size = spec.page_size();
  config.zero_page = !spec.no_zero_page();
  config.overcommit = *policy;
  if (spec.overcommit_ratio() != 0) config.overcommit_ratio = spec.overcommit_ratio();
  config.overcommit_kbytes = spec.overcommit_kbytes();
  if (spec.has_writeback_bytes_per_second())
    config.writeback_bytes_per_second = spec.writeback_bytes_per_second();
  if (spec.has_read_bytes_per_second()) config.read_bytes_per_second = spec.read_bytes_per_second();
  config.mechanisms = *mechanisms;
  return config;
}

absl::StatusOr<core::wide::SetOvercommit> ToCore(const v1::SetOvercommitRequest& request) {
  const absl::StatusOr<core::OvercommitPolicy> policy = ToCore(request.policy());
  if (!policy.ok()) return BadField("policy", std::string(policy.status().message()));
  if (request.ratio_percent() != 0 && request.kbytes() != 0) {
    return BadField("kbytes", Cat("ratio_percent ", request.ratio_percent(), " and kbytes ", request.kbytes(),
                                  " are both set; setting one sets the other to 0"));
  }
  return wide::SetOvercommit{*policy, request.ratio_percent(), request.kbytes()};
}

void FillNode(const core::NodeInfo& from, v1::Node* to) {
  v1::NodeSpec* spec = to->mutable_spec();
  spec->set_cpus(from.config.cpus);
  spec->set_memory_bytes(from.config.memory_bytes);
  spec->set_swap_bytes(from.config.swap_bytes);
  spec->set_page_size(from.config.page_size);
  spec->set_no_zero_page(!from.config.zero_page);
  spec->set_overcommit(ToWire(from.config.overcommit));
  spec->set_overcommit_ratio(from.config.overcommit_ratio);
  spec->set_overcommit_kbytes(from.config.overcommit_kbytes);
  FillMechanisms(from.config.mechanisms, spec->mutable_mechanisms());
  spec->set_reclaim(static_cast<v1::ReclaimMode>(static_cast<int>(from.config.reclaim) + 1));
  spec->set_writeback_bytes_per_second(from.config.writeback_bytes_per_second);
  spec->set_read_bytes_per_second(from.config.read_bytes_per_second);
  to->set_streams(from.streams);
  to->set_events(from.events);
  to->set_cgroups(from.cgroups);
  to->set_dying_cgroups(from.dying_cgroups);
  to->set_processes(from.processes);
  to->set_resident_pages(from.resident_pages);
  to->set_committed_as_bytes(from.committed_as_bytes);
  to->set_commit_limit_bytes(from.commit_limit_bytes);
  v1::MechanismCounters* counters = to->mutable_mechanism_counters();
#define MEMCGD_SET_COUNTER(field, help) counters->set_##field(from.counters.field);
  MEMCGD_MECHANISM_COUNTERS(MEMCGD_SET_COUNTER)
#undef MEMCGD_SET_COUNTER
}

void FillCgroup(const core::CgroupInfo& from, v1::Cgroup* to) {
  to->set_path(PathToText(from.path));
  to->set_id(from.id);
  for (const auto& [name, value] : from.knobs) (*to->mutable_knobs())[name] = value;
  to->set_processes(from.processes);
  to->set_children(from.children);
  to->set_dying_descendants(from.dying_descendants);
}

void FillReading(const core::CgroupReading& from, v1::ReadCgroupResponse* to) {
  const auto fill = [](const std::vector<core::StatLine>& lines, auto* items) {
    for (const auto& [name, value] : lines) {
      v1::StatItem* item = items->Add();
      item->set_name(std::string(name));
      item->set_value(value);
    }
  };
  if (from.current_bytes.has_value()) to->set_current_bytes(*from.current_bytes);
  to->set_peak_bytes(from.peak_bytes);
  fill(from.stat, to->mutable_stat());
  fill(from.events, to->mutable_events());
  to->set_error_bound(from.error_bound);
  to->set_swap_current_bytes(from.swap_current_bytes);
  to->set_swap_peak_bytes(from.swap_peak_bytes);
  fill(from.swap_events, to->mutable_swap_events());
  to->set_high_delay_us(from.high_delay_us);
  if (from.root_usage.has_value()) {
    to->mutable_root_usage()->set_anon_and_file_bytes(from.root_usage->anon_and_file_bytes);
    to->mutable_root_usage()->set_total_less_free_bytes(from.root_usage->total_less_free_bytes);
  }
}

absl::Status ReadPeaks(core::Node* node, const PeakWatch& watch, const v1::WatchPeakRequest& request,
                       v1::WatchPeakResponse* to) {
  const absl::StatusOr<core::PeakReading> peaks =
      node->ReadPeaks(watch, request.reset_memory(), request.reset_swap());
  if (!peaks.ok()) return peaks.status();
  to->set_memory_peak_bytes(peaks->memory_peak_bytes);
  to->set_swap_peak_bytes(peaks->swap_peak_bytes);
  to->set_memory_current_bytes(peaks->memory_current_bytes);
  to->set_swap_current_bytes(peaks->swap_current_bytes);
  return absl::OkStatus();
}

// ---- OOM

namespace {

class PagesToBytes {
 public:
  explicit PagesToBytes(uint32_t page_size) : page_size_(page_size) {}
  uint64_t operator()(int64_t pages) const {
    return static_cast<uint64_t>(std::max<int64_t>(pages, 0)) * page_size_;
  }
  // Absent where there is no limit.
  template <typename Set>
  void Limit(int64_t pages, Set set) const {
    if (pages < INT64_MAX / 4096) set((*this)(pages));
  }

 private:
  const uint64_t page_size_;
};

void FillOomRecord(const core::OomRecord& from, PagesToBytes bytes, v1::OomRecord* to) {
  to->set_sequence(from.sequence);
  to->set_time_ns(from.time_ns);
  to->set_breached(PathToText(from.breached));
  to->set_charged(PathToText(from.charged));
  to->set_tid(from.tid);
  to->set_comm(PathToText(from.comm));
  for (const core::OomRecord::Level& level : from.levels) {
    v1::OomLevel* added = to->add_levels();
    added->set_path(PathToText(level.path));
    added->set_usage_bytes(bytes(level.usage_pages));
    bytes.Limit(level.max_pages, [added](uint64_t max) { added->set_max_bytes(max); });
    added->set_swap_bytes(bytes(level.swap_pages));
    bytes.Limit(level.swap_max_pages, [added](uint64_t max) { added->set_swap_max_bytes(max); });
  }
  for (const core::OomRecord::Victim& victim : from.victims) {
    v1::OomVictim* added = to->add_victims();
    added->set_tgid(victim.tgid);
    added->set_comm(PathToText(victim.comm));
    added->set_cgroup(PathToText(victim.cgroup));
    added->set_points(victim.points);
    added->set_rss_pages(victim.rss_pages);
    added->set_swap_pages(victim.swap_pages);
    added->set_pagetable_pages(victim.pagetable_pages);
    added->set_oom_score_adj(victim.oom_score_adj);
    added->set_killed(victim.killed);
  }
  for (const core::OomRecord::Consumer& consumer : from.consumers) {
    v1::OomConsumer* added = to->add_consumers();
    added->set_path(PathToText(consumer.path));
    added->set_anon_bytes(bytes(consumer.anon_pages));
    added->set_file_bytes(bytes(consumer.file_pages));
    added->set_shmem_bytes(bytes(consumer.shmem_pages));
    added->set_kernel_bytes(bytes(consumer.kernel_pages));
  }
  v1::OomFileLeft* left = to->mutable_file_left();
  left->set_bytes(bytes(from.file_left.pages));
  left->set_dirty_bytes(bytes(from.file_left.dirty_pages));
  left->set_writeback_bytes(bytes(from.file_left.writeback_pages));
  left->set_shmem_bytes(bytes(from.file_left.shmem_pages));
  left->set_unevictable_bytes(bytes(from.file_left.unevictable_pages));
  left->set_protected_bytes(bytes(from.file_left.protected_pages));
  to->set_group(from.group);
}

}  // namespace

std::vector<v1::OomRecord> OomRecordsOf(core::Node* node, uint64_t after_sequence, size_t limit) {
  const PagesToBytes bytes(node->Info().config.page_size);
  std::vector<v1::OomRecord> records;
  for (const core::OomRecord& record : node->OomRecords(after_sequence, limit)) {
    FillOomRecord(record, bytes, &records.emplace_back());
  }
  return records;
}

// ---- sweeps

namespace {

absl::Status AddChange(const v1::Change& from, core::SweepPoint* to) {
  switch (from.change_case()) {
    case v1::Change::kKnob:
      to->knobs.push_back({PathFromText(from.knob().path()), from.knob().knob(), from.knob().value()});
      return absl::OkStatus();
    case v1::Change::kOvercommit: {
      const absl::StatusOr<core::OvercommitPolicy> policy = ToCore(from.overcommit().policy());
      if (!policy.ok()) return policy.status();
      to->overcommit =
          wide::SetOvercommit{*policy, from.overcommit().ratio_percent(), from.overcommit().kbytes()};
      return absl::OkStatus();
    }
    case v1::Change::kMechanisms: {
      const absl::StatusOr<core::Mechanisms> mechanisms = ToCore(from.mechanisms());
      if (!mechanisms.ok()) return mechanisms.status();
      to->mechanisms = *mechanisms;
      return absl::OkStatus();
    }
    case v1::Change::kReclaim: {
      core::Reclaim reclaim = core::Reclaim::kRecorded;
      const absl::Status status = SetForm("reclaim", from.reclaim(), v1::ReclaimMode_ARRAYSIZE, &reclaim);
      to->reclaim = reclaim;
      return status;
    }
    case v1::Change::CHANGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a change is empty, or of a later version");
}

absl::StatusOr<std::vector<core::SweepPoint>> ToCore(const v1::SweepPoints& from) {
  std::vector<core::SweepPoint> points(from.points_size());
  for (int i = 0; i < from.points_size(); ++i) {
    if (static_cast<size_t>(from.points(i).changes_size()) > kMaxPointChanges) {
      return absl::ResourceExhaustedError(
          Cat("point ", i, ": at most ", kMaxPointChanges, " changes are allowed"));
    }
    for (const v1::Change& change : from.points(i).changes()) {
      const absl::Status status = AddChange(change, &points[i]);
      if (!status.ok()) {
        return absl::InvalidArgumentError(Cat("point ", i, ": ", std::string(status.message())));
      }
    }
  }
  return points;
}

void FillCurve(const core::MissRatioCurve& from, uint32_t page_size, v1::MissRatioCurve* to) {
  to->set_references(from.references);
  to->set_distinct_pages(from.distinct_pages);
  to->set_sampling_rate(from.sampling_rate);
  for (const core::MissRatioCurve::Point& point : from.points) {
    v1::MissRatioPoint* added = to->add_points();
    added->set_cache_bytes(point.cache_pages * page_size);
    added->set_miss_ratio(point.miss_ratio);
  }
}

void FillOutcome(const core::CgroupOutcome& from, uint32_t page_size, v1::CgroupResult* to) {
  to->set_path(PathToText(from.path));
  to->set_peak_bytes(from.peak_bytes);
  to->set_usage_bytes(from.usage_bytes);
  to->set_refaults_file(from.refaults_file);
  to->set_refaults_anon(from.refaults_anon);
  to->set_major_faults(from.major_faults);
  to->set_pgscan(from.pgscan);
  to->set_pgsteal(from.pgsteal);
  to->set_high_events(from.high_events);
  to->set_high_delay_us(from.high_delay_us);
  to->set_max_events(from.max_events);
  to->set_oom_kills(from.oom_kills);
  if (from.miss_ratio.has_value()) FillCurve(*from.miss_ratio, page_size, to->mutable_miss_ratio());
}

std::unique_ptr<HeldSweep> MakeSweep(std::unique_ptr<core::Node> base, bool is_new) {
  const uint32_t page_size = base->Info().config.page_size;
  return std::make_unique<HeldSweep>(std::make_unique<core::Sweep>(std::move(base), is_new), page_size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HeldSweep>> NewSweep(const v1::NodeSpec& spec) {
  const absl::StatusOr<core::NodeConfig> config = ToCore(spec);
  if (!config.ok()) return config.status();
  absl::StatusOr<std::unique_ptr<core::Node>> base = core::Node::Create(*config);
  if (!base.ok()) return About(base.status(), {.type = "", .name = "", .field = "start.spec"});
  return MakeSweep(*std::move(base), true);
}

std::unique_ptr<HeldSweep> ForkSweep(core::Node* node) { return MakeSweep(node->Fork(), false); }

absl::Status HeldSweep::Add(std::shared_ptr<const v1::SweepRequest> request) {
  struct Held {
    std::shared_ptr<const v1::SweepRequest> request;
    BatchWork work;
  };
  const auto held = std::make_shared<Held>();
  held->request = std::move(request);
  const v1::Batch& batch = held->request->batch();
  const absl::StatusOr<core::Batch> converted = ToCore(batch, &held->work);
  const absl::Status status = converted.ok() ? core_->Add(*converted, held) : converted.status();
  return status.ok() ? status : Malformed(batch, status);
}

absl::Status HeldSweep::Prepare(const v1::SweepPoints& points) {
  absl::StatusOr<std::vector<core::SweepPoint>> converted = ToCore(points);
  const Subject subject = {.type = "cgroup", .name = "", .field = "points"};
  if (!converted.ok()) return About(converted.status(), subject);
  std::vector<std::string> cgroups;
  for (const std::string& path : points.cgroups()) cgroups.push_back(PathFromText(path));
  return About(core_->Prepare(*std::move(converted), std::move(cgroups), points.miss_ratio()), subject);
}

absl::Status HeldSweep::Run(size_t point, absl::FunctionRef<bool(uint64_t events)> went_on,
                            v1::PointResult* to) const {
  const absl::StatusOr<core::PointOutcome> outcome = core_->Run(point, went_on);
  if (!outcome.ok()) return outcome.status();
  to->set_index(static_cast<uint32_t>(point));
  for (const core::CgroupOutcome& cgroup : outcome->cgroups)
    FillOutcome(cgroup, page_size_, to->add_cgroups());
  to->set_committed_as_bytes(outcome->committed_as_bytes);
  AddOutcomes(outcome->outcomes, to->mutable_outcomes());
  return absl::OkStatus();
}

}  // namespace memcgd::server
