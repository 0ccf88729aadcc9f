#include "server/wire.h"

#include <algorithm>
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

absl::Status ApplyBatch(core::Node* node, core::EventStream* stream, const v1::Batch& batch,
                        BatchWork* work) {
  work->result = core::BatchResult();
  const absl::StatusOr<core::Batch> converted = ToCore(batch, work);
  absl::Status status = converted.ok() ? node->Apply(stream, *converted, &work->result) : converted.status();
  if (status.ok()) return status;
  const std::string message(status.message());
  return WithReason(About(absl::Status(status.code(), Cat("batch ", batch.sequence(), ": ", message)),
                          {.type = "batch", .name = "", .field = FieldOf(message)}),
                    "MALFORMED_BATCH", {{"sequence", Cat(batch.sequence())}});
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

void AddToAck(uint64_t sequence, const core::BatchResult& result, v1::Ack* ack) {
  ack->set_applied_through(sequence);
  for (size_t outcome = 0; outcome < result.outcomes.size(); ++outcome) {
    const uint64_t count = result.outcomes[outcome];
    if (count == 0) continue;
    auto* counts = ack->mutable_outcomes();
    auto at = std::find_if(counts->begin(), counts->end(), [outcome](const v1::OutcomeCount& entry) {
      return entry.outcome() == static_cast<v1::Outcome>(outcome);
    });
    if (at == counts->end()) {
      ack->add_outcomes()->set_outcome(static_cast<v1::Outcome>(outcome));
      at = counts->end() - 1;
    }
    at->set_count(at->count() + count);
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
  if (from.root_usage.has_value()) {
    to->mutable_root_usage()->set_anon_and_file_bytes(from.root_usage->anon_and_file_bytes);
    to->mutable_root_usage()->set_total_less_free_bytes(from.root_usage->total_less_free_bytes);
  }
}

}  // namespace memcgd::server
