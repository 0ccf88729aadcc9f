#include "core/swap_space.h"

#include <algorithm>
#include <bit>

namespace memcgd::core {

uint32_t SwapSpace::Allocate(FolioId folio, MemcgId owner) {
  Locked lock(mutex_);
  uint32_t slot = Scan();
  while (slot == kNoSlot && StartCluster()) slot = Scan();
  if (slot == kNoSlot) return kNoSlot;
  At(slot) = {folio, owner};
  ++clusters_[current_]->used;
  next_ = slot % kClusterSlots + 1;
  return slot;
}

uint32_t SwapSpace::Scan() {
  if (current_ == kNoCluster) return kNoSlot;
  const Cluster& cluster = *clusters_[current_];
  const uint64_t first = uint64_t{current_} * kClusterSlots;
  if (cluster.used == 0) next_ = 0;  // as new
  for (uint32_t i = next_; i < kClusterSlots && first + i < slots_; ++i) {
    if (first + i != kNoSlot && cluster.entries[i].folio == FolioId::kNone)
      return static_cast<uint32_t>(first + i);
  }
  if (cluster.used == 0) {
    PutOn(On::kFree, current_);
  } else if (cluster.used < kClusterSlots) {
    PutOn(On::kNonfull, current_);
  }
  current_ = kNoCluster;
  return kNoSlot;
}

bool SwapSpace::StartCluster() {
  next_ = 0;
  if (uint64_t{clusters_.size()} * kClusterSlots < slots_) {
    current_ = static_cast<uint32_t>(clusters_.size());
    clusters_.push_back(std::make_unique<Cluster>());
    return true;
  }
  for (On on : {On::kFree, On::kNonfull}) {
    for (uint32_t cluster : ListOf(on)) {
      const Entry* entries = clusters_[cluster]->entries.data();
      const uint64_t first = uint64_t{cluster} * kClusterSlots;
      const uint64_t here = std::min<uint64_t>(kClusterSlots, slots_ - first);
      const bool room = std::any_of(entries + (first == 0 ? 1 : 0), entries + here,
                                    [](const Entry& entry) { return entry.folio == FolioId::kNone; });
      if (!room) continue;  // the first or the last one, all of whose slots are used
      TakeOff(cluster);
      current_ = cluster;
      return true;
    }
  }
  return false;
}

void SwapSpace::PutOn(On on, uint32_t cluster) {
  Cluster& moved = *clusters_[cluster];
  moved.on = on;
  moved.place = ListOf(on).insert(ListOf(on).end(), cluster);
}

void SwapSpace::TakeOff(uint32_t cluster) {
  Cluster& moved = *clusters_[cluster];
  if (moved.on == On::kNone) return;
  ListOf(moved.on).erase(moved.place);
  moved.on = On::kNone;
}

MemcgId SwapSpace::Free(uint32_t slot) {
  Locked lock(mutex_);
  const uint32_t number = slot / kClusterSlots;
  Cluster& cluster = *clusters_[number];
  MemcgId owner = At(slot).owner;
  At(slot) = Entry{};
  --cluster.used;
  if (number == current_) return owner;
  if (cluster.used == 0) {
    TakeOff(number);
    PutOn(On::kFree, number);
  } else if (cluster.on == On::kNone) {
    PutOn(On::kNonfull, number);
  }
  return owner;
}

SwapSpace::Entry SwapSpace::Get(uint32_t slot) {
  Locked lock(mutex_);
  return At(slot);
}

// swapin_nr_pages()
SwapSpace::Range SwapSpace::ReadAhead(uint32_t slot) {
  Locked lock(mutex_);
  uint32_t pages = hits_ + 2;
  if (hits_ == 0) {
    if (slot != last_slot_ + 1 && slot + 1 != last_slot_) pages = 1;
    last_slot_ = slot;
  } else {
    pages = std::max(4u, std::bit_ceil(pages));
  }
  hits_ = 0;
  pages = std::max(std::min(pages, kMostAhead), last_pages_ / 2);
  last_pages_ = pages;
  const uint32_t mask = pages - 1;
  const uint64_t last = std::min<uint64_t>(slot | mask, slots_ - 1);
  return {std::max(slot & ~mask, kNoSlot + 1), static_cast<uint32_t>(last)};
}

void SwapSpace::CountHit() {
  Locked lock(mutex_);
  ++hits_;
}

SwapSpace::Entry SwapSpace::GetSwapped(const FolioArena& arena, uint32_t slot) {
  Locked lock(mutex_);
  if (slot / kClusterSlots >= clusters_.size()) return {};
  const Entry entry = At(slot);
  if (entry.folio == FolioId::kNone) return {};
  Folio& folio = arena.Get(entry.folio);
  uint64_t state = folio.state.load(std::memory_order_acquire);
  // Whoever ends it frees the slot before the descriptor; where nothing holds it any more, that is under way.
  while (folio.Has(kFolioSwapped) && (state & Folio::kHolds) != 0) {
    if (folio.state.compare_exchange_weak(state, state + Folio::kOneRef, std::memory_order_acq_rel))
      return entry;
  }
  return {};
}

}  // namespace memcgd::core
