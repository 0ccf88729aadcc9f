#include "core/sparse_array.h"

namespace memcgd::core {

SparseArray::Leaf* SparseArray::EnsureLeaf(uint64_t number) {
  std::unique_ptr<Leaf>& leaf = leaves_[number];
  if (leaf == nullptr) leaf = std::make_unique<Leaf>();
  last_number_ = number;
  last_ = leaf.get();
  return last_;
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
