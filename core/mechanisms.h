// The five mechanisms in whose older form a node can be run, and the counters of what each saves.
//
// Kernel counterpart: the five patch series named at each.  docs/mechanisms.md: both algorithms, bounds,
// worth.
//
// Thread safety: plain values, but for CpuCounters.
#ifndef MEMCGD_CORE_MECHANISMS_H_
#define MEMCGD_CORE_MECHANISMS_H_

#include <atomic>
#include <cstdint>

namespace memcgd::core {

// When a new page is charged: before the barrier that marks it up to date, or after it, where a refusal has
// wasted the barrier ("mm: try charging a page before setting page up to date").
enum class ChargeOrder : uint8_t { kChargeFirst = 0, kUptodateFirst = 1 };
// The batch of vm_committed_as: by the overcommit policy, or the small one always ("mm: adjust
// vm_committed_as_batch according to vm overcommit policy").
enum class CommitBatch : uint8_t { kByPolicy = 0, kSmall = 1 };
// The reference that each charged page holds on its cgroup: with the stock, or one by one ("mm: memcontrol:
// batch css refs").
enum class CssRefs : uint8_t { kCoalesced = 0, kPerPage = 1 };
// How statistics reach ancestors: spilled upward per CPU, summed by the reader, or flushed by the reader
// ("mm: memcontrol: make cgroup stats and events query API explicitly local").
enum class StatsForm : uint8_t { kSpill = 0, kWalk = 1, kRstat = 2 };
// Whose lock guards the LRU lists: each cgroup's own, or one of the node ("per memcg lru lock").
enum class LruLock : uint8_t { kPerMemcg = 0, kPerNode = 1 };

struct Mechanisms {
  ChargeOrder charge_order = ChargeOrder::kChargeFirst;
  CommitBatch commit_batch = CommitBatch::kByPolicy;
  CssRefs css_refs = CssRefs::kCoalesced;
  StatsForm stats = StatsForm::kSpill;
  LruLock lru_lock = LruLock::kPerMemcg;

  bool operator==(const Mechanisms&) const = default;
};

// X(field, what it counts).  All but the contended ones are deterministic for one stream.
#define MEMCGD_MECHANISM_COUNTERS(X)                                                                   \
  X(barriers, "release barriers that marked a new page up to date")                                    \
  X(barriers_before_refusal, "of them, those whose page was then refused")                             \
  X(charges_walked, "charges that no stock served: walks from the cgroup to the root")                 \
  X(commit_spills, "times a CPU's part of Committed_AS was moved to the shared count, under its lock") \
  X(css_ref_operations, "changes of a cgroup's shared count of references")                            \
  X(stat_spills, "times a CPU's pending statistic was moved to shared counters")                       \
  X(stat_shared_writes, "shared statistics counters written by that, one for each level")              \
  X(stat_flushes, "flushes of statistics that a reader ran or waited for")                             \
  X(lru_lock_acquisitions, "acquisitions of locks of LRU lists")                                       \
  X(lru_lock_contended, "of them, those that another CPU's holder kept waiting")

// Written by one thread at a time, read by any beside it.  Relaxed: a number that orders nothing.
class CpuCounter {
 public:
  void operator+=(uint64_t count) { value_.store(*this + count, std::memory_order_relaxed); }
  void operator++() { *this += 1; }
  operator uint64_t() const {  // NOLINT(google-explicit-constructor): it stands for its number
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> value_{0};
};

// What one CPU did; written by the holder of its slot.
struct CpuCounters {
#define MEMCGD_COUNTER_FIELD(field, help) CpuCounter field;
  MEMCGD_MECHANISM_COUNTERS(MEMCGD_COUNTER_FIELD)
#undef MEMCGD_COUNTER_FIELD
};

struct MechanismCounters {
#define MEMCGD_COUNTER_FIELD(field, help) uint64_t field = 0;
  MEMCGD_MECHANISM_COUNTERS(MEMCGD_COUNTER_FIELD)
#undef MEMCGD_COUNTER_FIELD

  // Of another node's or a CPU's.
  template <class Counters>
  MechanismCounters& operator+=(const Counters& other) {
#define MEMCGD_COUNTER_ADD(field, help) field += other.field;
    MEMCGD_MECHANISM_COUNTERS(MEMCGD_COUNTER_ADD)
#undef MEMCGD_COUNTER_ADD
    return *this;
  }
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MECHANISMS_H_
