#include "core/growth.h"

#include <variant>

#include "absl/container/flat_hash_set.h"
#include "core/folio.h"

namespace memcgd::core {
namespace {

// A private write fault on a file's page that nobody saw: that page, and its copy.
constexpr uint64_t kMostPagesOfFault = 2;

constexpr bool OnlyFrees(EventKind kind) {
  return kind == EventKind::kMunmap || kind == EventKind::kDontNeed || kind == EventKind::kFileDelete;
}

template <typename Body>
constexpr bool kOnlyFrees =
    std::is_same_v<Body, wide::Munmap> || std::is_same_v<Body, wide::Munlock> ||
    std::is_same_v<Body, wide::Exit> || std::is_same_v<Body, wide::ExitMmap> ||
    std::is_same_v<Body, wide::Comm> || std::is_same_v<Body, wide::CgroupRemove> ||
    std::is_same_v<Body, wide::SetKnob> || std::is_same_v<Body, wide::SetOvercommit> ||
    std::is_same_v<Body, wide::ReclaimBegin> || std::is_same_v<Body, wide::ReclaimEnd> ||
    std::is_same_v<Body, wide::MarkVictim> || std::is_same_v<Body, wide::SetOomScoreAdj>;

void AddWide(const WideEvent& wide, Growth* growth) {
  std::visit(
      [&]<typename Body>(const Body& body) {
        if constexpr (std::is_same_v<Body, wide::FileRange>) {
          if (body.op == EventKind::kFileDelete) return;
        }
        if constexpr (kOnlyFrees<Body>) return;
        ++growth->events;
        growth->pages += kMostPagesOfFault;
        growth->files += std::is_same_v<Body, wide::DefineFile> || std::is_same_v<Body, wide::Mmap> ? 1 : 0;
        growth->cgroups += std::is_same_v<Body, wide::CgroupCreate> ? 1 : 0;
        growth->marks += std::is_same_v<Body, wide::Mark> ? 1 : 0;
        growth->processes += std::is_same_v<Body, wide::Clone> ? 1 : 0;
      },
      wide.body);
}

}  // namespace

Growth& Growth::operator+=(const Growth& other) {
  events += other.events;
  pages += other.pages;
  large_pages += other.large_pages;
  files += other.files;
  processes += other.processes;
  cgroups += other.cgroups;
  marks += other.marks;
  return *this;
}

Growth& Growth::operator-=(const Growth& other) {
  events -= other.events;
  pages -= other.pages;
  large_pages -= other.large_pages;
  files -= other.files;
  processes -= other.processes;
  cgroups -= other.cgroups;
  marks -= other.marks;
  return *this;
}

Growth RoughGrowth(const Batch& batch) {
  Growth growth;
  for (const WideEvent& wide : batch.wide) AddWide(wide, &growth);
  const uint64_t events = batch.events.size();
  growth.events += events;
  growth.pages += events << FolioArena::kMaxOrder;
  growth.large_pages += events << FolioArena::kMaxOrder;
  growth.processes += events + 2 * batch.wide.size();
  return growth;
}

Growth GrowthOf(const Batch& batch, const ProcessTable& table) {
  Growth growth;
  absl::flat_hash_set<uint32_t> new_threads;
  uint32_t last = 0;
  const auto meet = [&](uint32_t tid) {
    if (tid == last) return;
    last = tid;
    if (tid != 0 && table.Find(tid) == nullptr) new_threads.insert(tid);
  };
  for (const WideEvent& wide : batch.wide) {
    AddWide(wide, &growth);
    meet(wide.tid);
    if (const auto* process = std::get_if<wide::BaselineProcess>(&wide.body)) meet(process->tgid);
    if (const auto* attach = std::get_if<wide::CgroupAttach>(&wide.body)) meet(attach->moved_tid);
  }
  for (const Event& event : batch.events) {
    meet(event.tid());
    if (OnlyFrees(event.kind())) continue;
    ++growth.events;
    if (event.kind() == EventKind::kFileAdd && event.extra() > 0) {
      growth.pages += uint64_t{1} << event.extra();
      growth.large_pages += uint64_t{1} << event.extra();
    } else {
      growth.pages += kMostPagesOfFault;
    }
  }
  growth.processes += new_threads.size();
  growth.events += new_threads.size();
  return growth;
}

}  // namespace memcgd::core
