// The parts of a node, in reading order: its state, whatever forms work on it (accounts.h, workings.h).
//
// Thread safety: each part's own.
#ifndef MEMCGD_CORE_MACHINE_H_
#define MEMCGD_CORE_MACHINE_H_

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "core/commit_account.h"
#include "core/cpu_slot.h"
#include "core/disk_reads.h"
#include "core/file.h"
#include "core/folio.h"
#include "core/memcg_tree.h"
#include "core/node.h"
#include "core/process_table.h"
#include "core/swap_space.h"

namespace memcgd::core {

// The node's own, as usage of its memory, pages: over `low` kswapd reclaims until it is at or below `high`;
// charges fail over `min`.  Kernel counterpart: __setup_per_zone_wmarks().
struct Watermarks {
  int64_t min_usage = 0;
  int64_t low_usage = 0;
  int64_t high_usage = 0;
};
Watermarks WatermarksOf(const NodeConfig& config);

// Folios that are dirty, and those being written (writeback.h): each holds a reference.
struct WritebackQueue {
  struct Entry {
    FolioId head = FolioId::kNone;
    int64_t time_ns = 0;  // when it became dirty; when its writing ends
  };
  Mutex mutex;
  std::deque<Entry> dirty ABSL_GUARDED_BY(mutex);
  std::deque<Entry> in_flight ABSL_GUARDED_BY(mutex);
  int64_t dirty_pages ABSL_GUARDED_BY(mutex) = 0;
  int64_t woken_pages ABSL_GUARDED_BY(mutex) = 0;    // of them, those that reclaim wants written
  int64_t busy_until_ns ABSL_GUARDED_BY(mutex) = 0;  // the device
  int64_t advanced_ns ABSL_GUARDED_BY(mutex) = 0;    // the last look at it
  int64_t waited_ns ABSL_GUARDED_BY(mutex) = 0;  // by tasks: the model's time is so much ahead of the events'
};

struct Machine {
  explicit Machine(const NodeConfig& node_config);
  virtual ~Machine() = default;

  // Makes room for a new cgroup's statistics on every CPU.  At a cut.
  void AddCpuStats(MemcgId memcg);
  // Pages in use, by any cgroup or none; exact at a cut.
  uint64_t ResidentPages() const;

  // Whether there is room for a folio more of that order.  Asked by what one event can do without end; what
  // is done once an event has taken its room before (growth.h).
  bool MayGrow(uint32_t order = 0) const {
    if (limits.memory_is_short != nullptr && limits.memory_is_short->load(std::memory_order_relaxed))
      return false;
    return arena.used() < limits.pages && (order == 0 || arena.end() < NodeLimits::kMostPages);
  }

  NodeConfig config;  // overcommit fields change at a cut
  NodeLimits limits;  // changes at a cut
  uint32_t page_shift = 12;
  MemcgTree tree{config.mechanisms.lru_lock};
  Watermarks watermarks{WatermarksOf(config)};
  FolioArena arena;
  FileTable files;
  CommitAccount commit;
  std::vector<std::unique_ptr<CpuSlot>> cpus;
  IndexedTable<Mm> mms;  // growth and users under the process table's mutex
  ProcessTable table;
  bool file_reads_watched = false;     // by a cgroup's file_reads; changes at a cut
  std::atomic<int64_t> time_ns{0};     // the largest event time seen
  std::atomic<uint64_t> oom_calls{0};  // so far
  std::deque<OomRecord> oom_records;   // the last of them; changed at a cut
  WritebackQueue writeback;
  DiskReads reads{config.page_size, config.read_bytes_per_second};
  SwapSpace swap{config.reclaim == Reclaim::kModelled ? config.swap_bytes / config.page_size : 0};
  // folio_lock(), as far as the model needs it: what of a page is in swap, and writeback against Migrate().
  std::array<SpinLock, 64> folio_locks;
  SpinLock& FolioLockOf(FolioId id) { return folio_locks[Raw(id) % folio_locks.size()]; }
  // rstat: flushes, by readers at a cut or beside batches.
  Mutex rstat_lock;
  int64_t last_flush_ns ABSL_GUARDED_BY(rstat_lock) = 0;
  uint64_t flushes ABSL_GUARDED_BY(rstat_lock) = 0;
  std::set<MemcgId> unflushed ABSL_GUARDED_BY(rstat_lock);  // those whose from_children hold something
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MACHINE_H_
