#include "core/address_space.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace memcgd::core {

template <class Forms>
Outcome AddressSpaces<Forms>::Mmap(CpuSlot& slot, Mm& mm, const wide::Mmap& map, FileId file) {
  Vma vma;
  vma.range = RangeOf(map.address, map.length);
  vma.prot = map.prot;
  vma.flags = map.flags;
  vma.file = file;
  vma.file_index = (map.flags & kMapAnonymous) != 0 ? 0 : map.offset >> m_.page_shift;
  vma.locked = (map.flags & kMapLocked) != 0;
  Unmap(slot, mm, vma.range);
  if (mm.vmas.size() >= m_.limits.areas) return Outcome::kEnomem;  // sysctl_max_map_count
  if (vma.shared() && vma.anonymous()) {
    int64_t pages = static_cast<int64_t>(vma.range.pages());
    if (!m_.commit.TryCommit(slot.cpu, pages, mm.total_pages)) return Outcome::kEnomem;
    vma.file = m_.files.CreateAnonymous();
    File& object = m_.files.Get(vma.file);
    Locked object_lock(object.mutex);
    object.committed_pages = pages;
  } else if (Accountable(vma)) {
    if (!Commit(slot, mm, static_cast<int64_t>(vma.range.pages()))) return Outcome::kEnomem;
    vma.accounted = true;
  }
  InsertArea(slot, mm, vma);
  if ((map.flags & (kMapPopulate | kMapLocked)) == 0) return Outcome::kOk;
  return faults_.Populate(slot, mm, vma.range, !vma.shared()) ? Outcome::kOk : Outcome::kEnomem;
}

// accountable_mapping(): private, writable, not MAP_NORESERVE (which NEVER ignores), not hugetlb.
template <class Forms>
bool AddressSpaces<Forms>::Accountable(const Vma& vma) const {
  bool no_reserve = (vma.flags & kMapNoReserve) != 0 && m_.commit.policy().mode != OvercommitPolicy::kNever;
  return !vma.shared() && (vma.prot & kProtWrite) != 0 && !no_reserve && (vma.flags & kMapHugetlb) == 0;
}

template <class Forms>
bool AddressSpaces<Forms>::Commit(CpuSlot& slot, Mm& mm, int64_t pages) {
  if (!m_.commit.TryCommit(slot.cpu, pages, mm.total_pages)) return false;
  mm.committed_pages += pages;
  return true;
}

template <class Forms>
void AddressSpaces<Forms>::Uncommit(CpuSlot& slot, Mm& mm, int64_t pages) {
  if (pages == 0) return;
  m_.commit.Uncommit(slot.cpu, pages);
  mm.committed_pages -= pages;
}

template <class Forms>
void AddressSpaces<Forms>::InsertArea(CpuSlot& slot, Mm& mm, const Vma& vma) {
  bool inserted = mm.vmas.Insert(vma);
  MEMCG_CHECK(inserted);
  mm.total_pages += static_cast<int64_t>(vma.range.pages());
  HoldObject(slot, vma.file, static_cast<int64_t>(vma.range.pages()));
}

template <class Forms>
void AddressSpaces<Forms>::HoldObject(CpuSlot& slot, FileId id, int64_t pages) {
  if (id == FileId::kNone) return;
  File& file = m_.files.Get(id);
  if (file.dev != FileTable::kAnonymousDev) return;
  Locked lock(file.mutex);
  file.area_pages += pages;
  if (file.area_pages > 0) return;
  m_.cache.DeleteAll(slot, file);
  m_.commit.Uncommit(slot.cpu, file.committed_pages);
  file.committed_pages = 0;
  m_.files.FreeAnonymous(id);
}

template <class Forms>
Outcome AddressSpaces<Forms>::Munmap(CpuSlot& slot, Mm& mm, PageRange range) {
  Unmap(slot, mm, range);
  return Outcome::kOk;
}

template <class Forms>
void AddressSpaces<Forms>::Unmap(CpuSlot& slot, Mm& mm, PageRange range) {
  const bool has_tables = !mm.page_table.empty();
  if (has_tables) Zap(slot, mm, range);  // areas that no event told of have entries too
  mm.vmas.Remove(range, [&](const Vma& vma) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    int64_t pages = static_cast<int64_t>(vma.range.pages());
    mm.total_pages -= pages;
    if (vma.accounted) Uncommit(slot, mm, pages);
    HoldObject(slot, vma.file, -pages);
  });
  if (has_tables) m_.kernel.FreeTables(slot, mm, range);
}

// zap_pte_range(): a file's page whose entry was used is marked accessed; letting go of pages drains this
// CPU's batches (free_pages_and_swap_cache).
template <class Forms>
void AddressSpaces<Forms>::Zap(CpuSlot& slot, Mm& mm, PageRange range) {
  bool let_go = false;
  uint64_t walked = 0;
  FolioId marked = FolioId::kNone;
  auto zap = [&](PageNumber, Pte& pte) {
    ++walked;
    FolioId page = PteFolio(pte);
    if (Raw(page) > Raw(FolioId::kZeroPage)) {
      const Folio& folio = m_.arena.Get(page);
      if (folio.alone()) {
        m_.lru.End(slot, page);
      } else {
        if (!folio.anon() && !folio.dead() && (pte & kPteAccessed) != 0 && IsYoung(page)) {
          FolioId head = m_.arena.HeadOf(page);
          if (head != marked) m_.lru.MarkAccessed(slot, head);  // a folio's entries go together
          marked = head;
        }
        m_.cache.Unmap(slot, page);
      }
      let_go = true;
    }
    pte = 0;
  };
  mm.page_table.ForEach(range, zap, [&](Pte pte) { m_.arena.Prefetch(PteFolio(pte)); });
  slot.ptes_walked += walked;
  if (let_go) m_.lru.Drain(slot);
}

template <class Forms>
Outcome AddressSpaces<Forms>::Brk(CpuSlot& slot, Mm& mm, uint64_t address) {
  PageNumber to = RangeOf(0, address).end;
  PageNumber from = mm.brk;
  mm.brk = to;
  if (from == 0 || to == from) return Outcome::kOk;
  if (to < from) {
    Unmap(slot, mm, {to, from});
    return Outcome::kOk;
  }
  Vma vma;
  vma.range = {from, to};
  vma.prot = kProtRead | kProtWrite;
  vma.flags = kMapPrivate | kMapAnonymous;
  Unmap(slot, mm, vma.range);
  if (mm.vmas.size() >= m_.limits.areas || !Commit(slot, mm, static_cast<int64_t>(vma.range.pages()))) {
    mm.brk = from;
    return Outcome::kEnomem;
  }
  vma.accounted = true;
  InsertArea(slot, mm, vma);
  return Outcome::kOk;
}

template <class Forms>
Outcome AddressSpaces<Forms>::Mremap(CpuSlot& slot, Mm& mm, const wide::Mremap& remap) {
  PageRange old_range = RangeOf(remap.old_address, remap.old_length);
  PageRange new_range = RangeOf(remap.new_address, remap.new_length);
  Vma* found = mm.vmas.Find(old_range.first);
  if (found == nullptr) return Outcome::kNoArea;
  bool moves = old_range.first != new_range.first;
  bool keep_old = moves && (remap.flags & kMremapDontUnmap) != 0;
  bool overlap = new_range.first < old_range.end && old_range.first < new_range.end;
  if (moves && overlap) return Outcome::kInvalid;
  // A second view of shared memory is somewhere else.
  if (!moves && old_range.empty()) return Outcome::kInvalid;
  mm.vmas.SplitAt(old_range);
  Vma vma = *mm.vmas.Find(old_range.first);
  vma.range = new_range;  // several areas in the range move as the first of them
  Unmap(slot, mm, moves ? new_range : PageRange{std::min(old_range.end, new_range.end), new_range.end});
  if (old_range.end > old_range.first + new_range.pages()) {
    Unmap(slot, mm, {old_range.first + new_range.pages(), old_range.end});
    old_range.end = old_range.first + new_range.pages();
  }
  int64_t delta = vma.accounted ? static_cast<int64_t>(new_range.pages()) : 0;
  if (!keep_old) {
    mm.vmas.ForEachWithin(old_range, [&delta](Vma& old) {
      if (old.accounted) delta -= static_cast<int64_t>(old.range.pages());
    });
  }
  if (moves && !MakeTablesFor(slot, mm, old_range, new_range.first)) {
    m_.kernel.FreeTables(slot, mm, new_range);
    return Outcome::kLimit;
  }
  if (delta < 0) Uncommit(slot, mm, -delta);
  if (delta > 0 && !Commit(slot, mm, delta)) return Outcome::kEnomem;
  HoldObject(slot, vma.file, static_cast<int64_t>(new_range.pages()));
  if (moves) MoveEntries(slot, mm, old_range, new_range.first);
  if (!keep_old) {
    mm.vmas.Remove(old_range, [&](const Vma& old) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      mm.total_pages -= static_cast<int64_t>(old.range.pages());
      HoldObject(slot, old.file, -static_cast<int64_t>(old.range.pages()));
    });
  }
  bool inserted = mm.vmas.Insert(vma);
  MEMCG_CHECK(inserted);
  if (moves && !keep_old) m_.kernel.FreeTables(slot, mm, old_range);
  mm.total_pages += static_cast<int64_t>(new_range.pages());
  if (vma.locked) faults_.Populate(slot, mm, new_range, true);
  return Outcome::kOk;
}

// move_page_tables(): one for each that there is, in the new place.
template <class Forms>
bool AddressSpaces<Forms>::MakeTablesFor(CpuSlot& slot, Mm& mm, PageRange from, PageNumber to) {
  std::vector<PageRange> moved;  // to make one may change what the walk goes over
  mm.page_table.ForEachTable(from, [&](TableLevel level, PageRange span, MemcgId) {
    if (level == TableLevel::kPte)
      moved.push_back({std::max(span.first, from.first), std::min(span.end, from.end)});
  });
  for (PageRange part : moved) {
    for (PageNumber page : {part.first, part.end - 1}) {
      if (!m_.kernel.MakeTables(slot, mm, to + (page - from.first), TableLevel::kPte)) return false;
    }
  }
  return true;
}

// After MakeTablesFor().  A table that moves whole leaves none behind (move_normal_pmd()).
template <class Forms>
void AddressSpaces<Forms>::MoveEntries(CpuSlot& slot, Mm& mm, PageRange from, PageNumber to) {
  mm.page_table.ForEach(from, [&](PageNumber page, Pte& pte) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    *mm.page_table.Find(to + (page - from.first)) = pte;
    pte = 0;
  });
  if ((to - from.first) % PageTable::PagesOf(TableLevel::kPte) == 0) m_.kernel.ReclaimTables(slot, mm, from);
}

// mprotect_fixup(): to writable charges; back to read-only gives back only what was never faulted.
template <class Forms>
Outcome AddressSpaces<Forms>::Mprotect(CpuSlot& slot, Mm& mm, PageRange range, uint32_t prot) {
  Outcome outcome = Outcome::kOk;
  mm.vmas.SplitAt(range);
  mm.vmas.ForEachWithin(range, [&](Vma& vma) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    int64_t pages = static_cast<int64_t>(vma.range.pages());
    Vma changed = vma;
    changed.prot = prot;
    if (!vma.accounted && Accountable(changed)) {
      if (!Commit(slot, mm, pages)) {
        outcome = Outcome::kEnomem;
        return;
      }
      changed.accounted = true;
    } else if (vma.accounted && (prot & kProtWrite) == 0 && vma.anonymous() && !vma.has_anon_vma) {
      Uncommit(slot, mm, pages);
      changed.accounted = false;
    }
    vma = changed;
  });
  return outcome;
}

template <class Forms>
Outcome AddressSpaces<Forms>::Madvise(CpuSlot& slot, Mm& mm, PageRange range, uint32_t advice) {
  switch (advice) {
    case kMadvDontNeed:
    case kMadvDontNeedLocked:
      Zap(slot, mm, range);
      m_.kernel.ReclaimTables(slot, mm, range);
      break;
    case kMadvGuardInstall:
      Zap(slot, mm, range);
      break;
    case kMadvFree:
      mm.page_table.ForEach(range, [&](PageNumber, Pte& pte) {
        FolioId page = PteFolio(pte);
        if (Raw(page) <= Raw(FolioId::kZeroPage)) return;
        Folio& folio = m_.arena.Get(page);
        if (folio.dead() || folio.unmapped()) {  // a swap entry is given up at once
          m_.cache.Unmap(slot, page);
          pte = 0;
          return;
        }
        if (!folio.anon() || folio.mapcount() != 1) return;
        if (folio.Has(kFolioSwapCache)) faults_.FreeSwapOf(slot, page);
        m_.lru.MarkLazyFree(slot, page);
      });
      break;
    case kMadvRemove: {
      Zap(slot, mm, range);
      mm.vmas.SplitAt(range);
      mm.vmas.ForEachWithin(range, [&](Vma& vma) {
        if (vma.file == FileId::kNone || !m_.files.Get(vma.file).shmem) return;
        File& file = m_.files.Get(vma.file);
        Locked file_lock(file.mutex);
        PageRange indices{vma.file_index, vma.file_index + vma.range.pages()};
        file.pages.ForEach(indices, [&](PageIndex index, uint32_t& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          if ((entry & File::kAbsent) == 0) m_.cache.Delete(slot, file, index, 0, MemcgId::kNone);
        });
      });
      break;
    }
    case kMadvPopulateRead:
    case kMadvPopulateWrite:
      return faults_.Populate(slot, mm, range, advice == kMadvPopulateWrite) ? Outcome::kOk
                                                                             : Outcome::kEnomem;
    case kMadvNormal:
    case kMadvRandom:
    case kMadvSequential:
      if (!m_.charges.models_reclaim()) break;
      mm.vmas.SplitAt(range);
      mm.vmas.ForEachWithin(range, [&](Vma& vma) { vma.has_recency = advice == kMadvNormal; });
      break;
    default:
      break;  // the others change no account
  }
  return Outcome::kOk;
}

template <class Forms>
Outcome AddressSpaces<Forms>::Mlock(CpuSlot& slot, Mm& mm, PageRange range, bool on_fault) {
  mm.vmas.SplitAt(range);
  mm.vmas.ForEachWithin(range, [](Vma& vma) { vma.locked = true; });
  bool populated = on_fault || faults_.Populate(slot, mm, range, true);
  m_.lru.Drain(slot);
  mm.page_table.ForEach(range, [&](PageNumber, Pte& pte) {
    if (Raw(PteFolio(pte)) > Raw(FolioId::kZeroPage)) {
      m_.lru.SetUnevictable(slot, m_.arena.HeadOf(PteFolio(pte)), true);
    }
  });
  return populated ? Outcome::kOk : Outcome::kEnomem;
}

template <class Forms>
Outcome AddressSpaces<Forms>::Munlock(CpuSlot& slot, Mm& mm, PageRange range) {
  mm.vmas.SplitAt(range);
  mm.vmas.ForEachWithin(range, [&](Vma& vma) { vma.locked = false; });
  mm.page_table.ForEach(range, [&](PageNumber, Pte& pte) {
    if (Raw(PteFolio(pte)) > Raw(FolioId::kZeroPage)) {
      m_.lru.SetUnevictable(slot, m_.arena.HeadOf(PteFolio(pte)), false);
    }
  });
  return Outcome::kOk;
}

// The child's mutex is not taken: nobody else can reach it.
template <class Forms>
Outcome AddressSpaces<Forms>::Fork(CpuSlot& slot, Mm& parent, Mm& child) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  int64_t committed = 0;
  parent.vmas.ForEach([&committed](const Vma& vma) {
    if (vma.accounted) committed += static_cast<int64_t>(vma.range.pages());
  });
  if (committed > 0 && !Commit(slot, child, committed)) return Outcome::kEnomem;
  parent.vmas.ForEach([&](Vma copy) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    copy.locked = false;
    InsertArea(slot, child, copy);
  });
  child.entry = parent.entry;
  child.brk = parent.brk;
  child.implied = parent.implied;
  child.predates_stream = parent.predates_stream;
  if (!m_.kernel.CopyTables(slot, parent, child)) return Outcome::kLimit;
  bool made = true;
  parent.page_table.ForEach({0, ~uint64_t{0}}, [&](PageNumber page, Pte& pte) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!made) return;
    ++slot.ptes_walked;
    FolioId id = PteFolio(pte);
    if (Raw(id) > Raw(FolioId::kZeroPage)) {
      Folio& folio = m_.arena.Get(id);
      if (folio.dead() && !folio.Has(kFolioSwapped)) return;
      if (!folio.anon()) {  // vma_needs_copy(): what has no page of its own is faulted again
        Vma* vma = parent.vmas.Find(page);
        if (vma == nullptr || !vma->has_anon_vma) return;
      }
    }
    Pte* copy = m_.kernel.Ensure(slot, child, page);
    if (copy == nullptr) {
      made = false;
      return;
    }
    if (Raw(id) > Raw(FolioId::kZeroPage)) {
      if (!m_.cache.Map(slot, id)) return;
      pte &= ~kPteWritable;
    }
    *copy = pte;
  });
  if (!made) return Outcome::kLimit;
  for (FolioId id : parent.unbound) {
    if (m_.cache.Map(slot, id)) child.unbound.push_back(id);
  }
  return Outcome::kOk;
}

template <class Forms>
void AddressSpaces<Forms>::Teardown(CpuSlot& slot, Mm& mm) {
  Unmap(slot, mm, {0, ~uint64_t{0}});
  for (FolioId id : mm.unbound) m_.cache.Unmap(slot, id);
  if (!mm.unbound.empty()) m_.lru.Drain(slot);
  mm.unbound.clear();
  m_.kernel.FreePgd(slot, mm);
  mm.stack_unplaced = false;
  mm.tables_predate = false;
  mm.implied.clear();
  mm.entry = 0;
  mm.brk = 0;
  mm.predates_stream = false;
}

template <class Forms>
void AddressSpaces<Forms>::AddPresent(CpuSlot& slot, Mm& mm, PageRange range, bool anonymous) {
  mm.vmas.SplitAt(range);
  if (anonymous) {
    faults_.AddBaselineAnonymous(slot, mm, range);
    return;
  }
  mm.vmas.ForEachWithin(range, [&](Vma& vma) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (vma.file == FileId::kNone) return;
    // Before the file's mutex: reclaim may want it.
    for (PageNumber page = vma.range.first; page < vma.range.end; ++page) {
      if (m_.kernel.Ensure(slot, mm, page) == nullptr) return;
    }
    File& file = m_.files.Get(vma.file);
    Locked file_lock(file.mutex);
    for (PageNumber page = vma.range.first; page < vma.range.end; ++page) {
      FolioId id = m_.cache.Find(file, vma.IndexOf(page));
      Pte* pte = mm.page_table.Find(page);
      if (id == FolioId::kNone || pte == nullptr || faults_.Present(*pte, slot)) continue;
      if (m_.cache.Map(slot, id)) *pte = MakePte(id, kPteAccessed);
    }
  });
}

template class AddressSpaces<DefaultForms>;
template class AddressSpaces<ChosenForms>;

}  // namespace memcgd::core
