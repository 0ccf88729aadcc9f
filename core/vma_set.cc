#include "core/vma_set.h"

#include "core/check.h"

namespace memcgd::core {

Vma* VmaSet::Find(PageNumber page) {
  if (last_ != nullptr && page >= last_->range.first && page < last_->range.end) return last_;
  auto it = areas_.upper_bound(page);
  if (it == areas_.begin()) return nullptr;
  --it;
  if (page >= it->second.range.end) return nullptr;
  last_ = &it->second;
  return last_;
}

void VmaSet::Insert(const Vma& vma) {
  bool is_new = areas_.emplace(vma.range.first, vma).second;
  MEMCG_CHECK(is_new);
  last_ = nullptr;
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
  Insert(upper);
}

}  // namespace memcgd::core
