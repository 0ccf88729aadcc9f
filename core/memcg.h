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
#include "core/page_counter.h"
#include "core/units.h"

namespace memcgd::core {

// Lines of memory.events, in the kernel's order.
enum class MemcgEvent : uint8_t { kLow, kHigh, kMax, kOom, kOomKill, kOomGroupKill, kSockThrottled };
inline constexpr size_t kMemcgEvents = 7;
std::string_view MemcgEventName(MemcgEvent event);

struct Memcg {
  Memcg(MemcgId id, Memcg* parent, std::string path, SpinLock* node_lru_lock)
      : id(id),
        parent(parent),
        path(std::move(path)),
        memory(parent == nullptr ? nullptr : &parent->memory),
        lruvec(node_lru_lock) {}

  // Counts an event here and, hierarchically, at every ancestor.
  void CountEvent(MemcgEvent event);
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
  // Of the cgroup itself; under the process table's mutex.  Neither lets it be freed.
  uint32_t processes = 0;
  uint32_t spaces = 0;                       // address spaces charged to it
  std::map<std::string, std::string> knobs;  // those that were written

  PageCounter memory;
  // Pages charged and stocked: each holds the cgroup.  Taken and dropped in batches, with the stock.
  std::atomic<int64_t> refs{0};
  StatTotals stats;
  std::array<std::atomic<int64_t>, kMemcgEvents> events_local{};
  std::array<std::atomic<int64_t>, kMemcgEvents> events{};  // hierarchical
  Lruvec lruvec;
  // Pages on the active file lists of it and of all below it: what refaults are judged by.  Relaxed: it
  // orders nothing.
  std::atomic<int64_t> active_file{0};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MEMCG_H_
