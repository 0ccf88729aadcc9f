// One address space, and the processes and threads that use it.
//
// Kernel counterpart: struct mm_struct, task_struct and signal_struct, as far as memory is concerned.  An
// address space is charged to the cgroup of its owner (mm->owner).  Threads and vforked children share one.
//
// Thread safety: Mm under its mutex, but for memcg; Process and its table under the table's mutex, but for mm
// and memcg, which any batch may read; a Thread is its stream's own, but for process.
#ifndef MEMCGD_CORE_MM_H_
#define MEMCGD_CORE_MM_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "core/mutex.h"
#include "core/page_table.h"
#include "core/units.h"
#include "core/vma_set.h"

namespace memcgd::core {

// Pages of a file that lie `delta` above their index.
struct ImpliedArea {
  FileId file = FileId::kNone;
  int64_t delta = 0;
  bool has_anon_vma = false;
};

struct Mm {
  MmId id{};
  // Charged for what is faulted in.  Relaxed: a move between cgroups is ordered by its cut.
  std::atomic<MemcgId> memcg{MemcgId::kRoot};

  Mutex mutex;
  VmaSet vmas ABSL_GUARDED_BY(mutex);
  PageTable page_table ABSL_GUARDED_BY(mutex);
  MemcgId pgd ABSL_GUARDED_BY(mutex) = MemcgId::kNone;  // whom the PGD is charged to; kNone: it is not
  bool stack_unplaced ABSL_GUARDED_BY(mutex) = false;   // its tables are where execve made them
  bool tables_predate ABSL_GUARDED_BY(mutex) =
      false;  // tables were there before the stream, nobody knows which
  // Pages that exec wrote arguments to, at an address that no event told.  They count like any other, and the
  // first write fault on an unseen page of the stack (after a fork) finds one.
  std::vector<FolioId> unbound ABSL_GUARDED_BY(mutex);
  // Areas that exec mapped and no event told: known from where their file's pages were found.
  std::vector<ImpliedArea> implied ABSL_GUARDED_BY(mutex);
  // Page of the program's first instruction, in its interpreter: the stack lies above all that is mapped near
  // it.
  PageNumber entry ABSL_GUARDED_BY(mutex) = 0;
  PageNumber brk ABSL_GUARDED_BY(mutex) = 0;            // first page past the heap; 0: not told yet
  int64_t total_pages ABSL_GUARDED_BY(mutex) = 0;       // of all areas
  int64_t committed_pages ABSL_GUARDED_BY(mutex) = 0;   // its part of Committed_AS
  bool predates_stream ABSL_GUARDED_BY(mutex) = false;  // began before the stream did: areas unknown

  // Under the process table's mutex.
  uint32_t users = 0;
  ProcessId owner = ProcessId::kNone;
};

struct Process {
  ProcessId id{};  // constant
  // Rises when the process ends, so that threads whose own exits were lost do not take the next of that id
  // for theirs.
  std::atomic<uint32_t> generation{0};
  uint32_t tgid = 0;
  uint32_t threads = 0;  // alive
  // Their kernel stacks: whom they are charged to, and how many.
  std::vector<std::pair<MemcgId, uint32_t>> stacks;
  std::atomic<MmId> mm{MmId::kNone};  // release/acquire: publishes the Mm
  std::atomic<MemcgId> memcg{MemcgId::kRoot};
  std::atomic<MmId> exec_mm{MmId::kNone};  // being filled by execve; changes under the table's mutex
  int32_t oom_score_adj = 0;               // −1000 … 1000
  std::string comm;
};

// What the thread's events said of its coming fault.
struct FaultHints {
  FileId fault_file = FileId::kNone;  // mm_filemap_fault
  PageIndex fault_index = 0;
  bool fault_major = false;   // the page was not cached: the fault is retried, and this hint comes again
  bool fault_unseen = false;  // nothing is known of the page: major if this thread adds it now
  FileId map_file = FileId::kNone;  // mm_filemap_map_pages
  PageIndex map_first = 0;
  PageIndex map_end = 0;
  PageNumber instruction = 0;

  bool empty() const { return !file_backed() && instruction == 0; }
  bool file_backed() const { return fault_file != FileId::kNone || map_file != FileId::kNone; }
};

// A process and its generation, in one word.
struct ProcessRef {
  ProcessId id = ProcessId::kNone;
  uint32_t generation = 0;
};

struct Thread {
  std::atomic<ProcessRef> process{ProcessRef{}};  // release/acquire: publishes the Process
  MemcgId stack = MemcgId::kNone;                 // whom its kernel stack is charged to
  FaultHints hints;
  bool oom_killed = false;  // what its events tell did not happen here
  bool in_reclaim = false;  // between reclaim begin and end
  // The last reads of a few files (file_ra_state::prev_pos is per open file; a thread's reads are the nearest
  // we see).
  std::array<ReadPosition, 4> reads;
  uint8_t next_read = 0;
};

// A table of T by index, from 1; grows without moving; freed indices are used again, smallest first for none:
// last freed first.  Thread safety: Get() by anyone who got the index in order; Allocate and Free under the
// owner's mutex.
template <typename T>
class IndexedTable {
 public:
  IndexedTable() : chunks_(new std::atomic<T*>[kMaxChunks]()) {}
  ~IndexedTable() {
    for (uint32_t i = 0; i < kMaxChunks; ++i) delete[] chunks_[i].load(std::memory_order_relaxed);
  }
  T& Get(uint32_t index) const {
    return chunks_[index / kChunk].load(
        std::memory_order_acquire)[index % kChunk];  // pairs with EnsureChunk()
  }
  bool Exists(uint32_t index) const {
    return index / kChunk < kMaxChunks && chunks_[index / kChunk].load(std::memory_order_acquire) != nullptr;
  }
  uint32_t Allocate() {
    if (!free_.empty()) {
      uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    uint32_t index = end_++;
    EnsureChunk(index);
    return index;
  }
  void Free(uint32_t index) { free_.push_back(index); }
  void EnsureChunk(uint32_t index) {
    MEMCG_CHECK(index / kChunk < kMaxChunks);
    std::atomic<T*>& chunk = chunks_[index / kChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new T[kChunk], std::memory_order_release);  // pairs with Get()
    }
  }
  uint32_t end() const { return end_; }
  const std::vector<uint32_t>& free() const { return free_; }
  void Restore(uint32_t end, std::vector<uint32_t> free) {
    for (uint32_t i = 0; i < end; i += kChunk) EnsureChunk(i);
    if (end > 0) EnsureChunk(end - 1);
    end_ = end;
    free_ = std::move(free);
  }

 private:
  static constexpr uint32_t kChunk = 256;
  static constexpr uint32_t kMaxChunks = (1u << 22) / kChunk;

  std::unique_ptr<std::atomic<T*>[]> chunks_;
  uint32_t end_ = 1;
  std::vector<uint32_t> free_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MM_H_
