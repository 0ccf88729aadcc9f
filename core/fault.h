// The way of a fault.
//
// Kernel counterpart: handle_mm_fault() in mm/memory.c and filemap_fault(), filemap_map_pages() in
// mm/filemap.c. Whole story: docs/the-way-of-a-fault.md.  What the hardware and the file system knew reaches
// us as the error code and as hints (mm_filemap_fault, mm_filemap_map_pages) that came before; where they are
// silent, the areas decide.
//
// Thread safety: by the holder of the CPU's slot; takes the address space's mutex, then the file's.
#ifndef MEMCGD_CORE_FAULT_H_
#define MEMCGD_CORE_FAULT_H_

#include "core/machine.h"

namespace memcgd::core {

class Faults {
 public:
  explicit Faults(Machine& machine) : m_(machine) {}

  // One page fault that reached handle_mm_fault.
  Outcome Handle(CpuSlot& slot, Mm& mm, const FaultHints& hints, uint64_t address, uint32_t error_code);
  // A touch of a mapped page that made no fault (from a sampler).
  void Access(Mm& mm, uint64_t address);
  // The anonymous folio mapped at the address, here only, changes its cgroup.
  Outcome Migrate(CpuSlot& slot, Mm& mm, uint64_t address, MemcgId to);
  // Whether the entry holds something; a tombstone does not, and is dropped.
  bool Present(Pte& pte, CpuSlot& slot);
  // Faults that no event told: populate, mlock.  Every page of the range that is not present.
  // False where it gave up at the node's RAM.
  bool Populate(CpuSlot& slot, Mm& mm, PageRange range, bool write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // Anonymous pages that were there before the stream: charged, not counted as faults.
  void AddBaselineAnonymous(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // A page of arguments that exec writes through get_user_pages: counted, charged, at no address yet.
  void AddArgumentPage(CpuSlot& slot, Mm& mm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

 private:
  struct Fault {
    CpuSlot& slot;
    Mm& mm;
    const FaultHints& hints;
    PageNumber page;
    uint32_t error_code;
    Vma* vma;
    bool write() const { return (error_code & kFaultWrite) != 0; }
    bool shared() const { return vma != nullptr && vma->shared(); }
  };

  Outcome WriteProtect(const Fault& fault, Pte& pte) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome WriteUnseen(const Fault& fault, Pte& pte) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome MapFile(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  void MapAround(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  void MapFolio(const Fault& fault, File& file, PageIndex index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  bool MapsShmem(const Fault& fault) const;
  Outcome MapShmem(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  Outcome MapAnonymous(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  bool IsSpecialMapping(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  bool IsStack(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  int64_t DeltaOf(const Fault& fault, FileId file, PageIndex first, PageIndex end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  ImpliedArea& Imply(Mm& mm, FileId file, int64_t delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  void StandIn(Vma& vma);
  void BindShmem(const Fault& fault, FileId file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  // True where it made a fault.
  bool PopulatePage(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  FolioId NewAnonymous(CpuSlot& slot, Mm& mm, uint32_t flags) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  void SetAnonymous(const Fault& fault, Pte& pte) ABSL_EXCLUSIVE_LOCKS_REQUIRED(fault.mm.mutex);
  void DropPte(CpuSlot& slot, Pte& pte);

  Machine& m_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_FAULT_H_
