// One cgroup: counters, statistics, lists, knobs, references.
//
// Kernel counterpart: struct mem_cgroup (include/linux/memcontrol.h).  A cgroup that was removed is *dying*:
// it is offline, but its pages stay charged to it; it is freed when the last of its references goes.
//
// Thread safety: name, place and knobs change at a cut only and may be read by any batch; counters and lists
// as their own types say.
#ifndef MEMCGD_CORE_MEMCG_H_
#define MEMCGD_CORE_MEMCG_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/lruvec.h"
#include "core/memcg_stats.h"
#include "core/miss_ratio.h"
#include "core/page_counter.h"
#include "core/units.h"

namespace memcgd::core {

// Lines of memory.events, in the kernel's order.
enum class MemcgEvent : uint8_t { kLow, kHigh, kMax, kOom, kOomKill, kOomGroupKill, kSockThrottled };
inline constexpr size_t kMemcgEvents = 7;
std::string_view MemcgEventName(MemcgEvent event);

// Lines of memory.swap.events, in the kernel's order.
enum class SwapEvent : uint8_t { kHigh, kMax, kFail };
inline constexpr size_t kSwapEvents = 3;
std::string_view SwapEventName(SwapEvent event);

// What the knobs ask of reclaim, pages.  Changed at a cut.
struct ReclaimKnobs {
  int64_t min = 0;
  int64_t low = 0;
  int64_t high = PageCounter::kMax;
  int64_t swap_high = PageCounter::kMax;
  uint32_t swappiness = 60;
  bool oom_group = false;
};

struct Memcg {
  Memcg(MemcgId id, Memcg* parent, std::string path, SpinLock* node_lru_lock)
      : id(id),
        parent(parent),
        path(std::move(path)),
        memory(parent == nullptr ? nullptr : &parent->memory),
        swap(parent == nullptr ? nullptr : &parent->swap),
        lruvec(node_lru_lock) {}

  // Counts an event here and, hierarchically, at every ancestor.
  void CountEvent(MemcgEvent event);
  void CountEvent(SwapEvent event);
  // lru_note_cost(): what reclaim of anonymous pages or files cost, in pages, here and at every ancestor.
  void AddCost(bool file, int64_t cost);
  // mem_cgroup_get_nr_swap_pages() > 0
  bool HasSwap() const;
  // Adds to a statistic of its own and, hierarchically, of itself and every ancestor.  Returns how many
  // shared counters that wrote.
  uint32_t AddStat(size_t stat, int64_t amount);

  // Constant.
  const MemcgId id;
  Memcg* const parent;
  const std::string path;

  // Changed at a cut.
  bool online = true;
  std::atomic<uint32_t> descendants{0};  // of any depth, until they are freed
  uint32_t children = 0;                 // online ones
  uint32_t dying_children = 0;           // offline ones that are not freed yet
  std::vector<Memcg*> subgroups;         // both, in the order in which they were made
  // Of the cgroup itself; under the process table's mutex.  Neither lets it be freed.
  uint32_t processes = 0;
  uint32_t spaces = 0;                       // address spaces charged to it
  std::map<std::string, std::string> knobs;  // those that were written
  MissRatio* file_reads = nullptr;           // told of reads of it and all below it; no part of the state

  ReclaimKnobs reclaim;

  PageCounter memory;
  PageCounter swap;  // pages of its own in swap
  // Pages charged and stocked: each holds the cgroup.  Taken and dropped in batches, with the stock.
  std::atomic<int64_t> refs{0};
  StatTotals stats;
  std::array<std::atomic<int64_t>, kMemcgEvents> events_local{};
  std::array<std::atomic<int64_t>, kMemcgEvents> events{};  // hierarchical
  std::array<std::atomic<int64_t>, kSwapEvents> swap_events_local{};
  std::array<std::atomic<int64_t>, kSwapEvents> swap_events{};
  // Microseconds for which memory.high held up tasks of it and of all below it.
  std::atomic<int64_t> high_delay_us{0};
  Lruvec lruvec;
  // Pages on the lists of it and of all below it: what refaults and reclaim are judged by.  Where nothing is
  // reclaimed by the model, of active files only.  Relaxed: they order nothing.
  std::array<std::atomic<int64_t>, kLruLists> lru_pages{};

  // Of modelled reclaim (reclaim.h), all relaxed: hints that order nothing.
  std::atomic<int64_t> emin{0};  // effective protection, pages
  std::atomic<int64_t> elow{0};
  std::array<std::atomic<int64_t>, 2> cost{};         // of reclaiming anonymous pages and files, decaying
  std::array<std::atomic<int64_t>, 2> activations{};  // refaults that were activated, of it and all below it
  std::array<std::atomic<int64_t>, 2> refaults{};     // as flushed, at the last reclaim of it
  // What of it reclaim and refaults see: it, and all below it, at the last periodic flush
  // (lruvec_page_state() reads what was flushed; MemcgTree::FlushPeriodically()).
  struct Flushed {
    std::array<std::atomic<int64_t>, kLruLists> lru_pages{};
    std::array<std::atomic<int64_t>, 2> activations{};
  } flushed;
  std::atomic<int64_t> shadows_shrunk_age{0};          // the lruvec's age when its shadows were last shrunk
  std::atomic<MemcgId> walk_position{MemcgId::kNone};  // where partial walks of its subtree go on
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MEMCG_H_
