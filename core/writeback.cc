#include "core/writeback.h"

#include <algorithm>

namespace memcgd::core {

template <class Forms>
Writeback<Forms>::Writeback(Machine& machine, Charges<Forms>& charges, Lru<Forms>& lru)
    : machine_(machine),
      charges_(charges),
      lru_(lru),
      queue_(machine.writeback),
      page_ns_(static_cast<int64_t>(uint64_t{machine.config.page_size} * 1'000'000'000 /
                                    machine.config.writeback_bytes_per_second)),
      background_pages_(static_cast<int64_t>((machine.config.memory_bytes >> machine.page_shift) / 10)) {}

template <class Forms>
void Writeback<Forms>::Add(CpuSlot& slot, FolioId head) {
  Folio& folio = machine_.arena.Get(head);
  Locked lock(queue_.mutex);
  folio.Get();
  queue_.dirty.push_back({head, slot.now_ns + queue_.waited_ns});
  queue_.dirty_pages += folio.pages();
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::Wake(CpuSlot& slot) {
  Locked lock(queue_.mutex);
  AdvanceLocked(slot);
  queue_.woken_pages = queue_.dirty_pages;
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::Wait(CpuSlot& slot, int64_t ns) {
  Locked lock(queue_.mutex);
  queue_.waited_ns += ns;
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::Advance(CpuSlot& slot) {
  Locked lock(queue_.mutex);
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::WriteToSwap(CpuSlot& slot, FolioId head) {
  Folio& folio = machine_.arena.Get(head);
  folio.Get();
  folio.Set(kFolioWriteback | kFolioReclaim);
  charges_.ModStat(slot, folio.memcg(), Stat::kPswpout, 1);
  slot.swap_writes.push_back(head);
}

// folio_end_writeback(): to the end of the list from which reclaim takes.
template <class Forms>
void Writeback<Forms>::EndSwapWrites(CpuSlot& slot) {
  for (FolioId head : slot.swap_writes) {
    machine_.arena.Get(head).Clear(kFolioWriteback | kFolioReclaim);
    lru_.Rotate(slot, head);
    lru_.Put(slot, head);
  }
  slot.swap_writes.clear();
}

template <class Forms>
bool Writeback<Forms>::HasReason(int64_t now_ns) {
  return !queue_.dirty.empty() && (queue_.woken_pages > 0 || queue_.dirty_pages > background_pages_ ||
                                   queue_.dirty.front().time_ns + kExpireNs <= now_ns);
}

// The device takes what is queued for it one after the other; a folio's end makes room for the next.
template <class Forms>
void Writeback<Forms>::AdvanceLocked(CpuSlot& slot) {
  int64_t now_ns = slot.now_ns + queue_.waited_ns;
  for (;;) {
    while (queue_.in_flight.size() < kMostInFlight && HasReason(now_ns)) Start(slot);
    if (queue_.in_flight.empty() || queue_.in_flight.front().time_ns > now_ns) break;
    FolioId head = queue_.in_flight.front().head;
    queue_.in_flight.pop_front();
    Folio& folio = machine_.arena.Get(head);
    uint32_t flags;
    {
      SpinLock& folio_lock = machine_.FolioLockOf(head);
      Locked lock(folio_lock);
      MemcgId memcg = folio.memcg();
      flags = folio.flags.fetch_and(~(kFolioWriteback | kFolioReclaim), std::memory_order_relaxed);
      if ((flags & kFolioWriteback) != 0)  // else it was truncated meanwhile
        charges_.ModStat(slot, memcg, Stat::kFileWriteback, -static_cast<int32_t>(folio.pages()));
    }
    if ((flags & kFolioWriteback) != 0 && (flags & kFolioReclaim) != 0) lru_.Rotate(slot, head);
    lru_.Put(slot, head);
  }
  queue_.advanced_ns = std::max(queue_.advanced_ns, now_ns);
}

// Dirty no more and being written, in one step: what a deletion finds, it counts out.
template <class Forms>
bool Writeback<Forms>::BeginWriteback(CpuSlot& slot, FolioId head, Folio& folio) {
  SpinLock& folio_lock = machine_.FolioLockOf(head);
  Locked lock(folio_lock);
  MemcgId memcg = folio.memcg();
  uint32_t flags = folio.flags.load(std::memory_order_relaxed);
  do {
    if ((flags & kFolioDirty) == 0) return false;
  } while (!folio.flags.compare_exchange_weak(flags, (flags & ~kFolioDirty) | kFolioWriteback,
                                              std::memory_order_relaxed));
  int32_t pages = static_cast<int32_t>(folio.pages());
  charges_.ModStat(slot, memcg, Stat::kFileDirty, -pages);
  // Dirty again before its writing ended: it is written on, and twice as long.
  if ((flags & kFolioWriteback) == 0) charges_.ModStat(slot, memcg, Stat::kFileWriteback, pages);
  return true;
}

// What was truncated or written meanwhile is dirty no more, and only leaves the queue.
template <class Forms>
void Writeback<Forms>::Start(CpuSlot& slot) {
  WritebackQueue::Entry entry = queue_.dirty.front();
  queue_.dirty.pop_front();
  Folio& folio = machine_.arena.Get(entry.head);
  int64_t pages = folio.pages();
  queue_.dirty_pages -= pages;
  queue_.woken_pages = std::max<int64_t>(0, queue_.woken_pages - pages);
  if (!BeginWriteback(slot, entry.head, folio)) {
    lru_.Put(slot, entry.head);
    return;
  }
  // The reason may be as old as the last look.
  queue_.busy_until_ns =
      std::max({queue_.busy_until_ns, queue_.advanced_ns, entry.time_ns}) + pages * page_ns_;
  queue_.in_flight.push_back({entry.head, queue_.busy_until_ns});
}

template class Writeback<DefaultForms>;
template class Writeback<ChosenForms>;

}  // namespace memcgd::core
