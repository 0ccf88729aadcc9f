// Folios on their way to, on, between and off the LRU lists, and the end of a folio.
//
// Kernel counterpart: mm/swap.c (folio_add_lru, folio_mark_accessed, folio_activate, folios_put), and
// workingset_activation() of mm/workingset.c.
//
// Invariant: kDead is set before a deletion takes the lruvec's lock, and a push looks for it under the lock.
// So a dead folio is on no list once its deletion has left the lock, or its mover has.
//
// Thread safety: by the holder of the CPU's slot.  Takes lruvec locks, one at a time, kept over a run of
// folios of one cgroup.
#ifndef MEMCGD_CORE_LRU_H_
#define MEMCGD_CORE_LRU_H_

#include <span>

#include "core/charge.h"
#include "core/cpu_slot.h"
#include "core/folio.h"
#include "core/memcg_tree.h"

namespace memcgd::core {

// What an isolation saw, pages.
struct Isolated {
  int64_t scanned = 0;
  int64_t taken = 0;
};

template <class Forms>
class LruvecRun;

template <class Forms>
class Lru {
 public:
  Lru(MemcgTree& tree, FolioArena& arena, Charges<Forms>& charges)
      : tree_(tree), arena_(arena), charges_(charges) {}

  // Puts a new folio in the CPU's batch; the batch takes a reference.
  void Add(CpuSlot& slot, FolioId head);
  // Moves every batch of the CPU to the lists.
  void Drain(CpuSlot& slot);
  // A reference to the page: inactive → referenced → active.
  void MarkAccessed(CpuSlot& slot, FolioId head);
  void Activate(CpuSlot& slot, FolioId head);
  // MADV_FREE: a clean anonymous folio goes to the inactive file list.
  void MarkLazyFree(CpuSlot& slot, FolioId head);
  // mlock and munlock: to and from the unevictable list.
  void SetUnevictable(CpuSlot& slot, FolioId head, bool unevictable);
  // Drops a reference; the last one ends the folio: off its list, uncharged, freed.
  void Put(CpuSlot& slot, FolioId head) {
    uint64_t before = arena_.Get(head).state.fetch_sub(Folio::kOneRef, std::memory_order_acq_rel);
    if ((before & Folio::kHolds) == Folio::kOneRef) End(slot, head);
  }
  // Off its list and uncharged; a tombstone stays as long as page-table entries hold it.
  void Discharge(CpuSlot& slot, FolioId head);
  // A folio whose last hold was dropped, or is a mapping that nobody can copy any more and that is dropped
  // with the rest: ended when the CPU's batch of such is full, or the event ends.
  void End(CpuSlot& slot, FolioId head) {
    slot.ended.folios[slot.ended.count++] = head;
    if (slot.ended.count == EndedFolios::kSize) FlushEnded(slot);
  }
  void FlushEnded(CpuSlot& slot);
  // How many AddNew() would only put there.
  static uint32_t Room(const CpuSlot& slot) { return FolioBatch::kSize - 1 - slot.lru_add.count; }
  // Puts an anonymous page that nobody else can reach yet in the CPU's batch, whose reference it has already.
  void AddNew(CpuSlot& slot, FolioId head) {
    slot.lru_add.folios[slot.lru_add.count++] = head;
    ++slot.lru_add_unshared;
    if (slot.lru_add.count == FolioBatch::kSize) DrainAdd(slot);
  }

  // Takes folios of up to so many pages off the list's tail, with a reference each, into `taken`.  Each goes
  // back by PutOnLists() or ends by Put().
  Isolated Isolate(CpuSlot& slot, MemcgId memcg, LruList list, int64_t pages, FolioBatch& taken);
  // Each folio of the batch goes to the list that its flags name, and the batch's reference is dropped.
  // The last `unshared` of them are as CpuSlot::lru_add_unshared says.
  void PutOnLists(CpuSlot& slot, FolioBatch& batch, uint32_t unshared = 0);
  // To the tail of its inactive list, where it is on a list: what reclaim waited for is written.
  void Rotate(CpuSlot& slot, FolioId head);

  // The folio and its charge go to another cgroup, where it can be isolated; large folios stay.  By the
  // holder of the file's mutex, or for an anonymous folio with one mapping that of the address space.
  bool Migrate(CpuSlot& slot, FolioId head, MemcgId to, SpinLock& folio_lock);

  // The lruvec's clock ticks, here and at every ancestor (workingset_age_nonresident).
  void Age(MemcgId memcg, uint32_t pages);

 private:
  // What is counted for the folio's cgroup, `state` being that of the moment at which this changed.
  void MoveStats(CpuSlot& slot, const Folio& folio, uint64_t state, MemcgId from, MemcgId to);
  void DrainAdd(CpuSlot& slot);
  // Of the batch's folios, those from `begin` on.
  void PutUnshared(const FolioBatch& batch, uint32_t begin, LruvecRun<Forms>& run, FolioBatch& unheld);
  void DrainActivate(CpuSlot& slot);
  void DrainLazyFree(CpuSlot& slot);
  // Isolates the folio by its LRU bit, changes flags and puts it on the list that they name.  The cgroup
  // whose list it is, or kNone: in a batch, isolated by another, or dead.
  MemcgId Move(CpuSlot& slot, FolioId head, uint32_t set, uint32_t clear);
  // Takes those that end off their lists and uncharges them.
  void UnlinkEnded(CpuSlot& slot);
  bool LeaveIsolated(CpuSlot& slot, uint32_t i, uint64_t state);
  void PrefetchNeighbours(FolioId head, MemcgId memcg);
  void PutBatch(CpuSlot& slot, FolioBatch& batch);
  void LetGoOfIsolated(CpuSlot& slot, FolioId head);
  bool BatchHolds(const FolioBatch& batch, FolioId head) const;

  MemcgTree& tree_;
  FolioArena& arena_;
  Charges<Forms>& charges_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_LRU_H_
