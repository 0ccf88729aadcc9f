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
//  1. refs, low half: one for the page cache, one per mapping (of the head or any tail), one per per-CPU
//  batch
//     that holds it.  The descriptor is freed by whoever drops the last.
//  2. mapcount, high half: page-table entries that hold this very page.
//  3. kDead is set once, under the file's mutex; mapping needs that mutex too, so a dead page is never mapped
//  anew,
//     and the one that sees mapcount fall (or kDead rise) to the last mapping takes it out of file_mapped,
//     once.
//
// Thread safety: Folio's atomics by anyone who holds a reference; links under the lruvec's lock; file and
// index are written before the folio can be reached.  FolioArena: all of it.
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

inline constexpr uint32_t kFolioLru = 1 << 0;  // on a list of its lruvec
inline constexpr uint32_t kFolioActive = 1 << 1;
inline constexpr uint32_t kFolioReferenced = 1 << 2;
inline constexpr uint32_t kFolioDirty = 1 << 3;
inline constexpr uint32_t kFolioWorkingset = 1 << 4;
inline constexpr uint32_t kFolioUnevictable = 1 << 5;
inline constexpr uint32_t kFolioMlocked = 1 << 6;
inline constexpr uint32_t kFolioAnon = 1 << 7;
inline constexpr uint32_t kFolioSwapBacked = 1 << 8;  // anonymous or shmem: lives on the anon lists
inline constexpr uint32_t kFolioReadahead = 1 << 9;
inline constexpr uint32_t kFolioTail = 1 << 10;
inline constexpr uint32_t kFolioExec = 1 << 11;
inline constexpr int kFolioOrderShift = 24;  // bits 24–28: log2 of the folio's pages

struct Folio {
  static constexpr uint64_t kOneRef = 1;
  static constexpr uint64_t kDead = uint64_t{1} << 31;
  static constexpr uint64_t kOneMapping = uint64_t{1} << 32;

  FolioId next = FolioId::kNone;  // LRU links; a tail's distance to its head
  FolioId prev = FolioId::kNone;
  std::atomic<MemcgId> charged{MemcgId::kNone};  // the cgroup charged; kNone once uncharged
  std::atomic<uint32_t> flags{0};
  std::atomic<uint64_t> refs{0};
  FileId file = FileId::kNone;
  uint32_t index = 0;  // in the file

  static uint32_t RefsOf(uint64_t refs) { return static_cast<uint32_t>(refs) & 0x7fffffff; }
  static uint32_t MapcountOf(uint64_t refs) { return static_cast<uint32_t>(refs >> 32); }
  static bool IsDead(uint64_t refs) { return (refs & kDead) != 0; }

  bool Has(uint32_t flag) const { return (flags.load(std::memory_order_relaxed) & flag) != 0; }
  void Set(uint32_t flag) { flags.fetch_or(flag, std::memory_order_relaxed); }
  void Clear(uint32_t flag) { flags.fetch_and(~flag, std::memory_order_relaxed); }
  // The condition to isolate: true for the one caller that finds it set.  acq_rel: pairs with itself, so that
  // the links are the winner's.
  bool TestAndClear(uint32_t flag) { return (flags.fetch_and(~flag, std::memory_order_acq_rel) & flag) != 0; }
  uint32_t order() const { return flags.load(std::memory_order_relaxed) >> kFolioOrderShift & 31; }
  uint32_t pages() const { return 1u << order(); }
  MemcgId memcg() const { return charged.load(std::memory_order_relaxed); }
  void set_memcg(MemcgId memcg) { charged.store(memcg, std::memory_order_relaxed); }
  bool anon() const { return Has(kFolioAnon); }
  uint32_t mapcount() const { return MapcountOf(refs.load(std::memory_order_relaxed)); }
  bool dead() const { return IsDead(refs.load(std::memory_order_acquire)); }
};
static_assert(sizeof(Folio) == 32);

// A CPU's own free descriptors of order 0, the last freed first: most allocations touch nothing shared, and a
// descriptor that is still in the cache.
struct FolioCache {
  static constexpr uint32_t kSize = 512;
  std::array<FolioId, kSize> free;
  uint32_t count = 0;
  int64_t in_use = 0;  // pages that this CPU allocated less those that it freed
};

class FolioArena {
 public:
  static constexpr uint32_t kMaxOrder = 10;
  static constexpr uint32_t kMaxFolios = 1u << 28;

  FolioArena();
  ~FolioArena();
  FolioArena(const FolioArena&) = delete;
  FolioArena& operator=(const FolioArena&) = delete;

  Folio& Get(FolioId id) const {
    return chunks_[Raw(id) / kChunk].load(std::memory_order_acquire)[Raw(id) % kChunk];  // pairs with Grow()
  }
  // The head of the folio that this page is part of.
  FolioId HeadOf(FolioId page) const {
    const Folio& folio = Get(page);
    return folio.Has(kFolioTail) ? FolioId{Raw(page) - Raw(folio.next)} : page;
  }

  // A folio with one reference, its tails set up; every other field is as new.
  FolioId Allocate(FolioCache& cache, uint32_t order);
  // A descriptor of order 0 with these flags and references; every other field is as new.
  FolioId AllocatePage(FolioCache& cache, MemcgId memcg, uint32_t flags, uint64_t refs) {
    if (cache.count == 0) Refill(cache);
    FolioId id = cache.free[--cache.count];
    ++cache.in_use;
    Folio& folio = Get(id);
    folio.next = folio.prev = FolioId::kNone;
    folio.file = FileId::kNone;
    folio.index = 0;
    folio.set_memcg(memcg);
    folio.flags.store(flags, std::memory_order_relaxed);
    folio.refs.store(refs, std::memory_order_relaxed);
    return id;
  }
  // The descriptor may be reused at once.
  void Free(FolioCache& cache, FolioId head);

  // One past the highest index ever used.
  uint32_t end() const { return end_.load(std::memory_order_relaxed); }

  // For saving and loading a state, at a cut.  Restore() makes all descriptors below `end` exist, as new.
  std::vector<FolioId>& free_list(uint32_t order) ABSL_NO_THREAD_SAFETY_ANALYSIS { return free_[order]; }
  void Restore(uint32_t end);

 private:
  static constexpr uint32_t kChunk = 1u << 15;  // descriptors, 1 MiB

  FolioId Bump(uint32_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnsureChunk(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refill(FolioCache& cache);
  void GiveBack(FolioCache& cache);

  std::array<std::atomic<Folio*>, kMaxFolios / kChunk> chunks_{};
  std::atomic<uint32_t> end_{2};  // 0 is none, 1 is the zero page
  Mutex mutex_;
  std::array<std::vector<FolioId>, kMaxOrder + 1> free_ ABSL_GUARDED_BY(mutex_);  // by order, last freed last
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_FOLIO_H_
