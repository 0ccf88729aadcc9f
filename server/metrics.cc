#include "server/metrics.h"

#include <algorithm>
#include <variant>

namespace memcgd::server {
namespace {

static_assert(kWideKindNames == std::variant_size_v<core::WideBody>);

constexpr std::array<std::string_view, core::kEventKinds> kKindNames = {
    "invalid",   "fault",      "file_fault",  "map_pages", "file_add", "file_delete",
    "file_read", "file_write", "file_dirty",  "mmap_anon", "munmap",   "dontneed",
    "brk",       "access",     "instruction", "readahead"};
static_assert(!kKindNames.back().empty(), "a kind of event has no name");

constexpr std::array<std::string_view, kWideKindNames> kWideNames = {"define_path",
                                                                     "define_file",
                                                                     "define_name",
                                                                     "mark",
                                                                     "mmap",
                                                                     "munmap",
                                                                     "brk",
                                                                     "mremap",
                                                                     "mprotect",
                                                                     "madvise",
                                                                     "mlock",
                                                                     "munlock",
                                                                     "clone",
                                                                     "exec",
                                                                     "exit",
                                                                     "exit_mmap",
                                                                     "comm",
                                                                     "exec_arguments",
                                                                     "file_range",
                                                                     "cgroup_create",
                                                                     "cgroup_remove",
                                                                     "cgroup_attach",
                                                                     "set_knob",
                                                                     "set_overcommit",
                                                                     "reclaim_begin",
                                                                     "reclaim_end",
                                                                     "mark_victim",
                                                                     "baseline_process",
                                                                     "baseline_area",
                                                                     "baseline_present",
                                                                     "baseline_cached",
                                                                     "migrate_folio",
                                                                     "set_oom_score_adj"};
static_assert(std::is_same_v<std::variant_alternative_t<18, core::WideBody>, core::wide::FileRange> &&
              std::is_same_v<std::variant_alternative_t<30, core::WideBody>, core::wide::BaselineCached> &&
              std::is_same_v<std::variant_alternative_t<31, core::WideBody>, core::wide::MigrateFolio> &&
              std::is_same_v<std::variant_alternative_t<32, core::WideBody>, core::wide::SetOomScoreAdj>);

constexpr std::array<std::string_view, core::kOutcomes> kOutcomeNames = {
    "unspecified", "ok",        "no_area",        "unknown_thread", "unseen_page", "enomem",
    "limit",       "no_cgroup", "cache_mismatch", "dropped",        "invalid"};

constexpr std::array<std::string_view, kBatchOutcomes> kBatchOutcomeNames = {
    "applied", "repeated", "malformed", "gap", "content_differs", "refused"};

// A counter that no batch touched costs nothing.
void Add(uint64_t count, std::atomic<uint64_t>* counter) {
  if (count != 0) counter->fetch_add(count, std::memory_order_relaxed);
}

}  // namespace

std::string_view NameOf(BatchOutcome outcome) { return kBatchOutcomeNames[static_cast<size_t>(outcome)]; }
std::string_view NameOf(core::EventKind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::string_view NameOf(core::Outcome outcome) { return kOutcomeNames[static_cast<size_t>(outcome)]; }
std::string_view WideKindName(size_t index) { return kWideNames[index]; }

void ServerMetrics::RecordApplied(const core::BatchResult& result,
                                  std::span<const uint64_t, kWideKindNames> wide_kinds,
                                  uint64_t duration_ns) {
  for (size_t i = 0; i < events_.size(); ++i) Add(result.events[i], &events_[i]);
  for (size_t i = 0; i < wide_events_.size(); ++i) Add(wide_kinds[i], &wide_events_[i]);
  for (size_t i = 0; i < outcomes_.size(); ++i) Add(result.outcomes[i], &outcomes_[i]);
  Add(1, &batches_[static_cast<size_t>(BatchOutcome::kApplied)]);
  const size_t bucket = std::lower_bound(kBoundsNs.begin(), kBoundsNs.end(), duration_ns) - kBoundsNs.begin();
  Add(1, &durations_[bucket]);
  Add(duration_ns, &duration_sum_ns_);
}

void ServerMetrics::RecordNotApplied(BatchOutcome outcome) {
  Add(1, &batches_[static_cast<size_t>(outcome)]);
}

}  // namespace memcgd::server
