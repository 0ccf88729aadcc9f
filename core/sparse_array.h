// A sparse array of 32-bit entries by page: leaves of 512 entries, kFanout of them in a directory,
// directories in order.  0 is "no entry".
//
// Kernel counterpart: the two lowest levels of a page table, and of an xarray.  What is above them is a
// B-tree: few directories exist, and far apart.
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

// kRecent: look-ups of so many directories, by their numbers' low bits, skip the B-tree.
template <uint64_t kFanout, uint64_t kRecent>
class SparseArray {
 public:
  static constexpr uint32_t kLeafEntries = 512;

  // The entry, or null where its leaf does not exist.
  uint32_t* Find(PageNumber page) {
    Directory* directory = FindDirectory(page / kDirectoryEntries);
    if (directory == nullptr) return nullptr;
    Leaf* leaf = (*directory)[page / kLeafEntries % kFanout].get();
    return leaf == nullptr ? nullptr : &(*leaf)[page % kLeafEntries];
  }
  // The entry; its leaf is made where it does not exist.
  uint32_t& Ensure(PageNumber page) {
    uint64_t number = page / kDirectoryEntries;
    const Recent& recent = recent_[number % kRecent];
    Directory& directory = number == recent.number ? *recent.directory : EnsureDirectory(number);
    std::unique_ptr<Leaf>& leaf = directory[page / kLeafEntries % kFanout];
    if (leaf == nullptr) leaf = std::make_unique<Leaf>();
    return (*leaf)[page % kLeafEntries];
  }
  // Brings the entry's cache line near, where its leaf is found without the B-tree.
  void Prefetch(PageNumber page) const {
    const Recent& recent = recent_[page / kDirectoryEntries % kRecent];
    if (recent.number != page / kDirectoryEntries) return;
    const Leaf* leaf = (*recent.directory)[page / kLeafEntries % kFanout].get();
    if (leaf != nullptr) __builtin_prefetch(&(*leaf)[page % kLeafEntries], 1);
  }
  // Calls fn(page, entry&) for each present entry, in order.
  template <typename Fn>
  void ForEach(PageRange range, Fn fn) {
    ForEach(range, fn, [](uint32_t) {});
  }
  // The same; calls soon(entry) some entries before.
  template <typename Fn, typename Soon>
  void ForEach(PageRange range, Fn fn, Soon soon) {
    constexpr uint32_t kAhead = 8;
    for (auto it = directories_.lower_bound(range.first / kDirectoryEntries); it != directories_.end();
         ++it) {
      for (uint64_t slot = 0; slot < kFanout; ++slot) {
        PageNumber base = it->first * kDirectoryEntries + slot * kLeafEntries;
        if (base >= range.end) return;
        if (base + kLeafEntries <= range.first || (*it->second)[slot] == nullptr) continue;
        Leaf& leaf = *(*it->second)[slot];
        uint32_t begin = base < range.first ? static_cast<uint32_t>(range.first - base) : 0;
        uint32_t end =
            range.end - base < kLeafEntries ? static_cast<uint32_t>(range.end - base) : kLeafEntries;
        for (uint32_t i = begin; i < end; ++i) {
          if (i + kAhead < end && leaf[i + kAhead] != 0) soon(leaf[i + kAhead]);
          if (leaf[i] != 0) fn(base + i, leaf[i]);
        }
      }
    }
  }
  // Frees the leaves that lie wholly in the range, and directories that do; their entries are 0.
  void FreeLeaves(PageRange range) {
    for (auto it = directories_.lower_bound(range.first / kDirectoryEntries); it != directories_.end();) {
      PageNumber base = it->first * kDirectoryEntries;
      if (base >= range.end) break;
      if (base >= range.first && range.end - base >= kDirectoryEntries) {
        it = directories_.erase(it);
        continue;
      }
      for (uint64_t slot = 0; slot < kFanout; ++slot) {
        PageNumber first = base + slot * kLeafEntries;
        if (first >= range.first && first + kLeafEntries <= range.end) (*it->second)[slot] = nullptr;
      }
      ++it;
    }
    recent_.fill({});
  }

 private:
  static constexpr uint64_t kDirectoryEntries = kFanout * kLeafEntries;
  using Leaf = std::array<uint32_t, kLeafEntries>;
  using Directory = std::array<std::unique_ptr<Leaf>, kFanout>;

  Directory& EnsureDirectory(uint64_t number) {
    std::unique_ptr<Directory>& directory = directories_[number];
    if (directory == nullptr) directory = std::make_unique<Directory>();
    recent_[number % kRecent] = {number, directory.get()};
    return *directory;
  }
  Directory* FindDirectory(uint64_t number) {
    Recent& recent = recent_[number % kRecent];
    if (number == recent.number) return recent.directory;
    auto found = directories_.find(number);
    if (found == directories_.end()) return nullptr;
    recent = {number, found->second.get()};
    return recent.directory;
  }

  absl::btree_map<uint64_t, std::unique_ptr<Directory>> directories_;
  struct Recent {
    uint64_t number = ~uint64_t{0};
    Directory* directory = nullptr;
  };
  std::array<Recent, kRecent> recent_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_SPARSE_ARRAY_H_
