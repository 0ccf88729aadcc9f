// Address space committed against a policy.
//
// Kernel counterpart: __vm_enough_memory() in mm/util.c, mm_compute_batch() in mm/mm_init.c, vm_committed_as.
// Account first, then test, undo on failure.
//   GUESS   refuses only what is more than RAM and swap.
//   ALWAYS  never refuses.
//   NEVER   tests the fast read of the counter, strictly less than the limit less the admin reserve (8 MiB)
//   and
//           the user reserve (1/32 of the process, at most 128 MiB).
// Limit = overcommit_kbytes, or RAM × ratio / 100, plus swap.
// Batch = RAM / CPUs / 256 under NEVER and RAM / CPUs / 4 else, at least max(32, 2 × CPUs); in the older form
// that of NEVER always.
//
// Thread safety: TryCommit() and Uncommit() by the holder of that CPU's slot; SetPolicy() at a cut; reads by
// anyone.
#ifndef MEMCGD_CORE_COMMIT_ACCOUNT_H_
#define MEMCGD_CORE_COMMIT_ACCOUNT_H_

#include <atomic>
#include <cstdint>

#include "core/event.h"
#include "core/mechanisms.h"
#include "core/percpu_counter.h"

namespace memcgd::core {

class CommitAccount {
 public:
  struct Policy {
    OvercommitPolicy mode = OvercommitPolicy::kGuess;
    uint32_t ratio_percent = 50;
    uint64_t kbytes = 0;  // where not 0 it takes the ratio's place
  };

  CommitAccount(uint32_t cpus, int64_t ram_pages, int64_t swap_pages, uint32_t page_size, CommitBatch form,
                const Policy& policy);

  // False (and nothing accounted) where the policy refuses.  `process_pages` is the size of the asking
  // process.
  bool TryCommit(uint32_t cpu, int64_t pages, int64_t process_pages);
  void Uncommit(uint32_t cpu, int64_t pages) { committed_.Add(cpu, -pages); }

  // The kernel's order: set the batch, sync every CPU when going to NEVER, then publish.
  void SetPolicy(const Policy& policy);
  Policy policy() const { return policy_; }

  // The one accessor of Committed_AS: the exact sum, at least 0.
  int64_t CommittedAsPages() const;
  int64_t LimitPages() const;
  int64_t batch_pages() const { return committed_.batch(); }
  uint64_t spills() const { return committed_.spills(); }
  int64_t FastReadPages() const { return committed_.Read(); }
  // For saving and loading a state.
  PercpuCounter& counter() { return committed_; }

 private:
  int64_t BatchFor(OvercommitPolicy mode) const;

  const int64_t cpus_;
  const int64_t ram_pages_;
  const int64_t swap_pages_;
  const int64_t page_size_;
  const CommitBatch form_;
  Policy policy_;  // changes at a cut only
  PercpuCounter committed_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_COMMIT_ACCOUNT_H_
