// Kernel memory that follows from what programs do: page tables and kernel stacks.
//
// Kernel counterpart: __memcg_kmem_charge_page(), obj_cgroup_charge_pages() in mm/memcontrol.c;
// pgtable_alloc and pagetable_*_ctor() (include/linux/mm.h), free_pgtables() in mm/memory.c,
// try_to_free_pte() in mm/pt_reclaim.c; account_kernel_stack() in kernel/fork.c.  Slab does not follow from
// events and is left out.
//
// It is charged like a page, never on a list, and stays where it was charged when its process moves; the
// root's is neither charged nor counted.  Differs: the kernel charges it to the task that runs, here the
// address space's cgroup, which is another only for a vforked child that was moved before its exec; the
// kernel hands a removed cgroup's kernel memory to its parent, here it holds the dying one; what is freed
// returns to the counter and not to the stock.
//
// Thread safety: by the holder of the CPU's slot and of the address space's mutex.
#ifndef MEMCGD_CORE_KERNEL_MEMORY_H_
#define MEMCGD_CORE_KERNEL_MEMORY_H_

#include <algorithm>
#include <cstdint>

#include "core/charge.h"
#include "core/machine.h"

namespace memcgd::core {

template <class Forms>
class KernelMemory {
 public:
  KernelMemory(const NodeConfig& config, Charges<Forms>& charges)
      : page_size_(config.page_size),
        stack_pages_(std::max(kStackBytes / config.page_size, 1u)),
        charges_(charges) {}

  // The page-table entry; its tables are made where they do not exist.  Null: a limit refused one.
  Pte* Ensure(CpuSlot& slot, Mm& mm, PageNumber page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex) {
    Pte* pte = mm.page_table.Find(page);
    if (pte != nullptr) return pte;
    return MakeTables(slot, mm, page, TableLevel::kPte) ? mm.page_table.Find(page) : nullptr;
  }
  // The page's tables down to that level; those that were made stay where a further one is refused.
  bool MakeTables(CpuSlot& slot, Mm& mm, PageNumber page, TableLevel down_to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // mm_alloc_pgd()
  bool MakePgd(CpuSlot& slot, Mm& mm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // What execve makes before anything is mapped: a PGD, and the tables of the stack's top, which the stack
  // leaves for its place when that shows (shift_arg_pages()).
  void BeginExec(CpuSlot& slot, Mm& mm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // dup_mmap(): the child's tables, of what vma_needs_copy(); its entries are not made.  False: refused.
  bool CopyTables(CpuSlot& slot, Mm& parent, Mm& child)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parent.mutex, child.mutex);
  // Tables that no area needs any more, after areas of the range and their entries went.
  void FreeTables(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // Tables that MADV_DONTNEED has emptied whole (CONFIG_PT_RECLAIM).
  void ReclaimTables(CpuSlot& slot, Mm& mm, PageRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);
  // With the address space.
  void FreePgd(CpuSlot& slot, Mm& mm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mm.mutex);

  // A thread's stack.
  bool TryChargeStack(CpuSlot& slot, MemcgId memcg) {
    return TryCharge(slot, memcg, Stat::kKernelStack, stack_pages_);
  }
  void UnchargeStacks(CpuSlot& slot, MemcgId memcg, uint32_t stacks) {
    Uncharge(slot, memcg, Stat::kKernelStack, stacks * stack_pages_);
  }

  static constexpr uint32_t kPgdPages = 2;  // with page-table isolation: the kernel's half beside the user's
  static constexpr uint32_t kStackBytes = 16384;  // THREAD_SIZE

 private:
  bool TryCharge(CpuSlot& slot, MemcgId memcg, Stat stat, uint32_t pages) {
    if (memcg == MemcgId::kRoot) return true;
    if (!charges_.TryCharge(slot, memcg, pages)) return false;
    charges_.ModStat(slot, memcg, stat, AmountOf(stat, pages));
    return true;
  }
  void Uncharge(CpuSlot& slot, MemcgId memcg, Stat stat, uint32_t pages) {
    if (memcg == MemcgId::kRoot || memcg == MemcgId::kNone) return;
    charges_.ModStat(slot, memcg, stat, -AmountOf(stat, pages));
    charges_.Uncharge(slot, memcg, pages);
  }
  int32_t AmountOf(Stat stat, uint32_t pages) const {
    return static_cast<int32_t>(UnitOf(stat) == StatUnit::kBytes ? pages * page_size_ : pages);
  }

  const uint32_t page_size_;
  const uint32_t stack_pages_;
  Charges<Forms>& charges_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_KERNEL_MEMORY_H_
