// Making room: modelled reclaim of cgroups and of the node.
//
// Kernel counterpart: mm/vmscan.c, the classic LRU of 6.18 (try_to_free_mem_cgroup_pages(), shrink_node(),
// shrink_lruvec(), shrink_folio_list(), balance_pgdat()), mem_cgroup_calculate_protection(), lru_note_cost(),
// and reclaim_high() of mm/memcontrol.c.  docs/reclaim.md: every rule with its source.
//
// Differs: no reverse map (folio.h), so what entries' accessed bits say is kept on the folio (kFolioYoung),
// and an address space's lock is never taken.  The swap device takes no time, but for writes that wait until
// a swap-in has asked for all that it reads.  Shared memory stays: it is not swapped out.
//
// Thread safety: by the holder of the CPU's slot, who holds no file's mutex: those of the folios are tried,
// as the kernel tries their locks.
#ifndef MEMCGD_CORE_RECLAIM_H_
#define MEMCGD_CORE_RECLAIM_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "core/charge.h"
#include "core/lru.h"
#include "core/machine.h"
#include "core/page_cache.h"
#include "core/writeback.h"

namespace memcgd::core {

// Pages of 2^20: what a task over memory.high is held up for is judged by (calculate_high_delay()).
//   overage = ((usage − high) << 20) / max(high, 1)
//   delay in jiffies of 1 ms = overage² × 1000 >> 34, × pages / 64; at most 2 s
int64_t HighDelayMs(int64_t usage_pages, int64_t high_pages, int64_t charged_pages);

// effective_protection(): what of `setting` counts for a cgroup among its siblings.  All in pages.
int64_t EffectiveProtection(int64_t usage, int64_t parent_usage, int64_t setting, int64_t parent_effective,
                            int64_t siblings_protected);

template <class Forms>
class Reclaimer final : public RoomMaker {
 public:
  Reclaimer(Machine& machine, Charges<Forms>& charges, Lru<Forms>& lru, PageCache<Forms>& cache,
            Writeback<Forms>& writeback);

  int64_t TryToFree(CpuSlot& slot, Memcg& target, int64_t pages) override;
  void Balance(CpuSlot& slot) override;
  void HandleOverHigh(CpuSlot& slot) override;

  // memory.reclaim, at a cut: the pages that it got; less than asked for after 16 tries that got nothing
  // (EAGAIN).
  int64_t Proactive(CpuSlot& slot, Memcg& target, int64_t pages, std::optional<uint32_t> swappiness);
  // memory.max or memory.high was written: what is over it goes, as far as 16 tries that got nothing.
  void ShrinkTo(CpuSlot& slot, Memcg& target, int64_t pages);

 private:
  enum class Who : uint8_t { kDirect, kKswapd, kProactive };
  enum class ScanBalance : uint8_t { kEqual, kFraction, kAnon, kFile };

  static constexpr int kDefaultPriority = 12;
  static constexpr int64_t kCluster = 32;     // SWAP_CLUSTER_MAX
  static constexpr int kRetries = 16;         // MAX_RECLAIM_RETRIES
  static constexpr int kShadowPriority = 2;   // (2 × nodes >> priority) + nodes / 2 is all of them
  static constexpr int64_t kShadowNode = 64;  // pages that a node of a file's tree tells of
  static constexpr uint32_t kAnonOnly = 201;  // SWAPPINESS_ANON_ONLY

  // struct scan_control
  struct Scan {
    Scan(Memcg& target, int64_t pages, Who who)
        : target(target), wanted(std::max(pages, kCluster)), who(who) {}

    Memcg& target;
    const int64_t wanted;
    const Who who;
    std::optional<uint32_t> swappiness;  // in place of the cgroups' own
    int priority = kDefaultPriority;
    int64_t reclaimed = 0;
    int64_t scanned = 0;
    bool full_walk = false;
    bool force_deactivate = false;
    bool skipped_deactivate = false;
    bool low_reclaim = false;
    bool low_skipped = false;
    std::array<bool, 2> may_deactivate{};  // anonymous pages, files
    bool cache_trim = false;
    bool file_is_tiny = false;
    std::array<int64_t, 2> cost{};
    int64_t dirty = 0;      // folios met in this pass
    int64_t congested = 0;  // of them, those whose writing reclaim has met before
    bool of_cgroup() const { return target.parent != nullptr; }
  };
  using Counts = std::array<int64_t, 4>;  // by evictable list

  // At a cut.
  void DrainAllBatches();
  int64_t DoTryToFree(CpuSlot& slot, Scan& scan);
  void ShrinkNode(CpuSlot& slot, Scan& scan);
  void PrepareScan(const CpuSlot& slot, Scan& scan);
  // The next of the target's subtree, in preorder; partial walks share one position a target.
  Memcg* Next(Memcg& target, Memcg* at) const;
  Memcg* NextPartial(Memcg& target, bool first) const;
  void ShrinkShadows(const CpuSlot& slot, Memcg& memcg);
  void CalculateProtection(const Memcg& target, Memcg& memcg) const;
  void ShrinkLruvec(CpuSlot& slot, Memcg& memcg, Scan& scan);
  ScanBalance BalanceOf(const Memcg& memcg, const Scan& scan, int64_t swappiness) const;
  Counts ScanCounts(Memcg& memcg, Scan& scan) const;
  int64_t ShrinkList(CpuSlot& slot, Memcg& memcg, LruList list, int64_t pages, Scan& scan);
  void ShrinkActive(CpuSlot& slot, Memcg& memcg, LruList list, int64_t pages);
  int64_t ShrinkInactive(CpuSlot& slot, Memcg& memcg, LruList list, int64_t pages, Scan& scan);
  bool InactiveIsLow(const Memcg& memcg, bool file) const;

  enum class Verdict : uint8_t { kKeep, kActivate, kReclaimed };
  // shrink_folio_list() for one folio, isolated.
  Verdict ShrinkFolio(CpuSlot& slot, FolioId head, Folio& folio, Scan& scan, int64_t* unqueued_dirty,
                      int64_t* pageouts);
  // Takes what the entries' accessed bits said: how many of them, up to 2.
  static uint32_t TakeReferences(Folio& folio);
  bool IsMapped(FolioId head, const Folio& folio) const;
  bool IsBeingRead(const CpuSlot& slot, FolioId head, const Folio& folio);
  Verdict SwapOut(CpuSlot& slot, FolioId head, Folio& folio, const Memcg& target, int64_t* pageouts);
  // The page, whose content is in swap, becomes a tombstone that says where.  Under its folio lock.
  static void LeaveSwapCache(Folio& folio, const Memcg& target);
  Verdict FreeLazily(CpuSlot& slot, FolioId head, Folio& folio);
  Verdict Evict(CpuSlot& slot, FolioId head, Folio& folio, const Memcg& target);
  static Stat ScanStat(Who who) {
    return who == Who::kDirect   ? Stat::kPgscanDirect
           : who == Who::kKswapd ? Stat::kPgscanKswapd
                                 : Stat::kPgscanProactive;
  }
  static Stat StealStat(Who who) {
    return who == Who::kDirect   ? Stat::kPgstealDirect
           : who == Who::kKswapd ? Stat::kPgstealKswapd
                                 : Stat::kPgstealProactive;
  }
  // lruvec_page_state(), as of the last flush
  static int64_t FlushedPages(const Memcg& memcg, LruList list) {
    return memcg.flushed.lru_pages[static_cast<size_t>(list)].load(std::memory_order_relaxed);
  }
  int64_t NodePages(LruList list) const {
    const Memcg& root = machine_.tree.root();
    return std::max<int64_t>(0, root.lru_pages[static_cast<size_t>(list)].load(std::memory_order_relaxed));
  }

  Machine& machine_;
  Charges<Forms>& charges_;
  Lru<Forms>& lru_;
  PageCache<Forms>& cache_;
  Writeback<Forms>& writeback_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_RECLAIM_H_
