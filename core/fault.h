// The way of a fault.
//
// Kernel counterpart: handle_mm_fault() in mm/memory.c and filemap_fault(), filemap_map_pages() in
// mm/filemap.c. Whole story: docs/the-way-of-a-fault.md.  What the hardware and the file system knew reaches
// us as the error code and as hints (mm_filemap_fault, mm_filemap_map_pages) that came before; where they are
// silent, the areas decide.
//
// Thread safety: by the holder of the CPU's slot and of the address space's mutex; takes the file's.
#ifndef MEMCGD_CORE_FAULT_H_
#define MEMCGD_CORE_FAULT_H_

#include <cstddef>
#include <span>

#include "core/accounts.h"

namespace memcgd::core {

template <class Forms>
class Faults {
 public:
  explicit Faults(Accounts<Forms>& machine) : m_(machine) {}

  // The most frequent fault, in its shortest form: a write to private memory of no file that has a page
  // table and no page there yet, by a thread that gave no hints.  kInvalid, with nothing done, where it is
  // any other.
  Outcome TryFirstTouch(CpuSlot& slot, Mm& mm, uint64_t address, uint32_t error_code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex) {
    if ((error_code & (kFaultWrite | kFaultProtection | kFaultFetch)) != kFaultWrite)
      return Outcome::kInvalid;
    PageNumber page = address >> m_.page_shift;
    Vma* vma = mm.vmas.Find(page);
    if (vma != nullptr && (vma->shared() || vma->file != FileId::kNone)) return Outcome::kInvalid;
    Pte* pte = mm.page_table.Find(page);
    if (pte == nullptr || *pte != 0) return Outcome::kInvalid;
    MemcgId memcg = mm.memcg.load(std::memory_order_relaxed);
    StatPending& stats = m_.charges.StatsOf(slot, memcg);
    m_.charges.Mod(slot, stats, memcg, Stat::kPgfault, 1);
    FolioId id = NewAnonymous(slot, stats, memcg, FlagsIn(vma));
    if (id == FolioId::kNone) return Outcome::kLimit;
    *pte = MakePte(id, kPteAccessed | kPteWritable);
    return Outcome::kOk;
  }
  // The same for as many of these events as are such faults of one thread, like the first, and as the CPU's
  // stock, pending statistics, batch and descriptors take in without more ado: what comes of them is what
  // comes of them one by one.  How many it was; *last_us is raised to their times.  Not where the model
  // reclaims: there each event has its time and its end.
  size_t TryFirstTouches(CpuSlot& slot, Mm& mm, std::span<const Event> events, uint32_t* last_us)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // One page fault that reached handle_mm_fault.
  Outcome Handle(CpuSlot& slot, Mm& mm, const FaultHints& hints, uint64_t address, uint32_t error_code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // A touch of a mapped page that made no fault (from a sampler).  Where the model has reclaimed the page,
  // this is the fault that the model's kernel would have had.
  Outcome Access(CpuSlot& slot, Mm& mm, uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // folio_free_swap(): not while it is being written.
  void FreeSwapOf(CpuSlot& slot, FolioId id);
  // The anonymous folio mapped at the address, here only, changes its cgroup.
  Outcome Migrate(CpuSlot& slot, Mm& mm, uint64_t address, MemcgId to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // Whether the entry holds something; a tombstone, which is what the kernel's unmapping would have left,
  // does not, and is dropped.
  bool Present(Pte& pte, CpuSlot& slot) {
    if (pte == 0) return false;
    if (Raw(PteFolio(pte)) <= Raw(FolioId::kZeroPage) || !m_.arena.Get(PteFolio(pte)).dead()) return true;
    if (m_.arena.Get(PteFolio(pte)).unmapped()) return true;  // a swap entry
    DropPte(slot, pte);
    return false;
  }
  bool IsSwapEntry(Pte pte) const {
    if (!m_.charges.models_reclaim() || Raw(PteFolio(pte)) <= Raw(FolioId::kZeroPage)) return false;
    return m_.arena.Get(PteFolio(pte)).unmapped();
  }
  // Faults that no event told: populate, mlock.  Every page of the range that is not present.
  // False where it gave up at the node's RAM.
  bool Populate(CpuSlot& slot, Mm& mm, PageRange range, bool write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // Anonymous pages that were there before the stream: charged, not counted as faults.
  void AddBaselineAnonymous(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // A page of arguments that exec writes through get_user_pages: counted, charged, at no address yet.
  void AddArgumentPage(CpuSlot& slot, Mm& mm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

 private:
  struct Fault {
    CpuSlot& slot;
    Mm& mm;
    const FaultHints& hints;
    PageNumber page;
    uint32_t error_code;
    Vma* vma;
    bool write() const { return (error_code & kFaultWrite) != 0; }
    bool shared() const { return vma != nullptr && vma->shared(); }
  };

  Outcome WriteProtect(const Fault& fault, Pte& pte) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome WriteUnseen(const Fault& fault, Pte& pte) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome MapFile(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  void FillUnseen(CpuSlot& slot, File& file, const FaultHints& hints, MemcgId memcg);
  void MapAround(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  void MapFolio(const Fault& fault, File& file, PageIndex index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  // do_swap_page(): the page comes back, for all that had it mapped.
  Outcome SwapIn(CpuSlot& slot, Mm& mm, Pte pte, bool write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // False where a page could not be charged.
  bool ReadAheadSwap(CpuSlot& slot, const Mm& mm, uint32_t place);
  bool ReadSwap(CpuSlot& slot, const Mm& mm, uint32_t place, bool ahead);
  // filemap_fault() of a page that the model has reclaimed though the trace's kernel had not.
  bool FillAbsent(const Fault& fault, File& file, PageIndex index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome MapMissed(const Fault& fault, FileId file, PageIndex index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  // What an entry that is made says to reclaim.
  void SetYoung(const Fault& fault, FolioId page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  bool MapsShmem(const Fault& fault) const;
  Outcome MapShmem(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome MapAnonymous(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  bool IsSpecialMapping(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  bool IsStack(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  int64_t DeltaOf(const Fault& fault, FileId file, PageIndex first, PageIndex end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  ImpliedArea& Imply(Mm& mm, FileId file, int64_t delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  void StandIn(Vma& vma);
  void BindShmem(const Fault& fault, FileId file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  // True where it made a fault.
  bool PopulatePage(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  // Flags of an anonymous page made in that area, which fork then copies.
  static uint32_t FlagsIn(Vma* vma) {
    if (vma == nullptr) return 0;
    vma->has_anon_vma = true;
    return vma->locked ? kFolioUnevictable | kFolioMlocked : 0;
  }
  // Charged, counted, on its way to its list; held by the entry that is about to be made.  kNone: refused.
  //
  // Nothing of it can be seen before it is mapped, whatever the order.  The barrier that marks it up to date
  // comes after the charge, or before it, where a refusal has wasted it.
  FolioId NewAnonymous(CpuSlot& slot, MemcgId memcg, uint32_t flags) {
    return NewAnonymous(slot, m_.charges.StatsOf(slot, memcg), memcg, flags);
  }
  // The same; `stats` are the cgroup's.
  FolioId NewAnonymous(CpuSlot& slot, StatPending& stats, MemcgId memcg, uint32_t flags) {
    if (!m_.forms.uptodate_first() && !m_.charges.TryCharge(slot, memcg, 1)) return FolioId::kNone;
    // Its flags stand before it is in the batch, which holds it too.
    FolioId id =
        m_.arena.AllocatePage(slot.folios, memcg, kFolioAnon | kFolioSwapBacked | kFolioYoung | flags,
                              Folio::kOneRef | Folio::kOneMapping);
    m_.arena.Get(id).MarkUptodate();
    ++slot.counters.barriers;
    if (m_.forms.uptodate_first() && !m_.charges.TryCharge(slot, memcg, 1)) {
      ++slot.counters.barriers_before_refusal;
      m_.arena.Free(slot.folios, id);
      return FolioId::kNone;
    }
    m_.charges.Mod(slot, stats, memcg, Stat::kAnon, 1);
    m_.charges.Mod(slot, stats, memcg, Stat::kPgpgin, 1);
    m_.lru.AddNew(slot, id);
    return id;
  }
  // kLimit: refused; the entry is as it was.
  Outcome SetAnonymous(const Fault& fault, Pte& pte) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  // Of the fault's page, whose tables exist.
  static Pte& EntryOf(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex) {
    return *fault.mm.page_table.Find(fault.page);
  }
  void DropPte(CpuSlot& slot, Pte& pte) {
    if (Raw(PteFolio(pte)) > Raw(FolioId::kZeroPage)) m_.cache.Unmap(slot, PteFolio(pte));
    pte = 0;
  }

  Accounts<Forms>& m_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_FAULT_H_
