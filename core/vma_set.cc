#include "core/vma_set.h"

#include <algorithm>

#include "core/check.h"

namespace memcgd::core {

const VmaSet::Place& VmaSet::LookSlow(PageNumber page) {
  Index at = IndexOf(page);
  Recent found{{{0, ~PageNumber{0}}, nullptr}, generation_};
  if (at.area > 0) {
    found.range.first = blocks_[at.block][at.area - 1].range.end;
  } else if (at.block > 0) {
    found.range.first = blocks_[at.block - 1].back().range.end;
  }
  if (Exists(at)) {
    Vma& vma = blocks_[at.block][at.area];
    if (vma.range.first <= page) {
      found = {{vma.range, &vma}, generation_};
    } else {
      found.range.end = vma.range.first;
    }
  }
  return recent_[page / 512 % recent_.size()] = found;
}

size_t VmaSet::size() const {
  size_t sum = 0;
  for (const Block& block : blocks_) sum += block.size();
  return sum;
}

VmaSet::Index VmaSet::IndexOf(PageNumber page) const {
  if (blocks_.empty()) return {};
  size_t number = 0;
  if (blocks_.size() > 1) {
    auto above = std::upper_bound(
        blocks_.begin() + 1, blocks_.end(), page,
        [](PageNumber page, const Block& block) { return page < block.front().range.first; });
    number = static_cast<size_t>(above - blocks_.begin()) - 1;
  }
  const Block& block = blocks_[number];
  auto found = std::partition_point(block.begin(), block.end(),
                                    [page](const Vma& vma) { return vma.range.end <= page; });
  if (found == block.end() && number + 1 < blocks_.size()) return {number + 1, 0};
  return {number, static_cast<size_t>(found - block.begin())};
}

bool VmaSet::Insert(const Vma& vma) {
  Index at = IndexOf(vma.range.first);
  bool overlaps = Exists(at) && blocks_[at.block][at.area].range.first < vma.range.end;
  if (vma.range.empty() || overlaps) return false;
  Forget();
  if (blocks_.empty()) blocks_.emplace_back();
  if (at.area == 0 && at.block > 0) at = {at.block - 1, blocks_[at.block - 1].size()};
  if (Block& full = blocks_[at.block]; full.size() == kBlockAreas) {
    Block upper(full.begin() + kBlockAreas / 2, full.end());
    full.resize(kBlockAreas / 2);
    blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(at.block) + 1, std::move(upper));
    if (at.area > kBlockAreas / 2) at = {at.block + 1, at.area - kBlockAreas / 2};
  }
  Block& block = blocks_[at.block];
  block.insert(block.begin() + static_cast<ptrdiff_t>(at.area), vma);
  return true;
}

void VmaSet::SplitAt(PageRange range) {
  Split(range.first);
  Split(range.end);
}

void VmaSet::Split(PageNumber at) {
  Vma* vma = Find(at);
  if (vma == nullptr || vma->range.first == at) return;
  Vma upper = *vma;
  upper.range.first = at;
  upper.file_index = vma->IndexOf(at);
  vma->range.end = at;
  bool inserted = Insert(upper);  // forgets the old range
  MEMCG_CHECK(inserted);
}

}  // namespace memcgd::core
