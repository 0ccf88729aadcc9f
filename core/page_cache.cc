#include "core/page_cache.h"

#include <algorithm>

namespace memcgd::core {
namespace {

// More streams than this do not map one page at the same instant: room between the look and the count.
constexpr uint64_t kStreamsAtOnce = 4096;
// A folio's index has 32 bits: 16 TiB of a file of 4 KiB pages.
constexpr PageIndex kMaxPages = PageIndex{1} << 32;

}  // namespace

template <class Forms>
CacheAdd PageCache<Forms>::Add(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg,
                               uint32_t flags) {
  CacheAdd added = CacheAdd::kAdded;
  uint32_t pages = 1u << order;
  if (index + pages > kMaxPages) return CacheAdd::kRefused;
  for (uint32_t i = 0; i < pages; ++i) {
    if (Find(file, index + i) != FolioId::kNone) {
      added = CacheAdd::kReplaced;
      Delete(slot, file, index + i, 0, MemcgId::kNone);
    }
  }
  if (!charges_.TryCharge(slot, memcg, pages)) return CacheAdd::kRefused;
  AddCharged(slot, file, index, order, memcg, flags);
  return added;
}

template <class Forms>
CacheAdd PageCache<Forms>::Fill(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg,
                                ChargeMode mode, uint32_t flags) {
  uint32_t pages = 1u << order;
  if (index + pages > kMaxPages) return CacheAdd::kRefused;
  bool all_absent = true, all_present = true;
  {
    Locked lock(file.mutex);
    for (uint32_t i = 0; i < pages; ++i) {
      bool present = Find(file, index + i) != FolioId::kNone;
      all_absent &= !present;
      all_present &= present;
    }
  }
  if (all_present) return CacheAdd::kAdded;
  if (!all_absent) {  // a page at a time, what is missing
    for (uint32_t i = 0; i < pages; ++i) {
      if (Fill(slot, file, index + i, 0, memcg, mode, flags) == CacheAdd::kRefused) return CacheAdd::kRefused;
    }
    return CacheAdd::kAdded;
  }
  if (!charges_.TryCharge(slot, memcg, pages, mode)) return CacheAdd::kRefused;
  Locked lock(file.mutex);
  for (uint32_t i = 0; i < pages; ++i) {
    if (Find(file, index + i) == FolioId::kNone) continue;
    charges_.Uncharge(slot, memcg, pages);  // another stream was there first
    return CacheAdd::kAdded;
  }
  AddCharged(slot, file, index, order, memcg, flags);
  if (mode == ChargeMode::kNoRetry && !file.shmem) reads_.Begin(file, {index, index + pages}, slot.now_ns);
  return CacheAdd::kAdded;
}

template <class Forms>
void PageCache<Forms>::AddCharged(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg,
                                  uint32_t flags) {
  uint32_t pages = 1u << order;
  FolioId head = arena_.Allocate(slot.folios, memcg, order);
  Folio& folio = arena_.Get(head);
  arena_.FileOf(head) = file.id;
  folio.index = static_cast<uint32_t>(index);
  folio.Set(flags | (file.shmem ? kFolioSwapBacked : 0));  // before it is in a batch
  const Shadow* shadow = nullptr;
  for (uint32_t i = 0; i < pages; ++i) {
    file.pages.Ensure(index + i) = Raw(head) + i;
    if (!file.shadows.empty()) {
      auto found = file.shadows.find(index + i);
      if (found != file.shadows.end()) {
        if (shadow == nullptr) {
          Refault(slot, head, found->second);
          shadow = &found->second;
        }
      }
    }
  }
  if (shadow != nullptr) {
    for (uint32_t i = 0; i < pages; ++i) file.shadows.erase(index + i);
  }
  file.cached_pages += pages;
  charges_.ModStat(slot, memcg, Stat::kFile, static_cast<int32_t>(pages));
  if (file.shmem) charges_.ModStat(slot, memcg, Stat::kShmem, static_cast<int32_t>(pages));
  charges_.ModStat(slot, memcg, Stat::kPgpgin, static_cast<int32_t>(pages));
  lru_.Add(slot, head);
}

// workingset_refault(): judged at the evicting cgroup, counted at the owner.
template <class Forms>
void PageCache<Forms>::Refault(CpuSlot& slot, FolioId head, const Shadow& shadow) {
  Folio& folio = arena_.Get(head);
  const auto& all = tree_.all();
  const Memcg* evictor = Raw(shadow.memcg) < all.size() ? all[Raw(shadow.memcg)].get() : nullptr;
  bool file =
      (folio.flags.load(std::memory_order_relaxed) & kFolioSwapBacked) == 0 || !charges_.models_reclaim();
  auto count = [&](Stat of_anon, Stat of_file) {
    charges_.ModStat(slot, folio.memcg(), file ? of_file : of_anon, static_cast<int32_t>(folio.pages()));
  };
  count(Stat::kWorkingsetRefaultAnon, Stat::kWorkingsetRefaultFile);
  tree_.FlushPeriodically(slot.now_ns);
  if (evictor == nullptr || !evictor->online) return;  // its clock is gone: never recent
  // Of 32 bits, as much as a shadow keeps.
  int64_t distance =
      static_cast<uint32_t>(evictor->lruvec.nonresident_age.load(std::memory_order_relaxed) - shadow.age);
  if (distance > WorkingsetPages(*evictor, file)) return;
  folio.Set(kFolioActive);
  lru_.Age(folio.memcg(), folio.pages());
  count(Stat::kWorkingsetActivateAnon, Stat::kWorkingsetActivateFile);
  for (Memcg* level = &tree_.Get(folio.memcg()); level != nullptr; level = level->parent)
    level->activations[file].fetch_add(folio.pages(), std::memory_order_relaxed);
  if (!shadow.workingset) return;
  folio.Set(kFolioWorkingset);
  tree_.Get(folio.memcg()).AddCost(file, int64_t{32} * folio.pages());  // lru_note_cost_refault()
  count(Stat::kWorkingsetRestoreAnon, Stat::kWorkingsetRestoreFile);
}

// A node has 64 slots: of pages, or one level up of folios of at least 64 pages and of nodes below.
template <class Forms>
void PageCache<Forms>::ShrinkShadows(File& file, MemcgId memcg) {
  constexpr uint32_t kNodeOrder = 6;
  auto node_of = [](PageIndex index, const Shadow& shadow) {
    uint32_t order = shadow.order < kNodeOrder ? kNodeOrder : 2 * kNodeOrder;
    return std::pair(index >> order << order, order);
  };
  absl::flat_hash_map<std::pair<PageIndex, uint32_t>, bool> goes;
  for (const auto& [index, shadow] : file.shadows) {
    if (shadow.memcg == memcg) goes.try_emplace(node_of(index, shadow), true);
  }
  for (auto& node : goes) {
    const auto [first, order] = node.first;
    bool& shadows_only = node.second;
    file.pages.ForEach({first, first + (PageIndex{1} << order)}, [&shadows_only](PageIndex, uint32_t& entry) {
      if ((entry & File::kAbsent) == 0) shadows_only = false;
    });
  }
  for (const auto& [index, shadow] : file.shadows) {
    if (shadow.order >= kNodeOrder) continue;
    auto above = goes.find({index >> 2 * kNodeOrder << 2 * kNodeOrder, 2 * kNodeOrder});
    if (above != goes.end()) above->second = false;
  }
  absl::erase_if(file.shadows, [&](const auto& entry) {
    auto node = goes.find(node_of(entry.first, entry.second));
    return node != goes.end() && node->second;
  });
}

// What a refault's distance is held against: the lists that its page would have competed with.
template <class Forms>
int64_t PageCache<Forms>::WorkingsetPages(const Memcg& evictor, bool file) const {
  const auto& lists = charges_.models_reclaim() ? evictor.flushed.lru_pages : evictor.lru_pages;
  auto on = [&lists](LruList list) {
    return lists[static_cast<size_t>(list)].load(std::memory_order_relaxed);
  };
  int64_t pages = on(LruList::kActiveFile);
  if (!charges_.models_reclaim()) return pages;
  if (!file) pages += on(LruList::kInactiveFile);
  if (evictor.HasSwap()) pages += on(LruList::kActiveAnon) + (file ? on(LruList::kInactiveAnon) : 0);
  return pages;
}

template <class Forms>
bool PageCache<Forms>::Delete(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId evictor) {
  FolioId page = Find(file, index);
  // Every cached page of the range goes, in whatever folios it is; one folio is what a true trace has.
  bool whole = false;
  if (page != FolioId::kNone) {
    const Folio& head = arena_.Get(arena_.HeadOf(page));
    whole = head.order() == order && head.index == index;
  }
  if (!whole && order > 0) {
    bool found = false;
    for (uint32_t i = 0; i < 1u << order; ++i) found |= Delete(slot, file, index + i, 0, evictor);
    return found;
  }
  if (page == FolioId::kNone) {
    file.pages.Ensure(index) = File::kAbsent;
    return false;
  }
  FolioId head = arena_.HeadOf(page);
  Folio& folio = arena_.Get(head);
  if (evictor == MemcgId::kNone) MarkUnmapped(slot, head);
  Shadow shadow;
  if (evictor != MemcgId::kNone) {
    Lruvec& lruvec = tree_.Get(evictor).lruvec;
    shadow = {evictor, lruvec.nonresident_age.load(std::memory_order_relaxed), folio.Has(kFolioWorkingset),
              static_cast<uint8_t>(folio.order())};
    lru_.Age(evictor, folio.pages());
  }
  int32_t mapped = 0;
  for (uint32_t i = 0; i < folio.pages(); ++i) {
    Folio& page = arena_.Get(FolioId{Raw(head) + i});
    uint64_t before = page.state.fetch_or(Folio::kDead, std::memory_order_acq_rel);
    mapped += Folio::MapcountOf(before) > 0;
    file.pages.Ensure(folio.index + i) = File::kAbsent;
    if (evictor != MemcgId::kNone) file.shadows[folio.index + i] = shadow;
  }
  MemcgId memcg = folio.memcg();
  int32_t pages = static_cast<int32_t>(folio.pages());
  if (mapped > 0) charges_.ModStat(slot, memcg, Stat::kFileMapped, -mapped);
  file.cached_pages -= static_cast<uint64_t>(pages);
  charges_.ModStat(slot, memcg, Stat::kFile, -pages);
  if (file.shmem) charges_.ModStat(slot, memcg, Stat::kShmem, -pages);
  ClearDirty(slot, head);
  lru_.Discharge(slot, head);
  lru_.Put(slot, head);
  return true;
}

// filemap_read().  Lines of one request share its last page; batches of one request go on where the last one
// ended.
template <class Forms>
void PageCache<Forms>::Read(CpuSlot& slot, File& file, PageIndex first, PageIndex last,
                            ReadPosition& position) {
  PageIndex index = first;
  PageIndex done = first;
  if (position.file == file.id && position.last == last && position.first < first) {
    index = position.done + 1;
    done = std::max(done, position.done);
  } else if (position.file == file.id) {
    FolioId page = Find(file, first);
    if (page != FolioId::kNone) {
      Folio& head = arena_.Get(arena_.HeadOf(page));
      PageIndex end = PageIndex{head.index} + head.pages();
      if (position.last >= head.index && position.last < end) index = end;
    }
  }
  DiskReads::End(file, first, last);
  while (index <= last) {
    FolioId page = Find(file, index);
    if (page == FolioId::kNone) {
      ++index;
      continue;
    }
    FolioId head = arena_.HeadOf(page);
    Folio& folio = arena_.Get(head);
    folio.Clear(kFolioReadahead);
    lru_.MarkAccessed(slot, head);
    index = PageIndex{folio.index} + folio.pages();
    done = std::max(done, index - 1);
  }
  position = {file.id, first, last, done};
}

// Truncation unmaps first, and an entry that was used marks the page accessed; then the CPU's batches are
// drained.
template <class Forms>
void PageCache<Forms>::MarkUnmapped(CpuSlot& slot, FolioId head) {
  uint32_t mappings = 0;
  for (uint32_t i = 0; i < arena_.Get(head).pages(); ++i)
    mappings += arena_.Get(FolioId{Raw(head) + i}).mapcount();
  for (uint32_t i = 0; i < std::min(mappings, 2u); ++i)
    lru_.MarkAccessed(slot, head);  // a third changes nothing
  if (mappings > 0) lru_.Drain(slot);
}

template <class Forms>
void PageCache<Forms>::MarkDirty(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  if ((folio.flags.fetch_or(kFolioDirty, std::memory_order_relaxed) & kFolioDirty) != 0) return;
  charges_.ModStat(slot, folio.memcg(), Stat::kFileDirty, static_cast<int32_t>(folio.pages()));
  if (charges_.models_reclaim() && !folio.Has(kFolioSwapBacked)) writeback_.Add(slot, head);
}

template <class Forms>
void PageCache<Forms>::ClearDirty(CpuSlot& slot, FolioId head) {
  Folio& folio = arena_.Get(head);
  uint32_t before = folio.flags.fetch_and(~(kFolioDirty | kFolioWriteback), std::memory_order_relaxed);
  int32_t pages = static_cast<int32_t>(folio.pages());
  if ((before & kFolioDirty) != 0) charges_.ModStat(slot, folio.memcg(), Stat::kFileDirty, -pages);
  if ((before & kFolioWriteback) != 0) charges_.ModStat(slot, folio.memcg(), Stat::kFileWriteback, -pages);
}

template <class Forms>
void PageCache<Forms>::TruncateRest(CpuSlot& slot, File& file) {
  file.pages.ForEach({0, ~uint64_t{0}},
                     [&](PageNumber index, uint32_t& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       if ((entry & File::kAbsent) == 0) Delete(slot, file, index, 0, MemcgId::kNone);
                     });
  file.shadows.clear();
}

template <class Forms>
void PageCache<Forms>::DeleteAll(CpuSlot& slot, File& file) {
  file.pages.ForEach({0, ~uint64_t{0}},
                     [&](PageNumber index, uint32_t& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       if ((entry & File::kAbsent) == 0) Delete(slot, file, index, 0, MemcgId::kNone);
                       entry = 0;
                     });
  file.pages.FreeLeaves({0, ~uint64_t{0}});
  file.shadows.clear();
}

template <class Forms>
bool PageCache<Forms>::Map(CpuSlot& slot, FolioId page) {
  Folio& folio = arena_.Get(page);
  if (folio.mapcount() >= Folio::kMaxMappings - kStreamsAtOnce) return false;
  uint64_t before = folio.state.fetch_add(Folio::kOneMapping, std::memory_order_relaxed);
  if (Folio::MapcountOf(before) > 0) return true;
  if (folio.Has(kFolioTail)) {  // a mapped tail holds its head
    Folio& head = arena_.Get(arena_.HeadOf(page));
    head.Get();
    charges_.ModStat(slot, head.memcg(), Stat::kFileMapped, 1);
  } else {
    charges_.ModStat(slot, Folio::MemcgOf(before), folio.anon() ? Stat::kAnon : Stat::kFileMapped, 1);
  }
  return true;
}

template <class Forms>
void PageCache<Forms>::UnmapTail(CpuSlot& slot, FolioId page) {
  FolioId head = arena_.HeadOf(page);
  // Before the mapping goes: a deletion takes the cgroup from the head when every page is dead, and a page
  // that is found alive below was so here.
  MemcgId memcg = arena_.Get(head).memcg();
  uint64_t before = arena_.Get(page).state.fetch_sub(Folio::kOneMapping, std::memory_order_acq_rel);
  if (Folio::MapcountOf(before) > 1) return;
  if ((before & Folio::kDead) == 0) charges_.ModStat(slot, memcg, Stat::kFileMapped, -1);
  lru_.Put(slot, head);
}

template <class Forms>
void PageCache<Forms>::UnmapLast(CpuSlot& slot, FolioId page, uint64_t before) {
  if (Folio::IsMapped(before)) {  // else that was counted when it went
    bool anon = arena_.Get(page).anon();
    charges_.ModStat(slot, Folio::MemcgOf(before), anon ? Stat::kAnon : Stat::kFileMapped, -1);
  }
  if ((before & Folio::kHolds) == Folio::kOneMapping) lru_.End(slot, page);
}

template class PageCache<DefaultForms>;
template class PageCache<ChosenForms>;

}  // namespace memcgd::core
