// Which page is where in swap, and what of it is read ahead.
//
// Kernel counterpart: mm/swapfile.c (cluster_alloc_swap_entry() for one page of a rotating device: one
// cluster is filled after the other, first those that are empty, then those with holes), the owner of each
// slot (swap_cgroup), and swapin_nr_pages() of mm/swap_state.c.
//
// Differs: one device, of the node's swap; no fragment lists, as only single pages are swapped.
//
// Thread safety: all of it.
#ifndef MEMCGD_CORE_SWAP_SPACE_H_
#define MEMCGD_CORE_SWAP_SPACE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "core/folio.h"
#include "core/mutex.h"
#include "core/units.h"

namespace memcgd::core {

class SwapSpace {
 public:
  static constexpr uint32_t kNoSlot = 0;  // the device's header lies there

  struct Entry {
    FolioId folio = FolioId::kNone;
    MemcgId owner = MemcgId::kNone;
  };

  explicit SwapSpace(uint64_t pages)
      : slots_(pages == 0 ? 0 : std::min<uint64_t>(pages, FolioArena::kMaxFolios) + 1) {}

  // kNoSlot where it is full.
  uint32_t Allocate(FolioId folio, MemcgId owner);
  // Says whose it was.  From here on nobody finds the folio by it.
  MemcgId Free(uint32_t slot);
  Entry Get(uint32_t slot);
  // swap_cluster_readahead(): the slots to be read with this one, itself among them.
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  Range ReadAhead(uint32_t slot);
  // A page that was read ahead was wanted.
  void CountHit();
  // The page in the slot, where it is in swap and not in the swap cache, with a reference; else none.
  Entry GetSwapped(const FolioArena& arena, uint32_t slot);

  // One past the last slot that Get() knows.  At a cut.
  uint64_t end() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return clusters_.size() * uint64_t{kClusterSlots}; }
  // Each slot in use with its page and owner, and what the next allocation and read-ahead go by; at a cut.
  template <typename Archive>
  void Walk(Archive& a) ABSL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  static constexpr uint32_t kClusterSlots = 512;  // SWAPFILE_CLUSTER
  static constexpr uint32_t kMostAhead = 8;       // 1 << page_cluster
  static constexpr uint32_t kNoCluster = UINT32_MAX;

  enum class On : uint8_t { kNone, kFree, kNonfull };  // which list; kNone: it is full, or being filled
  struct Cluster {
    std::array<Entry, kClusterSlots> entries;
    uint32_t used = 0;
    On on = On::kNone;
    std::list<uint32_t>::iterator place;
  };

  Entry& At(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return clusters_[slot / kClusterSlots]->entries[slot % kClusterSlots];
  }
  // The first slot from `next_` on that is free, in the cluster being filled; kNoSlot where there is none.
  uint32_t Scan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartCluster() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::list<uint32_t>& ListOf(On on) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return on == On::kFree ? free_ : nonfull_;
  }
  void PutOn(On on, uint32_t cluster) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeOff(uint32_t cluster) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t slots_;
  Mutex mutex_;
  // Those used so far; the next is empty, before all that are freed again.
  std::vector<std::unique_ptr<Cluster>> clusters_ ABSL_GUARDED_BY(mutex_);
  std::list<uint32_t> free_ ABSL_GUARDED_BY(mutex_);  // in the order in which they are to be filled
  std::list<uint32_t> nonfull_ ABSL_GUARDED_BY(mutex_);
  uint32_t current_ ABSL_GUARDED_BY(mutex_) = kNoCluster;  // being filled
  uint32_t next_ ABSL_GUARDED_BY(mutex_) = 0;              // in it
  uint32_t hits_ ABSL_GUARDED_BY(mutex_) = 0;              // swapin_readahead_hits, past the 4 of a boot
  uint32_t last_slot_ ABSL_GUARDED_BY(mutex_) = 0;         // prev_offset
  uint32_t last_pages_ ABSL_GUARDED_BY(mutex_) = 0;        // last_readahead_pages
};

template <typename Archive>
void SwapSpace::Walk(Archive& a) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  uint64_t clusters = a.Size(clusters_.size());
  if constexpr (Archive::kReads) {
    if (clusters > (slots_ + kClusterSlots - 1) / kClusterSlots) return a.Fail();
    for (uint64_t i = 0; i < clusters; ++i) clusters_.push_back(std::make_unique<Cluster>());
  }
  for (std::unique_ptr<Cluster>& cluster : clusters_) {
    a(cluster->used);
    uint32_t at = 0;
    for (uint32_t i = 0; i < cluster->used; ++i, ++at) {
      if constexpr (!Archive::kReads) {
        while (cluster->entries[at].folio == FolioId::kNone) ++at;
      }
      a(at);
      if constexpr (Archive::kReads) {
        if (at >= kClusterSlots) return a.Fail();
      }
      a(cluster->entries[at].folio);
      a(cluster->entries[at].owner);
    }
  }
  for (On on : {On::kFree, On::kNonfull}) {
    uint64_t size = a.Size(ListOf(on).size());
    if constexpr (Archive::kReads) {
      for (uint64_t i = 0; i < size && a.ok(); ++i) {
        uint32_t cluster = 0;
        a(cluster);
        if (cluster >= clusters || clusters_[cluster]->on != On::kNone) return a.Fail();
        PutOn(on, cluster);
      }
    } else {
      for (uint32_t cluster : ListOf(on)) a(cluster);
    }
  }
  a(current_);
  a(next_);
  a(hits_);
  a(last_slot_);
  a(last_pages_);
  if constexpr (Archive::kReads) {
    if (current_ != kNoCluster && current_ >= clusters) a.Fail();
    if (next_ > kClusterSlots) a.Fail();
  }
}

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_SWAP_SPACE_H_
