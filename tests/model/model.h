// A naive model of a node: maps, one thread, no batches, no stock, nothing incremental that a sum can say.
//
// Written from docs and kernel rules, to be obviously right: every count of pages is taken by going over the
// pages, every count of committed pages by going over the areas.  Only counts of things that happened
// (faults, pages in and out) are kept as they happen.  What it leaves out: LRU lists, refaults, limits,
// refusals, the heuristics for areas that no event told of (special mappings, the stack and where its tables
// go, stand-ins of tmpfs files without a name).
#ifndef MEMCGD_TESTS_MODEL_MODEL_H_
#define MEMCGD_TESTS_MODEL_MODEL_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/event.h"

namespace memcgd::model {

struct Stats {
  int64_t anon = 0, file = 0, shmem = 0, file_mapped = 0, file_dirty = 0;  // pages
  int64_t pagetables = 0, kernel_stack = 0;                                // pages
  int64_t pgfault = 0, pgmajfault = 0, pgpgin = 0, pgpgout = 0;            // counts
  int64_t charged = 0;                                                     // pages

  Stats& operator+=(const Stats& other);
};

struct Group {
  std::string path;
  Group* parent = nullptr;
  bool online = true;
  Stats happened;  // pgfault, pgmajfault, pgpgin, pgpgout
};

struct File;

// One page, or several that came and go together.
struct Folio {
  Group* group = nullptr;
  File* file = nullptr;  // null: anonymous
  bool cached = false;   // in its file; anonymous ones never are
  bool dirty = false;
  bool readahead = false;
  uint64_t index = 0;
  std::vector<int> mapped;  // page-table entries, by page

  bool anon() const { return file == nullptr; }
  int mappings() const {
    int sum = 0;
    for (int count : mapped) sum += count;
    return sum;
  }
};
using FolioRef = std::shared_ptr<Folio>;

struct File {
  bool shmem = false;
  bool nameless = false;        // shared anonymous memory: ends with its last area
  int64_t committed_pages = 0;  // of nameless ones
  std::map<uint64_t, FolioRef> pages;
  std::set<uint64_t> absent;  // known not to be cached; neither here nor there: never seen
};

struct Entry {
  FolioRef folio;  // null: the zero page
  size_t part = 0;
  bool writable = false;  // a write makes no fault
};

struct Area {
  uint64_t first = 0, end = 0;
  uint32_t prot = 0, flags = 0;
  File* file = nullptr;
  uint64_t file_index = 0;
  bool had_anon = false;   // an anonymous page was made in it
  bool accounted = false;  // part of Committed_AS
  bool locked = false;

  bool shared() const { return (flags & core::kMapTypeMask) != core::kMapPrivate; }
  bool anonymous() const { return (flags & core::kMapAnonymous) != 0; }
};

struct Process;

struct Mm {
  Group* group = nullptr;
  Process* owner = nullptr;
  int users = 1;
  uint64_t brk = 0;
  std::map<uint64_t, Area> areas;
  std::map<uint64_t, Entry> entries;
  // Page tables by level (0: the lowest) and number, and the PGD: who pays.  Null: nobody, they were there.
  std::map<std::pair<int, uint64_t>, Group*> tables;
  Group* pgd = nullptr;
  bool tables_predate = false;
  bool stack_unplaced = false;
  std::vector<FolioRef> arguments;  // written by exec, at no address yet
};

struct Process {
  Group* group = nullptr;
  Mm* mm = nullptr;
  Mm* exec_mm = nullptr;
  int threads = 0;
  int oom_score_adj = 0;
  bool ended = false;
};

struct Thread {
  Process* process = nullptr;
  Group* stack = nullptr;  // who pays for it; null: nobody
  File* fault_file = nullptr;
  uint64_t fault_index = 0;
  bool fault_major = false;
  bool fault_unseen = false;
  File* map_file = nullptr;
  uint64_t map_first = 0, map_end = 0;
};

class Model {
 public:
  struct Config {
    uint32_t page_shift = 12;
    int64_t ram_and_swap_pages = 0;
    bool zero_page = true;
  };
  explicit Model(const Config& config);

  void Apply(const core::Event& event);
  void Apply(const core::WideEvent& event);

  // Of the online cgroups, by path; recursive, dying and dead descendants included.
  std::map<std::string, Stats> Read() const;
  // Of the online cgroups themselves.
  std::map<std::string, Stats> ReadLocal() const;
  int64_t CommittedPages() const;

  // What a generator of sensible events looks at.
  const std::map<uint32_t, Thread>& threads() const { return threads_; }
  const Thread* Alive(uint32_t tid) const;
  const Group* Online(const std::string& path) const;
  const File* FileOf(uint32_t handle) const { return files_.at(handle); }

 private:
  Thread* Find(uint32_t tid);
  Thread& ThreadOf(uint32_t tid);
  Mm& MmOf(uint32_t tid) { return *ThreadOf(tid).process->mm; }
  Group* FindGroup(const std::string& path);
  Process* NewProcess(Group* group);
  Mm* NewMm(Process* owner, Group* group);
  void PutMm(Mm* mm);
  void EndProcess(Process* process);
  void Exit(uint32_t tid, bool group_dead);
  void Attach(uint32_t tid, Group* group);

  static Area* FindArea(Mm& mm, uint64_t page);
  static void SplitAt(Mm& mm, uint64_t page);
  std::vector<Area*> AreasWithin(Mm& mm, uint64_t first, uint64_t end);  // after splitting
  void Unmap(Mm& mm, uint64_t first, uint64_t end);
  void Zap(Mm& mm, uint64_t first, uint64_t end);
  static uint64_t TableEnd(const std::pair<int, uint64_t>& table);
  static bool HasTable(const Mm& mm, uint64_t page) { return mm.tables.contains({0, page / 512}); }
  void MakeTables(Mm& mm, uint64_t page, int down_to = 0);
  void BeginExec(Mm& mm);
  void CopyTables(const Mm& from, Mm& to);
  void FreeTables(Mm& mm, uint64_t first, uint64_t end);
  void ReclaimTables(Mm& mm, uint64_t first, uint64_t end);
  void EndNamelessFiles();
  bool Accountable(const Area& area) const;
  void Mmap(Mm& mm, uint64_t first, uint64_t end, uint32_t prot, uint32_t flags, File* file,
            uint64_t file_index);
  void Brk(Mm& mm, uint64_t to);
  void Mremap(Mm& mm, uint64_t old_first, uint64_t old_end, uint64_t new_first, uint64_t new_end,
              uint32_t flags);
  void Mprotect(Mm& mm, uint64_t first, uint64_t end, uint32_t prot);
  void Madvise(Mm& mm, uint64_t first, uint64_t end, uint32_t advice);
  void Clone(uint32_t parent_tid, const core::wide::Clone& clone);

  void Fault(uint32_t tid, uint64_t page, uint32_t error_code);
  void WriteProtect(Mm& mm, uint64_t page, Area* area);
  void MapFile(Mm& mm, const Thread& hints, uint64_t page, Area* area, bool write);
  void MapShmem(Mm& mm, uint64_t page, Area& area, bool write);
  void MapAnonymous(Mm& mm, uint64_t page, Area* area, bool write);
  void Populate(Mm& mm, uint64_t first, uint64_t end, bool write);
  bool Present(Mm& mm, uint64_t page);
  FolioRef NewAnonymous(Mm& mm);
  void SetAnonymous(Mm& mm, uint64_t page, Area* area);
  void Map(Mm& mm, uint64_t page, const FolioRef& folio, size_t part, bool writable);
  void Drop(Mm& mm, uint64_t page);
  void Unmapped(Folio& folio, size_t part);

  void FileFault(Thread& thread, File* file, uint64_t index);
  void FileAdd(uint32_t tid, File* file, uint64_t index, uint32_t order);
  void AddFolio(File* file, uint64_t index, uint32_t order, Group* group);
  void FileDelete(File* file, uint64_t index, uint32_t order);
  void FileRead(File* file, uint64_t first, uint64_t last);
  void Dirty(File* file, uint64_t index);

  std::map<Group*, Stats> Local() const;

  const Config config_;
  core::OvercommitPolicy policy_ = core::OvercommitPolicy::kGuess;
  // Owners of all that was ever made; the dead stay, they harm nobody.
  std::list<Group> groups_;
  std::list<File> all_files_;
  std::list<Process> processes_;
  std::list<Mm> mms_;
  std::map<uint32_t, Thread> threads_;
  // The stream's handles; 0 is none.
  std::vector<std::string> paths_{""};
  std::vector<File*> files_{nullptr};
};

}  // namespace memcgd::model

#endif  // MEMCGD_TESTS_MODEL_MODEL_H_
