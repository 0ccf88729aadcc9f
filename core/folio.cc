#include "core/folio.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace memcgd::core {
namespace {

constexpr int kMadvisePopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14; older headers lack it
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kFoliosBytes = FolioArena::kMaxFolios * sizeof(Folio);
constexpr size_t kFilesBytes = FolioArena::kMaxFolios * sizeof(FileId);

constexpr uint32_t kFewFolios = 1 << 15;
constexpr uint32_t kManyFolios = 1 << 18;
static_assert(kManyFolios * sizeof(Folio) % kHugePage == 0);

void* Reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MEMCG_CHECK(memory != MAP_FAILED);
  return memory;
}

}  // namespace

FolioArena::FolioArena() {
  // Huge pages want their alignment; what is before and after it is never touched.
  char* reserved = static_cast<char*>(Reserve(kFoliosBytes + kHugePage));
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(reserved) % kHugePage) % kHugePage;
  if (before > 0) munmap(reserved, before);
  munmap(reserved + before + kFoliosBytes, kHugePage - before);
  folios_ = static_cast<Folio*>(static_cast<void*>(reserved + before));
  files_ = static_cast<FileId*>(Reserve(kFilesBytes));
  Locked lock(mutex_);
  Ensure(end_.load(std::memory_order_relaxed));
}

FolioArena::~FolioArena() {
  munmap(folios_, kFoliosBytes);
  munmap(files_, kFilesBytes);
}

FolioArena& FolioArena::operator=(const FolioArena& other) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // at a cut
  if (this == &other) return *this;
  const uint32_t end = other.end();
  Restore(end);
  free_ = other.free_;
  CountFreeLocked();
  std::memcpy(static_cast<void*>(folios_), other.folios_, end * sizeof(Folio));
  for (uint32_t i = 0; i < end; ++i) {  // the files' part has memory only where file pages are
    const Folio& folio = folios_[i];
    if (folio.memcg() != MemcgId::kNone && !folio.anon()) files_[i] = other.files_[i];
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
  CountFreeLocked();
}

void FolioArena::Refill(FolioCache& cache) {
  constexpr uint32_t kHalf = FolioCache::kSize / 2;
  Locked lock(mutex_);
  uint32_t from_list = std::min<uint32_t>(kHalf, static_cast<uint32_t>(free_[0].size()));
  std::copy(free_[0].end() - from_list, free_[0].end(), cache.free.begin());
  free_[0].resize(free_[0].size() - from_list);
  CountFreeLocked();
  cache.count = from_list;
  if (from_list > 0) return;
  uint32_t first = Raw(Bump(kHalf));
  for (uint32_t i = kHalf; i > 0; --i)
    cache.free[cache.count++] = FolioId{first + i - 1};  // the lowest is taken first
}

// A large folio's descriptors are neighbours.
FolioId FolioArena::Bump(uint32_t pages) {
  uint32_t first = end_.load(std::memory_order_relaxed);
  MEMCG_CHECK(pages <= kMaxFolios - first);
  Ensure(first + pages);
  end_.store(first + pages, std::memory_order_relaxed);
  return FolioId{first};
}

// Faulted in step by step: one call costs a tenth of its pages' faults, and a hundredth in huge pages.  Where
// the kernel cannot, they fault one by one.  The files' part only where file pages are.
void FolioArena::Ensure(uint32_t end) {
  while (usable_end_ < end) {
    uint32_t step = usable_end_ < kManyFolios ? kFewFolios : kManyFolios;
    Folio* folios = folios_ + usable_end_;
    int folios_failed = mprotect(folios, step * sizeof(Folio), PROT_READ | PROT_WRITE);
    int files_failed = mprotect(files_ + usable_end_, step * sizeof(FileId), PROT_READ | PROT_WRITE);
    MEMCG_CHECK(folios_failed == 0 && files_failed == 0);
    if (step == kManyFolios) madvise(folios, step * sizeof(Folio), MADV_HUGEPAGE);
    madvise(folios, step * sizeof(Folio), kMadvisePopulateWrite);
    usable_end_ += step;
  }
}

void FolioArena::Restore(uint32_t end) {
  Locked lock(mutex_);
  Ensure(end);
  end_.store(end, std::memory_order_relaxed);
}

}  // namespace memcgd::core
