// Pages on their way from the disk: reclaim passes them by.
//
// Kernel counterpart: the lock that a folio has from its addition by readahead until its read has ended
// (mm/readahead.c, filemap_update_page()).  The events tell of the additions, and that a page is there when a
// task goes on with it; between the two, and for pages that no task came to, a disk of a given
// rate, which is done with a request all at once, as it takes it in large pieces.
//
// Thread safety: all of it; what is of a file under its mutex.
#ifndef MEMCGD_CORE_DISK_READS_H_
#define MEMCGD_CORE_DISK_READS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/file.h"
#include "core/units.h"

namespace memcgd::core {

class DiskReads {
 public:
  DiskReads(uint32_t page_size, uint64_t bytes_per_second)
      : page_ns_(static_cast<int64_t>(uint64_t{page_size} * 1'000'000'000 / bytes_per_second)) {}

  // Readahead has added these pages.
  void Begin(File& file, PageRange pages, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // A task goes on with these pages: they are there, and so is what was to be read before them.
  static void End(File& file, PageIndex first, PageIndex last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // Whether any page of the file may be on its way; needs no mutex.
  bool ReadsAny(const File& file, int64_t now_ns) const {
    return file.reading_until_ns.load(std::memory_order_relaxed) > Seen(now_ns);
  }
  bool Reads(const File& file, PageIndex index, int64_t now_ns) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // A task that could not do without the room waited for all that the disk was asked for.
  void Await() { awaited_ns.store(busy_until_ns.load(std::memory_order_relaxed), std::memory_order_relaxed); }

  // Relaxed: times that order nothing.
  std::atomic<int64_t> busy_until_ns{0};
  std::atomic<int64_t> awaited_ns{0};

 private:
  int64_t Seen(int64_t now_ns) const { return std::max(now_ns, awaited_ns.load(std::memory_order_relaxed)); }

  const int64_t page_ns_;  // to read one
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_DISK_READS_H_
