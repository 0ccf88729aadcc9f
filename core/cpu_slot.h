// What a modelled CPU keeps to itself: its stock of charges, its pending statistics, its batches of folios on
// their way to a list, its free page descriptors.
//
// Thread safety: everything under `lock`, which a batch keeps from the first event that names the CPU (see
// run_locks.h).
#ifndef MEMCGD_CORE_CPU_SLOT_H_
#define MEMCGD_CORE_CPU_SLOT_H_

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "core/folio.h"
#include "core/lruvec.h"
#include "core/mechanisms.h"
#include "core/memcg_stats.h"
#include "core/mutex.h"
#include "core/units.h"

namespace memcgd::core {

// Charges taken ahead of need.  Kernel counterpart: struct memcg_stock_pcp, seven slots.
struct Stock {
  static constexpr uint32_t kSlots = 7;
  static constexpr uint32_t kBatch = 64;
  struct Slot {
    MemcgId memcg = MemcgId::kNone;
    uint32_t pages = 0;
  };
  std::array<Slot, kSlots> slots;
  uint32_t last = 0;  // the slot that served last: charges come in runs of one cgroup
};

struct File;

struct alignas(64) CpuSlot {
  Mutex lock;  // two streams seldom name one CPU at a time
  // Who holds the lock, so that a CPU's stock can be drained by whoever holds several.  Relaxed: only the
  // holder itself finds its own name here.
  std::atomic<const void*> holder{nullptr};
  uint32_t cpu = 0;  // constant

  Stock stock;
  CpuStats stats;
  // The cgroup whose statistics changed last, and these: changes come in runs of one cgroup.
  MemcgId stats_memcg = MemcgId::kNone;
  StatPending* stats_pending = nullptr;
  SpinLock touched_lock;
  // Cgroups whose pendings changed since the last read that looked at them.
  std::vector<MemcgId> touched ABSL_GUARDED_BY(touched_lock);
  FolioCache folios;
  FolioBatch lru_add;
  // The last so many of lru_add are anonymous pages which only address spaces show that the batch of events
  // at hand has held since: nobody else can reach them.
  uint32_t lru_add_unshared = 0;
  FolioBatch lru_activate;
  FolioBatch lru_lazyfree;
  // Folios whose last reference went, to be ended in one go (struct mmu_gather, folios_put()).
  EndedFolios ended;
  // Uncharges of one cgroup, gathered until another's comes or the event ends (struct uncharge_gather).
  MemcgId uncharge_memcg = MemcgId::kNone;
  uint32_t uncharge_pages = 0;
  // Modelled reclaim: a charge that gave up, whose limit it met, for whom and how much it was; the batch then
  // calls the OOM killer and tries the event again.
  MemcgId oom_at = MemcgId::kNone;
  MemcgId oom_memcg = MemcgId::kNone;
  uint32_t oom_pages = 0;
  // Pages that a task charged over memory.high since it was last held up (memcg_nr_pages_over_high).
  MemcgId over_high_memcg = MemcgId::kNone;
  uint32_t over_high_pages = 0;
  // Pages that reclaim has put on their way to swap, each with a reference; and whether they wait there for
  // what a swap-in reads to be asked for (blk_start_plug()).
  std::vector<FolioId> swap_writes;
  bool plugged = false;
  bool retries = false;  // the event at hand is tried again after a kill: what it counts was counted
  const File* held_file = nullptr;  // whose mutex is held while something is charged
  int64_t now_ns = 0;               // of the event at hand
  int64_t high_delay_us = 0;        // for which memory.high held tasks up in this batch
  // Page-table entries copied or unmapped since the batch took the slot: the work that events alone do not
  // show.
  uint64_t ptes_walked = 0;
  // Chooses the stock slot to evict; part of the state, so that one stream is deterministic.
  std::minstd_rand random;
  CpuCounters counters;  // readable without the lock
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CPU_SLOT_H_
