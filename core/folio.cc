#include "core/folio.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace memcgd::core {
namespace {

constexpr int kMadvisePopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14; older headers lack it

}  // namespace

FolioArena::FolioArena() {
  Locked lock(mutex_);
  Bump(0);
}

FolioArena::~FolioArena() {
  for (std::atomic<Chunk*>& slot : chunks_) {
    Chunk* chunk = slot.load(std::memory_order_relaxed);
    if (chunk != nullptr) munmap(chunk, sizeof(Chunk));
  }
}

FolioArena& FolioArena::operator=(const FolioArena& other) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // at a cut
  const uint32_t end = other.end();
  Restore(end);
  free_ = other.free_;
  for (uint32_t first = 0; first < end; first += kChunk) {
    const Chunk& from = *other.ChunkOf(FolioId{first});
    Chunk& to = *ChunkOf(FolioId{first});
    const uint32_t count = std::min(kChunk, end - first);
    std::memcpy(static_cast<void*>(to.folios), from.folios, count * sizeof(Folio));
    for (uint32_t i = 0; i < count; ++i) {  // the files' part has memory only where file pages are
      const Folio& folio = to.folios[i];
      if (folio.memcg() != MemcgId::kNone && !folio.anon()) to.files[i] = from.files[i];
    }
  }
  return *this;
}

FolioId FolioArena::Allocate(FolioCache& cache, MemcgId memcg, uint32_t order) {
  MEMCG_CHECK(order <= kMaxOrder);
  if (order == 0) return AllocatePage(cache, memcg, 0, Folio::kOneRef);
  FolioId head;
  {
    Locked lock(mutex_);
    if (free_[order].empty()) {
      head = Bump(1u << order);
    } else {
      head = free_[order].back();
      free_[order].pop_back();
    }
  }
  Folio& folio = Get(head);
  folio.next = folio.prev = FolioId::kNone;
  folio.index = 0;
  folio.flags.store(order << kFolioOrderShift, std::memory_order_relaxed);
  folio.state.store(Folio::StateOf(memcg, Folio::kOneRef), std::memory_order_relaxed);
  for (uint32_t i = 1; i < 1u << order; ++i) {
    Folio& tail = Get(FolioId{Raw(head) + i});
    tail.next = FolioId{i};
    tail.flags.store(kFolioTail, std::memory_order_relaxed);
    tail.state.store(Folio::StateOf(MemcgId::kNone, 0), std::memory_order_relaxed);
  }
  cache.CountInUse(int64_t{1} << order);
  return head;
}

void FolioArena::FreeLarge(FolioCache& cache, FolioId head) {
  Folio& folio = Get(head);
  uint32_t order = folio.order();
  folio.state.store(Folio::StateOf(MemcgId::kNone, 0), std::memory_order_relaxed);
  cache.CountInUse(-(int64_t{1} << order));
  Locked lock(mutex_);
  free_[order].push_back(head);
}

// Half a cache at a time, so that a CPU that only frees feeds one that only allocates.
void FolioArena::GiveBack(FolioCache& cache) {
  constexpr uint32_t kHalf = FolioCache::kSize / 2;
  Locked lock(mutex_);
  free_[0].insert(free_[0].end(), cache.free.begin(), cache.free.begin() + kHalf);  // the coldest
  std::copy(cache.free.begin() + kHalf, cache.free.end(), cache.free.begin());
  cache.count -= kHalf;
}

void FolioArena::Refill(FolioCache& cache) {
  constexpr uint32_t kHalf = FolioCache::kSize / 2;
  Locked lock(mutex_);
  uint32_t from_list = std::min<uint32_t>(kHalf, static_cast<uint32_t>(free_[0].size()));
  std::copy(free_[0].end() - from_list, free_[0].end(), cache.free.begin());
  free_[0].resize(free_[0].size() - from_list);
  cache.count = from_list;
  if (from_list > 0) return;
  while (cache.count < kHalf) cache.free[cache.count++] = Bump(1);
  std::reverse(cache.free.begin(), cache.free.begin() + cache.count);  // in order of address
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
  std::atomic<Chunk*>& chunk = chunks_[number];
  if (chunk.load(std::memory_order_relaxed) != nullptr) return;
  void* memory = mmap(nullptr, sizeof(Chunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MEMCG_CHECK(memory != MAP_FAILED);
  // Faulted in as a whole: one call costs a tenth of its pages' faults.  Where the kernel cannot, they fault
  // one by one.  The files' part only where file pages are.
  madvise(memory, sizeof(Chunk::folios), kMadvisePopulateWrite);
  chunk.store(static_cast<Chunk*>(memory), std::memory_order_release);  // pairs with ChunkOf()
}

void FolioArena::Restore(uint32_t end) {
  Locked lock(mutex_);
  for (uint32_t number = 0; number <= (end - 1) / kChunk; ++number) EnsureChunk(number);
  end_.store(end, std::memory_order_relaxed);
}

}  // namespace memcgd::core
