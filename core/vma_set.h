// The areas of an address space.
//
// Kernel counterpart: struct vm_area_struct, the maple tree and the splits of mm/vma.c.  Areas do not
// overlap. Neighbours are not merged: nothing that is accounted depends on it.
//
// They lie in order of address in blocks of at most kBlockAreas.  A change moves areas of one block.  Most
// processes have one, whose memory is kept: to map and unmap over and over allocates nothing.
//
// Thread safety: under the Mm's mutex.
#ifndef MEMCGD_CORE_VMA_SET_H_
#define MEMCGD_CORE_VMA_SET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/event.h"
#include "core/units.h"

namespace memcgd::core {

struct Vma {
  PageRange range;
  uint32_t prot = 0;
  uint32_t flags = 0;           // MAP_*
  FileId file = FileId::kNone;  // kNone: anonymous, or a file not known yet
  bool has_anon_vma = false;    // an anonymous page was made in it: fork copies its entries
  bool accounted = false;       // its pages are part of Committed_AS
  bool locked = false;
  bool has_recency = true;   // false after MADV_SEQUENTIAL or MADV_RANDOM: that a page was used says nothing
  PageIndex file_index = 0;  // index in the file of the area's first page

  bool shared() const { return (flags & kMapTypeMask) != kMapPrivate; }
  bool anonymous() const { return (flags & kMapAnonymous) != 0; }
  PageIndex IndexOf(PageNumber page) const { return file_index + (page - range.first); }
};

class VmaSet {
 public:
  // What Find() and the walks give is good until the next change.
  //
  // The area that holds the page, or null.
  Vma* Find(PageNumber page) { return Look(page).vma; }
  // The area or the hole between areas (vma is null) that holds the page.
  struct Place {
    PageRange range;
    Vma* vma = nullptr;
  };
  const Place& Look(PageNumber page) {
    const Recent& recent = recent_[page / 512 % recent_.size()];
    bool holds = recent.generation == generation_ && page >= recent.range.first && page < recent.range.end;
    return holds ? recent : LookSlow(page);
  }
  // Whether no area has a page of the range.
  bool IsHole(PageRange range) {
    const Place& place = Look(range.first);
    return place.vma == nullptr && range.end <= place.range.end;
  }
  size_t size() const;
  // Calls fn(const Vma&) for each area.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (const Block& block : blocks_) {
      for (const Vma& vma : block) fn(vma);
    }
  }

  // False, with nothing done, where the area is empty or overlaps another.
  [[nodiscard]] bool Insert(const Vma& vma);
  // Splits the areas that straddle the range's ends, so that it is covered by whole areas and holes.
  void SplitAt(PageRange range);
  // Calls fn(Vma&) for each area within the range, after SplitAt(range).
  template <typename Fn>
  void ForEachWithin(PageRange range, Fn fn) {
    for (Index at = IndexOf(range.first); at.block < blocks_.size(); at = {at.block + 1, 0}) {
      for (Block& block = blocks_[at.block]; at.area < block.size(); ++at.area) {
        if (block[at.area].range.first >= range.end) return;
        fn(block[at.area]);
      }
    }
  }
  // Takes the range out of the areas.  Calls fn(const Vma&) for each that goes, as SplitAt(range) has left
  // it.
  template <typename Fn>
  void Remove(PageRange range, Fn fn) {
    Index at = IndexOf(range.first);
    if (!Exists(at)) return;
    Block& block = blocks_[at.block];
    const Vma& vma = block[at.area];
    if (vma.range.first >= range.end) return;
    bool keeps = block.size() > 1 || blocks_.size() == 1;  // no block is emptied but the only one
    if (keeps && vma.range.first == range.first && vma.range.end == range.end) {  // most calls undo one mmap
      fn(vma);
      block.erase(block.begin() + static_cast<ptrdiff_t>(at.area));
      return Forget();
    }
    RemoveSlow(range, fn);
  }

 private:
  static constexpr size_t kBlockAreas = 64;
  using Block = std::vector<Vma>;
  struct Index {
    size_t block = 0;
    size_t area = 0;
  };
  // What was met, by the page: a program works at a few places at a time.
  struct Recent : Place {
    uint64_t generation = 0;  // of the set, then
  };

  template <typename Fn>
  void RemoveSlow(PageRange range, Fn& fn) {
    SplitAt(range);
    bool emptied = false, more = true;
    for (Index at = IndexOf(range.first); more && at.block < blocks_.size(); at = {at.block + 1, 0}) {
      Block& block = blocks_[at.block];
      auto begin = block.begin() + static_cast<ptrdiff_t>(at.area), end = begin;
      for (; end != block.end() && end->range.first < range.end; ++end) fn(std::as_const(*end));
      more = end == block.end();
      block.erase(begin, end);
      emptied |= block.empty();
    }
    Forget();
    if (emptied && blocks_.size() > 1)
      std::erase_if(blocks_, [](const Block& block) { return block.empty(); });
  }
  const Place& LookSlow(PageNumber page);
  // Of the first area that ends after the page, if there is one.
  Index IndexOf(PageNumber page) const;
  bool Exists(Index at) const { return at.block < blocks_.size() && at.area < blocks_[at.block].size(); }
  void Forget() { ++generation_; }
  void Split(PageNumber at);

  std::vector<Block> blocks_;  // none is empty, but for the only one
  std::array<Recent, 16> recent_;
  uint64_t generation_ = 1;  // rises with every change of areas
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_VMA_SET_H_
