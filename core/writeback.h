// Dirty pages of files on their way to disk: a queue in the order in which they became dirty, and a device of
// a given rate.
//
// Kernel counterpart: the flusher of mm/page-writeback.c and fs/fs-writeback.c, reduced to one queue a node.
// It writes while more is dirty than the background threshold (vm.dirty_background_ratio, 10 % of the node's
// memory), what has been dirty for 30 s (dirty_expire_centisecs), and all of it once reclaim found only dirty
// pages (wakeup_flusher_threads).  Time is the model's: that of the events, and what tasks spent waiting.
//
// Differs: no threads that write are slowed down (balance_dirty_pages); a machine's clients did what they
// did.
//
// Thread safety: all of it, by holders of a CPU's slot.
#ifndef MEMCGD_CORE_WRITEBACK_H_
#define MEMCGD_CORE_WRITEBACK_H_

#include <cstdint>

#include "core/charge.h"
#include "core/lru.h"

namespace memcgd::core {

template <class Forms>
class Writeback {
 public:
  Writeback(Machine& machine, Charges<Forms>& charges, Lru<Forms>& lru);

  // The folio has just become dirty.
  void Add(CpuSlot& slot, FolioId head);
  // Reclaim found nothing but dirty pages: all that is dirty now is to be written.
  void Wake(CpuSlot& slot);
  // A task waits for so long, and the device goes on.
  void Wait(CpuSlot& slot, int64_t ns);
  // A page of the swap cache begins to be written.
  void WriteToSwap(CpuSlot& slot, FolioId head);
  // The swap device, of which no rate is modelled, has written what it was given.
  void EndSwapWrites(CpuSlot& slot);
  // What is done by the time of the event at hand is clean.
  void Advance(CpuSlot& slot);

 private:
  void AdvanceLocked(CpuSlot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_.mutex);
  // Whether the flusher has a reason to write the oldest dirty folio.
  bool HasReason(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_.mutex);
  void Start(CpuSlot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue_.mutex);
  void Finish(CpuSlot& slot, FolioId head);

  static constexpr int64_t kExpireNs = int64_t{30} * 1000 * 1000 * 1000;
  static constexpr size_t kMostInFlight = 1024;  // folios

  Machine& machine_;
  Charges<Forms>& charges_;
  Lru<Forms>& lru_;
  WritebackQueue& queue_;
  const int64_t page_ns_;           // to write one
  const int64_t background_pages_;  // dirty
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_WRITEBACK_H_
