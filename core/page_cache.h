// Files and their cached pages, shadows of evicted ones, refaults.
//
// Kernel counterpart: struct address_space, mm/filemap.c, mm/workingset.c.  A page is charged to the first to
// touch it.  An entry says one of three things: never seen, cached, or known to be absent; a trace begins in
// the middle of a machine's life, and only what it showed is known.
//
// Dead pages: see folio.h.
//
// Thread safety: FileTable::Find() by anyone; a File under its mutex; the operations by the holder of the
// CPU's slot.
#ifndef MEMCGD_CORE_PAGE_CACHE_H_
#define MEMCGD_CORE_PAGE_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/charge.h"
#include "core/lru.h"
#include "core/sparse_array.h"

namespace memcgd::core {

// Where a thread's last read of a file was.
struct ReadPosition {
  FileId file = FileId::kNone;
  PageIndex first = 0;
  PageIndex last = 0;  // of the request
  PageIndex done = 0;  // marked accessed up to here
};

// What an evicted page leaves behind.
struct Shadow {
  MemcgId memcg = MemcgId::kNone;  // whose lruvec reclaim was aimed at
  int64_t age = 0;                 // its nonresident_age then
  bool workingset = false;
};

struct File {
  static constexpr uint32_t kAbsent = 1u << 31;  // an entry: known not to be cached

  FileId id{};
  uint32_t dev = 0;
  uint64_t ino = 0;
  // Its pages are shmem.  Changes only while nothing of it is cached; relaxed: the file's mutex orders the
  // pages.
  std::atomic<bool> shmem{false};

  Mutex mutex;
  uint64_t cached_pages ABSL_GUARDED_BY(mutex) = 0;
  SparseArray<2> pages ABSL_GUARDED_BY(mutex);  // folio index, kAbsent, or 0: never seen
  absl::flat_hash_map<uint64_t, Shadow> shadows ABSL_GUARDED_BY(mutex);
  // Anonymous shared memory: pages of areas that map it, and pages committed for it.  It ends with its last
  // area.
  int64_t area_pages ABSL_GUARDED_BY(mutex) = 0;
  int64_t committed_pages ABSL_GUARDED_BY(mutex) = 0;
};

class FileTable {
 public:
  FileTable();
  // The file of that device and inode, made where it is new.
  FileId Open(uint32_t dev, uint64_t ino, bool shmem);
  // The inode of a disk itself: the block layer's own file system, inode number = the disk's device number.
  bool IsBlockDevice(const File& file);
  // A new object of shared anonymous memory.
  FileId CreateAnonymous();
  // The object has no area and no page left.
  void FreeAnonymous(FileId id);
  // For saving and loading a state, at a cut.
  std::vector<FileId>& free_anonymous() ABSL_NO_THREAD_SAFETY_ANALYSIS { return free_anonymous_; }
  File& Get(FileId id) const {
    return chunks_[Raw(id) / kChunk].load(
        std::memory_order_acquire)[Raw(id) % kChunk];  // pairs with Append()
  }
  // For loading a saved state: the next file, as it was.
  File& Restore(uint32_t dev, uint64_t ino, bool shmem);
  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  ~FileTable();

  static constexpr uint32_t kAnonymousDev = ~0u;  // no device has this number

 private:
  static constexpr uint32_t kChunk = 256;
  static constexpr uint32_t kMaxFiles = 1u << 24;

  FileId Append(uint32_t dev, uint64_t ino, bool shmem) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::unique_ptr<std::atomic<File*>[]> chunks_;
  std::atomic<uint32_t> size_{1};
  Mutex mutex_;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, FileId> by_inode_ ABSL_GUARDED_BY(mutex_);
  std::vector<FileId> free_anonymous_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint32_t> devices_ ABSL_GUARDED_BY(mutex_);  // on which files are
};

class PageCache {
 public:
  PageCache(MemcgTree& tree, FolioArena& arena, Charges& charges, Lru& lru)
      : tree_(tree), arena_(arena), charges_(charges), lru_(lru) {}

  // Adds a folio of 2^order pages with these flags, charged to `memcg`; judges a refault where a shadow or an
  // unexplained absence says so.  False where a page was there already (it is replaced: the trace has lost
  // its deletion).
  bool Add(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg, uint32_t flags = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // Takes the folio that holds this page out of the cache.  `evictor`: reclaim took it, aimed at that cgroup,
  // and a shadow stays; kNone: it was truncated or deleted.  False where the page was not cached.
  bool Delete(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId evictor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // The page's descriptor, or kNone where it is not cached or not known.
  FolioId Find(File& file, PageIndex index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex) {
    uint32_t* entry = file.pages.Find(index);
    return entry == nullptr || (*entry & File::kAbsent) != 0 ? FolioId::kNone : FolioId{*entry};
  }
  bool NeverSeen(File& file, PageIndex index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex) {
    uint32_t* entry = file.pages.Find(index);
    return entry == nullptr || *entry == 0;
  }
  // A read of pages [first, last]; `position` is the thread's last read of this file, or new: each folio is
  // marked accessed once a request, and the first one not where the read before ended in it.
  void Read(CpuSlot& slot, File& file, PageIndex first, PageIndex last, ReadPosition& position)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  void MarkDirty(CpuSlot& slot, FolioId head);
  void ClearDirty(CpuSlot& slot, FolioId head);
  // Deletes every page: the object is gone.
  void DeleteAll(CpuSlot& slot, File& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);

  // A page-table entry takes, or lets go of, this very page.  Map() needs the file's mutex where it is a
  // file's; false where so many entries hold the page that none more can be counted.
  bool Map(CpuSlot& slot, FolioId page);
  // By the holder of the entry's address space.
  void Unmap(CpuSlot& slot, FolioId page) {
    Folio& folio = arena_.Get(page);
    uint64_t state = folio.state.load(std::memory_order_acquire);
    if ((state & Folio::kHolds) == Folio::kOneMapping && Folio::MemcgOf(state) != MemcgId::kNone) {
      // An anonymous page of ours alone: no other entry to copy it from, no batch.  It ends, and the mapping
      // with it, without a locked instruction.
      return lru_.End(slot, page);
    }
    uint64_t before = folio.state.fetch_sub(Folio::kOneMapping, std::memory_order_acq_rel);
    if (Folio::MapcountOf(before) == 1) UnmapLast(slot, page, before);
  }

 private:
  void MarkUnmapped(CpuSlot& slot, FolioId head);
  // What follows from a page's last mapping's end; `before`: its state with it.
  void UnmapLast(CpuSlot& slot, FolioId page, uint64_t before);
  void Refault(CpuSlot& slot, FolioId head, const Shadow& shadow);

  MemcgTree& tree_;
  FolioArena& arena_;
  Charges& charges_;
  Lru& lru_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PAGE_CACHE_H_
