#include "core/invariants.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/kernel_memory.h"
#include "core/stat_reader.h"

namespace memcgd::core {
namespace {

// What the pages themselves say.
struct Recount {
  std::vector<uint32_t> mappings;                  // by page: entries of page tables
  std::vector<uint32_t> refs;                      // by head
  std::vector<bool> cached;                        // by page
  std::vector<std::array<int64_t, kStats>> stats;  // by cgroup, its own
  std::vector<int64_t> charged;                    // by cgroup, its own, pages
  std::vector<int64_t> stock_refs;                 // by cgroup: references of stocks, beyond one a page
  int64_t committed = 0;
};

class Checker {
 public:
  explicit Checker(Machine& machine) : m_(machine) {
    count_.mappings.resize(m_.arena.end());
    count_.refs.resize(m_.arena.end());
    count_.cached.resize(m_.arena.end());
    count_.stats.resize(m_.tree.all().size());
    count_.charged.resize(m_.tree.all().size());
    count_.stock_refs.resize(m_.tree.all().size());
  }

  std::string Run() {
    CountSpaces();
    CountStacks();
    CountFiles();
    CountBatches();
    if (!wrong_.empty()) return wrong_;
    CheckFolios();
    CheckLists();
    CheckMemcgs();
    int64_t committed = m_.commit.counter().Sum();
    if (wrong_.empty() && committed != count_.committed) {
      wrong_ = absl::StrCat("Committed_AS says ", committed, " pages, areas ", count_.committed);
    }
    return wrong_;
  }

 private:
  void Wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  int64_t& StatOf(MemcgId memcg, Stat stat) { return count_.stats[Raw(memcg)][static_cast<size_t>(stat)]; }

  void CountKernel(MemcgId memcg, Stat stat, int64_t pages) {
    if (memcg == MemcgId::kRoot || memcg == MemcgId::kNone) return;
    count_.charged[Raw(memcg)] += pages;
    StatOf(memcg, stat) += UnitOf(stat) == StatUnit::kBytes ? pages << m_.page_shift : pages;
  }

  void CountTables(Mm& mm) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    CountKernel(mm.pgd, Stat::kPagetables, KernelMemory<DefaultForms>::kPgdPages);
    auto count = [&](TableLevel level, PageRange span, MemcgId memcg) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      CountKernel(memcg, Stat::kPagetables, 1);
      for (TableLevel above : {TableLevel::kPmd, TableLevel::kPud}) {
        if (level < above && !mm.page_table.Exists(span.first, above))
          Wrong(absl::StrCat("address space ", Raw(mm.id), ": no table above that of page ", span.first));
      }
    };
    mm.page_table.ForEachTable({0, ~uint64_t{0}}, count);
  }

  void CountStacks() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    uint32_t pages = std::max(KernelMemory<DefaultForms>::kStackBytes >> m_.page_shift, 1u);
    for (uint32_t id = 1; id < m_.table.processes.end(); ++id) {
      for (const auto& [memcg, stacks] : m_.table.processes.Get(id).stacks)
        CountKernel(memcg, Stat::kKernelStack, int64_t{pages} * stacks);
    }
  }

  void CountMapping(FolioId page) {
    FolioId head = m_.arena.HeadOf(page);
    if (++count_.mappings[Raw(page)] == 1 && page != head) ++count_.refs[Raw(head)];
  }

  void CountSpaces() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (uint32_t id = 1; id < m_.mms.end(); ++id) {
      Mm& mm = m_.mms.Get(id);
      if (mm.users == 0) continue;
      mm.page_table.ForEach({0, ~uint64_t{0}}, [&](PageNumber, Pte& pte) {
        if (Raw(PteFolio(pte)) > Raw(FolioId::kZeroPage)) CountMapping(PteFolio(pte));
      });
      for (FolioId page : mm.unbound) CountMapping(page);
      CountTables(mm);
      int64_t total = 0, accounted = 0;
      PageNumber last_end = 0;
      mm.vmas.ForEach([&](const Vma& vma) {
        if (vma.range.empty() || vma.range.first < last_end) {
          Wrong(absl::StrCat("address space ", id, ": area at page ", vma.range.first,
                             " overlaps or is empty"));
        }
        last_end = vma.range.end;
        total += static_cast<int64_t>(vma.range.pages());
        if (vma.accounted) accounted += static_cast<int64_t>(vma.range.pages());
      });
      if (total != mm.total_pages)
        Wrong(absl::StrCat("address space ", id, ": total_pages ", mm.total_pages, ", areas ", total));
      if (accounted != mm.committed_pages) {
        Wrong(absl::StrCat("address space ", id, ": committed ", mm.committed_pages, ", areas ", accounted));
      }
      count_.committed += accounted;
    }
  }

  void CountFiles() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (uint32_t id = 1; id < m_.files.size(); ++id) {
      File& file = m_.files.Get(FileId{id});
      count_.committed += file.committed_pages;
      uint64_t cached = 0;
      file.pages.ForEach({0, ~uint64_t{0}}, [&](PageIndex index, uint32_t& entry) {
        if ((entry & File::kAbsent) != 0) return;
        ++cached;
        FolioId page{entry};
        FolioId head = m_.arena.HeadOf(page);
        Folio& folio = m_.arena.Get(head);
        if (page == head) ++count_.refs[Raw(head)];
        count_.cached[Raw(page)] = true;
        if (m_.arena.FileOf(head) != FileId{id} || folio.index + (Raw(page) - Raw(head)) != index) {
          Wrong(absl::StrCat("file ", id, " page ", index, ": its folio says file ",
                             Raw(m_.arena.FileOf(head)), " page ", folio.index));
        }
        MemcgId memcg = folio.memcg();
        if (memcg == MemcgId::kNone)
          return Wrong(absl::StrCat("file ", id, " page ", index, " is charged to nobody"));
        ++StatOf(memcg, Stat::kFile);
        if (file.shmem) ++StatOf(memcg, Stat::kShmem);
        if (page == head && folio.Has(kFolioDirty)) StatOf(memcg, Stat::kFileDirty) += folio.pages();
        if (page == head && folio.Has(kFolioWriteback)) StatOf(memcg, Stat::kFileWriteback) += folio.pages();
        if (count_.mappings[Raw(page)] > 0) ++StatOf(memcg, Stat::kFileMapped);
      });
      if (cached != file.cached_pages)
        Wrong(absl::StrCat("file ", id, ": cached_pages ", file.cached_pages, ", pages ", cached));
    }
  }

  void CountBatches() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    // Coalesced, each stocked page holds its cgroup; one by one, each slot does.
    bool per_page = m_.config.mechanisms.css_refs == CssRefs::kPerPage;
    for (std::unique_ptr<CpuSlot>& slot : m_.cpus) {
      for (const FolioBatch* batch : {&slot->lru_add, &slot->lru_activate, &slot->lru_lazyfree}) {
        for (uint32_t i = 0; i < batch->count; ++i) ++count_.refs[Raw(batch->folios[i])];
      }
      for (const Stock::Slot& stock : slot->stock.slots) {
        if (stock.memcg == MemcgId::kNone) continue;
        count_.charged[Raw(stock.memcg)] += stock.pages;
        if (per_page) count_.stock_refs[Raw(stock.memcg)] += 1 - static_cast<int64_t>(stock.pages);
      }
      if (slot->uncharge_pages != 0)
        Wrong(absl::StrCat("CPU ", slot->cpu, " has uncharges gathered at a cut"));
    }
    for (const auto* entries : {&m_.writeback.dirty, &m_.writeback.in_flight}) {
      for (const WritebackQueue::Entry& entry : *entries) ++count_.refs[Raw(entry.head)];
    }
  }

  void CheckFolios() {
    uint64_t in_use = 0;
    for (uint32_t id = 2; id < m_.arena.end(); ++id) {
      Folio& folio = m_.arena.Get(FolioId{id});
      uint64_t state = folio.state.load(std::memory_order_relaxed);
      if (Folio::MapcountOf(state) != count_.mappings[id]) {
        Wrong(absl::StrCat("page ", id, ": mapcount ", Folio::MapcountOf(state), ", entries ",
                           count_.mappings[id]));
      }
      if (folio.Has(kFolioTail)) continue;
      if (Folio::RefsOf(state) != count_.refs[id]) {
        Wrong(absl::StrCat("folio ", id, ": refs ", Folio::RefsOf(state), ", holders ", count_.refs[id]));
      }
      if ((state & Folio::kHolds) == 0) continue;
      if (folio.Has(kFolioSwapped | kFolioSwapCache)) {
        const SwapSpace::Entry swap = m_.swap.Get(SwapSlotOf(folio));
        if (swap.folio != FolioId{id} || !folio.anon() || folio.dead() != folio.Has(kFolioSwapped))
          Wrong(absl::StrCat("folio ", id, ": is not what its place in swap says"));
        ++StatOf(swap.owner, Stat::kSwap);
        ++count_.stock_refs[Raw(swap.owner)];
      }
      if (folio.unmapped() != folio.Has(kFolioSwapped) && !folio.Has(kFolioSwapCache))
        Wrong(absl::StrCat("folio ", id, ": its entries are swap entries, but it is not in swap"));
      if (folio.Has(kFolioSwapped)) continue;
      in_use += folio.pages();
      MemcgId memcg = folio.memcg();
      if (((state & Folio::kDead) != 0) != (memcg == MemcgId::kNone))
        Wrong(absl::StrCat("folio ", id, ": dead or charged, not both"));
      if (memcg == MemcgId::kNone) continue;
      count_.charged[Raw(memcg)] += folio.pages();
      if (folio.anon() && count_.mappings[id] > 0 && !folio.unmapped()) ++StatOf(memcg, Stat::kAnon);
      if (folio.Has(kFolioSwapCache)) ++StatOf(memcg, Stat::kSwapcached);
    }
    if (in_use != m_.ResidentPages()) {
      Wrong(absl::StrCat("arena says ", m_.ResidentPages(), " pages in use, folios ", in_use));
    }
  }

  void CheckLists() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const std::unique_ptr<Memcg>& memcg : m_.tree.all()) {
      if (memcg == nullptr) continue;
      for (size_t i = 0; i < kLruLists; ++i) {
        LruList which = static_cast<LruList>(i);
        const Lruvec::List& list = memcg->lruvec.lists[i];
        int64_t pages = 0;
        FolioId prev = FolioId::kNone;
        for (FolioId id = list.head; id != FolioId::kNone && wrong_.empty(); id = m_.arena.Get(id).next) {
          Folio& folio = m_.arena.Get(id);
          if (folio.prev != prev || !folio.lru() || folio.dead() || folio.memcg() != memcg->id ||
              LruListOf(folio.flags.load(std::memory_order_relaxed)) != which) {
            Wrong(
                absl::StrCat("folio ", Raw(id), " does not belong on list ", i, " of cgroup ", memcg->path));
          }
          prev = id;
          pages += folio.pages();
        }
        if (list.tail != prev || list.pages != pages) {
          Wrong(absl::StrCat("list ", i, " of cgroup ", memcg->path, " says ", list.pages, " pages, has ",
                             pages));
        }
        StatOf(memcg->id, LruStat(which)) += pages;
      }
    }
  }

  void CheckMemcgs() {
    constexpr Stat kStates[] = {Stat::kAnon,        Stat::kFile,          Stat::kShmem,
                                Stat::kFileMapped,  Stat::kFileDirty,     Stat::kInactiveAnon,
                                Stat::kActiveAnon,  Stat::kInactiveFile,  Stat::kActiveFile,
                                Stat::kUnevictable, Stat::kPagetables,    Stat::kKernelStack,
                                Stat::kSwap,        Stat::kFileWriteback, Stat::kSwapcached};
    std::vector<int64_t> usage = count_.charged;
    std::vector<std::array<int64_t, kStats>> recursive = count_.stats;
    std::map<MemcgId, std::array<int64_t, kStats>> exact = ReadExact(m_);
    for (size_t id = m_.tree.all().size(); id-- > 0;) {
      const Memcg* memcg = m_.tree.all()[id].get();
      if (memcg == nullptr) {
        if (count_.charged[id] != 0)
          Wrong(absl::StrCat("freed cgroup ", id, " still has ", count_.charged[id], " pages charged"));
        continue;
      }
      std::array<int64_t, kStats> local = ReadExactLocal(m_, *memcg);
      for (Stat stat : kStates) {
        size_t i = static_cast<size_t>(stat);
        if (local[i] != count_.stats[id][i]) {
          Wrong(absl::StrCat("cgroup ", memcg->path, ": local ", std::string(StatName(stat)), " ", local[i],
                             ", pages ", count_.stats[id][i]));
        }
        if (exact[memcg->id][i] != recursive[id][i]) {
          Wrong(absl::StrCat("cgroup ", memcg->path, ": ", std::string(StatName(stat)), " ",
                             exact[memcg->id][i], ", pages ", recursive[id][i]));
        }
      }
      if (m_.config.reclaim == Reclaim::kModelled) CheckModelled(*memcg, recursive[id]);
      if (id != 0) {
        int64_t refs = memcg->refs.load(std::memory_order_relaxed);
        if (refs != count_.charged[id] + count_.stock_refs[id])
          Wrong(absl::StrCat("cgroup ", memcg->path, ": refs ", refs, ", charged ", count_.charged[id]));
        if (memcg->memory.usage_pages() != usage[id]) {
          Wrong(absl::StrCat("cgroup ", memcg->path, ": usage ", memcg->memory.usage_pages(), ", charged ",
                             usage[id]));
        }
        size_t up = Raw(memcg->parent->id);
        usage[up] += usage[id];
        for (size_t i = 0; i < kStats; ++i) recursive[up][i] += recursive[id][i];
      }
    }
  }

  // What reclaim goes by, and what it has to keep: usage at or below the limit wherever nothing was forced is
  // the charge's own rule, as a knob may be written below usage.
  void CheckModelled(const Memcg& memcg, const std::array<int64_t, kStats>& recursive) {
    for (size_t i = 0; i < kLruLists; ++i) {
      int64_t pages = recursive[static_cast<size_t>(LruStat(static_cast<LruList>(i)))];
      int64_t kept = memcg.lru_pages[i].load(std::memory_order_relaxed);
      if (kept != pages)
        Wrong(absl::StrCat("cgroup ", memcg.path, ": list ", i, " and those below say ", kept, ", have ",
                           pages));
    }
    int64_t swap = recursive[static_cast<size_t>(Stat::kSwap)];
    if (memcg.swap.usage_pages() != swap)
      Wrong(absl::StrCat("cgroup ", memcg.path, ": swap ", memcg.swap.usage_pages(), ", pages ", swap));
  }

  Machine& m_;
  Recount count_;
  std::string wrong_;
};

}  // namespace

std::string FindBrokenInvariant(Machine& machine) { return Checker(machine).Run(); }

}  // namespace memcgd::core
