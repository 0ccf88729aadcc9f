// A sparse array of 32-bit entries by page: leaves of 512 entries, in order.  0 is "no entry".
//
// Kernel counterpart: the lowest level of a page table, and a leaf of an xarray.
//
// Thread safety: under the owner's mutex.
#ifndef MEMCGD_CORE_SPARSE_ARRAY_H_
#define MEMCGD_CORE_SPARSE_ARRAY_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/container/btree_map.h"
#include "core/units.h"

namespace memcgd::core {

// kRecent: look-ups of so many leaves, by their numbers' low bits, skip the tree: a program works at a few
// places at a time, a file is mostly read through.
template <uint64_t kRecent>
class SparseArray {
 public:
  static constexpr uint32_t kLeafEntries = 512;

  // The entry, or null where its leaf does not exist.
  uint32_t* Find(PageNumber page) {
    Leaf* leaf = FindLeaf(page / kLeafEntries);
    return leaf == nullptr ? nullptr : &(*leaf)[page % kLeafEntries];
  }
  // The entry; its leaf is made where it does not exist.
  uint32_t& Ensure(PageNumber page) {
    uint64_t number = page / kLeafEntries;
    const Recent& recent = recent_[number % kRecent];
    Leaf* leaf = number == recent.number ? recent.leaf : EnsureLeaf(number);
    return (*leaf)[page % kLeafEntries];
  }
  // Calls fn(page, entry&) for each present entry, in order.
  template <typename Fn>
  void ForEach(PageRange range, Fn fn) {
    for (auto it = leaves_.lower_bound(range.first / kLeafEntries); it != leaves_.end(); ++it) {
      PageNumber base = it->first * kLeafEntries;
      if (base >= range.end) return;
      uint32_t begin = base < range.first ? static_cast<uint32_t>(range.first - base) : 0;
      uint32_t end = range.end - base < kLeafEntries ? static_cast<uint32_t>(range.end - base) : kLeafEntries;
      Leaf& leaf = *it->second;
      for (uint32_t i = begin; i < end; ++i) {
        if (leaf[i] != 0) fn(base + i, leaf[i]);
      }
    }
  }
  // Frees the leaves that lie wholly in the range; their entries are 0.
  void FreeLeaves(PageRange range) {
    uint64_t first = (range.first + kLeafEntries - 1) / kLeafEntries;
    uint64_t end = range.end / kLeafEntries;
    if (first >= end) return;
    leaves_.erase(leaves_.lower_bound(first), leaves_.lower_bound(end));
    recent_.fill({});
  }
  size_t leaves() const { return leaves_.size(); }

 private:
  using Leaf = std::array<uint32_t, kLeafEntries>;

  Leaf* EnsureLeaf(uint64_t number) {
    std::unique_ptr<Leaf>& leaf = leaves_[number];
    if (leaf == nullptr) leaf = std::make_unique<Leaf>();
    recent_[number % kRecent] = {number, leaf.get()};
    return leaf.get();
  }
  Leaf* FindLeaf(uint64_t number) {
    Recent& recent = recent_[number % kRecent];
    if (number == recent.number) return recent.leaf;
    auto found = leaves_.find(number);
    if (found == leaves_.end()) return nullptr;
    recent = {number, found->second.get()};
    return recent.leaf;
  }

  absl::btree_map<uint64_t, std::unique_ptr<Leaf>> leaves_;
  struct Recent {
    uint64_t number = ~uint64_t{0};
    Leaf* leaf = nullptr;
  };
  std::array<Recent, kRecent> recent_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_SPARSE_ARRAY_H_
