// Who watches peaks: each watcher has a memory.peak and a memory.swap.peak of its own, which begin anew at
// the usage of the moment when it says so.
//
// Kernel counterpart: struct cgroup_of_peak, peak_show() and peak_write() of mm/memcontrol.c (6.12): what an
// open file keeps of its cgroup's peak, over the local_watermark of the page counter.
//
// Differs: a reset hands the cgroup's other watchers the watermark that it takes away; the kernel hands them
// the usage of that moment, and forgets what their peak was before it.  One watcher stands for two files.
//
// No part of a node's state: a fork, or a node that was loaded, has no watchers.
//
// Thread safety: at a cut.
//
// Invariant: a watcher's peak is at least the usage that it began anew at, and at most the cgroup's own peak.
#ifndef MEMCGD_CORE_PEAK_WATCHES_H_
#define MEMCGD_CORE_PEAK_WATCHES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/memcg.h"

namespace memcgd::core {

class PeakWatches {
 public:
  // Of one cgroup.
  static constexpr size_t kMost = 64;

  // A new watcher, whose peaks are the cgroup's own until it resets them; 0 where the cgroup has kMost
  // already.
  uint64_t Open(const Memcg& memcg);
  // Nothing where it is closed already.
  void Close(MemcgId memcg, uint64_t watcher);

  struct Peaks {
    int64_t memory_pages = 0;
    int64_t swap_pages = 0;
  };
  // REQUIRES: Open(memcg) gave the watcher.
  Peaks Read(const Memcg& memcg, uint64_t watcher) const;
  void Reset(Memcg& memcg, uint64_t watcher, bool memory, bool swap);

 private:
  struct Watch {
    // What the watcher saw before the last reset by any; none: it never reset its own (OFP_PEAK_UNSET).
    std::optional<int64_t> memory_pages;
    std::optional<int64_t> swap_pages;
  };
  void ResetCounter(MemcgId memcg, uint64_t watcher, PageCounter& counter,
                    std::optional<int64_t> Watch::*pages);

  std::map<std::pair<MemcgId, uint64_t>, Watch> watches_;
  uint64_t last_ = 0;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PEAK_WATCHES_H_
