// The page cache: files' pages added, read, mapped, deleted; refaults.
//
// Kernel counterpart: struct address_space, mm/filemap.c, mm/workingset.c.  A page is charged to the first to
// touch it.  An entry says one of three things: never seen, cached, or known to be absent; a trace begins in
// the middle of a machine's life, and only what it showed is known.
//
// Dead pages: see folio.h.
//
// Thread safety: by the holder of the CPU's slot; a File under its mutex.
#ifndef MEMCGD_CORE_PAGE_CACHE_H_
#define MEMCGD_CORE_PAGE_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/charge.h"
#include "core/disk_reads.h"
#include "core/file.h"
#include "core/lru.h"
#include "core/writeback.h"

namespace memcgd::core {

enum class CacheAdd : uint8_t {
  kAdded,
  kReplaced,  // a page was there already: the trace has lost its deletion
  kRefused,   // by a limit, or past a file's last page index
};

template <class Forms>
class PageCache {
 public:
  PageCache(MemcgTree& tree, FolioArena& arena, Charges<Forms>& charges, Lru<Forms>& lru,
            Writeback<Forms>& writeback, DiskReads& reads)
      : tree_(tree), arena_(arena), charges_(charges), lru_(lru), writeback_(writeback), reads_(reads) {}

  // Adds a folio of 2^order pages with these flags, charged to `memcg`; judges a refault where a shadow or an
  // unexplained absence says so.
  CacheAdd Add(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg, uint32_t flags = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // Where the model reclaims: what of these pages is not cached is added; what is, is a hit.  Room may be
  // made in this very file, so its mutex is not held.  kRefused: by a limit; see Charges::TryCharge().
  CacheAdd Fill(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg, ChargeMode mode,
                uint32_t flags = 0);
  // A page that is known not to be cached: reclaim took it, or a limit refused it.
  bool IsAbsent(File& file, PageIndex index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex) {
    uint32_t* entry = file.pages.Find(index);
    return entry != nullptr && (*entry & File::kAbsent) != 0;
  }
  // workingset_refault(): a page comes back, and its shadow says how soon.
  void Refault(CpuSlot& slot, FolioId head, const Shadow& shadow);
  // Of the nodes of the file's tree that hold nothing but shadows, those of that cgroup go.
  void ShrinkShadows(File& file, MemcgId memcg) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
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
  // Neither dirty nor being written any more: it goes.
  void ClearDirty(CpuSlot& slot, FolioId head);
  // Truncates what is left of a file that has no page any more where the trace comes from.
  void TruncateRest(CpuSlot& slot, File& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  // Deletes every page: the object is gone.
  void DeleteAll(CpuSlot& slot, File& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);

  // A page-table entry takes, or lets go of, this very page.  Map() needs the file's mutex where it is a
  // file's; false where so many entries hold the page that none more can be counted.
  bool Map(CpuSlot& slot, FolioId page);
  // By the holder of the entry's address space.
  void Unmap(CpuSlot& slot, FolioId page) {
    Folio& folio = arena_.Get(page);
    if (folio.alone()) return lru_.End(slot, page);
    if (folio.Has(kFolioTail)) return UnmapTail(slot, page);
    uint64_t before = folio.state.fetch_sub(Folio::kOneMapping, std::memory_order_acq_rel);
    if (Folio::MapcountOf(before) == 1) UnmapLast(slot, page, before);
  }

 private:
  void MarkUnmapped(CpuSlot& slot, FolioId head);
  void UnmapTail(CpuSlot& slot, FolioId page);
  // What follows from a head's last mapping's end; `before`: its state with it.
  void UnmapLast(CpuSlot& slot, FolioId page, uint64_t before);
  void AddCharged(CpuSlot& slot, File& file, PageIndex index, uint32_t order, MemcgId memcg, uint32_t flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(file.mutex);
  int64_t WorkingsetPages(const Memcg& evictor, bool file) const;

  MemcgTree& tree_;
  FolioArena& arena_;
  Charges<Forms>& charges_;
  Lru<Forms>& lru_;
  Writeback<Forms>& writeback_;
  DiskReads& reads_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PAGE_CACHE_H_
