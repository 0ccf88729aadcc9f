// The LRU lists of one cgroup and their lock.
//
// Kernel counterpart: struct lruvec, mm/swap.c.  Adds go through a batch per CPU (31 folios, drained when
// full and at once for a large folio); so do activations.  A folio in a batch is on no list.
//
// Thread safety: lists under `lock`; nonresident_age by anyone.
#ifndef MEMCGD_CORE_LRUVEC_H_
#define MEMCGD_CORE_LRUVEC_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "core/folio.h"
#include "core/memcg_stats.h"
#include "core/mutex.h"

namespace memcgd::core {

enum class LruList : uint8_t { kInactiveAnon, kActiveAnon, kInactiveFile, kActiveFile, kUnevictable };
inline constexpr size_t kLruLists = 5;

// The list that a folio with these flags belongs on.
inline LruList LruListOf(uint32_t flags) {
  if ((flags & kFolioUnevictable) != 0) return LruList::kUnevictable;
  bool active = (flags & kFolioActive) != 0;
  if ((flags & kFolioSwapBacked) != 0) return active ? LruList::kActiveAnon : LruList::kInactiveAnon;
  return active ? LruList::kActiveFile : LruList::kInactiveFile;
}
// Its statistic: they stand in the lists' order.
inline Stat LruStat(LruList list) {
  return static_cast<Stat>(static_cast<uint8_t>(Stat::kInactiveAnon) + static_cast<uint8_t>(list));
}
static_assert(static_cast<uint8_t>(Stat::kUnevictable) - static_cast<uint8_t>(Stat::kInactiveAnon) ==
              kLruLists - 1);

struct Lruvec {
  struct List {
    FolioId head = FolioId::kNone;
    FolioId tail = FolioId::kNone;
    int64_t pages = 0;
  };

  void PushFront(FolioArena& arena, LruList list, FolioId id, Folio& folio)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock) {
    PushFrontRun(arena, list, id, id, folio.pages());
  }
  // Folios that are linked from `front` to `back`, with so many pages.
  void PushFrontRun(FolioArena& arena, LruList list, FolioId front, FolioId back, int64_t pages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  void Unlink(FolioArena& arena, LruList list, FolioId id, Folio& folio) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock) {
    UnlinkRun(arena, list, id, id, folio.pages());
  }
  // Neighbours from `front` to `back`, with so many pages.
  void UnlinkRun(FolioArena& arena, LruList list, FolioId front, FolioId back, int64_t pages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);
  void PushBack(FolioArena& arena, LruList list, FolioId id, Folio& folio)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock);

  // The node's, where the node has one lock for all lists; else its own.
  explicit Lruvec(SpinLock* node_lock) : lock(node_lock != nullptr ? *node_lock : own_lock) {}

  alignas(64) SpinLock own_lock;
  SpinLock& lock;
  std::array<List, kLruLists> lists ABSL_GUARDED_BY(lock);
  // Evictions and activations so far; the clock of refault distances (mm/workingset.c).  Relaxed: a clock
  // that orders nothing.
  std::atomic<int64_t> nonresident_age{0};
};

inline void Lruvec::PushFrontRun(FolioArena& arena, LruList which, FolioId front, FolioId back,
                                 int64_t pages) {
  List& list = lists[static_cast<size_t>(which)];
  arena.Get(front).prev = FolioId::kNone;
  arena.Get(back).next = list.head;
  if (list.head != FolioId::kNone) {
    arena.Get(list.head).prev = back;
  } else {
    list.tail = back;
  }
  list.head = front;
  list.pages += pages;
}

inline void Lruvec::PushBack(FolioArena& arena, LruList which, FolioId id, Folio& folio) {
  List& list = lists[static_cast<size_t>(which)];
  folio.next = FolioId::kNone;
  folio.prev = list.tail;
  if (list.tail != FolioId::kNone) {
    arena.Get(list.tail).next = id;
  } else {
    list.head = id;
  }
  list.tail = id;
  list.pages += folio.pages();
}

inline void Lruvec::UnlinkRun(FolioArena& arena, LruList which, FolioId front, FolioId back, int64_t pages) {
  List& list = lists[static_cast<size_t>(which)];
  FolioId prev = arena.Get(front).prev, next = arena.Get(back).next;
  if (prev != FolioId::kNone) {
    arena.Get(prev).next = next;
  } else {
    MEMCG_CHECK(list.head == front);
    list.head = next;
  }
  if (next != FolioId::kNone) {
    arena.Get(next).prev = prev;
  } else {
    MEMCG_CHECK(list.tail == back);
    list.tail = prev;
  }
  list.pages -= pages;
}

template <uint32_t kMost>
struct FoliosOf {
  static constexpr uint32_t kSize = kMost;
  std::array<FolioId, kSize + 1> folios;  // reclaim isolates up to 32
  uint32_t count = 0;
};
// A CPU's folios on their way to a list (PAGEVEC_SIZE).
using FolioBatch = FoliosOf<31>;
// Those that end together: as many as a core's first cache holds with their neighbours.
using EndedFolios = FoliosOf<128>;

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_LRUVEC_H_
