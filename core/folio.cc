#include "core/folio.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace memcgd::core {

FolioArena::FolioArena() {
  Locked lock(mutex_);
  Bump(0);
}

FolioArena::~FolioArena() {
  for (std::atomic<Folio*>& chunk : chunks_) {
    Folio* folios = chunk.load(std::memory_order_relaxed);
    if (folios != nullptr) munmap(folios, kChunk * sizeof(Folio));
  }
}

FolioId FolioArena::Allocate(FolioCache& cache, uint32_t order) {
  MEMCG_CHECK(order <= kMaxOrder);
  FolioId head;
  if (order == 0) {
    if (cache.free == FolioId::kNone) Refill(cache);
    head = cache.free;
    cache.free = Get(head).next;
    --cache.count;
  } else {
    Locked lock(mutex_);
    head = free_[order];
    if (head != FolioId::kNone) {
      free_[order] = Get(head).next;
    } else {
      head = Bump(1u << order);
    }
  }
  Folio& folio = Get(head);
  folio.next = folio.prev = FolioId::kNone;
  folio.set_memcg(MemcgId::kNone);
  folio.file = FileId::kNone;
  folio.index = 0;
  folio.flags.store(order << kFolioOrderShift, std::memory_order_relaxed);
  folio.refs.store(Folio::kOneRef, std::memory_order_relaxed);
  for (uint32_t i = 1; i < 1u << order; ++i) {
    Folio& tail = Get(FolioId{Raw(head) + i});
    tail.next = FolioId{i};
    tail.flags.store(kFolioTail, std::memory_order_relaxed);
    tail.refs.store(0, std::memory_order_relaxed);
  }
  allocated_.fetch_add(uint64_t{1} << order, std::memory_order_relaxed);
  return head;
}

void FolioArena::Free(FolioCache& cache, FolioId head) {
  Folio& folio = Get(head);
  uint32_t order = folio.order();
  allocated_.fetch_sub(uint64_t{1} << order, std::memory_order_relaxed);
  if (order == 0) {
    folio.next = cache.free;
    cache.free = head;
    if (++cache.count < 2 * kRefill) return;
    // Give the older half back, so that one CPU's frees serve another's allocations.
    FolioId last = cache.free;
    for (uint32_t i = 1; i < kRefill; ++i) last = Get(last).next;
    FolioId first_given = Get(last).next;
    Get(last).next = FolioId::kNone;
    cache.count = kRefill;
    FolioId last_given = first_given;
    while (Get(last_given).next != FolioId::kNone) last_given = Get(last_given).next;
    Locked lock(mutex_);
    Get(last_given).next = free_[0];
    free_[0] = first_given;
    return;
  }
  Locked lock(mutex_);
  folio.next = free_[order];
  free_[order] = head;
}

void FolioArena::Refill(FolioCache& cache) {
  Locked lock(mutex_);
  for (uint32_t i = 0; i < kRefill; ++i) {
    FolioId id = free_[0];
    if (id != FolioId::kNone) {
      free_[0] = Get(id).next;
    } else {
      id = Bump(1);
    }
    Get(id).next = cache.free;
    cache.free = id;
  }
  cache.count += kRefill;
}

// A large folio's descriptors are neighbours, and so never straddle a chunk.
FolioId FolioArena::Bump(uint32_t pages) {
  uint32_t first = end_.load(std::memory_order_relaxed);
  if (first / kChunk != (first + pages) / kChunk && (first + pages) % kChunk != 0) {
    first = (first / kChunk + 1) * kChunk;  // the rest of the chunk is left: at most 1023 descriptors
  }
  MEMCG_CHECK(first + pages <= kMaxFolios);
  EnsureChunk(first / kChunk);
  end_.store(first + pages, std::memory_order_relaxed);
  return FolioId{first};
}

void FolioArena::EnsureChunk(uint32_t number) {
  std::atomic<Folio*>& chunk = chunks_[number];
  if (chunk.load(std::memory_order_relaxed) != nullptr) return;
  void* memory = mmap(nullptr, kChunk * sizeof(Folio), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MEMCG_CHECK(memory != MAP_FAILED);
  // Zero bytes are a Folio as constructed but for its cgroup, which Allocate() sets.
  chunk.store(static_cast<Folio*>(memory), std::memory_order_release);  // pairs with Get()
}

void FolioArena::Restore(uint32_t end, uint64_t allocated, const std::array<FolioId, kMaxOrder + 1>& free) {
  Locked lock(mutex_);
  for (uint32_t number = 0; number <= (end - 1) / kChunk; ++number) EnsureChunk(number);
  end_.store(end, std::memory_order_relaxed);
  allocated_.store(allocated, std::memory_order_relaxed);
  free_ = free;
}

}  // namespace memcgd::core
