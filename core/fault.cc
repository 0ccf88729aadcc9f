#include "core/fault.h"

#include <algorithm>

namespace memcgd::core {
namespace {

// The stack lies above mmap_base, which lies at most this gap below it; the interpreter lies just below
// mmap_base.
constexpr PageNumber kStackGapPages = 16384;
// vvar and vdso lie within so many pages below the code that reads them.
constexpr PageNumber kSpecialReachPages = 64;
// Above it are the areas that the kernel places; below it the program and its heap.
constexpr PageNumber kTopDownPages = uint64_t{0x700000000000} >> 12;
constexpr uint64_t kFaultAroundPages = 16;

}  // namespace

template <class Forms>
size_t Faults<Forms>::TryFirstTouches(CpuSlot& slot, Mm& mm, std::span<const Event> events,
                                      uint32_t* last_us) {
  constexpr size_t kAhead = 12;   // as long as a miss takes, in touches
  constexpr int kNearShift = 17;  // 32 pages of 4 KiB: two lines of entries
  constexpr uint64_t kLeafPages = PageTable::PagesOf(TableLevel::kPte);
  const MemcgId memcg = mm.memcg.load(std::memory_order_relaxed);
  StatPending& stats = m_.charges.StatsOf(slot, memcg);
  const size_t most =
      std::min<size_t>({events.size(), m_.charges.Stocked(slot, memcg),
                        m_.charges.Room(stats, Stat::kPgfault), m_.charges.Room(stats, Stat::kAnon),
                        m_.charges.Room(stats, Stat::kPgpgin), m_.lru.Room(slot), slot.folios.count});
  PageRange near;  // pages of one area and one leaf
  Pte* leaf = nullptr;
  Vma* vma = nullptr;
  uint32_t last = *last_us;
  uint32_t done = 0;
  for (; done < most; ++done) {
    const Event& event = events[done];
    if (!event.IsLike(events[0]) ||
        (event.error_code() & (kFaultWrite | kFaultProtection | kFaultFetch)) != kFaultWrite) {
      break;
    }
    if (done + kAhead < events.size()) {
      const Event& ahead = events[done + kAhead];
      if ((ahead.body ^ event.body) >> kNearShift != 0 && ahead.IsLike(event)) {
        mm.page_table.Prefetch(ahead.address() >> m_.page_shift);
      }
    }
    PageNumber page = event.address() >> m_.page_shift;
    if (page < near.first || page >= near.end) {
      const VmaSet::Place& place = mm.vmas.Look(page);
      if (place.vma != nullptr && (place.vma->shared() || place.vma->file != FileId::kNone)) break;
      vma = place.vma;
      leaf = mm.page_table.FindLeaf(page);
      if (leaf == nullptr) break;
      PageNumber base = page - page % kLeafPages;
      near = {std::max(place.range.first, base), std::min(place.range.end, base + kLeafPages)};
    }
    Pte& pte = leaf[page % kLeafPages];
    if (pte != 0) break;
    FolioId id = m_.arena.MakeNextPage(slot.folios, done, memcg,
                                       kFolioAnon | kFolioSwapBacked | kFolioYoung | FlagsIn(vma),
                                       Folio::kOneRef | Folio::kOneMapping);
    m_.arena.Get(id).MarkUptodate();
    slot.lru_add.folios[slot.lru_add.count + done] = id;
    pte = MakePte(id, kPteAccessed | kPteWritable);
    last = std::max(last, event.time_us());
  }
  if (done == 0) return 0;
  m_.charges.TakeStocked(slot, memcg, done);
  for (Stat stat : {Stat::kPgfault, Stat::kAnon, Stat::kPgpgin}) {
    m_.charges.Mod(slot, stats, memcg, stat, static_cast<int32_t>(done));
  }
  m_.arena.TakePages(slot.folios, done);
  slot.counters.barriers += done;
  slot.lru_add.count += done;
  slot.lru_add_unshared += done;
  *last_us = last;
  return done;
}

template <class Forms>
Outcome Faults<Forms>::Handle(CpuSlot& slot, Mm& mm, const FaultHints& hints, uint64_t address,
                              uint32_t error_code) {
  // A miss drops the locks and is retried; the retry finds the page and says so.  None came: the thread was
  // killed, and handle_mm_fault never completed.
  const bool models = m_.charges.models_reclaim();
  if (hints.fault_major && !models) return Outcome::kOk;
  if (!slot.retries) m_.charges.ModStat(slot, mm.memcg.load(std::memory_order_relaxed), Stat::kPgfault, 1);
  PageNumber page = address >> m_.page_shift;
  Fault fault{slot, mm, hints, page, error_code, mm.vmas.Find(page)};
  fault.mm.mutex.AssertHeld();  // it is mm's
  Pte* entry = m_.kernel.Ensure(slot, mm, page);
  if (entry == nullptr) return Outcome::kLimit;
  Pte& pte = *entry;
  if ((error_code & kFaultFetch) != 0 && mm.entry == 0) mm.entry = page;
  if (IsSwapEntry(pte)) {
    Outcome outcome = SwapIn(slot, mm, pte, fault.write());
    if (outcome != Outcome::kOk) return outcome;
  }
  if (Present(pte, slot)) return fault.write() ? WriteProtect(fault, pte) : Outcome::kOk;
  if ((error_code & kFaultProtection) != 0) return fault.write() ? WriteUnseen(fault, pte) : Outcome::kOk;
  if (hints.file_backed()) return MapFile(fault);
  if (fault.shared() || MapsShmem(fault)) return MapShmem(fault);
  if (IsSpecialMapping(fault)) {
    pte = kPteSpecial;
    return Outcome::kOk;
  }
  return MapAnonymous(fault);
}

// do_wp_page(): a page of the cache or of others is copied, one's own is used on.
template <class Forms>
Outcome Faults<Forms>::WriteProtect(const Fault& fault, Pte& pte) {
  if (fault.shared()) {
    pte |= kPteWritable;
    return Outcome::kOk;
  }
  FolioId page = PteFolio(pte);
  Folio& folio = m_.arena.Get(page);
  if (Raw(page) > Raw(FolioId::kZeroPage) && folio.anon()) {
    if (!folio.lru()) m_.lru.Drain(fault.slot);  // wp_can_reuse_anon_folio(): the batch's reference must go
    if (folio.mapcount() == 1) {
      if (folio.Has(kFolioSwapCache)) FreeSwapOf(fault.slot, page);
      pte |= kPteWritable;
      return Outcome::kOk;
    }
  }
  return SetAnonymous(fault, pte);
}

// A write to a page that is present and that no event told of: a page of the file, or one from before the
// stream; or, in the stack after a fork, the arguments that exec wrote.
template <class Forms>
Outcome Faults<Forms>::WriteUnseen(const Fault& fault, Pte& pte) {
  if (fault.shared()) return Outcome::kOk;
  if (IsStack(fault) && !fault.mm.unbound.empty()) {
    FolioId page = fault.mm.unbound.back();
    fault.mm.unbound.pop_back();
    pte = MakePte(page, kPteAccessed);
    Outcome outcome = IsSwapEntry(pte) ? SwapIn(fault.slot, fault.mm, pte, true) : Outcome::kOk;
    return outcome == Outcome::kOk ? WriteProtect(fault, pte) : outcome;
  }
  Outcome outcome = SetAnonymous(fault, pte);
  if (outcome != Outcome::kOk) return outcome;
  return fault.vma == nullptr && fault.mm.predates_stream ? Outcome::kUnseenPage : Outcome::kOk;
}

// do_cow_fault(), do_read_fault(), do_shared_fault()
template <class Forms>
Outcome Faults<Forms>::MapFile(const Fault& fault) {
  const FaultHints& hints = fault.hints;
  FileId file = hints.fault_file != FileId::kNone ? hints.fault_file : hints.map_file;
  if (fault.vma != nullptr && fault.vma->file != file && !fault.vma->anonymous()) {
    if (fault.vma->file != FileId::kNone) BindShmem(fault, file);
    fault.vma->file = file;
  }
  if (fault.vma == nullptr && hints.fault_file != FileId::kNone) {
    Imply(fault.mm, file, static_cast<int64_t>(fault.page - hints.fault_index));
  }
  if (m_.charges.models_reclaim() && hints.fault_file != FileId::kNone &&
      !FillAbsent(fault, m_.files.Get(file), hints.fault_index))
    return Outcome::kLimit;
  if (fault.write() && !fault.shared()) {
    Outcome outcome = SetAnonymous(fault, EntryOf(fault));
    if (outcome != Outcome::kOk) return outcome;
    if (fault.vma == nullptr && hints.fault_file != FileId::kNone) {
      Imply(fault.mm, file, static_cast<int64_t>(fault.page - hints.fault_index)).has_anon_vma = true;
    }
    return Outcome::kOk;
  }
  if (hints.map_file != FileId::kNone) MapAround(fault);
  if (hints.fault_file != FileId::kNone) {
    MapFolio(fault, m_.files.Get(hints.fault_file), hints.fault_index);
  } else if (m_.charges.models_reclaim() && EntryOf(fault) == 0) {
    int64_t delta = DeltaOf(fault, hints.map_file, hints.map_first, hints.map_end);
    PageIndex index = fault.page - static_cast<uint64_t>(delta);
    if (index >= hints.map_first && index < hints.map_end) return MapMissed(fault, hints.map_file, index);
  }
  return Outcome::kOk;
}

// What the model reclaimed though the trace's kernel had not is read again; a page that was never seen is one
// from before the stream, and somebody else's.  False where a limit refuses it.
template <class Forms>
bool Faults<Forms>::FillAbsent(const Fault& fault, File& file, PageIndex index) {
  {
    Locked lock(file.mutex);
    if (!m_.cache.IsAbsent(file, index)) return true;
  }
  return m_.cache.Fill(fault.slot, file, index, 0, fault.mm.memcg.load(std::memory_order_relaxed),
                       ChargeMode::kRetry) != CacheAdd::kRefused;
}

template <class Forms>
Outcome Faults<Forms>::MapMissed(const Fault& fault, FileId id, PageIndex index) {
  File& file = m_.files.Get(id);
  {
    Locked lock(file.mutex);
    if (!m_.cache.IsAbsent(file, index)) return Outcome::kOk;  // never seen: a page from before the stream
  }
  MemcgId memcg = fault.mm.memcg.load(std::memory_order_relaxed);
  if (!fault.slot.retries) m_.charges.ModStat(fault.slot, memcg, Stat::kPgmajfault, 1);
  if (m_.cache.Fill(fault.slot, file, index, 0, memcg, ChargeMode::kRetry) == CacheAdd::kRefused)
    return Outcome::kLimit;
  MapFolio(fault, file, index);
  return Outcome::kOk;
}

template <class Forms>
void Faults<Forms>::SetYoung(const Fault& fault, FolioId page) {
  if (!m_.charges.models_reclaim()) return;
  Folio& head = m_.arena.Get(m_.arena.HeadOf(page));
  bool exec =
      (fault.error_code & kFaultFetch) != 0 || (fault.vma != nullptr && (fault.vma->prot & kProtExec) != 0);
  // folio_referenced() counts areas, not entries, and none that are read in order or at random.
  if (fault.vma != nullptr && !fault.vma->has_recency) return;
  uint32_t before = head.flags.fetch_or(kFolioYoung | (exec ? kFolioExec : 0), std::memory_order_relaxed);
  if ((before & kFolioYoung) != 0 && m_.arena.Get(page).mapcount() > 1) head.Set(kFolioYoungTwice);
}

// filemap_map_pages(): what is cached around the fault and not marked for readahead is mapped with it.
template <class Forms>
void Faults<Forms>::MapAround(const Fault& fault) {
  const FaultHints& hints = fault.hints;
  int64_t delta = DeltaOf(fault, hints.map_file, hints.map_first, hints.map_end);
  File& file = m_.files.Get(hints.map_file);
  MemcgId memcg = fault.mm.memcg.load(std::memory_order_relaxed);
  if (m_.charges.models_reclaim() && file.shmem) FillUnseen(fault.slot, file, hints, memcg);
  Locked lock(file.mutex);
  PageRange area = fault.vma != nullptr ? fault.vma->range : PageRange{0, (kMaxAddress + 1) >> m_.page_shift};
  for (PageIndex index = hints.map_first; index < hints.map_end; ++index) {
    PageNumber at = index + static_cast<uint64_t>(delta);
    if (at < area.first || at >= area.end) continue;
    FolioId page = m_.cache.Find(file, index);
    if (page == FolioId::kNone && file.shmem && m_.cache.NeverSeen(file, index)) {
      // A write(2) to tmpfs leaves no event, being mapped does.  Such a page was referenced when it was
      // written.
      m_.cache.Add(fault.slot, file, index, 0, memcg, kFolioReferenced);
      page = m_.cache.Find(file, index);
    }
    if (page == FolioId::kNone || m_.arena.Get(m_.arena.HeadOf(page)).Has(kFolioReadahead)) continue;
    Pte* pte = fault.mm.page_table.Find(at);  // never past the fault's own table
    if (pte == nullptr || Present(*pte, fault.slot)) continue;
    if (!m_.cache.Map(fault.slot, page)) continue;
    *pte = MakePte(page, kPteAccessed);
    SetYoung(fault, page);
  }
}

// The same, where room may have to be made for them.
template <class Forms>
void Faults<Forms>::FillUnseen(CpuSlot& slot, File& file, const FaultHints& hints, MemcgId memcg) {
  for (PageIndex index = hints.map_first; index < hints.map_end; ++index) {
    bool unseen;
    {
      Locked lock(file.mutex);
      unseen = m_.cache.NeverSeen(file, index);
    }
    if (unseen) m_.cache.Fill(slot, file, index, 0, memcg, ChargeMode::kNoRetry, kFolioReferenced);
  }
}

// finish_fault(): the page that was asked for, and of a large folio all that the area shows.
template <class Forms>
void Faults<Forms>::MapFolio(const Fault& fault, File& file, PageIndex index) {
  Locked lock(file.mutex);
  FolioId wanted = m_.cache.Find(file, index);
  if (wanted == FolioId::kNone) return;
  FolioId head = m_.arena.HeadOf(wanted);
  uint32_t first = m_.arena.Get(head).index;
  PageRange area = fault.vma != nullptr ? fault.vma->range : PageRange{0, (kMaxAddress + 1) >> m_.page_shift};
  for (uint32_t i = 0; i < m_.arena.Get(head).pages(); ++i) {
    PageNumber at = fault.page + first + i - index;
    if (at < area.first || at >= area.end) continue;
    Pte* pte = fault.mm.page_table.Find(at);
    if (pte == nullptr || Present(*pte, fault.slot)) continue;
    FolioId page{Raw(head) + i};
    if (!m_.cache.Map(fault.slot, page)) continue;
    *pte = MakePte(page, kPteAccessed | (fault.shared() ? kPteWritable : 0));
    SetYoung(fault, page);
  }
}

template <class Forms>
bool Faults<Forms>::MapsShmem(const Fault& fault) const {
  return fault.vma != nullptr && fault.vma->file != FileId::kNone && m_.files.Get(fault.vma->file).shmem;
}

// shmem_fault(): a page of the object, made where it is not there yet; a write to a private area copies it.
template <class Forms>
Outcome Faults<Forms>::MapShmem(const Fault& fault) {
  Vma& vma = *fault.vma;
  if (vma.file == FileId::kNone) StandIn(vma);
  File& file = m_.files.Get(vma.file);
  if (!file.shmem) return Outcome::kOk;  // another thread's fault was there first
  PageIndex index = vma.IndexOf(fault.page);
  Pte& pte = EntryOf(fault);
  if (m_.charges.models_reclaim()) {
    MemcgId memcg = fault.mm.memcg.load(std::memory_order_relaxed);
    if (m_.cache.Fill(fault.slot, file, index, 0, memcg, ChargeMode::kRetry) == CacheAdd::kRefused)
      return Outcome::kLimit;
  }
  {
    Locked lock(file.mutex);
    FolioId page = m_.cache.Find(file, index);
    if (page == FolioId::kNone) {
      MemcgId memcg = fault.mm.memcg.load(std::memory_order_relaxed);
      if (m_.cache.Add(fault.slot, file, index, 0, memcg) == CacheAdd::kRefused) return Outcome::kLimit;
      page = m_.cache.Find(file, index);
    }
    if (fault.shared() || !fault.write()) {
      if (!m_.cache.Map(fault.slot, page)) return Outcome::kLimit;
      pte = MakePte(page, kPteAccessed | (fault.shared() ? kPteWritable : 0));
      SetYoung(fault, page);
      return Outcome::kOk;
    }
  }
  return SetAnonymous(fault, pte);
}

// A tmpfs file that no event has named yet.
template <class Forms>
void Faults<Forms>::StandIn(Vma& vma) {
  vma.file = m_.files.CreateAnonymous();
  File& file = m_.files.Get(vma.file);
  Locked lock(file.mutex);
  file.area_pages = static_cast<int64_t>(vma.range.pages());
}

// do_anonymous_page()
template <class Forms>
Outcome Faults<Forms>::MapAnonymous(const Fault& fault) {
  Pte& pte = EntryOf(fault);
  if (!fault.write() && m_.config.zero_page) {
    pte = MakePte(FolioId::kZeroPage, kPteAccessed);
    return Outcome::kOk;
  }
  return SetAnonymous(fault, pte);
}

// vvar and vdso: exec puts them just below the interpreter and no event tells of them; no page of theirs
// counts. What shows them is a read whose code lies a little above (the interpreter reading the vdso's
// header, the vdso reading vvar), a fetch that no file backs, or a read far from the program, its stack and
// the code's own data.
template <class Forms>
bool Faults<Forms>::IsSpecialMapping(const Fault& fault) {
  if (fault.vma != nullptr || fault.write() || (fault.error_code & kFaultUser) == 0 ||
      fault.mm.predates_stream) {
    return false;
  }
  if ((fault.error_code & kFaultFetch) != 0) return true;
  if (fault.hints.instruction == 0) return false;
  int64_t above = static_cast<int64_t>(fault.hints.instruction - fault.page);
  if (above > 0 && above <= static_cast<int64_t>(kSpecialReachPages)) return true;
  bool own_data = above <= 0 && above >= -static_cast<int64_t>(kSpecialReachPages);
  return fault.page >= kTopDownPages && !own_data && !IsStack(fault);
}

template <class Forms>
bool Faults<Forms>::IsStack(const Fault& fault) {
  return fault.mm.entry != 0 && fault.page >= fault.mm.entry + kStackGapPages;
}

// How far the file's pages lie above their indices.
template <class Forms>
int64_t Faults<Forms>::DeltaOf(const Fault& fault, FileId file, PageIndex first, PageIndex end) {
  if (fault.vma != nullptr) return static_cast<int64_t>(fault.vma->range.first - fault.vma->file_index);
  // do_fault_around() begins at a multiple of its 16 pages where the area allows, and never below it.
  PageNumber window = fault.page & ~(kFaultAroundPages - 1);
  int64_t aligned = static_cast<int64_t>(window - first);
  bool aligned_holds = fault.page - static_cast<uint64_t>(aligned) < end;
  const ImpliedArea* best = nullptr;
  for (const ImpliedArea& area : fault.mm.implied) {
    PageIndex index = fault.page - static_cast<uint64_t>(area.delta);
    if (area.file != file || index < first || index >= end) continue;
    if (area.delta == aligned) return aligned;
    bool fits = first + static_cast<uint64_t>(area.delta) >= window;
    if (fits && (best == nullptr || area.delta > best->delta)) best = &area;
  }
  if (best != nullptr) return best->delta;
  int64_t delta = aligned_holds ? aligned : static_cast<int64_t>(fault.page - first);
  Imply(fault.mm, file, delta);
  return delta;
}

template <class Forms>
ImpliedArea& Faults<Forms>::Imply(Mm& mm, FileId file, int64_t delta) {
  for (ImpliedArea& area : mm.implied) {
    if (area.file == file && area.delta == delta) return area;
  }
  return mm.implied.emplace_back(ImpliedArea{file, delta, false});
}

// The area's object got a name: what was made under the stand-in is the file's.  Other areas of the stand-in
// (after a fork) keep it, and find their pages anew.
template <class Forms>
void Faults<Forms>::BindShmem(const Fault& fault, FileId id) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  File& stand_in = m_.files.Get(fault.vma->file);
  File& file = m_.files.Get(id);
  if (stand_in.dev != FileTable::kAnonymousDev) return;
  // Two files' mutexes: nobody holds a named file's while waiting for a stand-in's.
  Locked lock(stand_in.mutex);
  stand_in.area_pages -= static_cast<int64_t>(fault.vma->range.pages());
  if (file.shmem) {
    Locked inner(file.mutex);
    stand_in.pages.ForEach({0, ~uint64_t{0}},
                           [&](PageIndex index, uint32_t& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                             if ((entry & File::kAbsent) != 0 || m_.cache.Find(file, index) != FolioId::kNone)
                               return;
                             m_.arena.FileOf(m_.arena.HeadOf(FolioId{entry})) = id;
                             file.pages.Ensure(index) = entry;
                             ++file.cached_pages;
                             --stand_in.cached_pages;
                             entry = 0;
                           });
  }
  if (stand_in.area_pages > 0) return;
  m_.cache.DeleteAll(fault.slot, stand_in);
  m_.files.FreeAnonymous(stand_in.id);
}

template <class Forms>
Outcome Faults<Forms>::SetAnonymous(const Fault& fault, Pte& pte) {
  MemcgId memcg = fault.mm.memcg.load(std::memory_order_relaxed);
  FolioId id = NewAnonymous(fault.slot, memcg, FlagsIn(fault.vma));
  if (id == FolioId::kNone) return Outcome::kLimit;
  if (pte != 0) DropPte(fault.slot, pte);
  pte = MakePte(id, kPteAccessed | kPteWritable);
  return Outcome::kOk;
}

template <class Forms>
Outcome Faults<Forms>::Access(CpuSlot& slot, Mm& mm, uint64_t address) {
  Pte* pte = mm.page_table.Find(address >> m_.page_shift);
  if (pte == nullptr || *pte == 0) return Outcome::kOk;
  if (!m_.charges.models_reclaim() || Raw(PteFolio(*pte)) <= Raw(FolioId::kZeroPage)) {
    *pte |= kPteAccessed;
    return Outcome::kOk;
  }
  const FaultHints none;
  PageNumber page = address >> m_.page_shift;
  Fault fault{slot, mm, none, page, 0, mm.vmas.Find(page)};
  fault.mm.mutex.AssertHeld();  // it is mm's
  FolioId id = PteFolio(*pte);
  if (m_.arena.Get(id).dead() || m_.arena.Get(id).unmapped()) {
    if (!slot.retries) m_.charges.ModStat(slot, mm.memcg.load(std::memory_order_relaxed), Stat::kPgfault, 1);
    if (IsSwapEntry(*pte)) {
      Outcome outcome = SwapIn(slot, mm, *pte, false);
      if (outcome != Outcome::kOk) return outcome;
    } else if (m_.arena.Get(id).anon()) {  // given up by MADV_FREE
      return SetAnonymous(fault, *pte);
    } else {
      FolioId head = m_.arena.HeadOf(id);
      PageIndex index = m_.arena.Get(head).index + (Raw(id) - Raw(head));
      FileId file = m_.arena.FileOf(head);
      DropPte(slot, *pte);
      return MapMissed(fault, file, index);
    }
  }
  *pte |= kPteAccessed;
  SetYoung(fault, id);
  return Outcome::kOk;
}

// The descriptor lives on: every entry that named it as swapped finds it again, as if each had faulted.
template <class Forms>
Outcome Faults<Forms>::SwapIn(CpuSlot& slot, Mm& mm, Pte pte, bool write) {
  FolioId id = PteFolio(pte);
  Folio& folio = m_.arena.Get(id);
  bool major = false;
  for (;;) {
    uint32_t place = SwapSpace::kNoSlot;
    {
      SpinLock& folio_lock = m_.FolioLockOf(id);
      Locked lock(folio_lock);
      if (!folio.Has(kFolioSwapped)) {
        if (!major && (folio.flags.fetch_and(~kFolioReadahead, std::memory_order_relaxed) & kFolioReadahead))
          m_.swap.CountHit();
        uint64_t before = folio.state.fetch_and(~Folio::kUnmapped, std::memory_order_acq_rel);
        if ((before & Folio::kUnmapped) == 0) return Outcome::kOk;  // another stream's fault was first
        folio.Clear(kFolioYoungTwice);
        folio.Set(kFolioYoung);
        m_.charges.ModStat(slot, Folio::MemcgOf(before), Stat::kAnon, 1);
        break;
      }
      place = SwapSlotOf(folio);
    }
    // The first time with its neighbours; then what of these had it evicted again.
    if (!(major ? ReadSwap(slot, mm, place, false) : ReadAheadSwap(slot, mm, place))) return Outcome::kLimit;
    if (!major) m_.charges.ModStat(slot, mm.memcg.load(std::memory_order_relaxed), Stat::kPgmajfault, 1);
    major = true;
  }
  // should_try_to_free_swap()
  if ((write && folio.mapcount() == 1) || folio.Has(kFolioMlocked) ||
      m_.charges.SwapIsFull(m_.tree.Get(folio.memcg()))) {
    FreeSwapOf(slot, id);
  }
  return Outcome::kOk;
}

// swap_cluster_readahead(): what is written meanwhile to make room waits until all is asked for.
template <class Forms>
bool Faults<Forms>::ReadAheadSwap(CpuSlot& slot, const Mm& mm, uint32_t place) {
  SwapSpace::Range range = m_.swap.ReadAhead(place);
  bool charged = true;
  for (uint32_t at = range.first; at <= range.last && charged; ++at) {
    charged = ReadSwap(slot, mm, at, at != place);
    slot.plugged = true;
  }
  slot.plugged = false;
  m_.writeback_device.EndSwapWrites(slot);
  m_.lru.Drain(slot);
  return charged;
}

template <class Forms>
bool Faults<Forms>::ReadSwap(CpuSlot& slot, const Mm& mm, uint32_t place, bool ahead) {
  const auto [id, owner] = m_.swap.GetSwapped(m_.arena, place);
  if (id == FolioId::kNone) return true;
  Folio& folio = m_.arena.Get(id);
  // mem_cgroup_swapin_charge_folio()
  const MemcgId memcg = m_.tree.Get(owner).online ? owner : mm.memcg.load(std::memory_order_relaxed);
  if (!m_.charges.TryCharge(slot, memcg, 1)) {
    m_.lru.Put(slot, id);
    return false;
  }
  Shadow shadow;
  bool swapped;
  {
    SpinLock& folio_lock = m_.FolioLockOf(id);
    Locked lock(folio_lock);
    swapped = folio.Has(kFolioSwapped);
    if (swapped) {
      shadow = {SwapEvictor(folio), int64_t{folio.index}, folio.Has(kFolioWorkingset)};
      folio.index = SwapSlotOf(folio);
      folio.next = folio.prev = FolioId::kNone;
      folio.Clear(kFolioSwapped | kFolioWorkingset | kFolioYoung | kFolioYoungTwice);
      folio.Set(kFolioSwapCache | (ahead ? kFolioReadahead : 0));
      // Alive, and in the cgroup; its entries hold it as before, and find it as a swap entry does.
      uint64_t state = folio.state.load(std::memory_order_relaxed);
      while (!folio.state.compare_exchange_weak(
          state, Folio::StateOf(memcg, state & Folio::kHolds) | Folio::kUnmapped,
          std::memory_order_acq_rel)) {
      }
    }
  }
  if (swapped) {
    StatPending& stats = m_.charges.StatsOf(slot, memcg);
    for (Stat stat : {Stat::kSwapcached, Stat::kPgpgin, Stat::kPswpin})
      m_.charges.Mod(slot, stats, memcg, stat, 1);
    slot.folios.CountInUse(1);
    m_.cache.Refault(slot, id, shadow);
    m_.lru.Add(slot, id);
  } else {  // another stream was there first
    m_.charges.Uncharge(slot, memcg, 1);
  }
  m_.lru.Put(slot, id);
  return true;
}

template <class Forms>
void Faults<Forms>::FreeSwapOf(CpuSlot& slot, FolioId id) {
  Folio& folio = m_.arena.Get(id);
  SpinLock& folio_lock = m_.FolioLockOf(id);
  Locked lock(folio_lock);
  if (folio.Has(kFolioSwapCache) && !folio.Has(kFolioWriteback)) m_.charges.FreeSwap(slot, folio);
}

template <class Forms>
Outcome Faults<Forms>::Migrate(CpuSlot& slot, Mm& mm, uint64_t address, MemcgId to) {
  Pte* pte = mm.page_table.Find(address >> m_.page_shift);
  if (pte == nullptr || Raw(PteFolio(*pte)) <= Raw(FolioId::kZeroPage)) return Outcome::kUnseenPage;
  const Folio& folio = m_.arena.Get(PteFolio(*pte));
  if (!folio.anon() || folio.mapcount() != 1)
    return Outcome::kCacheMismatch;  // others' locks would be needed too
  SpinLock& folio_lock = m_.FolioLockOf(PteFolio(*pte));
  return m_.lru.Migrate(slot, PteFolio(*pte), to, folio_lock) ? Outcome::kOk : Outcome::kCacheMismatch;
}

// Stops where more pages were made than the node has RAM: the kernel would be killing by then.
template <class Forms>
bool Faults<Forms>::Populate(CpuSlot& slot, Mm& mm, PageRange range, bool write) {
  uint64_t left = m_.config.memory_bytes >> m_.page_shift;
  auto populate = [&](Vma& vma) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!vma.anonymous() && (vma.file == FileId::kNone || !m_.files.Get(vma.file).shmem)) {
      return;  // a regular file's pages: their own events tell
    }
    uint32_t error_code = write && !vma.shared() && (vma.prot & kProtWrite) != 0 ? kFaultWrite : 0;
    PageNumber end = std::min(vma.range.end, range.end);
    for (PageNumber page = std::max(vma.range.first, range.first);
         page < end && left > 0 && slot.oom_at == MemcgId::kNone && m_.MayGrow(); ++page) {
      if (PopulatePage({slot, mm, FaultHints{}, page, error_code, &vma})) --left;
    }
  };
  Vma* before = mm.vmas.Find(range.first);
  if (before != nullptr && before->range.first < range.first) populate(*before);
  mm.vmas.ForEachWithin(range, populate);
  return left > 0 && m_.MayGrow();
}

template <class Forms>
bool Faults<Forms>::PopulatePage(const Fault& fault) {
  Pte* entry = m_.kernel.Ensure(fault.slot, fault.mm, fault.page);
  if (entry == nullptr) return false;
  Pte& pte = *entry;
  Outcome outcome = IsSwapEntry(pte) ? SwapIn(fault.slot, fault.mm, pte, fault.write()) : Outcome::kOk;
  if (outcome != Outcome::kOk) return false;
  if (Present(pte, fault.slot)) {
    if (!fault.write() || (pte & kPteWritable) != 0) return false;
    outcome = WriteProtect(fault, pte);
  } else if (fault.shared() || MapsShmem(fault)) {
    outcome = MapShmem(fault);
  } else {
    outcome = MapAnonymous(fault);
  }
  if (fault.slot.oom_at != MemcgId::kNone) return false;
  m_.charges.ModStat(fault.slot, fault.mm.memcg.load(std::memory_order_relaxed), Stat::kPgfault, 1);
  return true;
}

template <class Forms>
void Faults<Forms>::AddBaselineAnonymous(CpuSlot& slot, Mm& mm, PageRange range) {
  const FaultHints none;
  for (PageNumber page = range.first; page < range.end && m_.MayGrow(); ++page) {
    Pte* pte = m_.kernel.Ensure(slot, mm, page);
    if (pte == nullptr) return;
    if (Present(*pte, slot)) continue;
    Fault fault{slot, mm, none, page, kFaultWrite, mm.vmas.Find(page)};
    fault.mm.mutex.AssertHeld();  // it is mm's
    if (SetAnonymous(fault, *pte) != Outcome::kOk) return;
  }
}

template <class Forms>
void Faults<Forms>::AddArgumentPage(CpuSlot& slot, Mm& mm) {
  MemcgId memcg = mm.memcg.load(std::memory_order_relaxed);
  if (!slot.retries) m_.charges.ModStat(slot, memcg, Stat::kPgfault, 1);
  // get_user_pages touches it for the name, the environment and the arguments: active before it is on a list.
  FolioId id = NewAnonymous(slot, memcg, kFolioActive);
  if (id != FolioId::kNone) mm.unbound.push_back(id);
  slot.lru_add_unshared = 0;  // no batch of events holds its address space
}

template class Faults<DefaultForms>;
template class Faults<ChosenForms>;

}  // namespace memcgd::core
