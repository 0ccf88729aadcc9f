// The faults of one call that faults in pages of files (mmap with MAP_POPULATE, mlock, MADV_POPULATE_READ …):
// which of its lines mm_filemap_fault and mm_filemap_map_pages belong to one fault.
//
// Kernel counterpart: populate_vma_page_range() and faultin_page() (mm/gup.c) go through the pages in order
// and fault in each that is absent; do_read_fault() (mm/memory.c) first maps what is cached around it
// (mm_filemap_map_pages), and asks for the page itself (mm_filemap_fault) where that did not map it.  A miss
// drops the lock and is tried again: more lines, the same fault.  So
//   - a mm_filemap_map_pages begins a fault, unless it is the second try of a mm_filemap_fault within it;
//   - a mm_filemap_fault ends the fault whose mm_filemap_map_pages has it, or begins one of its own.
//
// Memory: two places of the window a line, and no more lines than the window has places.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_POPULATE_RUN_H_
#define MEMCGD_CLIENT_POPULATE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/event_window.h"
#include "client/waiting_event.h"

namespace memcgd::client {

class PopulateRun {
 public:
  struct Line {
    FileEvent event;
    Slot hint = kNoSlot;    // where the line itself is told
    Slot fault = kNoSlot;   // behind it, where its fault is told if this is its last line
    bool ends = true;       // it is
    bool has_page = false;  // `page` is the one that was absent; else the first that can have been
    uint64_t page = 0;
  };

  bool empty() const { return lines_.empty(); }
  bool lost() const { return lost_; }
  // The window has no room for the run: nothing more of it is told.
  void Lose() {
    lost_ = true;
    lines_.clear();
  }

  void Add(const FileEvent& event, Slot hint, Slot fault);

  // The lines that later ones cannot change any more, or all; they are taken out.
  std::vector<Line> Take(bool all);

 private:
  void AddFault(Line line);
  void AddMapPages(Line line);

  // Of the fault that the last line belongs to.
  struct Window {
    uint64_t first = 0;
    uint64_t end = 0;
    bool Has(uint64_t index) const { return index >= first && index < end; }
  };
  uint32_t file_ = 0;
  bool has_page_ = false;
  bool tried_again_ = false;  // mm_filemap_map_pages came after mm_filemap_fault
  uint64_t page_ = 0;
  uint64_t next_page_ = 0;  // behind the page of the fault before
  Window window_;
  bool lost_ = false;
  std::vector<Line> lines_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_POPULATE_RUN_H_
