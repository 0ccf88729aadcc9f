#include "core/reclaim.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace memcgd::core {
namespace {

constexpr LruList kEvictable[] = {LruList::kInactiveAnon, LruList::kActiveAnon, LruList::kInactiveFile,
                                  LruList::kActiveFile};
constexpr bool IsFile(LruList list) { return list == LruList::kInactiveFile || list == LruList::kActiveFile; }
constexpr bool IsActive(LruList list) { return list == LruList::kActiveAnon || list == LruList::kActiveFile; }
constexpr size_t At(LruList list) { return static_cast<size_t>(list); }

constexpr int64_t kMostDelayMs = 2000;            // MEMCG_MAX_HIGH_DELAY_JIFFIES, HZ = 1000
constexpr int64_t kIgnoredDelayMs = 10;           // HZ / 100
constexpr int64_t kCongestionWaitNs = 1'000'000;  // VMSCAN_THROTTLE_CONGESTED: one jiffy

}  // namespace

int64_t HighDelayMs(int64_t usage_pages, int64_t high_pages, int64_t charged_pages) {
  if (usage_pages <= high_pages) return 0;
  // Past this the delay is the most there is, and the square would not fit.
  constexpr int64_t kMostOverage = int64_t{1} << 30;
  __int128 overage =
      (static_cast<__int128>(usage_pages - high_pages) << 20) / std::max<int64_t>(high_pages, 1);
  if (overage > kMostOverage) return kMostDelayMs;
  __int128 delay = overage * overage * 1000 >> 34;
  delay = delay * charged_pages / Stock::kBatch;
  return static_cast<int64_t>(std::min<__int128>(delay, kMostDelayMs));
}

int64_t EffectiveProtection(int64_t usage, int64_t parent_usage, int64_t setting, int64_t parent_effective,
                            int64_t siblings_protected) {
  int64_t own = std::min(usage, setting);
  if (siblings_protected > parent_effective) {
    return static_cast<int64_t>(static_cast<__int128>(own) * parent_effective / siblings_protected);
  }
  // memory_recursiveprot: what no sibling claims goes to those that use more than they claim.
  if (parent_effective <= siblings_protected || parent_usage <= siblings_protected || usage <= own)
    return own;
  __int128 unclaimed = parent_effective - siblings_protected;
  return own + static_cast<int64_t>(unclaimed * (usage - own) / (parent_usage - siblings_protected));
}

template <class Forms>
Reclaimer<Forms>::Reclaimer(Machine& machine, Charges<Forms>& charges, Lru<Forms>& lru,
                            PageCache<Forms>& cache, Writeback<Forms>& writeback)
    : machine_(machine), charges_(charges), lru_(lru), cache_(cache), writeback_(writeback) {
  charges_.set_room_maker(this);
}

// ---- who asks

template <class Forms>
int64_t Reclaimer<Forms>::TryToFree(CpuSlot& slot, Memcg& target, int64_t pages) {
  Scan scan(target, pages, Who::kDirect);
  return DoTryToFree(slot, scan);
}

template <class Forms>
int64_t Reclaimer<Forms>::Proactive(CpuSlot& slot, Memcg& target, int64_t pages,
                                    std::optional<uint32_t> swappiness) {
  int64_t reclaimed = 0;
  for (int retries = kRetries; reclaimed < pages;) {
    if (retries == 0) DrainAllBatches();  // the last attempt
    Scan scan(target, (pages - reclaimed) / 4, Who::kProactive);
    scan.swappiness = swappiness;
    int64_t got = DoTryToFree(slot, scan);
    if (got == 0 && retries-- == 0) break;
    reclaimed += got;
  }
  return reclaimed;
}

// lru_add_drain_all()
template <class Forms>
void Reclaimer<Forms>::DrainAllBatches() {
  for (std::unique_ptr<CpuSlot>& slot : machine_.cpus) {
    lru_.Drain(*slot);
    lru_.FlushEnded(*slot);
    charges_.FlushUncharge(*slot);
  }
}

template <class Forms>
void Reclaimer<Forms>::ShrinkTo(CpuSlot& slot, Memcg& target, int64_t pages) {
  charges_.DrainAllStocks(slot);
  for (int retries = kRetries;;) {
    int64_t over = target.memory.usage_pages() - pages;
    if (over <= 0) return;
    if (TryToFree(slot, target, over) == 0 && retries-- == 0) return;
  }
}

// balance_pgdat(): until the node is at its high watermark, or even priority 1 got nothing.
template <class Forms>
void Reclaimer<Forms>::Balance(CpuSlot& slot) {
  Memcg& root = machine_.tree.root();
  Scan scan(root, root.memory.usage_pages() - machine_.watermarks.high_usage, Who::kKswapd);
  for (; scan.priority >= 1 && root.memory.usage_pages() > machine_.watermarks.high_usage; --scan.priority) {
    int64_t before = scan.reclaimed;
    ShrinkNode(slot, scan);
    if (scan.reclaimed - before >= kCluster) ++scan.priority;  // goes on as hard as it was
  }
}

// __mem_cgroup_handle_over_high()
template <class Forms>
void Reclaimer<Forms>::HandleOverHigh(CpuSlot& slot) {
  Memcg& memcg = machine_.tree.Get(slot.over_high_memcg);
  int64_t pages = std::exchange(slot.over_high_pages, 0);
  slot.over_high_memcg = MemcgId::kNone;
  int64_t delay_ms = 0;
  int64_t wanted = pages;
  for (int retries = kRetries;; wanted = kCluster) {
    int64_t reclaimed = 0;
    for (Memcg* level = &memcg; level->parent != nullptr; level = level->parent) {
      if (level->memory.usage_pages() <= level->reclaim.high) continue;
      level->CountEvent(MemcgEvent::kHigh);
      reclaimed += TryToFree(slot, *level, wanted);
    }
    int64_t of_memory = 0, of_swap = 0;
    for (Memcg* level = &memcg; level->parent != nullptr; level = level->parent) {
      of_memory = std::max(of_memory, HighDelayMs(level->memory.usage_pages(), level->reclaim.high, pages));
      if (level->swap.usage_pages() > level->reclaim.swap_high) {
        if (wanted == pages) level->CountEvent(SwapEvent::kHigh);
        of_swap = std::max(of_swap, HighDelayMs(level->swap.usage_pages(), level->reclaim.swap_high, pages));
      }
    }
    delay_ms = std::min(of_memory + of_swap, kMostDelayMs);
    if (delay_ms <= kIgnoredDelayMs) return;
    if (reclaimed == 0 && retries-- == 0) break;
  }
  slot.high_delay_us += delay_ms * 1000;
  for (Memcg* level = &memcg; level != nullptr; level = level->parent)
    level->high_delay_us.fetch_add(delay_ms * 1000, std::memory_order_relaxed);
  writeback_.Wait(slot, delay_ms * 1'000'000);
}

// ---- the walk

// do_try_to_free_pages()
template <class Forms>
int64_t Reclaimer<Forms>::DoTryToFree(CpuSlot& slot, Scan& scan) {
  lru_.FlushEnded(slot);
  charges_.FlushUncharge(slot);
  writeback_.Advance(slot);
  for (;;) {
    for (scan.priority = kDefaultPriority; scan.priority >= 0; --scan.priority) {
      ShrinkNode(slot, scan);
      if (scan.reclaimed >= scan.wanted) break;
    }
    for (size_t file = 0; file < 2; ++file) {  // snapshot_refaults()
      scan.target.refaults[file].store(scan.target.flushed.activations[file].load(std::memory_order_relaxed),
                                       std::memory_order_relaxed);
    }
    if (scan.reclaimed > 0) return scan.reclaimed;
    // Not even a full walk, active pages, or what memory.low protects?
    if (!scan.full_walk) {
      scan.full_walk = true;
    } else if (scan.skipped_deactivate) {
      scan.force_deactivate = true;
      scan.skipped_deactivate = false;
    } else if (scan.low_skipped) {
      scan.force_deactivate = false;
      scan.low_reclaim = true;
      scan.low_skipped = false;
    } else {
      return 0;
    }
  }
}

template <class Forms>
void Reclaimer<Forms>::ShrinkNode(CpuSlot& slot, Scan& scan) {
  scan.dirty = scan.congested = 0;
  PrepareScan(slot, scan);
  bool partial = scan.who != Who::kKswapd && !scan.full_walk;
  for (Memcg* memcg = partial ? NextPartial(scan.target, true) : &scan.target; memcg != nullptr;
       memcg = partial ? NextPartial(scan.target, false) : Next(scan.target, memcg)) {
    CalculateProtection(scan.target, *memcg);
    int64_t usage = memcg->memory.usage_pages();
    if (memcg != &scan.target && memcg->parent != nullptr) {
      if (memcg->emin.load(std::memory_order_relaxed) >= usage) continue;
      if (memcg->elow.load(std::memory_order_relaxed) >= usage) {
        if (!scan.low_reclaim) {
          scan.low_skipped = true;
          continue;
        }
        memcg->CountEvent(MemcgEvent::kLow);
      }
    }
    ShrinkLruvec(slot, *memcg, scan);
    if (scan.priority <= kShadowPriority) ShrinkShadows(slot, *memcg);
    if (partial && scan.reclaimed >= scan.wanted) break;
  }
  if (scan.dirty > 0 && scan.dirty == scan.congested) writeback_.Wait(slot, kCongestionWaitNs);
}

// count_shadow_nodes(), do_shrink_slab(): nodes of the file's tree that hold nothing but shadows, beyond what
// the cgroup's pages warrant, go once half of their number, deferred pass by pass, comes to all of it.  As
// far as this is seen: while no page of the cgroup was flushed yet, none is warranted.
template <class Forms>
void Reclaimer<Forms>::ShrinkShadows(const CpuSlot& slot, Memcg& memcg) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (LruList list : kEvictable) {
    if (FlushedPages(memcg, list) > 0) return;
  }
  int64_t age = memcg.lruvec.nonresident_age.load(std::memory_order_relaxed);
  if (age - memcg.shadows_shrunk_age.load(std::memory_order_relaxed) < kShadowNode) return;  // nothing new
  memcg.shadows_shrunk_age.store(age, std::memory_order_relaxed);
  for (uint32_t id = 1; id < machine_.files.size(); ++id) {
    File& file = machine_.files.Get(FileId{id});
    if (&file == slot.held_file || !file.mutex.TryLock()) continue;
    if (!file.shadows.empty()) cache_.ShrinkShadows(file, memcg.id);
    file.mutex.Unlock();
  }
}

// css_next_descendant_pre(): children in the order of their making, dying ones too.
template <class Forms>
Memcg* Reclaimer<Forms>::Next(Memcg& target, Memcg* at) const {
  if (!at->subgroups.empty()) return at->subgroups.front();
  for (; at != &target; at = at->parent) {
    const std::vector<Memcg*>& siblings = at->parent->subgroups;
    auto next = std::find(siblings.begin(), siblings.end(), at) + 1;
    if (next != siblings.end()) return *next;
  }
  return nullptr;
}

// mem_cgroup_iter() with a cookie: one walk goes on where another broke off; a round's end is a walk's end,
// but no walk sees nothing.
template <class Forms>
Memcg* Reclaimer<Forms>::NextPartial(Memcg& target, bool first) const {
  MemcgId position = target.walk_position.load(std::memory_order_relaxed);
  const auto& all = machine_.tree.all();
  Memcg* at = position == MemcgId::kNone || Raw(position) >= all.size() ? nullptr : all[Raw(position)].get();
  Memcg* next = at == nullptr ? &target : Next(target, at);
  if (next == nullptr && first) next = &target;
  target.walk_position.store(next == nullptr ? MemcgId::kNone : next->id, std::memory_order_relaxed);
  return next;
}

// mem_cgroup_calculate_protection(): top down, so the parent's is there.
template <class Forms>
void Reclaimer<Forms>::CalculateProtection(const Memcg& target, Memcg& memcg) const {
  if (&memcg == &target || memcg.parent == nullptr) return;
  int64_t usage = memcg.memory.usage_pages();
  if (usage == 0) return;
  const Memcg& parent = *memcg.parent;
  int64_t min = memcg.reclaim.min, low = memcg.reclaim.low;
  if (&parent != &target) {
    int64_t of_min = 0, of_low = 0;
    for (const Memcg* sibling : parent.subgroups) {
      int64_t used = sibling->memory.usage_pages();
      of_min += std::min(used, sibling->reclaim.min);
      of_low += std::min(used, sibling->reclaim.low);
    }
    int64_t parent_usage = parent.memory.usage_pages();
    min = EffectiveProtection(usage, parent_usage, min, parent.emin.load(std::memory_order_relaxed), of_min);
    low = EffectiveProtection(usage, parent_usage, low, parent.elow.load(std::memory_order_relaxed), of_low);
  }
  memcg.emin.store(min, std::memory_order_relaxed);
  memcg.elow.store(low, std::memory_order_relaxed);
}

// ---- how much of which list

template <class Forms>
bool Reclaimer<Forms>::InactiveIsLow(const Memcg& memcg, bool file) const {
  int64_t inactive = FlushedPages(memcg, file ? LruList::kInactiveFile : LruList::kInactiveAnon);
  int64_t active = FlushedPages(memcg, file ? LruList::kActiveFile : LruList::kActiveAnon);
  int64_t gib = (inactive + active) >> (30 - machine_.page_shift);
  int64_t ratio = gib == 0 ? 1 : static_cast<int64_t>(std::sqrt(static_cast<double>(10 * gib)));
  return inactive * ratio < active;
}

template <class Forms>
void Reclaimer<Forms>::PrepareScan(const CpuSlot& slot, Scan& scan) {
  machine_.tree.FlushPeriodically(slot.now_ns);
  const Memcg& target = scan.target;
  for (size_t file = 0; file < 2; ++file) {
    scan.cost[file] = target.cost[file].load(std::memory_order_relaxed);
    bool refaulted = target.flushed.activations[file].load(std::memory_order_relaxed) !=
                     target.refaults[file].load(std::memory_order_relaxed);
    scan.may_deactivate[file] = scan.force_deactivate || refaulted || InactiveIsLow(target, file != 0);
  }
  scan.cache_trim =
      FlushedPages(target, LruList::kInactiveFile) >> scan.priority != 0 && !scan.may_deactivate[1];
  if (scan.of_cgroup()) return;
  int64_t node_pages = static_cast<int64_t>(machine_.config.memory_bytes >> machine_.page_shift);
  int64_t free = std::max<int64_t>(0, node_pages - target.memory.usage_pages());
  int64_t file = NodePages(LruList::kInactiveFile) + NodePages(LruList::kActiveFile);
  scan.file_is_tiny = file + free <= node_pages - machine_.watermarks.high_usage && !scan.may_deactivate[0] &&
                      NodePages(LruList::kInactiveAnon) >> scan.priority != 0;
}

// The order of the questions is the kernel's.
template <class Forms>
typename Reclaimer<Forms>::ScanBalance Reclaimer<Forms>::BalanceOf(const Memcg& memcg, const Scan& scan,
                                                                   int64_t swappiness) const {
  if (!memcg.HasSwap() || (scan.of_cgroup() && swappiness == 0)) return ScanBalance::kFile;
  if (swappiness == kAnonOnly) return ScanBalance::kAnon;
  if (scan.priority == 0 && swappiness != 0) return ScanBalance::kEqual;
  if (scan.file_is_tiny) return ScanBalance::kAnon;
  return scan.cache_trim ? ScanBalance::kFile : ScanBalance::kFraction;
}

// get_scan_count()
template <class Forms>
typename Reclaimer<Forms>::Counts Reclaimer<Forms>::ScanCounts(Memcg& memcg, Scan& scan) const {
  int64_t swappiness = scan.swappiness.value_or(memcg.reclaim.swappiness);
  ScanBalance balance = BalanceOf(memcg, scan, swappiness);
  int64_t sum = scan.cost[0] + scan.cost[1];
  int64_t anon_cost = sum + scan.cost[0], file_cost = sum + scan.cost[1];
  int64_t total = anon_cost + file_cost;
  std::array<int64_t, 2> fraction = {swappiness * (total + 1) / (anon_cost + 1),
                                     (200 - swappiness) * (total + 1) / (file_cost + 1)};
  int64_t denominator = std::max<int64_t>(1, fraction[0] + fraction[1]);

  bool is_target = &memcg == &scan.target || memcg.parent == nullptr;
  int64_t min = is_target ? 0 : memcg.emin.load(std::memory_order_relaxed);
  int64_t low = is_target ? 0 : memcg.elow.load(std::memory_order_relaxed);
  Counts counts;
  Counts sizes;
  {
    Locked lock(memcg.lruvec.lock);
    for (LruList list : kEvictable) sizes[At(list)] = memcg.lruvec.lists[At(list)].pages;
  }
  for (LruList list : kEvictable) {
    int64_t size = sizes[At(list)];
    int64_t pages = size;
    if (min != 0 || low != 0) {  // apply_proportional_protection()
      int64_t protection = min;
      if (!scan.low_reclaim && low > min) {
        protection = low;
        scan.low_skipped = true;
      }
      int64_t usage = std::max(memcg.memory.usage_pages(), protection);
      pages = size - static_cast<int64_t>(static_cast<__int128>(size) * protection / (usage + 1));
      pages = std::max(pages, kCluster);
    }
    pages >>= scan.priority;
    if (pages == 0 && !memcg.online) pages = std::min(size, kCluster);
    bool file = IsFile(list);
    if (balance == ScanBalance::kFraction) {
      int64_t product = pages * fraction[file];
      pages = memcg.online ? product / denominator : (product + denominator - 1) / denominator;
    } else if (balance != ScanBalance::kEqual && (balance == ScanBalance::kFile) != file) {
      pages = 0;
    }
    counts[At(list)] = pages;
  }
  return counts;
}

template <class Forms>
void Reclaimer<Forms>::ShrinkLruvec(CpuSlot& slot, Memcg& memcg, Scan& scan) {
  constexpr size_t kIA = 0, kAA = 1, kIF = 2, kAF = 3;
  Counts left = ScanCounts(memcg, scan);
  const Counts targets = left;
  bool proportional = !scan.of_cgroup() && scan.who == Who::kDirect && scan.priority == kDefaultPriority;
  int64_t reclaimed = 0;
  while (left[kIA] > 0 || left[kAF] > 0 || left[kIF] > 0) {
    for (LruList list : kEvictable) {
      int64_t pages = std::min(left[At(list)], kCluster);
      if (pages == 0) continue;
      left[At(list)] -= pages;
      reclaimed += ShrinkList(slot, memcg, list, pages, scan);
    }
    if (reclaimed < scan.wanted || proportional) continue;
    // Enough: of the lists that are to be scanned more, so much that both kinds had their share.
    int64_t file = left[kIF] + left[kAF], anon = left[kIA] + left[kAA];
    if (file == 0 || anon == 0) break;
    bool stop_anon = file > anon;
    size_t stop = stop_anon ? kIA : kIF, go_on = stop_anon ? kIF : kIA;
    int64_t percentage = (stop_anon ? anon : file) * 100 / (targets[stop] + targets[stop + 1] + 1);
    left[stop] = left[stop + 1] = 0;
    for (size_t list : {go_on, go_on + 1}) {
      int64_t scanned = targets[list] - left[list];
      left[list] = targets[list] * (100 - percentage) / 100;
      left[list] -= std::min(left[list], scanned);
    }
  }
  scan.reclaimed += reclaimed;
  // Anonymous pages age though none was to be had.
  if (memcg.HasSwap() && InactiveIsLow(memcg, false))
    ShrinkActive(slot, memcg, LruList::kActiveAnon, kCluster);
}

template <class Forms>
int64_t Reclaimer<Forms>::ShrinkList(CpuSlot& slot, Memcg& memcg, LruList list, int64_t pages, Scan& scan) {
  if (!IsActive(list)) return ShrinkInactive(slot, memcg, list, pages, scan);
  if (scan.may_deactivate[IsFile(list)]) {
    ShrinkActive(slot, memcg, list, pages);
  } else {
    scan.skipped_deactivate = true;
  }
  return 0;
}

// ---- one list

template <class Forms>
uint32_t Reclaimer<Forms>::TakeReferences(Folio& folio) {
  uint32_t before = folio.flags.fetch_and(~(kFolioYoung | kFolioYoungTwice), std::memory_order_relaxed);
  return ((before & kFolioYoung) != 0) + ((before & kFolioYoungTwice) != 0);
}

template <class Forms>
bool Reclaimer<Forms>::IsMapped(FolioId head, const Folio& folio) const {
  for (uint32_t i = 0; i < folio.pages(); ++i) {
    if (machine_.arena.Get(FolioId{Raw(head) + i}).mapped()) return true;
  }
  return false;
}

// shrink_active_list(): to the inactive list, whatever they were used for; but program text gets another
// round.
template <class Forms>
void Reclaimer<Forms>::ShrinkActive(CpuSlot& slot, Memcg& memcg, LruList list, int64_t pages) {
  lru_.Drain(slot);
  FolioBatch batch;
  Isolated isolated = lru_.Isolate(slot, memcg.id, list, pages, batch);
  charges_.ModStat(slot, memcg.id, Stat::kPgrefill, static_cast<int32_t>(isolated.scanned));
  int64_t deactivated = 0, rotated = 0;
  for (uint32_t i = 0; i < batch.count; ++i) {
    Folio& folio = machine_.arena.Get(batch.folios[i]);
    bool referenced = IsMapped(batch.folios[i], folio) && TakeReferences(folio) > 0;
    if (referenced && IsFile(list) && folio.Has(kFolioExec)) {
      rotated += folio.pages();
      continue;
    }
    folio.Clear(kFolioActive);
    folio.Set(kFolioWorkingset);
    deactivated += folio.pages();
  }
  lru_.PutOnLists(slot, batch);
  lru_.FlushEnded(slot);
  charges_.FlushUncharge(slot);
  if (deactivated > 0)
    charges_.ModStat(slot, memcg.id, Stat::kPgdeactivate, static_cast<int32_t>(deactivated));
  memcg.AddCost(IsFile(list), rotated);
}

template <class Forms>
int64_t Reclaimer<Forms>::ShrinkInactive(CpuSlot& slot, Memcg& memcg, LruList list, int64_t pages,
                                         Scan& scan) {
  lru_.Drain(slot);
  FolioBatch batch;
  Isolated isolated = lru_.Isolate(slot, memcg.id, list, pages, batch);
  if (isolated.scanned > 0)
    charges_.ModStat(slot, memcg.id, ScanStat(scan.who), static_cast<int32_t>(isolated.scanned));
  if (isolated.taken == 0) return 0;
  int64_t reclaimed = 0, unqueued_dirty = 0, pageouts = 0;
  FolioBatch kept;
  for (uint32_t i = 0; i < batch.count; ++i) {
    FolioId head = batch.folios[i];
    Folio& folio = machine_.arena.Get(head);
    int64_t folio_pages = folio.pages();
    scan.scanned += folio_pages;
    switch (ShrinkFolio(slot, head, folio, scan, &unqueued_dirty, &pageouts)) {
      case Verdict::kReclaimed:
        reclaimed += folio_pages;
        continue;
      case Verdict::kActivate:
        folio.Set(kFolioActive);
        charges_.ModStat(slot, memcg.id, Stat::kPgactivate, static_cast<int32_t>(folio_pages));
        break;
      case Verdict::kKeep:
        break;
    }
    kept.folios[kept.count++] = head;
  }
  lru_.PutOnLists(slot, kept);
  lru_.FlushEnded(slot);
  charges_.FlushUncharge(slot);
  if (reclaimed > 0) charges_.ModStat(slot, memcg.id, StealStat(scan.who), static_cast<int32_t>(reclaimed));
  memcg.AddCost(IsFile(list), kCluster * pageouts + isolated.scanned - reclaimed);
  if (unqueued_dirty == isolated.taken) writeback_.Wake(slot);
  if (!slot.plugged) writeback_.EndSwapWrites(slot);
  return reclaimed;
}

template <class Forms>
typename Reclaimer<Forms>::Verdict Reclaimer<Forms>::ShrinkFolio(CpuSlot& slot, FolioId head, Folio& folio,
                                                                 Scan& scan, int64_t* unqueued_dirty,
                                                                 int64_t* pageouts) {
  if (folio.dead()) return Verdict::kKeep;  // deleted just now: it ends when it is put back
  if (!folio.anon() && IsBeingRead(slot, head, folio)) return Verdict::kKeep;
  if (folio.anon() && folio.Has(kFolioWriteback)) writeback_.EndSwapWrites(slot);  // it waits
  uint32_t flags = folio.flags.load(std::memory_order_relaxed);
  if ((flags & kFolioUnevictable) != 0) return Verdict::kKeep;
  bool writeback = (flags & kFolioWriteback) != 0;
  bool dirty = (flags & kFolioDirty) != 0 && (flags & kFolioSwapBacked) == 0;
  if (dirty || writeback) scan.dirty += folio.pages();
  if (dirty && !writeback) *unqueued_dirty += folio.pages();
  if (writeback) {
    if ((flags & kFolioReclaim) != 0) scan.congested += folio.pages();
    folio.Set(kFolioReclaim);
    return Verdict::kActivate;
  }
  // folio_check_references()
  bool mapped = IsMapped(head, folio);
  uint32_t references = mapped ? TakeReferences(folio) : 0;
  bool referenced =
      (folio.flags.fetch_and(~kFolioReferenced, std::memory_order_relaxed) & kFolioReferenced) != 0;
  bool on_file_list = (flags & kFolioSwapBacked) == 0;
  if (references > 0) {
    folio.Set(kFolioReferenced);
    if (referenced || references > 1) return Verdict::kActivate;
    if (on_file_list && (flags & kFolioExec) != 0) return Verdict::kActivate;
    return Verdict::kKeep;
  }
  if (folio.anon()) {
    return on_file_list ? FreeLazily(slot, head, folio) : SwapOut(slot, head, folio, scan.target, pageouts);
  }
  if (!on_file_list) return Verdict::kActivate;  // shared memory
  if (dirty) {
    folio.Set(kFolioReclaim);
    return Verdict::kActivate;
  }
  return Evict(slot, head, folio, scan.target);
}

// folio_trylock()
template <class Forms>
bool Reclaimer<Forms>::IsBeingRead(const CpuSlot& slot, FolioId head,
                                   const Folio& folio) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  File& file = machine_.files.Get(machine_.arena.FileOf(head));
  if (!machine_.reads.ReadsAny(file, slot.now_ns)) return false;
  if (&file == slot.held_file || !file.mutex.TryLock()) return true;
  bool reads = machine_.reads.Reads(file, folio.index, slot.now_ns);
  file.mutex.Unlock();
  return reads;
}

// __remove_mapping() of a file's folio
template <class Forms>
typename Reclaimer<Forms>::Verdict Reclaimer<Forms>::Evict(
    CpuSlot& slot, FolioId head, Folio& folio, const Memcg& target) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  File& file = machine_.files.Get(machine_.arena.FileOf(head));
  if (&file == slot.held_file || !file.mutex.TryLock()) return Verdict::kKeep;
  Verdict verdict = Verdict::kKeep;
  uint32_t tails = 0;  // each that is mapped holds the head
  for (uint32_t i = 1; i < folio.pages(); ++i)
    tails += machine_.arena.Get(FolioId{Raw(head) + i}).mapcount() > 0;
  uint64_t state = folio.state.load(std::memory_order_acquire);
  // The cache's, ours and the tails': else somebody works on it.
  if ((state & Folio::kDead) == 0 && Folio::RefsOf(state) == 2 + tails) {
    cache_.Delete(slot, file, folio.index, folio.order(), target.id);
    verdict = Verdict::kReclaimed;
  }
  file.mutex.Unlock();
  if (verdict == Verdict::kReclaimed) lru_.Put(slot, head);
  return verdict;
}

// folio_alloc_swap(), try_to_unmap(), pageout(); or __remove_mapping(), of what is in swap already.
template <class Forms>
typename Reclaimer<Forms>::Verdict Reclaimer<Forms>::SwapOut(CpuSlot& slot, FolioId head, Folio& folio,
                                                             const Memcg& target, int64_t* pageouts) {
  Memcg& memcg = machine_.tree.Get(folio.memcg());
  if (folio.mapcount() == 0)
    return Verdict::kKeep;  // its last entry went just now: it ends when it is put back
  const bool clean = folio.Has(kFolioSwapCache);
  const uint32_t place = clean ? 0 : charges_.AllocateSwap(slot, memcg, head);
  if (!clean && place == SwapSpace::kNoSlot) return Verdict::kActivate;
  uint64_t before;
  {
    SpinLock& folio_lock = machine_.FolioLockOf(head);
    Locked lock(folio_lock);
    if (clean && !folio.Has(kFolioSwapCache)) return Verdict::kKeep;  // a fault made it its own just now
    if (!clean) {
      folio.index = place;
      folio.Set(kFolioSwapCache);
    }
    before = folio.state.fetch_or(Folio::kUnmapped, std::memory_order_acq_rel);
    if (clean) LeaveSwapCache(folio, target);
  }
  if (Folio::IsMapped(before)) charges_.ModStat(slot, memcg.id, Stat::kAnon, -1);
  charges_.ModStat(slot, memcg.id, Stat::kSwapcached, clean ? -1 : 1);
  if (!clean) {
    writeback_.WriteToSwap(slot, head);
    ++*pageouts;
    return Verdict::kKeep;
  }
  slot.folios.CountInUse(-1);
  lru_.Age(target.id, 1);
  charges_.ModStat(slot, memcg.id, Stat::kPgpgout, 1);
  charges_.Uncharge(slot, memcg.id, 1);
  lru_.Put(slot, head);
  return Verdict::kReclaimed;
}

template <class Forms>
void Reclaimer<Forms>::LeaveSwapCache(Folio& folio, const Memcg& target) {
  folio.next = FolioId{folio.index};
  folio.prev = FolioId{Raw(target.id)};
  folio.index = static_cast<uint32_t>(target.lruvec.nonresident_age.load(std::memory_order_relaxed));
  folio.Clear(kFolioActive | kFolioReferenced | kFolioReadahead | kFolioSwapCache);
  folio.Set(kFolioSwapped);
  // Release: whoever finds it dead sees the above.
  folio.state.fetch_or(Folio::kDead | Folio::kMemcg, std::memory_order_acq_rel);
}

// A page that MADV_FREE gave up: its entries find nothing.
template <class Forms>
typename Reclaimer<Forms>::Verdict Reclaimer<Forms>::FreeLazily(CpuSlot& slot, FolioId head, Folio& folio) {
  if (folio.mapcount() == 0) return Verdict::kKeep;
  if (folio.Has(kFolioSwapCache)) {  // swapped out just before it was given up
    folio.Set(kFolioSwapBacked);
    return Verdict::kKeep;
  }
  MemcgId memcg = folio.memcg();
  uint64_t before = folio.state.fetch_or(Folio::kDead | Folio::kMemcg, std::memory_order_acq_rel);
  if (Folio::MapcountOf(before) > 0) charges_.ModStat(slot, memcg, Stat::kAnon, -1);
  charges_.ModStat(slot, memcg, Stat::kPglazyfreed, 1);
  charges_.ModStat(slot, memcg, Stat::kPgpgout, 1);
  charges_.Uncharge(slot, memcg, 1);
  lru_.Put(slot, head);
  return Verdict::kReclaimed;
}

template class Reclaimer<DefaultForms>;
template class Reclaimer<ChosenForms>;

}  // namespace memcgd::core
