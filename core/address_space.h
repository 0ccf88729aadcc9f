// What system calls do to an address space.
//
// Kernel counterpart: mm/mmap.c, mm/vma.c, mm/mremap.c, mm/mprotect.c, mm/madvise.c, mm/mlock.c, dup_mmap()
// and exit_mmap().
//
// Thread safety: by the holder of the CPU's slot and of the address space's mutex.
#ifndef MEMCGD_CORE_ADDRESS_SPACE_H_
#define MEMCGD_CORE_ADDRESS_SPACE_H_

#include "core/accounts.h"
#include "core/fault.h"

namespace memcgd::core {

template <class Forms>
class AddressSpaces {
 public:
  AddressSpaces(Accounts<Forms>& machine, Faults<Forms>& faults) : m_(machine), faults_(faults) {}

  // `file` is the node's file, or kNone.  kEnomem: the overcommit policy refuses; nothing was mapped.
  Outcome Mmap(CpuSlot& slot, Mm& mm, const wide::Mmap& map, FileId file)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Munmap(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Brk(CpuSlot& slot, Mm& mm, uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Mremap(CpuSlot& slot, Mm& mm, const wide::Mremap& remap) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Mprotect(CpuSlot& slot, Mm& mm, PageRange range, uint32_t prot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Madvise(CpuSlot& slot, Mm& mm, PageRange range, uint32_t advice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Mlock(CpuSlot& slot, Mm& mm, PageRange range, bool on_fault)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  Outcome Munlock(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

  // dup_mmap(): `child` is new and reachable by nobody else.  kEnomem: refused; the child is empty.
  Outcome Fork(CpuSlot& slot, Mm& parent, Mm& child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parent.mutex);
  // exit_mmap(): all of it is unmapped.
  void Teardown(CpuSlot& slot, Mm& mm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

  // Baselines.
  void AddPresent(CpuSlot& slot, Mm& mm, PageRange range, bool anonymous)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

  PageRange RangeOf(uint64_t address, uint64_t length) const {
    uint64_t mask = m_.config.page_size - 1;
    return {address >> m_.page_shift, (address + length + mask) >> m_.page_shift};
  }

 private:
  // The areas of the range go, and what they have mapped.
  void Unmap(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // Page-table entries go; areas stay.
  void Zap(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // False: refused.
  bool MakeTablesFor(CpuSlot& slot, Mm& mm, PageRange from, PageNumber to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  void MoveEntries(CpuSlot& slot, Mm& mm, PageRange from, PageNumber to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  bool Accountable(const Vma& vma) const;
  bool Commit(CpuSlot& slot, Mm& mm, int64_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  void Uncommit(CpuSlot& slot, Mm& mm, int64_t pages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // An object of shared anonymous memory gains or loses pages of areas; with the last it ends.
  void HoldObject(CpuSlot& slot, FileId file, int64_t pages);
  void InsertArea(CpuSlot& slot, Mm& mm, const Vma& vma) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

  // Reclaim took what the entries' accessed bits said, where it has looked since they were set.
  bool IsYoung(FolioId page) const {
    return !m_.charges.models_reclaim() || m_.arena.Get(m_.arena.HeadOf(page)).Has(kFolioYoung);
  }

  Accounts<Forms>& m_;
  Faults<Forms>& faults_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_ADDRESS_SPACE_H_
