#include "core/sparse_array.h"

namespace memcgd::core {

uint32_t& SparseArray::Ensure(PageNumber page) {
  uint64_t number = page / kLeafEntries;
  Leaf* leaf = FindLeaf(number);
  if (leaf == nullptr) {
    std::unique_ptr<Leaf>& made = leaves_[number];
    made = std::make_unique<Leaf>();
    leaf = made.get();
    last_number_ = number;
    last_ = leaf;
  }
  return (*leaf)[page % kLeafEntries];
}

void SparseArray::FreeLeaves(PageRange range) {
  uint64_t first = (range.first + kLeafEntries - 1) / kLeafEntries;
  uint64_t end = range.end / kLeafEntries;
  if (first >= end) return;
  leaves_.erase(leaves_.lower_bound(first), leaves_.lower_bound(end));
  last_number_ = ~uint64_t{0};
  last_ = nullptr;
}

}  // namespace memcgd::core
