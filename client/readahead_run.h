// Where readahead leaves its mark.
//
// One thread's readahead of one file: what asked for it (a line of mm_filemap_fault, or the line of the read
// that follows the additions) and the pages that were added.  From them follows the page that carries
// PG_readahead, by which the kernel starts the next readahead and where fault-around stops.
//
// Kernel counterpart: mm/readahead.c (page_cache_sync_ra(), page_cache_async_ra()) and mm/filemap.c
// (do_sync_mmap_readahead()).  Differs: a mark that a folio outside the added pages would carry is not known.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_READAHEAD_RUN_H_
#define MEMCGD_CLIENT_READAHEAD_RUN_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace memcgd::client {

class ReadaheadRun {
 public:
  struct Mark {
    uint32_t file;
    uint64_t index;
  };

  bool active() const { return cause_ != Cause::kNone || !added_.empty(); }
  void Forget() { Begin(Cause::kNone, 0, 0); }

  void Fault(uint32_t file, uint64_t index) { Begin(Cause::kFault, file, index); }
  // write(2) adds pages too, and reads none ahead.
  void Write(uint32_t file) { Begin(Cause::kWrite, file, 0); }

  void Add(uint32_t file, uint64_t index, uint64_t pages) {
    if (file != file_) Begin(Cause::kNone, file, 0);
    if (!added_.empty() && added_.back().end == index) {
      added_.back().end = index + pages;
    } else if (added_.size() < kMaxPieces) {
      added_.push_back({index, index + pages});
    }
  }

  // Pages that a write(2) made are dirty then, and nothing was read ahead.
  void Dirty() {
    if (cause_ != Cause::kFault) Forget();
  }

  // The thread goes on: it read pages first … last of `file`, which is what the pages were added for.
  std::optional<Mark> AfterRead(uint32_t file, uint64_t first, uint64_t last, uint64_t window) const {
    if (file != file_) return AtEnd(window);
    if (added_.empty() || cause_ == Cause::kWrite) return std::nullopt;
    const uint64_t begin = added_.front().begin;
    if (begin > first) return Mark{file_, begin};  // asynchronous: the reader met the mark before it
    if (begin != 0) return std::nullopt;
    const uint64_t wanted = last + 1;
    const uint64_t size = InitialSize(wanted, window);
    return IfAdded(size > wanted ? wanted : size / 2);
  }

  // The thread goes on with something else.
  std::optional<Mark> AtEnd(uint64_t window) const {
    if (added_.empty() || cause_ != Cause::kFault) return std::nullopt;
    if (!Contains(fault_index_))
      return Mark{file_, added_.front().begin};                     // asynchronous: the fault met the mark
    if (added_.front().begin >= fault_index_) return std::nullopt;  // of code: straight ahead, no mark
    const uint64_t begin = fault_index_ - std::min(fault_index_, window / 2);
    const uint64_t pages = std::min(window, added_.back().end - std::min(begin, added_.back().end));
    return pages < window / 4 ? std::nullopt : IfAdded(begin + pages - window / 4);
  }

 private:
  enum class Cause : uint8_t { kNone, kFault, kWrite };
  struct Piece {
    uint64_t begin;
    uint64_t end;
  };
  static constexpr size_t kMaxPieces = 4096;  // a readahead with more gaps is not followed to its end
  static constexpr size_t kKeptPieces = 64;   // a thread holds no more than that for its next readahead

  void Begin(Cause cause, uint32_t file, uint64_t fault_index) {
    cause_ = cause;
    file_ = file;
    fault_index_ = fault_index;
    added_.clear();
    if (added_.capacity() > kKeptPieces) added_ = {};
  }
  bool Contains(uint64_t index) const {
    return std::any_of(added_.begin(), added_.end(),
                       [index](const Piece& piece) { return piece.begin <= index && index < piece.end; });
  }
  std::optional<Mark> IfAdded(uint64_t index) const {
    return Contains(index) ? std::optional<Mark>({file_, index}) : std::nullopt;
  }
  // get_init_ra_size().
  static uint64_t InitialSize(uint64_t wanted, uint64_t window) {
    const uint64_t size = std::bit_ceil(std::min(wanted, window));
    if (size <= window / 32) return size * 4;
    return size <= window / 4 ? size * 2 : window;
  }

  Cause cause_ = Cause::kNone;
  uint32_t file_ = 0;
  uint64_t fault_index_ = 0;
  std::vector<Piece> added_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_READAHEAD_RUN_H_
