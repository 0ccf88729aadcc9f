// The statistics of a cgroup and how they reach its ancestors.
//
// Kernel counterpart: memcg_stat_item and vm_event_item, in three forms (mechanisms.h):
//   spill (5.2 to 5.12): x = this CPU's pending + delta; when |x| > kStatBatch, x is added to the cgroup and
//   to
//     every ancestor and the pending is zeroed.  Readers read one number, off by at most kStatBatch × CPUs
//     for each cgroup at or below.  A cgroup that is freed hands its pendings on: events never go backwards.
//   walk (before 5.2): x goes to the cgroup's own count only; the reader sums all CPUs of all cgroups below.
//     What a freed cgroup had counted is gone.
//   rstat (today): a CPU adds to its own running sum and to a count of updates of the cgroup and each
//   ancestor;
//     a reader who finds more than kStatBatch × CPUs of them, or the last flush 2 s ago, flushes: what is new
//     since goes to the cgroup and to its parent's `from_children`, children first.  Off by less than
//     2 × kStatBatch × CPUs.
// Differs: all items share one batch, counts of pages and events alike.
//
// Thread safety: ModStat() by the holder of the CPU's slot; StatPending's counts are read by anyone.
#ifndef MEMCGD_CORE_MEMCG_STATS_H_
#define MEMCGD_CORE_MEMCG_STATS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/units.h"

namespace memcgd::core {

// In the order of memory.stat (v2).  kPages are kept in pages and shown in bytes; kDerived are sums of
// others. The last three are not lines of v2's file.
#define MEMCGD_STATS(X)                                          \
  X(kAnon, "anon", kPages)                                       \
  X(kFile, "file", kPages)                                       \
  X(kKernel, "kernel", kDerived)                                 \
  X(kKernelStack, "kernel_stack", kBytes)                        \
  X(kPagetables, "pagetables", kPages)                           \
  X(kSecPagetables, "sec_pagetables", kPages)                    \
  X(kPercpu, "percpu", kBytes)                                   \
  X(kSock, "sock", kPages)                                       \
  X(kVmalloc, "vmalloc", kPages)                                 \
  X(kShmem, "shmem", kPages)                                     \
  X(kZswap, "zswap", kBytes)                                     \
  X(kZswapped, "zswapped", kPages)                               \
  X(kFileMapped, "file_mapped", kPages)                          \
  X(kFileDirty, "file_dirty", kPages)                            \
  X(kFileWriteback, "file_writeback", kPages)                    \
  X(kSwapcached, "swapcached", kPages)                           \
  X(kAnonThp, "anon_thp", kPages)                                \
  X(kFileThp, "file_thp", kPages)                                \
  X(kShmemThp, "shmem_thp", kPages)                              \
  X(kInactiveAnon, "inactive_anon", kPages)                      \
  X(kActiveAnon, "active_anon", kPages)                          \
  X(kInactiveFile, "inactive_file", kPages)                      \
  X(kActiveFile, "active_file", kPages)                          \
  X(kUnevictable, "unevictable", kPages)                         \
  X(kSlabReclaimable, "slab_reclaimable", kBytes)                \
  X(kSlabUnreclaimable, "slab_unreclaimable", kBytes)            \
  X(kSlab, "slab", kDerived)                                     \
  X(kWorkingsetRefaultAnon, "workingset_refault_anon", kCount)   \
  X(kWorkingsetRefaultFile, "workingset_refault_file", kCount)   \
  X(kWorkingsetActivateAnon, "workingset_activate_anon", kCount) \
  X(kWorkingsetActivateFile, "workingset_activate_file", kCount) \
  X(kWorkingsetRestoreAnon, "workingset_restore_anon", kCount)   \
  X(kWorkingsetRestoreFile, "workingset_restore_file", kCount)   \
  X(kWorkingsetNodereclaim, "workingset_nodereclaim", kCount)    \
  X(kPgdemoteKswapd, "pgdemote_kswapd", kCount)                  \
  X(kPgdemoteDirect, "pgdemote_direct", kCount)                  \
  X(kPgdemoteKhugepaged, "pgdemote_khugepaged", kCount)          \
  X(kPgdemoteProactive, "pgdemote_proactive", kCount)            \
  X(kPgscan, "pgscan", kDerived)                                 \
  X(kPgsteal, "pgsteal", kDerived)                               \
  X(kPswpin, "pswpin", kCount)                                   \
  X(kPswpout, "pswpout", kCount)                                 \
  X(kPgscanKswapd, "pgscan_kswapd", kCount)                      \
  X(kPgscanDirect, "pgscan_direct", kCount)                      \
  X(kPgscanKhugepaged, "pgscan_khugepaged", kCount)              \
  X(kPgscanProactive, "pgscan_proactive", kCount)                \
  X(kPgstealKswapd, "pgsteal_kswapd", kCount)                    \
  X(kPgstealDirect, "pgsteal_direct", kCount)                    \
  X(kPgstealKhugepaged, "pgsteal_khugepaged", kCount)            \
  X(kPgstealProactive, "pgsteal_proactive", kCount)              \
  X(kPgfault, "pgfault", kCount)                                 \
  X(kPgmajfault, "pgmajfault", kCount)                           \
  X(kPgrefill, "pgrefill", kCount)                               \
  X(kPgactivate, "pgactivate", kCount)                           \
  X(kPgdeactivate, "pgdeactivate", kCount)                       \
  X(kPglazyfree, "pglazyfree", kCount)                           \
  X(kPglazyfreed, "pglazyfreed", kCount)                         \
  X(kSwpinZero, "swpin_zero", kCount)                            \
  X(kSwpoutZero, "swpout_zero", kCount)                          \
  X(kThpFaultAlloc, "thp_fault_alloc", kCount)                   \
  X(kThpCollapseAlloc, "thp_collapse_alloc", kCount)             \
  X(kThpSwpout, "thp_swpout", kCount)                            \
  X(kThpSwpoutFallback, "thp_swpout_fallback", kCount)           \
  X(kSwap, "swap", kPages)                                       \
  X(kPgpgin, "pgpgin", kCount)                                   \
  X(kPgpgout, "pgpgout", kCount)

enum class Stat : uint8_t {
#define MEMCGD_STAT_ENUM(id, name, unit) id,
  MEMCGD_STATS(MEMCGD_STAT_ENUM)
#undef MEMCGD_STAT_ENUM
};

enum class StatUnit : uint8_t { kPages, kBytes, kCount, kDerived };

inline constexpr size_t kStats = static_cast<size_t>(Stat::kPgpgout) + 1;
inline constexpr size_t kMemoryStatLines = static_cast<size_t>(Stat::kSwap);  // those of v2's memory.stat

std::string_view StatName(Stat stat);
StatUnit UnitOf(Stat stat);

// The values of one cgroup as they are shown: bytes and counts, derived lines filled, negatives clamped to 0.
std::array<int64_t, kStats> ShowStats(const std::array<int64_t, kStats>& raw, uint32_t page_size);

// What has reached a cgroup from its own CPUs and from its descendants.
struct StatTotals {
  std::array<std::atomic<int64_t>, kStats> local{};      // the cgroup's own
  std::array<std::atomic<int64_t>, kStats> recursive{};  // and all descendants', dead ones included
  // What CPUs had pending at the last exact read, beside both of the above.  At a cut only.
  std::array<int64_t, kStats> pending_local{};
  std::array<int64_t, kStats> pending_total{};
  // rstat: what children flushed and this cgroup has not; under the machine's rstat lock.  Relaxed: a hint.
  std::array<int64_t, kStats> from_children{};
  std::atomic<int64_t> updates{0};
};

// One CPU's pending deltas of every cgroup, by MemcgId.  Made at the cut that makes the cgroup.
struct StatPending {
  // Written by the holder of the CPU's slot; relaxed: a number that orders nothing.  Never past ±kStatBatch,
  // which bounds what a walking reader misses.  rstat: a running sum, which may wrap.
  std::array<std::atomic<int32_t>, kStats> pending{};
  // What of it the last exact read (at a cut) or flush (under the rstat lock) took in.
  std::array<int32_t, kStats> seen{};
  // Whether the CPU's list of touched cgroups has this one: readers look at those only.
  std::atomic<bool> touched{false};
  int32_t updates = 0;  // rstat: not counted in the cgroup's yet; by the holder of the slot
};
using CpuStats = std::vector<std::unique_ptr<StatPending>>;

inline constexpr int32_t kStatBatch = 64;

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MEMCG_STATS_H_
