// A sparse array of 32-bit entries by page: leaves of 512 entries, kFanout of them in a directory,
// directories in order.  0 is "no entry".  A leaf may bear a label.
//
// Kernel counterpart: the two lowest levels of a page table, and of an xarray.  What is above them is a
// B-tree: few directories exist, and far apart.
//
// Thread safety: under the owner's mutex.
#ifndef MEMCGD_CORE_SPARSE_ARRAY_H_
#define MEMCGD_CORE_SPARSE_ARRAY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <variant>

#include "absl/container/btree_map.h"
#include "core/units.h"

namespace memcgd::core {

// kRecent, a power of two: look-ups of so many directories skip the B-tree, by their numbers' low bits; of
// more where there are more, so that a large area's do wherever they fall.
template <uint64_t kFanout, uint64_t kRecent, typename Label = std::monostate>
class SparseArray {
 public:
  static constexpr uint32_t kLeafEntries = 512;

  SparseArray() = default;
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray& other) {
    if (this == &other) return *this;
    directories_.clear();
    std::fill_n(recent_, recents_, Recent{});
    leaves_ = other.leaves_;
    for (const auto& [number, from] : other.directories_) {
      Directory& to = EnsureDirectory(number);
      for (size_t slot = 0; slot < kFanout; ++slot) {
        if ((*from)[slot] != nullptr) to[slot] = std::make_unique<Leaf>(*(*from)[slot]);
      }
    }
    return *this;
  }

  // The entry, or null where its leaf does not exist.
  uint32_t* Find(PageNumber page) {
    uint32_t* leaf = FindLeaf(page);
    return leaf == nullptr ? nullptr : &leaf[page % kLeafEntries];
  }
  // The kLeafEntries entries of the page's leaf, good until FreeLeaves() takes it; null where it does not
  // exist.
  uint32_t* FindLeaf(PageNumber page) {
    Directory* directory = FindDirectory(page / kDirectoryEntries);
    if (directory == nullptr) return nullptr;
    Leaf* leaf = (*directory)[page / kLeafEntries % kFanout].get();
    return leaf == nullptr ? nullptr : leaf->entries.data();
  }
  // The entry; its leaf is made, with that label, where it does not exist.
  uint32_t& Ensure(PageNumber page, Label label = {}) {
    uint64_t number = page / kDirectoryEntries;
    const Recent& recent = RecentOf(number);
    Directory& directory = number == recent.number ? *recent.directory : EnsureDirectory(number);
    std::unique_ptr<Leaf>& leaf = directory[page / kLeafEntries % kFanout];
    if (leaf == nullptr) {
      leaf = std::make_unique<Leaf>();
      leaf->label = label;
      ++leaves_;
    }
    return leaf->entries[page % kLeafEntries];
  }
  // Brings the entry's cache line near, where its leaf is found without the B-tree.
  void Prefetch(PageNumber page) const {
    const Recent& recent = RecentOf(page / kDirectoryEntries);
    if (recent.number != page / kDirectoryEntries) return;
    const Leaf* leaf = (*recent.directory)[page / kLeafEntries % kFanout].get();
    if (leaf != nullptr) __builtin_prefetch(&leaf->entries[page % kLeafEntries], 1);
  }
  // Calls fn(page, entry&) for each present entry, in order.
  template <typename Fn>
  void ForEach(PageRange range, Fn fn) {
    WalkLeaves(range, [&](PageNumber base, Leaf& leaf, uint32_t begin, uint32_t end) {
      WalkLeaf(base, leaf.entries, begin, end, fn);
    });
  }
  // The same; where there is so much that it is not in the cache, it calls soon(entry) some entries before.
  template <typename Fn, typename Soon>
  void ForEach(PageRange range, Fn fn, Soon soon) {
    bool many = leaves_ > kManyLeaves;
    WalkLeaves(range, [&](PageNumber base, Leaf& leaf, uint32_t begin, uint32_t end) {
      Entries& entries = leaf.entries;
      if (!many) return WalkLeaf(base, entries, begin, end, fn);
      for (uint32_t i = begin; i < end; ++i) {
        if (i + kAhead < end && entries[i + kAhead] != 0) soon(entries[i + kAhead]);
        if (entries[i] != 0) fn(base + i, entries[i]);
      }
    });
  }
  // Calls fn(page of its first entry, label) for each leaf that has a page of the range, in order.
  template <typename Fn>
  void ForEachLeaf(PageRange range, Fn fn) {
    WalkLeaves(range, [&](PageNumber base, Leaf& leaf, uint32_t, uint32_t) { fn(base, leaf.label); });
  }
  // Frees the leaves that lie wholly in the range, and directories that do; their entries are 0.
  void FreeLeaves(PageRange range) {
    FreeLeaves(range, [](PageNumber, Label) {});
  }
  // The same; calls gone(page of its first entry, label) for each.
  template <typename Gone>
  void FreeLeaves(PageRange range, Gone gone) {
    for (auto it = directories_.lower_bound(range.first / kDirectoryEntries); it != directories_.end();) {
      PageNumber base = it->first * kDirectoryEntries;
      if (base >= range.end) break;
      bool whole = base >= range.first && range.end - base >= kDirectoryEntries;
      uint64_t slot = base < range.first ? (range.first - base + kLeafEntries - 1) / kLeafEntries : 0;
      for (; slot < kFanout && range.end - base >= (slot + 1) * kLeafEntries; ++slot) {
        std::unique_ptr<Leaf>& leaf = (*it->second)[slot];
        if (leaf == nullptr) continue;
        gone(base + slot * kLeafEntries, leaf->label);
        leaf = nullptr;
        --leaves_;
      }
      if (!whole) {
        ++it;
        continue;
      }
      if (Recent& recent = RecentOf(it->first); recent.number == it->first) recent = {};
      it = directories_.erase(it);
    }
  }
  // Whether the leaf that holds the page exists and has no entry.
  bool IsEmptyLeaf(PageNumber page) {
    const uint32_t* leaf = FindLeaf(page);
    if (leaf == nullptr) return false;
    for (uint32_t i = 0; i < kLeafEntries; i += 8) {
      if (!AllZero(&leaf[i])) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t kDirectoryEntries = kFanout * kLeafEntries;
  using Entries = std::array<uint32_t, kLeafEntries>;
  struct Leaf {
    Entries entries{};
    [[no_unique_address]] Label label{};
  };
  using Directory = std::array<std::unique_ptr<Leaf>, kFanout>;
  struct Recent {
    uint64_t number = ~uint64_t{0};
    Directory* directory = nullptr;
  };

  static constexpr size_t kManyLeaves = 64;  // 32,768 entries: what they name is more than a core's own cache
  static constexpr uint32_t kAhead = 8;

  // Calls fn(page of the leaf's first entry, leaf, first entry, end) for each leaf.
  template <typename Fn>
  void WalkLeaves(PageRange range, Fn fn) {
    for (auto it = directories_.lower_bound(range.first / kDirectoryEntries); it != directories_.end();
         ++it) {
      PageNumber first = it->first * kDirectoryEntries;
      if (first >= range.end) return;
      uint64_t slot = first < range.first ? (range.first - first) / kLeafEntries : 0;
      for (PageNumber base = first + slot * kLeafEntries; slot < kFanout && base < range.end;
           ++slot, base += kLeafEntries) {
        Leaf* leaf = (*it->second)[slot].get();
        if (leaf == nullptr) continue;
        uint32_t begin = base < range.first ? static_cast<uint32_t>(range.first - base) : 0;
        uint32_t end =
            range.end - base < kLeafEntries ? static_cast<uint32_t>(range.end - base) : kLeafEntries;
        fn(base, *leaf, begin, end);
      }
    }
  }
  template <typename Fn>
  static void WalkLeaf(PageNumber base, Entries& leaf, uint32_t begin, uint32_t end, Fn& fn) {
    uint32_t i = begin;
    while (i < end) {
      if (i % 8 == 0 && i + 8 <= end && AllZero(&leaf[i])) {  // most of a small process's leaf
        i += 8;
        continue;
      }
      if (leaf[i] != 0) fn(base + i, leaf[i]);
      ++i;
    }
  }
  static bool AllZero(const uint32_t* entries) {
    uint64_t words[4];
    std::memcpy(words, entries, sizeof(words));
    return (words[0] | words[1] | words[2] | words[3]) == 0;
  }

  Directory& EnsureDirectory(uint64_t number) {
    std::unique_ptr<Directory>& directory = directories_[number];
    if (directory == nullptr) {
      directory = std::make_unique<Directory>();
      if (2 * directories_.size() > recents_) {
        recents_ *= 4;
        many_recent_ = std::make_unique<Recent[]>(recents_);
        recent_ = many_recent_.get();
      }
    }
    RecentOf(number) = {number, directory.get()};
    return *directory;
  }
  Directory* FindDirectory(uint64_t number) {
    Recent& recent = RecentOf(number);
    if (number == recent.number) return recent.directory;
    auto found = directories_.find(number);
    if (found == directories_.end()) return nullptr;
    recent = {number, found->second.get()};
    return recent.directory;
  }

  Recent& RecentOf(uint64_t number) const { return recent_[number & (recents_ - 1)]; }

  absl::btree_map<uint64_t, std::unique_ptr<Directory>> directories_;
  size_t leaves_ = 0;
  std::array<Recent, kRecent> few_recent_;
  std::unique_ptr<Recent[]> many_recent_;  // where few are not enough
  Recent* recent_ = few_recent_.data();
  uint64_t recents_ = kRecent;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_SPARSE_ARRAY_H_
