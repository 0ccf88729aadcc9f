#include "core/lru.h"

#include <utility>

namespace memcgd::core {
namespace {

// A folio that was about to end, and that reclaim isolated or swapped out first.
bool IsTaken(uint64_t state) {
  return Folio::RefsOf(state) != 0 || (Folio::MapcountOf(state) != 0 && (state & Folio::kDead) != 0);
}

}  // namespace

// Holds a list lock over a run of folios, and counts what the run adds to the lists of one cgroup.
template <class Forms>
class LruvecRun {
 public:
  LruvecRun(MemcgTree& tree, Charges<Forms>& charges, CpuSlot& slot)
      : tree_(tree), charges_(charges), slot_(slot) {}
  ~LruvecRun() {
    Unlock();
    EndCgroup();
  }

  Lruvec& Lock(MemcgId memcg) {
    if (memcg != memcg_) SwitchTo(memcg);
    return memcg_of_run_->lruvec;
  }
  void Count(LruList list, int32_t pages) { pages_[static_cast<size_t>(list)] += pages; }

 private:
  void SwitchTo(MemcgId memcg) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the lock held depends on the data
    Memcg& next = tree_.Get(memcg);
    if (lock_ != &next.lruvec.lock) {  // the same, where the node has one for all
      Unlock();
      lock_ = &next.lruvec.lock;
      ++slot_.counters.lru_lock_acquisitions;
      if (!lock_->TryLock()) {
        ++slot_.counters.lru_lock_contended;
        lock_->Lock();
      }
    }
    EndCgroup();
    memcg_ = memcg;
    memcg_of_run_ = &next;
  }
  void Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (lock_ != nullptr) lock_->Unlock();
    lock_ = nullptr;
  }
  void EndCgroup() {
    if (memcg_of_run_ == nullptr) return;
    for (size_t i = 0; i < kLruLists; ++i) {
      if (pages_[i] == 0) continue;
      if (charges_.models_reclaim() || static_cast<LruList>(i) == LruList::kActiveFile) {
        for (Memcg* level = memcg_of_run_; level != nullptr; level = level->parent)
          level->lru_pages[i].fetch_add(pages_[i], std::memory_order_relaxed);
      }
      charges_.ModStat(slot_, memcg_, LruStat(static_cast<LruList>(i)), pages_[i]);
      pages_[i] = 0;
    }
  }

  MemcgTree& tree_;
  Charges<Forms>& charges_;
  CpuSlot& slot_;
  SpinLock* lock_ = nullptr;
  Memcg* memcg_of_run_ = nullptr;
  MemcgId memcg_ = MemcgId::kNone;
  std::array<int32_t, kLruLists> pages_{};
};

template <class Forms>
void Lru<Forms>::Add(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  folio.Get();
  slot.lru_add.folios[slot.lru_add.count++] = head;
  slot.lru_add_unshared = 0;
  if (slot.lru_add.count == FolioBatch::kSize || folio.order() > 0) DrainAdd(slot);
}

template <class Forms>
void Lru<Forms>::Drain(CpuSlot& slot) {
  DrainAdd(slot);
  DrainActivate(slot);
  DrainLazyFree(slot);
}

template <class Forms>
void Lru<Forms>::DrainAdd(CpuSlot& slot) {
  PutOnLists(slot, slot.lru_add, std::exchange(slot.lru_add_unshared, 0));
}

// Each folio goes to its list and out of the batch in one step.
template <class Forms>
void Lru<Forms>::PutOnLists(CpuSlot& slot, FolioBatch& batch,
                            uint32_t unshared) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  FolioBatch unheld;  // ended when the run's lock is let go of
  {
    LruvecRun<Forms> run(tree_, charges_, slot);
    const uint32_t shared = batch.count - unshared;
    for (uint32_t i = 0; i < shared; ++i) {
      FolioId head = batch.folios[i];
      Folio& folio = arena_.Get(head);
      uint64_t state = folio.state.load(std::memory_order_acquire);
      bool only_ours = (state & Folio::kHolds) == Folio::kOneRef;  // not worth a list
      uint64_t change = uint64_t{0} - Folio::kOneRef;
      if (!only_ours && (state & Folio::kDead) == 0) {
        Lruvec& lruvec = run.Lock(Folio::MemcgOf(state));  // of a folio that is not isolated: it stays
        if (!folio.dead()) {
          LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
          lruvec.PushFront(arena_, list, head, folio);
          run.Count(list, static_cast<int32_t>(folio.pages()));
          change += Folio::kLru;
        }
      }
      // Release: TestAndClearLru() sees the links.
      uint64_t before = folio.state.fetch_add(change, std::memory_order_acq_rel);
      if ((before & Folio::kHolds) == Folio::kOneRef) unheld.folios[unheld.count++] = head;
    }
    if (unshared > 0) PutUnshared(batch, shared, run, unheld);
    batch.count = 0;
  }
  for (uint32_t i = 0; i < unheld.count; ++i) End(slot, unheld.folios[i]);
}

// The same for pages that nobody else can reach: no locked instruction, and what goes to one list is linked
// beforehand.
template <class Forms>
void Lru<Forms>::PutUnshared(const FolioBatch& batch, uint32_t begin, LruvecRun<Forms>& run,
                             FolioBatch& unheld) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  MemcgId last = MemcgId::kNone;
  Lruvec* lruvec = nullptr;  // of `last`, locked
  LruList list{};
  FolioId front = FolioId::kNone, back = FolioId::kNone;  // linked, for that list
  int32_t pages = 0;
  auto push = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (pages == 0) return;
    lruvec->PushFrontRun(arena_, list, front, back, pages);
    run.Count(list, pages);
    front = FolioId::kNone;
    pages = 0;
  };
  for (uint32_t i = begin; i < batch.count; ++i) {
    FolioId id = batch.folios[i];
    Folio& folio = arena_.Get(id);
    uint64_t state = folio.state.load(std::memory_order_relaxed);
    if ((state & Folio::kHolds) == Folio::kOneRef) {  // not worth a list
      folio.state.store(state - Folio::kOneRef, std::memory_order_relaxed);
      unheld.folios[unheld.count++] = id;
      continue;
    }
    LruList wanted = LruListOf(folio.flags.load(std::memory_order_relaxed));
    if (Folio::MemcgOf(state) != last || wanted != list) {
      push();
      last = Folio::MemcgOf(state);
      lruvec = &run.Lock(last);
      list = wanted;
    }
    folio.next = front;
    folio.prev = FolioId::kNone;
    if (front == FolioId::kNone) {
      back = id;
    } else {
      arena_.Get(front).prev = id;
    }
    front = id;
    ++pages;
    folio.state.store(state - Folio::kOneRef + Folio::kLru, std::memory_order_release);  // as above
  }
  push();
}

// isolate_lru_folios(): a folio that its last holder is about to end stays, at the list's head.
template <class Forms>
Isolated Lru<Forms>::Isolate(CpuSlot& slot, MemcgId memcg, LruList which, int64_t pages,
                             FolioBatch& taken) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Isolated isolated;
  LruvecRun<Forms> run(tree_, charges_, slot);
  Lruvec& lruvec = run.Lock(memcg);
  Lruvec::List& list = lruvec.lists[static_cast<size_t>(which)];
  while (isolated.scanned < pages && taken.count < taken.folios.size() && list.tail != FolioId::kNone) {
    FolioId head = list.tail;
    Folio& folio = arena_.Get(head);
    if (folio.prev != FolioId::kNone) arena_.Prefetch(folio.prev);
    isolated.scanned += folio.pages();
    lruvec.Unlink(arena_, which, head, folio);
    uint64_t state = folio.state.load(std::memory_order_relaxed);
    bool taken_now = false;
    while (!taken_now && (state & Folio::kHolds) != 0 && (state & Folio::kDead) == 0 &&
           (state & Folio::kLru) != 0) {
      taken_now = folio.state.compare_exchange_weak(state, (state & ~Folio::kLru) + Folio::kOneRef,
                                                    std::memory_order_acq_rel);
    }
    if (!taken_now) {
      lruvec.PushFront(arena_, which, head, folio);
      continue;
    }
    run.Count(which, -static_cast<int32_t>(folio.pages()));
    isolated.taken += folio.pages();
    taken.folios[taken.count++] = head;
  }
  return isolated;
}

template <class Forms>
void Lru<Forms>::MarkAccessed(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  MemcgId memcg = folio.memcg();
  if (memcg == MemcgId::kNone) return;  // deleted meanwhile
  if (!folio.Has(kFolioReferenced)) {
    folio.Set(kFolioReferenced);
    return;
  }
  if (folio.Has(kFolioUnevictable) || folio.Has(kFolioActive)) return;
  if (folio.lru()) {
    Activate(slot, head);
  } else if (BatchHolds(slot.lru_add, head)) {
    folio.Set(kFolioActive);  // it will be added to the active list
  }
  folio.Clear(kFolioReferenced);
  Age(memcg, folio.pages());
}

template <class Forms>
bool Lru<Forms>::BatchHolds(const FolioBatch& batch, FolioId head) const {
  for (uint32_t i = batch.count; i-- > 0;) {
    if (batch.folios[i] == head) return true;
  }
  return false;
}

template <class Forms>
void Lru<Forms>::Activate(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  if (folio.Has(kFolioActive | kFolioUnevictable) || !folio.lru()) return;
  if (BatchHolds(slot.lru_activate, head)) return;
  folio.Get();
  slot.lru_activate.folios[slot.lru_activate.count++] = head;
  if (slot.lru_activate.count == FolioBatch::kSize || folio.order() > 0) DrainActivate(slot);
}

template <class Forms>
void Lru<Forms>::DrainActivate(CpuSlot& slot) {
  for (uint32_t i = 0; i < slot.lru_activate.count; ++i) {
    FolioId head = slot.lru_activate.folios[i];
    if (arena_.Get(head).Has(kFolioActive | kFolioUnevictable)) continue;
    MemcgId memcg = Move(slot, head, kFolioActive, 0);
    if (memcg == MemcgId::kNone) continue;
    charges_.ModStat(slot, memcg, Stat::kPgactivate, static_cast<int32_t>(arena_.Get(head).pages()));
  }
  PutBatch(slot, slot.lru_activate);
}

template <class Forms>
MemcgId Lru<Forms>::Move(CpuSlot& slot, FolioId head, uint32_t set, uint32_t clear) {
  Folio& folio = arena_.Get(head);
  MemcgId memcg = folio.TestAndClearLru();
  if (memcg == MemcgId::kNone) return MemcgId::kNone;
  LruvecRun<Forms> run(tree_, charges_, slot);
  Lruvec& lruvec = run.Lock(memcg);
  lruvec.lock.AssertHeld();
  int32_t pages = static_cast<int32_t>(folio.pages());
  LruList from = LruListOf(folio.flags.load(std::memory_order_relaxed));
  lruvec.Unlink(arena_, from, head, folio);
  run.Count(from, -pages);
  if (folio.dead()) return MemcgId::kNone;  // its deletion found the bit clear and left the unlinking to us
  folio.Clear(clear);
  folio.Set(set);
  LruList to = LruListOf(folio.flags.load(std::memory_order_relaxed));
  lruvec.PushFront(arena_, to, head, folio);
  run.Count(to, pages);
  folio.SetLru();
  return memcg;
}

// mem_cgroup_move_account(), as cgroup v1 had it
template <class Forms>
bool Lru<Forms>::Migrate(CpuSlot& slot, FolioId head, MemcgId to, SpinLock& folio_lock) {
  Folio& folio = arena_.Get(head);
  if (folio.order() > 0) return false;
  MemcgId from = folio.TestAndClearLru();
  if (from == MemcgId::kNone) return false;
  if (from == to || folio.Has(kFolioWriteback)) {
    folio.SetLru();
    return from == to;
  }
  charges_.ForceCharge(slot, to, 1);
  {
    Locked folio_locked(folio_lock);  // what is written is written for one of the two
    uint64_t state;
    {
      LruvecRun<Forms> run(tree_, charges_, slot);
      Lruvec& lruvec = run.Lock(from);
      lruvec.lock.AssertHeld();
      LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
      lruvec.Unlink(arena_, list, head, folio);
      run.Count(list, -1);
      // Those who map and unmap it meanwhile count for the cgroup that they find beside the mapcount.  Under
      // the lock: who changes its flags there (SetUnevictable) still finds the old cgroup, or looks again.
      state = folio.state.load(std::memory_order_relaxed);
      while (!folio.state.compare_exchange_weak(state, (state & ~Folio::kMemcg) | Folio::StateOf(to, 0),
                                                std::memory_order_acq_rel)) {
      }
    }
    MoveStats(slot, folio, state, from, to);
  }
  charges_.ModStat(slot, from, Stat::kPgpgout, 1);
  charges_.ModStat(slot, to, Stat::kPgpgin, 1);
  {
    LruvecRun<Forms> run(tree_, charges_, slot);
    Lruvec& lruvec = run.Lock(to);
    lruvec.lock.AssertHeld();
    LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
    lruvec.PushFront(arena_, list, head, folio);
    run.Count(list, 1);
    folio.SetLru();
  }
  charges_.Uncharge(slot, from, 1);
  return true;
}

template <class Forms>
void Lru<Forms>::MoveStats(CpuSlot& slot, const Folio& folio, uint64_t state, MemcgId from, MemcgId to) {
  auto move = [&](Stat stat) {
    charges_.ModStat(slot, from, stat, -1);
    charges_.ModStat(slot, to, stat, 1);
  };
  const bool mapped = Folio::IsMapped(state);
  if (folio.anon()) {
    if (mapped) move(Stat::kAnon);
    if (folio.Has(kFolioSwapCache)) move(Stat::kSwapcached);
    return;
  }
  move(Stat::kFile);
  if (folio.Has(kFolioSwapBacked)) move(Stat::kShmem);
  if (mapped) move(Stat::kFileMapped);
  if (folio.Has(kFolioDirty)) move(Stat::kFileDirty);
  if (folio.Has(kFolioWriteback)) move(Stat::kFileWriteback);
}

// folio_rotate_reclaimable()
template <class Forms>
void Lru<Forms>::Rotate(CpuSlot& slot, FolioId head) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Folio& folio = arena_.Get(head);
  if (folio.Has(kFolioActive | kFolioUnevictable)) return;
  MemcgId memcg = folio.TestAndClearLru();
  if (memcg == MemcgId::kNone) return;
  LruvecRun<Forms> run(tree_, charges_, slot);
  Lruvec& lruvec = run.Lock(memcg);
  LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
  lruvec.Unlink(arena_, list, head, folio);
  if (folio.dead()) {
    run.Count(list, -static_cast<int32_t>(folio.pages()));
    return;
  }
  lruvec.PushBack(arena_, list, head, folio);
  folio.SetLru();
}

template <class Forms>
void Lru<Forms>::PutBatch(CpuSlot& slot, FolioBatch& batch) {
  uint32_t count = batch.count;
  batch.count = 0;
  for (uint32_t i = 0; i < count; ++i) Put(slot, batch.folios[i]);
}

template <class Forms>
void Lru<Forms>::MarkLazyFree(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  if (BatchHolds(slot.lru_lazyfree, head)) return;
  if (!folio.lru() || !folio.Has(kFolioSwapBacked) || folio.Has(kFolioUnevictable | kFolioSwapCache)) return;
  folio.Get();
  slot.lru_lazyfree.folios[slot.lru_lazyfree.count++] = head;
  if (slot.lru_lazyfree.count == FolioBatch::kSize || folio.order() > 0) DrainLazyFree(slot);
}

template <class Forms>
void Lru<Forms>::DrainLazyFree(CpuSlot& slot) {
  for (uint32_t i = 0; i < slot.lru_lazyfree.count; ++i) {
    FolioId head = slot.lru_lazyfree.folios[i];
    Folio& folio = arena_.Get(head);
    if (!folio.Has(kFolioSwapBacked) || folio.Has(kFolioUnevictable | kFolioSwapCache)) continue;
    MemcgId memcg = Move(slot, head, 0, kFolioActive | kFolioReferenced | kFolioSwapBacked);
    if (memcg == MemcgId::kNone) continue;
    charges_.ModStat(slot, memcg, Stat::kPglazyfree, static_cast<int32_t>(folio.pages()));
  }
  PutBatch(slot, slot.lru_lazyfree);
}

template <class Forms>
void Lru<Forms>::SetUnevictable(CpuSlot& slot, FolioId head, bool unevictable) {
  Folio& folio = arena_.Get(head);
  uint32_t set = unevictable ? kFolioUnevictable : 0;
  uint32_t clear = unevictable ? kFolioActive : kFolioUnevictable;
  while (folio.Has(kFolioUnevictable) != unevictable) {
    MemcgId memcg = folio.memcg();
    if (memcg == MemcgId::kNone || Move(slot, head, set, clear) != MemcgId::kNone) return;
    // In a batch: it goes to the right list when that is drained, which looks at the flags under the lock.
    Lruvec& lruvec = tree_.Get(memcg).lruvec;
    Locked lock(lruvec.lock);
    if (folio.lru() || folio.memcg() != memcg) continue;  // drained or moved just now
    folio.Clear(clear);
    folio.Set(set);
  }
}

template <class Forms>
void Lru<Forms>::Discharge(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  MemcgId memcg = folio.memcg();
  if (memcg == MemcgId::kNone) return;
  uint32_t pages = folio.pages();
  {
    LruvecRun<Forms> run(tree_, charges_, slot);
    Lruvec& lruvec = run.Lock(memcg);
    lruvec.lock.AssertHeld();
    if (folio.TestAndClearLru() != MemcgId::kNone) {
      LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
      lruvec.Unlink(arena_, list, head, folio);
      run.Count(list, -static_cast<int32_t>(pages));
    }
    folio.ClearMemcg();
  }
  charges_.ModStat(slot, memcg, Stat::kPgpgout, static_cast<int32_t>(pages));
  charges_.Uncharge(slot, memcg, pages);
}

template <class Forms>
void Lru<Forms>::FlushEnded(CpuSlot& slot) {
  UnlinkEnded(slot);
  for (uint32_t i = 0; i < slot.ended.count; ++i) {
    FolioId head = slot.ended.folios[i];
    if (head == FolioId::kNone) continue;
    Folio& folio = arena_.Get(head);
    if (folio.Has(kFolioSwapped | kFolioSwapCache)) charges_.FreeSwap(slot, folio);
    arena_.Free(slot.folios, head, folio);
  }
  slot.ended.count = 0;
}

// Nobody else can reach them: only the lists need their lock, kept over a run of folios of one cgroup.  What
// was touched in order is neighbours on its list, which are cut out of it together; where it is not, a
// folio's neighbours are brought near some folios before.
template <class Forms>
void Lru<Forms>::UnlinkEnded(CpuSlot& slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  constexpr uint32_t kAhead = 8;
  LruvecRun<Forms> run(tree_, charges_, slot);
  MemcgId last = MemcgId::kNone;
  Lruvec* lruvec = nullptr;  // of `last`, locked
  uint32_t last_pages = 0;   // of `last`, ended since
  uint32_t last_mapped = 0;  // of them, those that end with their mapping: anonymous ones
  // Neighbours on a list of `last`.
  FolioId front = FolioId::kNone, back = FolioId::kNone;
  LruList list{};
  int32_t pages = 0;
  auto unlink = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (pages == 0) return;
    lruvec->UnlinkRun(arena_, list, front, back, pages);
    run.Count(list, -pages);
    pages = 0;
  };
  auto uncharge = [&] {
    if (last_pages == 0) return;
    if (last_mapped > 0) charges_.ModStat(slot, last, Stat::kAnon, -static_cast<int32_t>(last_mapped));
    charges_.ModStat(slot, last, Stat::kPgpgout, static_cast<int32_t>(last_pages));
    charges_.Uncharge(slot, last, last_pages);
    last_pages = last_mapped = 0;
  };
  for (uint32_t i = 0; i < slot.ended.count; ++i) {
    FolioId head = slot.ended.folios[i];
    const Folio& folio = arena_.Get(head);
    uint64_t state = folio.state.load(std::memory_order_acquire);
    MemcgId memcg = Folio::MemcgOf(state);
    if (memcg == MemcgId::kNone) {  // a tombstone: it was, when it died
      LeaveIsolated(slot, i, state);
      continue;
    }
    if (memcg != last) {
      unlink();
      uncharge();
      last = memcg;
      lruvec = &run.Lock(memcg);
    }
    state = folio.state.load(std::memory_order_relaxed);
    if (LeaveIsolated(slot, i, state)) continue;
    uint32_t flags = folio.flags.load(std::memory_order_relaxed);
    int32_t folio_pages = 1 << (flags >> kFolioOrderShift);
    last_pages += static_cast<uint32_t>(folio_pages);
    last_mapped += Folio::IsMapped(state);
    if ((state & Folio::kLru) == 0) continue;
    if (pages > 0 && folio.next == front && list == LruListOf(flags)) {
      front = head;
    } else if (pages > 0 && folio.prev == back && list == LruListOf(flags)) {
      back = head;
    } else {
      unlink();
      front = back = head;
      list = LruListOf(flags);
      if (i + kAhead < slot.ended.count) PrefetchNeighbours(slot.ended.folios[i + kAhead], memcg);
    }
    pages += folio_pages;
  }
  unlink();
  uncharge();
}

// Where reclaim has taken the i-th of those that end, it is reclaim's to free.
template <class Forms>
bool Lru<Forms>::LeaveIsolated(CpuSlot& slot, uint32_t i, uint64_t state) {
  if (!charges_.models_reclaim() || !IsTaken(state)) return false;
  LetGoOfIsolated(slot, std::exchange(slot.ended.folios[i], FolioId::kNone));
  return true;
}

// Of a folio that is about to end, where its links are those of the cgroup whose lock is held.
template <class Forms>
void Lru<Forms>::PrefetchNeighbours(FolioId head, MemcgId memcg) {
  const Folio& folio = arena_.Get(head);
  if (folio.memcg() != memcg || !folio.lru()) return;
  arena_.Prefetch(folio.prev);
  arena_.Prefetch(folio.next);
}

// Reclaim took it before its only mapping ended without a locked instruction (PageCache::Unmap): so that ends
// here, and who comes last frees it.
template <class Forms>
void Lru<Forms>::LetGoOfIsolated(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  uint64_t before = folio.state.fetch_sub(Folio::kOneMapping, std::memory_order_acq_rel);
  if (Folio::IsMapped(before)) charges_.ModStat(slot, Folio::MemcgOf(before), Stat::kAnon, -1);
  if ((before & Folio::kHolds) != Folio::kOneMapping) return;  // reclaim's reference is the last one
  if (folio.Has(kFolioSwapped)) charges_.FreeSwap(slot, folio);
  arena_.Free(slot.folios, head, folio);
}

template <class Forms>
void Lru<Forms>::Age(MemcgId memcg, uint32_t pages) {
  for (Memcg* level = &tree_.Get(memcg); level != nullptr; level = level->parent) {
    level->lruvec.nonresident_age.fetch_add(pages, std::memory_order_relaxed);
  }
}

template class Lru<DefaultForms>;
template class Lru<ChosenForms>;

}  // namespace memcgd::core
