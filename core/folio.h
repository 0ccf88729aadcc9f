// Page descriptors in an arena, named by 32-bit indices.
//
// Kernel counterpart: struct page / struct folio.  As there, each page has a descriptor of its own and a
// large folio is a run of them: the head carries list links, flags, cgroup and references; a tail only its
// own count of mappings and its distance to the head.
//
// Differs: no reverse map.  A page-table entry holds a folio's index and a reference; a file page that leaves
// the page cache while mapped stays as a *tombstone* (kDead) until the last entry lets go of it.  Whoever
// looks at an entry treats a tombstone as absent, which is what the kernel's unmapping would have left there.
//
// Invariants
//  1. A descriptor is freed by whoever takes its last hold: page-table entries of this very page (mapcount),
//  and
//     references of the page cache, of per-CPU batches, and of each tail that is mapped.
//  2. kLru says that it is on a list of its cgroup's lruvec.  Whoever clears it (test-and-clear, before the
//  lock)
//     owns the links, and nobody else may give it another cgroup, until it is set again; a deletion may take
//     its cgroup away.
//  3. kDead is set once, under the file's mutex; mapping needs that mutex too, so a dead page is never mapped
//     anew, and the one that sees mapcount fall (or kDead rise) to the last mapping takes it out of
//     file_mapped, once.
//  4. Cgroup and mapcount stand in one word, so that whoever maps the first time or unmaps the last knows
//  which
//     cgroup it counts for, however folios move between cgroups.
//
// The arena's memory is one reserved range of addresses, made usable as it grows, from 6 MiB on in huge pages
// where the machine has them: a descriptor is found by its index alone.
//
// Thread safety: `state` and flags by anyone who has a hold; links under the lruvec's lock; index and file
// are written before the folio can be reached.  FolioArena: all of it.
#ifndef MEMCGD_CORE_FOLIO_H_
#define MEMCGD_CORE_FOLIO_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/mutex.h"
#include "core/units.h"

namespace memcgd::core {

inline constexpr uint32_t kFolioActive = 1 << 0;
inline constexpr uint32_t kFolioReferenced = 1 << 1;
inline constexpr uint32_t kFolioDirty = 1 << 2;
inline constexpr uint32_t kFolioWorkingset = 1 << 3;
inline constexpr uint32_t kFolioUnevictable = 1 << 4;
inline constexpr uint32_t kFolioMlocked = 1 << 5;
inline constexpr uint32_t kFolioAnon = 1 << 6;
inline constexpr uint32_t kFolioSwapBacked = 1 << 7;  // anonymous or shmem: lives on the anon lists
inline constexpr uint32_t kFolioReadahead = 1 << 8;
inline constexpr uint32_t kFolioTail = 1 << 9;
inline constexpr uint32_t kFolioUptodate = 1 << 10;  // of anonymous pages: may be mapped
// What the accessed bits of the entries that map it say since reclaim looked last: one of them, more than
// one.
inline constexpr uint32_t kFolioYoung = 1 << 11;
inline constexpr uint32_t kFolioYoungTwice = 1 << 12;
inline constexpr uint32_t kFolioExec = 1 << 13;       // mapped by an area with PROT_EXEC
inline constexpr uint32_t kFolioSwapped = 1 << 14;    // of a tombstone: its content is in swap
inline constexpr uint32_t kFolioWriteback = 1 << 15;  // being written
inline constexpr uint32_t kFolioReclaim = 1 << 16;    // reclaim waits for the end of its writing
inline constexpr uint32_t kFolioSwapCache = 1 << 17;  // anonymous, here and in swap
inline constexpr int kFolioOrderShift = 24;           // bits 24–28: log2 of the folio's pages

struct Folio {
  // state: bits 0–23 mapcount, 24–36 references, 37 kUnmapped, 38 kLru, 39 kDead, 40–63 the cgroup charged
  // (kNone once uncharged).  References stay below 2^13: one of the cache, 1024 of tails, three batches of
  // each CPU, and one reclaimer on it.
  static constexpr uint64_t kOneMapping = 1;
  static constexpr uint64_t kMaxMappings = (1 << 24) - 1;
  static constexpr int kRefsShift = 24;
  static constexpr uint64_t kOneRef = uint64_t{1} << kRefsShift;
  static constexpr uint64_t kHolds = (uint64_t{1} << 37) - 1;  // mapcount and references
  // Of a page in swap, or in the swap cache: the entries that name it are swap entries, which find it there.
  static constexpr uint64_t kUnmapped = uint64_t{1} << 37;
  static constexpr uint64_t kLru = uint64_t{1} << 38;
  static constexpr uint64_t kDead = uint64_t{1} << 39;
  static constexpr int kMemcgShift = 40;
  static constexpr uint64_t kMemcg = ~uint64_t{0} << kMemcgShift;

  FolioId next = FolioId::kNone;  // LRU links; a tail's distance to its head
  FolioId prev = FolioId::kNone;
  std::atomic<uint64_t> state{kMemcg};
  std::atomic<uint32_t> flags{0};
  uint32_t index = 0;  // in the file

  static uint64_t StateOf(MemcgId memcg, uint64_t holds) {
    return uint64_t{Raw(memcg)} << kMemcgShift | holds;
  }
  static uint32_t RefsOf(uint64_t state) { return static_cast<uint32_t>((state & kHolds) >> kRefsShift); }
  static uint32_t MapcountOf(uint64_t state) { return static_cast<uint32_t>(state & kMaxMappings); }
  static MemcgId MemcgOf(uint64_t state) { return MemcgId{static_cast<uint32_t>(state >> kMemcgShift)}; }

  bool Has(uint32_t flag) const { return (flags.load(std::memory_order_relaxed) & flag) != 0; }
  void Set(uint32_t flag) { flags.fetch_or(flag, std::memory_order_relaxed); }
  void Clear(uint32_t flag) { flags.fetch_and(~flag, std::memory_order_relaxed); }
  // __SetPageUptodate(), of a page that nobody else can reach yet.  Release: the barrier between what was
  // written to it and the entry that will show it; pairs with whoever finds it there.
  void MarkUptodate() {
    flags.store(flags.load(std::memory_order_relaxed) | kFolioUptodate, std::memory_order_release);
  }
  uint32_t order() const { return flags.load(std::memory_order_relaxed) >> kFolioOrderShift & 31; }
  uint32_t pages() const { return 1u << order(); }
  bool anon() const { return Has(kFolioAnon); }

  MemcgId memcg() const { return MemcgOf(state.load(std::memory_order_relaxed)); }
  uint32_t mapcount() const { return MapcountOf(state.load(std::memory_order_relaxed)); }
  // Whether an entry shows it: it is part of what is counted as mapped.
  bool mapped() const { return IsMapped(state.load(std::memory_order_relaxed)); }
  static bool IsMapped(uint64_t state) { return (state & (kUnmapped | kDead)) == 0 && MapcountOf(state) > 0; }
  bool unmapped() const { return (state.load(std::memory_order_acquire) & kUnmapped) != 0; }
  bool lru() const { return (state.load(std::memory_order_relaxed) & kLru) != 0; }
  bool dead() const { return (state.load(std::memory_order_acquire) & kDead) != 0; }  // pairs with Delete()
  // Whether the entry that asks, whose address space is held, is all that holds it: an anonymous page, which
  // nobody else can map any more, in no batch.  It ends, and the mapping with it, without a locked
  // instruction.
  bool alone() const {
    uint64_t now = state.load(std::memory_order_acquire);
    return (now & kHolds) == kOneMapping && MemcgOf(now) != MemcgId::kNone;
  }
  // The condition to isolate: for the one caller that finds the bit set, the cgroup on whose list the folio
  // is (a deletion may take it off the folio at once); else kNone.  acq_rel: pairs with itself and with
  // SetLru(), so that the links are the winner's.
  MemcgId TestAndClearLru() {
    uint64_t before = state.fetch_and(~kLru, std::memory_order_acq_rel);
    return (before & kLru) != 0 ? MemcgOf(before) : MemcgId::kNone;
  }
  void SetLru() { state.fetch_or(kLru, std::memory_order_release); }
  void Get() { state.fetch_add(kOneRef, std::memory_order_relaxed); }
  // Of a folio that is charged no more.
  void ClearMemcg() { state.fetch_or(kMemcg, std::memory_order_relaxed); }
};
static_assert(sizeof(Folio) == 24);

// A page in swap: a tombstone that keeps, in links that it needs no more, where it is there and what its
// eviction left behind (a shadow entry).  In the swap cache its index is free to say where.  Written by
// reclaim, which isolated it; read under its folio lock, or by whoever takes its last hold.
inline uint32_t SwapSlotOf(const Folio& folio) {
  return folio.Has(kFolioSwapped) ? Raw(folio.next) : folio.index;
}
inline MemcgId SwapEvictor(const Folio& folio) { return MemcgId{Raw(folio.prev)}; }

// A CPU's own free descriptors of order 0, the last freed first: most allocations touch nothing shared, and a
// descriptor that is still in the cache.
struct FolioCache {
  static constexpr uint32_t kSize = 512;
  std::array<FolioId, kSize> free;
  uint32_t count = 0;
  // Pages that this CPU allocated or brought back from swap, less those that it freed or gave to swap;
  // written by the holder of its slot, read by anyone.
  std::atomic<int64_t> in_use{0};
  void CountInUse(int64_t pages) {
    in_use.store(in_use.load(std::memory_order_relaxed) + pages, std::memory_order_relaxed);
  }
};

class FolioArena {
 public:
  static constexpr uint32_t kMaxOrder = 10;
  static constexpr uint32_t kMaxFolios = 1u << 28;

  FolioArena();
  ~FolioArena();
  FolioArena(const FolioArena&) = delete;
  // At a cut of both; this one is new.
  FolioArena& operator=(const FolioArena& other);

  Folio& Get(FolioId id) const { return folios_[Raw(id)]; }
  void Prefetch(FolioId id) const { __builtin_prefetch(&Get(id), 1); }
  // The file whose page it is; memory that only file pages have.
  FileId& FileOf(FolioId id) const { return files_[Raw(id)]; }
  // The head of the folio that this page is part of.
  FolioId HeadOf(FolioId page) const {
    const Folio& folio = Get(page);
    return folio.Has(kFolioTail) ? FolioId{Raw(page) - Raw(folio.next)} : page;
  }

  // A folio with one reference, its tails set up; every other field is as new, but for its file.
  FolioId Allocate(FolioCache& cache, MemcgId memcg, uint32_t order);
  // A descriptor of order 0 with these flags and holds; every other field is as new.
  FolioId AllocatePage(FolioCache& cache, MemcgId memcg, uint32_t flags, uint64_t holds) {
    if (cache.count == 0) Refill(cache);
    FolioId id = cache.free[--cache.count];
    if (cache.count >= kAhead) Prefetch(cache.free[cache.count - kAhead]);
    cache.CountInUse(1);
    Make(Get(id), memcg, flags, holds);
    return id;
  }
  // The i-th descriptor that AllocatePage() would give next, made as it makes it; TakePages() takes those
  // before the count.  REQUIRES: i < cache.count.
  FolioId MakeNextPage(const FolioCache& cache, uint32_t i, MemcgId memcg, uint32_t flags, uint64_t holds) {
    FolioId id = cache.free[cache.count - 1 - i];
    if (cache.count > i + kAhead) Prefetch(cache.free[cache.count - 1 - i - kAhead]);
    Make(Get(id), memcg, flags, holds);
    return id;
  }
  static void TakePages(FolioCache& cache, uint32_t count) {
    cache.count -= count;
    cache.CountInUse(count);
  }
  // The descriptor may be reused at once.
  void Free(FolioCache& cache, FolioId head) { Free(cache, head, Get(head)); }
  void Free(FolioCache& cache, FolioId head, Folio& folio) {
    if (folio.order() != 0) return FreeLarge(cache, head);
    folio.state.store(Folio::StateOf(MemcgId::kNone, 0), std::memory_order_relaxed);
    cache.CountInUse(-1);
    if (cache.count == FolioCache::kSize) GiveBack(cache);
    cache.free[cache.count++] = head;
  }

  // One past the highest index ever used.
  uint32_t end() const { return end_.load(std::memory_order_relaxed); }
  // Descriptors in use, in a CPU's cache, or free in runs of several; may be read late by what goes on
  // beside.
  uint32_t used() const {
    const uint32_t free = free_pages_.load(std::memory_order_relaxed), end = this->end();
    return end > free ? end - free : 0;
  }

  // For saving and loading a state, at a cut.  Restore() makes all descriptors below `end` exist, as new.
  std::vector<FolioId>& free_list(uint32_t order) ABSL_NO_THREAD_SAFETY_ANALYSIS { return free_[order]; }
  void Restore(uint32_t end);
  // After free_list() was changed.
  void CountFree() ABSL_NO_THREAD_SAFETY_ANALYSIS { CountFreeLocked(); }

 private:
  static constexpr uint32_t kAhead = 8;  // allocations before a descriptor is taken it is brought near

  static void Make(Folio& folio, MemcgId memcg, uint32_t flags, uint64_t holds) {
    folio.next = folio.prev = FolioId::kNone;
    folio.index = 0;
    folio.flags.store(flags, std::memory_order_relaxed);
    folio.state.store(Folio::StateOf(memcg, holds), std::memory_order_relaxed);
  }
  void FreeLarge(FolioCache& cache, FolioId head);
  FolioId Bump(uint32_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the descriptors below `end` usable.
  void Ensure(uint32_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refill(FolioCache& cache);
  void GiveBack(FolioCache& cache);
  void CountFreeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    free_pages_.store(static_cast<uint32_t>(free_[0].size()), std::memory_order_relaxed);
  }

  // Reserved for kMaxFolios; usable below usable_end_.  Constant: an index that reaches anyone is below it.
  Folio* folios_;
  FileId* files_;
  std::atomic<uint32_t> end_{2};         // 0 is none, 1 is the zero page
  std::atomic<uint32_t> free_pages_{0};  // in free_[0]
  Mutex mutex_;
  uint32_t usable_end_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::vector<FolioId>, kMaxOrder + 1> free_ ABSL_GUARDED_BY(mutex_);  // by order, last freed last
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_FOLIO_H_
