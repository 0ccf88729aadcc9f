#include "core/vma_set.h"

#include <iterator>

#include "core/check.h"

namespace memcgd::core {

const VmaSet::Recent& VmaSet::LookSlow(PageNumber page) {
  auto above = areas_.upper_bound(page);
  Recent found{{0, above == areas_.end() ? ~PageNumber{0} : above->first}, nullptr, generation_};
  if (above != areas_.begin()) {
    Vma& below = std::prev(above)->second;
    if (page < below.range.end) {
      found = {below.range, &below, generation_};
    } else {
      found.range.first = below.range.end;
    }
  }
  return recent_[page / 512 % recent_.size()] = found;
}

void VmaSet::Insert(const Vma& vma) {
  bool is_new = areas_.emplace(vma.range.first, vma).second;
  MEMCG_CHECK(is_new);
  Forget();
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
  Insert(upper);  // forgets the old range
}

}  // namespace memcgd::core
