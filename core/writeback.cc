#include "core/writeback.h"

#include <algorithm>

namespace memcgd::core {

template <class Forms>
Writeback<Forms>::Writeback(Machine& machine, Charges<Forms>& charges, Lru<Forms>& lru)
    : machine_(machine),
      charges_(charges),
      lru_(lru),
      page_ns_(static_cast<int64_t>(uint64_t{machine.config.page_size} * 1'000'000'000 /
                                    machine.config.writeback_bytes_per_second)),
      background_pages_(static_cast<int64_t>((machine.config.memory_bytes >> machine.page_shift) / 10)) {}

template <class Forms>
void Writeback<Forms>::Add(CpuSlot& slot, FolioId head) {
  Folio& folio = machine_.arena.Get(head);
  WritebackQueue& queue = machine_.writeback;
  Locked lock(queue.mutex);
  folio.Get();
  queue.dirty.push_back({head, slot.now_ns + queue.waited_ns});
  queue.dirty_pages += folio.pages();
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::Wake(CpuSlot& slot) {
  WritebackQueue& queue = machine_.writeback;
  Locked lock(queue.mutex);
  AdvanceLocked(slot);
  queue.woken_pages = queue.dirty_pages;
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::Wait(CpuSlot& slot, int64_t ns) {
  WritebackQueue& queue = machine_.writeback;
  Locked lock(queue.mutex);
  queue.waited_ns += ns;
  AdvanceLocked(slot);
}

template <class Forms>
void Writeback<Forms>::Advance(CpuSlot& slot) {
  Locked lock(machine_.writeback.mutex);
  AdvanceLocked(slot);
}

template <class Forms>
bool Writeback<Forms>::HasReason(int64_t now_ns) {
  WritebackQueue& queue = machine_.writeback;
  return !queue.dirty.empty() && (queue.woken_pages > 0 || queue.dirty_pages > background_pages_ ||
                                  queue.dirty.front().time_ns + kExpireNs <= now_ns);
}

// The device takes what is queued for it one after the other; a folio's end makes room for the next.
template <class Forms>
void Writeback<Forms>::AdvanceLocked(CpuSlot& slot) {
  WritebackQueue& queue = machine_.writeback;
  int64_t now_ns = slot.now_ns + queue.waited_ns;
  for (;;) {
    while (queue.in_flight.size() < kMostInFlight && HasReason(now_ns)) Start(slot);
    if (queue.in_flight.empty() || queue.in_flight.front().time_ns > now_ns) break;
    FolioId head = queue.in_flight.front().head;
    queue.in_flight.pop_front();
    Folio& folio = machine_.arena.Get(head);
    MemcgId memcg = folio.memcg();
    uint32_t flags = folio.flags.fetch_and(~(kFolioWriteback | kFolioReclaim), std::memory_order_relaxed);
    if ((flags & kFolioWriteback) != 0) {  // else it was truncated meanwhile
      charges_.ModStat(slot, memcg, Stat::kFileWriteback, -static_cast<int32_t>(folio.pages()));
      if ((flags & kFolioReclaim) != 0) lru_.Rotate(slot, head);
    }
    lru_.Put(slot, head);
  }
  queue.advanced_ns = std::max(queue.advanced_ns, now_ns);
}

// What was truncated or written meanwhile is dirty no more, and only leaves the queue.
template <class Forms>
void Writeback<Forms>::Start(CpuSlot& slot) {
  WritebackQueue& queue = machine_.writeback;
  WritebackQueue::Entry entry = queue.dirty.front();
  queue.dirty.pop_front();
  Folio& folio = machine_.arena.Get(entry.head);
  int64_t pages = folio.pages();
  queue.dirty_pages -= pages;
  queue.woken_pages = std::max<int64_t>(0, queue.woken_pages - pages);
  MemcgId memcg = folio.memcg();
  if ((folio.flags.fetch_and(~kFolioDirty, std::memory_order_relaxed) & kFolioDirty) == 0) {
    lru_.Put(slot, entry.head);
    return;
  }
  folio.Set(kFolioWriteback);
  charges_.ModStat(slot, memcg, Stat::kFileDirty, -static_cast<int32_t>(pages));
  charges_.ModStat(slot, memcg, Stat::kFileWriteback, static_cast<int32_t>(pages));
  // The reason may be as old as the last look.
  queue.busy_until_ns = std::max({queue.busy_until_ns, queue.advanced_ns, entry.time_ns}) + pages * page_ns_;
  queue.in_flight.push_back({entry.head, queue.busy_until_ns});
}

template class Writeback<DefaultForms>;
template class Writeback<ChosenForms>;

}  // namespace memcgd::core
