#include "core/lru.h"

namespace memcgd::core {
namespace {

// Holds one lruvec's lock over a run of folios of one cgroup.
class LruvecRun {
 public:
  explicit LruvecRun(MemcgTree& tree) : tree_(tree) {}
  ~LruvecRun() { Release(); }

  Lruvec& Lock(MemcgId memcg) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the lock held depends on the data
    if (lruvec_ == nullptr || memcg != memcg_) {
      Release();
      memcg_ = memcg;
      lruvec_ = &tree_.Get(memcg).lruvec;
      lruvec_->lock.Lock();
    }
    return *lruvec_;
  }

 private:
  void Release() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (lruvec_ != nullptr) lruvec_->lock.Unlock();
    lruvec_ = nullptr;
  }

  MemcgTree& tree_;
  Lruvec* lruvec_ = nullptr;
  MemcgId memcg_ = MemcgId::kNone;
};

}  // namespace

void Lru::Add(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  folio.refs.fetch_add(Folio::kOneRef, std::memory_order_relaxed);
  slot.lru_add.folios[slot.lru_add.count++] = head;
  if (slot.lru_add.count == FolioBatch::kSize || folio.order() > 0) DrainAdd(slot);
}

void Lru::Drain(CpuSlot& slot) {
  DrainAdd(slot);
  DrainActivate(slot);
  DrainLazyFree(slot);
}

void Lru::DrainAdd(CpuSlot& slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  {
    LruvecRun run(tree_);
    for (uint32_t i = 0; i < slot.lru_add.count; ++i) {
      Folio& folio = arena_.Get(slot.lru_add.folios[i]);
      uint64_t refs = folio.refs.load(std::memory_order_acquire);
      if (Folio::RefsOf(refs) == 1 || Folio::IsDead(refs))
        continue;  // only the batch holds it: not worth a list
      MemcgId memcg = folio.memcg();
      if (memcg == MemcgId::kNone) continue;  // discharged since
      Lruvec& lruvec = run.Lock(memcg);
      if (folio.dead()) continue;
      LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
      lruvec.PushFront(arena_, list, slot.lru_add.folios[i]);
      charges_.ModStat(slot, memcg, LruStat(list), static_cast<int32_t>(folio.pages()));
      folio.Set(kFolioLru);
    }
  }
  PutBatch(slot, slot.lru_add);
}

void Lru::MarkAccessed(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  MemcgId memcg = folio.memcg();
  if (memcg == MemcgId::kNone) return;  // deleted meanwhile
  if (!folio.Has(kFolioReferenced)) {
    folio.Set(kFolioReferenced);
    return;
  }
  if (folio.Has(kFolioUnevictable) || folio.Has(kFolioActive)) return;
  if (folio.Has(kFolioLru)) {
    Activate(slot, head);
  } else if (BatchHolds(slot.lru_add, head)) {
    folio.Set(kFolioActive);  // it will be added to the active list
  }
  folio.Clear(kFolioReferenced);
  Age(memcg, folio.pages());
}

bool Lru::BatchHolds(const FolioBatch& batch, FolioId head) const {
  for (uint32_t i = batch.count; i-- > 0;) {
    if (batch.folios[i] == head) return true;
  }
  return false;
}

void Lru::Activate(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  if (folio.Has(kFolioActive | kFolioUnevictable) || !folio.Has(kFolioLru)) return;
  if (BatchHolds(slot.lru_activate, head)) return;
  folio.refs.fetch_add(Folio::kOneRef, std::memory_order_relaxed);
  slot.lru_activate.folios[slot.lru_activate.count++] = head;
  if (slot.lru_activate.count == FolioBatch::kSize || folio.order() > 0) DrainActivate(slot);
}

void Lru::DrainActivate(CpuSlot& slot) {
  for (uint32_t i = 0; i < slot.lru_activate.count; ++i) {
    FolioId head = slot.lru_activate.folios[i];
    if (arena_.Get(head).Has(kFolioActive | kFolioUnevictable)) continue;
    MemcgId memcg = Move(slot, head, kFolioActive, 0);
    if (memcg == MemcgId::kNone) continue;
    charges_.ModStat(slot, memcg, Stat::kPgactivate, static_cast<int32_t>(arena_.Get(head).pages()));
  }
  PutBatch(slot, slot.lru_activate);
}

MemcgId Lru::Move(CpuSlot& slot, FolioId head, uint32_t set, uint32_t clear) {
  Folio& folio = arena_.Get(head);
  MemcgId memcg = folio.memcg();
  if (!folio.TestAndClear(kFolioLru)) return MemcgId::kNone;
  Lruvec& lruvec = tree_.Get(memcg).lruvec;
  int32_t pages = static_cast<int32_t>(folio.pages());
  Locked lock(lruvec.lock);
  LruList from = LruListOf(folio.flags.load(std::memory_order_relaxed));
  lruvec.Unlink(arena_, from, head);
  charges_.ModStat(slot, memcg, LruStat(from), -pages);
  if (folio.dead()) return MemcgId::kNone;  // its deletion found the bit clear and left the unlinking to us
  folio.Clear(clear);
  folio.Set(set);
  LruList to = LruListOf(folio.flags.load(std::memory_order_relaxed));
  lruvec.PushFront(arena_, to, head);
  charges_.ModStat(slot, memcg, LruStat(to), pages);
  folio.Set(kFolioLru);
  return memcg;
}

void Lru::PutBatch(CpuSlot& slot, FolioBatch& batch) {
  uint32_t count = batch.count;
  batch.count = 0;
  for (uint32_t i = 0; i < count; ++i) Put(slot, batch.folios[i]);
}

void Lru::MarkLazyFree(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  if (!folio.Has(kFolioLru) || !folio.Has(kFolioSwapBacked) || folio.Has(kFolioUnevictable)) return;
  folio.refs.fetch_add(Folio::kOneRef, std::memory_order_relaxed);
  slot.lru_lazyfree.folios[slot.lru_lazyfree.count++] = head;
  if (slot.lru_lazyfree.count == FolioBatch::kSize || folio.order() > 0) DrainLazyFree(slot);
}

void Lru::DrainLazyFree(CpuSlot& slot) {
  for (uint32_t i = 0; i < slot.lru_lazyfree.count; ++i) {
    FolioId head = slot.lru_lazyfree.folios[i];
    Folio& folio = arena_.Get(head);
    if (!folio.Has(kFolioSwapBacked) || folio.Has(kFolioUnevictable)) continue;
    MemcgId memcg = Move(slot, head, 0, kFolioActive | kFolioReferenced | kFolioSwapBacked);
    if (memcg == MemcgId::kNone) continue;
    charges_.ModStat(slot, memcg, Stat::kPglazyfree, static_cast<int32_t>(folio.pages()));
  }
  PutBatch(slot, slot.lru_lazyfree);
}

void Lru::SetUnevictable(CpuSlot& slot, FolioId head, bool unevictable) {
  Folio& folio = arena_.Get(head);
  uint32_t set = unevictable ? kFolioUnevictable : 0;
  uint32_t clear = unevictable ? kFolioActive : kFolioUnevictable;
  while (folio.Has(kFolioUnevictable) != unevictable) {
    MemcgId memcg = folio.memcg();
    if (memcg == MemcgId::kNone || Move(slot, head, set, clear) != MemcgId::kNone) return;
    // In a batch: it goes to the right list when that is drained, which looks at the flags under the lock.
    Lruvec& lruvec = tree_.Get(memcg).lruvec;
    Locked lock(lruvec.lock);
    if (folio.Has(kFolioLru)) continue;  // drained just now
    folio.Clear(clear);
    folio.Set(set);
  }
}

void Lru::Discharge(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  MemcgId memcg = folio.memcg();
  if (memcg == MemcgId::kNone) return;
  int32_t pages = static_cast<int32_t>(folio.pages());
  {
    Lruvec& lruvec = tree_.Get(memcg).lruvec;
    Locked lock(lruvec.lock);
    if (folio.TestAndClear(kFolioLru)) {
      LruList list = LruListOf(folio.flags.load(std::memory_order_relaxed));
      lruvec.Unlink(arena_, list, head);
      charges_.ModStat(slot, memcg, LruStat(list), -pages);
    }
    folio.set_memcg(MemcgId::kNone);
  }
  charges_.ModStat(slot, memcg, Stat::kPgpgout, pages);
  charges_.Uncharge(slot, memcg, folio.pages());
}

// Nobody else can reach them: only the lists need their lock, kept over a run of folios of one cgroup.
void Lru::FlushEnded(CpuSlot& slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  LruvecRun run(tree_);
  for (uint32_t i = 0; i < slot.ended.count; ++i) {
    FolioId head = slot.ended.folios[i];
    Folio& folio = arena_.Get(head);
    MemcgId memcg = folio.memcg();
    if (memcg != MemcgId::kNone) {
      int32_t pages = static_cast<int32_t>(folio.pages());
      uint32_t flags = folio.flags.load(std::memory_order_acquire);
      if ((flags & kFolioLru) != 0) {
        LruList list = LruListOf(flags);
        run.Lock(memcg).Unlink(arena_, list, head);
        charges_.ModStat(slot, memcg, LruStat(list), -pages);
      }
      charges_.ModStat(slot, memcg, Stat::kPgpgout, pages);
      charges_.Uncharge(slot, memcg, folio.pages());
    }
    arena_.Free(slot.folios, head);
  }
  slot.ended.count = 0;
}

void Lru::Age(MemcgId memcg, uint32_t pages) {
  for (Memcg* level = &tree_.Get(memcg); level != nullptr; level = level->parent) {
    level->lruvec.nonresident_age.fetch_add(pages, std::memory_order_relaxed);
  }
}

}  // namespace memcgd::core
