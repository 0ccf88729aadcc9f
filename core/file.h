// Files, and what is known of their pages.
//
// Kernel counterpart: struct inode and struct address_space; shadow entries of mm/workingset.c.  An entry
// says one of three things: never seen, cached, or known to be absent; a trace begins in the middle of a
// machine's life, and only what it showed is known.
//
// Thread safety: FileTable: all of it; a File under its mutex.
#ifndef MEMCGD_CORE_FILE_H_
#define MEMCGD_CORE_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/mutex.h"
#include "core/sparse_array.h"
#include "core/units.h"

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
  uint8_t order = 0;  // of the folio
};

// Pages on their way from the disk.
struct Reading {
  PageIndex first = 0;
  PageIndex end = 0;
  int64_t done_ns = 0;
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
  SparseArray<4, 2> pages ABSL_GUARDED_BY(mutex);  // folio index, kAbsent, or 0: never seen
  absl::flat_hash_map<uint64_t, Shadow> shadows ABSL_GUARDED_BY(mutex);
  // Where the model reclaims: what readahead has asked the disk for, and when the last of it is there.  Such
  // pages are locked: reclaim passes them by.
  std::vector<Reading> readings ABSL_GUARDED_BY(mutex);
  std::atomic<int64_t> reading_until_ns{0};
  // Pages that are cached where the trace comes from.
  int64_t traced_pages ABSL_GUARDED_BY(mutex) = 0;
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

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_FILE_H_
