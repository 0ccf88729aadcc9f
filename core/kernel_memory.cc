#include "core/kernel_memory.h"

#include <vector>

namespace memcgd::core {
namespace {

// Of 4-level x86-64: the page below STACK_TOP_MAX, and the lowest that a stack of 8 MiB can begin at, 16 GiB
// of randomization below.  mmap_base lies below that.
constexpr PageNumber kStackTopPage = (uint64_t{0x7ffffffff000} >> 12) - 1;
constexpr PageNumber kLowestStackPage =
    kStackTopPage - ((uint64_t{16} << 30) >> 12) - ((uint64_t{8} << 20) >> 12);

}  // namespace

template <class Forms>
bool KernelMemory<Forms>::MakeTables(CpuSlot& slot, Mm& mm, PageNumber page, TableLevel down_to) {
  if (mm.stack_unplaced && page >= kLowestStackPage) {
    mm.stack_unplaced = false;
    FreeTables(slot, mm, {kStackTopPage, kStackTopPage + 1});
  }
  // Tables from before the stream were charged to someone then; a new area's are new.
  MemcgId memcg = mm.memcg.load(std::memory_order_relaxed);
  MemcgId upper_payer = mm.tables_predate ? MemcgId::kRoot : memcg;
  MemcgId pte_payer = mm.tables_predate && mm.vmas.Find(page) == nullptr ? MemcgId::kRoot : memcg;
  return mm.page_table.Make(page, down_to, [&](TableLevel level) {
    MemcgId payer = level == TableLevel::kPte ? pte_payer : upper_payer;
    return TryCharge(slot, payer, Stat::kPagetables, 1) ? payer : MemcgId::kNone;
  });
}

template <class Forms>
bool KernelMemory<Forms>::MakePgd(CpuSlot& slot, Mm& mm) {
  MemcgId memcg = mm.memcg.load(std::memory_order_relaxed);
  if (!TryCharge(slot, memcg, Stat::kPagetables, kPgdPages)) return false;
  mm.pgd = memcg;
  return true;
}

template <class Forms>
void KernelMemory<Forms>::BeginExec(CpuSlot& slot, Mm& mm) {
  if (mm.pgd != MemcgId::kNone) return;
  if (MakePgd(slot, mm)) mm.stack_unplaced = MakeTables(slot, mm, kStackTopPage, TableLevel::kPte);
}

template <class Forms>
bool KernelMemory<Forms>::CopyTables(CpuSlot& slot, Mm& parent, Mm& child) {
  if (!MakePgd(slot, child)) return false;
  bool made = true;
  auto copy = [&](PageRange range) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto make = [&](TableLevel level, PageRange span, MemcgId) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      made = made && MakeTables(slot, child, std::max(span.first, range.first), level);
    };
    parent.page_table.ForEachTable(range, make);
  };
  parent.vmas.ForEach([&copy](const Vma& vma) {
    if (vma.has_anon_vma) copy(vma.range);
  });
  if (parent.stack_unplaced) copy({kStackTopPage, kStackTopPage + 1});
  child.stack_unplaced = parent.stack_unplaced;
  return made;
}

template <class Forms>
void KernelMemory<Forms>::FreeTables(CpuSlot& slot, Mm& mm, PageRange range) {
  mm.page_table.FreeTables(
      range, [&](PageRange span) ABSL_NO_THREAD_SAFETY_ANALYSIS { return !mm.vmas.IsHole(span); },
      [&](MemcgId memcg) { Uncharge(slot, memcg, Stat::kPagetables, 1); });
}

template <class Forms>
void KernelMemory<Forms>::ReclaimTables(CpuSlot& slot, Mm& mm, PageRange range) {
  std::vector<PageRange> whole;
  mm.page_table.ForEachTable(range, [&](TableLevel level, PageRange span, MemcgId) {
    if (level == TableLevel::kPte && span.first >= range.first && span.end <= range.end)
      whole.push_back(span);
  });
  for (PageRange span : whole) {
    const Vma* vma = mm.vmas.Find(span.first);
    if (vma != nullptr ? vma->range.end < span.end : !mm.vmas.IsHole(span)) continue;  // two areas'
    mm.page_table.FreeWhole(span, [&](MemcgId memcg) { Uncharge(slot, memcg, Stat::kPagetables, 1); });
  }
}

template <class Forms>
void KernelMemory<Forms>::FreePgd(CpuSlot& slot, Mm& mm) {
  Uncharge(slot, mm.pgd, Stat::kPagetables, kPgdPages);
  mm.pgd = MemcgId::kNone;
}

template class KernelMemory<DefaultForms>;
template class KernelMemory<ChosenForms>;

}  // namespace memcgd::core
