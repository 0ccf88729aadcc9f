// The areas of an address space.
//
// Kernel counterpart: struct vm_area_struct and the splits of mm/vma.c.  Areas do not overlap.  Neighbours
// are not merged: nothing that is accounted depends on it.
//
// Thread safety: under the Mm's mutex.
#ifndef MEMCGD_CORE_VMA_SET_H_
#define MEMCGD_CORE_VMA_SET_H_

#include <array>
#include <cstdint>

#include "absl/container/btree_map.h"
#include "core/event.h"
#include "core/units.h"

namespace memcgd::core {

struct Vma {
  PageRange range;
  uint32_t prot = 0;
  uint32_t flags = 0;           // MAP_*
  FileId file = FileId::kNone;  // kNone: anonymous, or a file not known yet
  PageIndex file_index = 0;     // index in the file of the area's first page
  bool has_anon_vma = false;    // an anonymous page was made in it: fork copies its entries
  bool accounted = false;       // its pages are part of Committed_AS
  bool locked = false;

  bool shared() const { return (flags & kMapTypeMask) != kMapPrivate; }
  bool anonymous() const { return (flags & kMapAnonymous) != 0; }
  PageIndex IndexOf(PageNumber page) const { return file_index + (page - range.first); }
};

class VmaSet {
 public:
  // The area that holds the page, or null.
  Vma* Find(PageNumber page) { return Look(page).vma; }
  // Whether no area has a page of the range.
  bool IsHole(PageRange range) {
    const Recent& recent = Look(range.first);
    return recent.vma == nullptr && range.end <= recent.range.end;
  }
  // The areas' order is that of their addresses.
  absl::btree_map<PageNumber, Vma>& areas() { return areas_; }
  const absl::btree_map<PageNumber, Vma>& areas() const { return areas_; }

  // No area of the set overlaps it.
  void Insert(const Vma& vma);
  // Splits the areas that straddle the range's ends, so that it is covered by whole areas and holes.
  void SplitAt(PageRange range);
  // Calls fn(Vma&) for each area within the range, after SplitAt(range).
  template <typename Fn>
  void ForEachWithin(PageRange range, Fn fn) {
    for (auto it = areas_.lower_bound(range.first); it != areas_.end() && it->first < range.end; ++it)
      fn(it->second);
  }
  // Removes the areas within the range, after SplitAt(range).
  void EraseWithin(PageRange range) {
    areas_.erase(areas_.lower_bound(range.first), areas_.lower_bound(range.end));
    Forget();
  }

 private:
  // An area, or a hole between areas, that a Find() met; by the page: a program works at a few places at a
  // time.
  struct Recent {
    PageRange range;
    Vma* vma = nullptr;
    uint64_t generation = 0;  // of the set, when it was met
  };

  const Recent& Look(PageNumber page) {
    const Recent& recent = recent_[page / 512 % recent_.size()];
    bool holds = recent.generation == generation_ && page >= recent.range.first && page < recent.range.end;
    return holds ? recent : LookSlow(page);
  }
  const Recent& LookSlow(PageNumber page);
  void Forget() { ++generation_; }
  void Split(PageNumber at);

  absl::btree_map<PageNumber, Vma> areas_;
  std::array<Recent, 16> recent_;
  uint64_t generation_ = 1;  // rises with every change of areas
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_VMA_SET_H_
