#include "core/oom.h"

#include <algorithm>

#include "core/stat_reader.h"

namespace memcgd::core {
namespace {

bool IsBelow(const Memcg* memcg, const Memcg& top) {
  while (memcg != nullptr && memcg != &top) memcg = memcg->parent;
  return memcg != nullptr;
}

// Preorder, as mem_cgroup_scan_tasks() goes.
void ForEachBelow(const Memcg& top, const auto& visit) {
  visit(top);
  for (const Memcg* child : top.subgroups) ForEachBelow(*child, visit);
}

constexpr int32_t kExempt = -1000;  // OOM_SCORE_ADJ_MIN

}  // namespace

int64_t OomPoints(int64_t rss_pages, int64_t swap_pages, int64_t pagetable_pages, int32_t oom_score_adj,
                  int64_t total_pages) {
  return rss_pages + swap_pages + pagetable_pages + oom_score_adj * (total_pages / 1000);
}

template <class Forms>
void OomKiller<Forms>::CountPages(const Process& process,
                                  OomRecord::Victim& seen) const ABSL_NO_THREAD_SAFETY_ANALYSIS {  // at a cut
  MmId id = process.mm.load(std::memory_order_relaxed);
  if (id == MmId::kNone) return;
  Mm& mm = m_.mms.Get(Raw(id));
  auto count = [&](FolioId page) {
    if (Raw(page) <= Raw(FolioId::kZeroPage)) return;
    const Folio& folio = m_.arena.Get(page);
    if (folio.unmapped()) {
      ++seen.swap_pages;
    } else if (!folio.dead()) {
      ++seen.rss_pages;
    }
  };
  mm.page_table.ForEach({0, ~uint64_t{0}}, [&](PageNumber, Pte& pte) { count(PteFolio(pte)); });
  for (FolioId page : mm.unbound) count(page);
  mm.page_table.ForEachTable({0, ~uint64_t{0}},
                             [&](TableLevel, PageRange, MemcgId) { ++seen.pagetable_pages; });
  if (mm.pgd != MemcgId::kNone) seen.pagetable_pages += KernelMemory<Forms>::kPgdPages;
}

template <class Forms>
std::vector<typename OomKiller<Forms>::Candidate> OomKiller<Forms>::Candidates(const Memcg& at) const {
  int64_t total = at.memory.max_pages();
  if (at.parent == nullptr) {
    total = static_cast<int64_t>((m_.config.memory_bytes + m_.config.swap_bytes) >> m_.page_shift);
  } else if (at.reclaim.swappiness != 0) {  // mem_cgroup_get_max()
    int64_t all_swap = static_cast<int64_t>(m_.config.swap_bytes >> m_.page_shift);
    total += std::min(at.swap.max_pages(), all_swap);
  }
  std::vector<Candidate> candidates;
  ForEachBelow(at, [&](const Memcg& memcg) {
    std::vector<Process*> processes;
    for (uint32_t id = 1; id < m_.table.processes.end(); ++id) {
      Process& process = m_.table.processes.Get(id);
      bool alive = process.mm.load(std::memory_order_relaxed) != MmId::kNone;
      if (alive && process.memcg.load(std::memory_order_relaxed) == memcg.id) processes.push_back(&process);
    }
    // The later one has the higher id, where ids have not gone round.
    std::sort(processes.begin(), processes.end(),
              [](const Process* a, const Process* b) { return a->tgid < b->tgid; });
    for (Process* process : processes) {
      Candidate candidate{process, {}};
      candidate.seen.tgid = process->tgid;
      candidate.seen.comm = process->comm;
      candidate.seen.cgroup = memcg.path;
      candidate.seen.oom_score_adj = process->oom_score_adj;
      CountPages(*process, candidate.seen);
      candidate.seen.points = OomPoints(candidate.seen.rss_pages, candidate.seen.swap_pages,
                                        candidate.seen.pagetable_pages, process->oom_score_adj, total);
      candidates.push_back(std::move(candidate));
    }
  });
  return candidates;
}

template <class Forms>
bool OomKiller<Forms>::Kill(CpuSlot& slot, Memcg& at, Memcg& charged, uint32_t tid) {
  if (at.parent != nullptr) at.CountEvent(MemcgEvent::kOom);
  OomRecord record = Explain(at, charged, tid, slot.now_ns);
  std::vector<Candidate> candidates = Candidates(at);
  // oom_evaluate_task(): a tie goes to the later one.
  Candidate* chosen = nullptr;
  for (Candidate& candidate : candidates) {
    if (candidate.seen.oom_score_adj == kExempt) continue;
    if (chosen == nullptr || candidate.seen.points >= chosen->seen.points) chosen = &candidate;
  }
  if (chosen != nullptr) {
    // mem_cgroup_get_oom_group(): the highest one inside the domain that asks for it.
    Memcg* group = nullptr;
    for (Memcg* level = &m_.tree.Get(chosen->process->memcg.load(std::memory_order_relaxed));
         level != nullptr; level = level->parent) {
      if (level->reclaim.oom_group) group = level;
      if (level == &at) break;
    }
    MmId shared = chosen->process->mm.load(std::memory_order_relaxed);
    for (Candidate& candidate : candidates) {
      const Memcg* of = &m_.tree.Get(candidate.process->memcg.load(std::memory_order_relaxed));
      bool grouped = group != nullptr && candidate.seen.oom_score_adj != kExempt && IsBelow(of, *group);
      candidate.seen.killed =
          &candidate == chosen || grouped || candidate.process->mm.load(std::memory_order_relaxed) == shared;
    }
    for (Candidate& candidate : candidates) {
      if (!candidate.seen.killed) continue;
      m_.tree.Get(candidate.process->memcg.load(std::memory_order_relaxed)).CountEvent(MemcgEvent::kOomKill);
      processes_.Kill(slot, *candidate.process);
    }
    if (group != nullptr) group->CountEvent(MemcgEvent::kOomGroupKill);
    record.group = group != nullptr;
    m_.lru.FlushEnded(slot);
    m_.charges.FlushUncharge(slot);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.seen.killed, a.seen.points) > std::pair(b.seen.killed, b.seen.points);
  });
  for (Candidate& candidate : candidates) {
    if (record.victims.size() == OomRecord::kMostVictims) break;
    record.victims.push_back(std::move(candidate.seen));
  }
  record.sequence = m_.oom_calls.fetch_add(1, std::memory_order_relaxed) + 1;
  m_.oom_records.push_back(std::move(record));
  if (m_.oom_records.size() > Node::kMostOomRecords) m_.oom_records.pop_front();
  return chosen != nullptr;
}

template <class Forms>
OomRecord OomKiller<Forms>::Explain(const Memcg& at, const Memcg& charged, uint32_t tid,
                                    int64_t time_ns) const {
  OomRecord record;
  record.time_ns = time_ns;
  record.breached = at.path;
  record.charged = charged.path;
  record.tid = tid;
  if (const Thread* thread = tid == 0 ? nullptr : processes_.Find(tid))
    record.comm = processes_.ProcessOf(*thread).comm;
  for (const Memcg* level = &charged; level != nullptr; level = level->parent) {
    record.levels.push_back({level->path, level->memory.usage_pages(), level->memory.max_pages(),
                             level->swap.usage_pages(), level->swap.max_pages()});
  }
  ForEachBelow(at, [&](const Memcg& memcg) {
    std::array<int64_t, kStats> stats = ReadExactLocal(m_, memcg);
    auto of = [&stats](Stat stat) { return stats[static_cast<size_t>(stat)]; };
    OomRecord::Consumer consumer{memcg.path, of(Stat::kAnon), of(Stat::kFile), of(Stat::kShmem),
                                 of(Stat::kPagetables) + of(Stat::kKernelStack) / m_.config.page_size};
    OomRecord::FileLeft& left = record.file_left;
    left.pages += consumer.file_pages;
    left.dirty_pages += of(Stat::kFileDirty);
    left.writeback_pages += of(Stat::kFileWriteback);
    left.shmem_pages += consumer.shmem_pages;
    left.unevictable_pages += of(Stat::kUnevictable);
    if (&memcg != &at && memcg.emin.load(std::memory_order_relaxed) >= memcg.memory.usage_pages())
      left.protected_pages += consumer.file_pages;
    if (consumer.anon_pages + consumer.file_pages + consumer.kernel_pages > 0)
      record.consumers.push_back(std::move(consumer));
  });
  std::stable_sort(record.consumers.begin(), record.consumers.end(), [](const auto& a, const auto& b) {
    return a.anon_pages + a.file_pages + a.kernel_pages > b.anon_pages + b.file_pages + b.kernel_pages;
  });
  if (record.consumers.size() > OomRecord::kMostConsumers) record.consumers.resize(OomRecord::kMostConsumers);
  return record;
}

template class OomKiller<DefaultForms>;
template class OomKiller<ChosenForms>;

}  // namespace memcgd::core
