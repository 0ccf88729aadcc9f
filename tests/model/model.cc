#include "tests/model/model.h"

#include <algorithm>
#include <set>
#include <variant>

namespace memcgd::model {

using core::EventKind;
namespace wide = core::wide;

Stats& Stats::operator+=(const Stats& other) {
  anon += other.anon;
  file += other.file;
  shmem += other.shmem;
  file_mapped += other.file_mapped;
  file_dirty += other.file_dirty;
  pagetables += other.pagetables;
  kernel_stack += other.kernel_stack;
  pgfault += other.pgfault;
  pgmajfault += other.pgmajfault;
  pgpgin += other.pgpgin;
  pgpgout += other.pgpgout;
  charged += other.charged;
  return *this;
}

Model::Model(const Config& config) : config_(config) { groups_.push_back({"/", nullptr, true, {}}); }

// ---- reading

std::map<Group*, Stats> Model::Local() const {
  std::map<Group*, Stats> local;
  for (const Group& group : groups_) local[const_cast<Group*>(&group)] = group.happened;
  std::set<Folio*> anonymous;
  for (const Mm& mm : mms_) {
    for (const auto& [page, entry] : mm.entries) {
      if (entry.folio != nullptr && entry.folio->anon()) anonymous.insert(entry.folio.get());
    }
    for (const FolioRef& folio : mm.arguments) anonymous.insert(folio.get());
  }
  for (Folio* folio : anonymous) {
    local[folio->group].anon += 1;
    local[folio->group].charged += 1;
  }
  const Group* root = &groups_.front();
  auto pay = [&](Group* payer, int64_t Stats::*line, int64_t pages) {
    if (payer == nullptr || payer == root) return;
    local[payer].*line += pages;
    local[payer].charged += pages;
  };
  for (const Mm& mm : mms_) {
    for (const auto& [table, payer] : mm.tables) pay(payer, &Stats::pagetables, 1);
    pay(mm.pgd, &Stats::pagetables, 2);
  }
  for (const auto& [tid, thread] : threads_) {
    if (!thread.process->ended) pay(thread.stack, &Stats::kernel_stack, config_.page_shift == 12 ? 4 : 1);
  }
  for (const File& file : all_files_) {
    std::set<Folio*> cached;
    for (const auto& [index, folio] : file.pages) cached.insert(folio.get());
    for (Folio* folio : cached) {
      int64_t pages = static_cast<int64_t>(folio->mapped.size());
      Stats& stats = local[folio->group];
      stats.file += pages;
      if (file.shmem) stats.shmem += pages;
      if (folio->dirty) stats.file_dirty += pages;
      stats.charged += pages;
      for (int mappings : folio->mapped) stats.file_mapped += mappings > 0;
    }
  }
  return local;
}

std::map<std::string, Stats> Model::Read() const {
  std::map<const Group*, Stats> recursive;
  for (const auto& [group, stats] : Local()) {
    for (const Group* level = group; level != nullptr; level = level->parent) recursive[level] += stats;
  }
  std::map<std::string, Stats> online;
  for (const auto& [group, stats] : recursive) {
    if (group->online) online[group->path] = stats;
  }
  return online;
}

std::map<std::string, Stats> Model::ReadLocal() const {
  std::map<std::string, Stats> online;
  for (const auto& [group, stats] : Local()) {
    if (group->online) online[group->path] = stats;
  }
  return online;
}

int64_t Model::CommittedPages() const {
  int64_t pages = 0;
  for (const Mm& mm : mms_) {
    for (const auto& [first, area] : mm.areas) {
      if (area.accounted) pages += static_cast<int64_t>(area.end - area.first);
    }
  }
  for (const File& file : all_files_) pages += file.committed_pages;
  return pages;
}

const Thread* Model::Alive(uint32_t tid) const {
  auto found = threads_.find(tid);
  return found == threads_.end() || found->second.process->ended ? nullptr : &found->second;
}

const Group* Model::Online(const std::string& path) const {
  for (const Group& group : groups_) {
    if (group.online && group.path == path) return &group;
  }
  return nullptr;
}

// ---- threads and processes

Thread* Model::Find(uint32_t tid) { return const_cast<Thread*>(Alive(tid)); }
Group* Model::FindGroup(const std::string& path) { return const_cast<Group*>(Online(path)); }

Process* Model::NewProcess(Group* group) {
  processes_.push_back({});
  processes_.back().group = group;
  return &processes_.back();
}

Mm* Model::NewMm(Process* owner, Group* group) {
  mms_.push_back({});
  mms_.back().owner = owner;
  mms_.back().group = group;
  return &mms_.back();
}

// A thread that nobody saw begin is the only one of its process, in the root.
Thread& Model::ThreadOf(uint32_t tid) {
  if (Thread* known = Find(tid)) return *known;
  Process* process = NewProcess(&groups_.front());
  process->mm = NewMm(process, process->group);
  process->mm->tables_predate = true;
  process->threads = 1;
  Thread& thread = threads_[tid];
  thread = Thread{};
  thread.process = process;
  return thread;
}

void Model::PutMm(Mm* mm) {
  if (mm == nullptr || --mm->users > 0) return;
  Unmap(*mm, 0, ~uint64_t{0});
  for (const FolioRef& folio : mm->arguments) Unmapped(*folio, 0);
  mm->arguments.clear();
  mm->pgd = nullptr;
}

void Model::EndProcess(Process* process) {
  if (process->ended) return;
  process->ended = true;
  PutMm(process->exec_mm);
  PutMm(process->mm);
}

// The last thread's space stays until exit_mmap is told, unless others use it too.
void Model::Exit(uint32_t tid, bool group_dead) {
  Thread* thread = Find(tid);
  if (thread == nullptr) return;
  Process* process = thread->process;
  if (group_dead) {
    if (process->mm->users > 1) EndProcess(process);
    return;
  }
  threads_.erase(tid);
  if (--process->threads == 0) EndProcess(process);
}

// What is charged already stays where it is.
void Model::Attach(uint32_t tid, Group* group) {
  Process* process = ThreadOf(tid).process;
  process->group = group;
  for (Mm* mm : {process->mm, process->exec_mm}) {
    if (mm != nullptr && mm->owner == process) mm->group = group;
  }
}

void Model::Clone(uint32_t parent_tid, const wide::Clone& clone) {
  ThreadOf(parent_tid);
  if (Find(clone.child_tid) != nullptr) Exit(clone.child_tid, false);
  Process* parent = ThreadOf(parent_tid).process;
  Thread child;
  child.stack = parent->group;
  if (clone.thread) {
    child.process = parent;
    ++parent->threads;
  } else {
    Process* process = NewProcess(parent->group);
    process->threads = 1;
    process->oom_score_adj = parent->oom_score_adj;
    child.process = process;
    if (clone.shares_mm) {
      ++parent->mm->users;
      process->mm = parent->mm;
    } else {
      process->mm = NewMm(process, process->group);
      Mm& from = *parent->mm;
      Mm& to = *process->mm;
      to.brk = from.brk;
      to.areas = from.areas;
      for (auto& [first, area] : to.areas) area.locked = false;
      CopyTables(from, to);
      for (auto& [page, entry] : from.entries) {
        if (entry.folio == nullptr) {
          MakeTables(to, page);
          to.entries[page] = entry;
          continue;
        }
        if (!entry.folio
                 ->anon()) {  // a file's page can be faulted again, unless the area has pages of its own
          if (!entry.folio->cached) continue;
          Area* area = FindArea(from, page);
          if (area == nullptr || !area->had_anon) continue;
        }
        entry.writable = false;
        MakeTables(to, page);
        Map(to, page, entry.folio, entry.part, false);
      }
      to.arguments = from.arguments;
      for (const FolioRef& folio : to.arguments) ++folio->mapped[0];
    }
  }
  threads_[clone.child_tid] = child;
}

// ---- areas

Area* Model::FindArea(Mm& mm, uint64_t page) {
  for (auto& [first, area] : mm.areas) {
    if (page >= area.first && page < area.end) return &area;
  }
  return nullptr;
}

void Model::SplitAt(Mm& mm, uint64_t page) {
  Area* area = FindArea(mm, page);
  if (area == nullptr || area->first == page) return;
  Area upper = *area;
  upper.file_index += page - area->first;
  upper.first = page;
  area->end = page;
  mm.areas[page] = upper;
}

std::vector<Area*> Model::AreasWithin(Mm& mm, uint64_t first, uint64_t end) {
  SplitAt(mm, first);
  SplitAt(mm, end);
  std::vector<Area*> areas;
  for (auto& [at, area] : mm.areas) {
    if (area.first >= first && area.end <= end) areas.push_back(&area);
  }
  return areas;
}

void Model::Unmap(Mm& mm, uint64_t first, uint64_t end) {
  Zap(mm, first, end);
  for (Area* area : AreasWithin(mm, first, end)) mm.areas.erase(area->first);
  FreeTables(mm, first, end);
  EndNamelessFiles();
}

// ---- page tables: 512 entries each; level 0 maps pages, level 1 tables of level 0, level 2 those

namespace {

constexpr uint64_t kStackTop = (uint64_t{0x7ffffffff000} >> 12) - 1;

uint64_t PagesOf(int level) { return level == 0 ? 512 : 512 * PagesOf(level - 1); }

}  // namespace

uint64_t Model::TableEnd(const std::pair<int, uint64_t>& table) {
  return (table.second + 1) * PagesOf(table.first);
}

void Model::MakeTables(Mm& mm, uint64_t page, int down_to) {
  for (int level = 2; level >= down_to; --level) {
    // Of what was there before the stream only the pages of an area that it made are known to be new.
    bool known = !mm.tables_predate || (level == 0 && FindArea(mm, page) != nullptr);
    mm.tables.try_emplace({level, page / PagesOf(level)}, known ? mm.group : nullptr);
  }
}

void Model::BeginExec(Mm& mm) {
  mm.pgd = mm.group;
  MakeTables(mm, kStackTop);
  mm.stack_unplaced = true;
}

// Of what areas with pages of their own need.
void Model::CopyTables(const Mm& from, Mm& to) {
  to.pgd = to.group;
  for (const auto& [table, payer] : from.tables) {
    uint64_t first = table.second * PagesOf(table.first);
    for (const auto& [at, area] : from.areas) {
      bool needs = area.had_anon && area.first < TableEnd(table) && area.end > first;
      if (needs) MakeTables(to, std::max(first, area.first), table.first);
    }
  }
  if (from.stack_unplaced) MakeTables(to, kStackTop);
  to.stack_unplaced = from.stack_unplaced;
}

// Those that have a page of the range, and that no area and no entry needs any more.
void Model::FreeTables(Mm& mm, uint64_t first, uint64_t end) {
  for (int level = 0; level <= 2; ++level) {
    for (auto it = mm.tables.begin(); it != mm.tables.end();) {
      uint64_t from = it->first.second * PagesOf(level), to = from + PagesOf(level);
      bool needed = it->first.first != level || to <= first || from >= end;
      for (const auto& [at, area] : mm.areas) needed = needed || (area.first < to && area.end > from);
      for (const auto& [page, entry] : mm.entries) needed = needed || (page >= from && page < to);
      for (const auto& [below, payer] : mm.tables) {
        needed = needed || (below.first == level - 1 && TableEnd(below) > from && TableEnd(below) <= to);
      }
      it = needed ? std::next(it) : mm.tables.erase(it);
    }
  }
}

// Those of the lowest level that lie wholly in the range and in one area, or in none.
void Model::ReclaimTables(Mm& mm, uint64_t first, uint64_t end) {
  for (auto it = mm.tables.begin(); it != mm.tables.end();) {
    uint64_t from = it->first.second * 512, to = from + 512;
    bool whole = it->first.first == 0 && from >= first && to <= end;
    for (const auto& [at, area] : mm.areas) {
      bool overlaps = area.first < to && area.end > from;
      if (overlaps && (area.first > from || area.end < to)) whole = false;
    }
    it = whole ? mm.tables.erase(it) : std::next(it);
  }
}

void Model::Zap(Mm& mm, uint64_t first, uint64_t end) {
  std::vector<uint64_t> pages;
  for (const auto& [page, entry] : mm.entries) {
    if (page >= first && page < end) pages.push_back(page);
  }
  for (uint64_t page : pages) Drop(mm, page);
}

void Model::EndNamelessFiles() {
  std::set<const File*> mapped;
  for (const Mm& mm : mms_) {
    for (const auto& [first, area] : mm.areas) mapped.insert(area.file);
  }
  for (File& file : all_files_) {
    if (!file.nameless || mapped.contains(&file)) continue;
    while (!file.pages.empty()) FileDelete(&file, file.pages.begin()->first, 0);
    file.absent.clear();
    file.committed_pages = 0;
  }
}

bool Model::Accountable(const Area& area) const {
  bool no_reserve = (area.flags & core::kMapNoReserve) != 0 && policy_ != core::OvercommitPolicy::kNever;
  return !area.shared() && (area.prot & core::kProtWrite) != 0 && !no_reserve &&
         (area.flags & core::kMapHugetlb) == 0;
}

void Model::Mmap(Mm& mm, uint64_t first, uint64_t end, uint32_t prot, uint32_t flags, File* file,
                 uint64_t file_index) {
  Unmap(mm, first, end);
  Area area;
  area.first = first;
  area.end = end;
  area.prot = prot;
  area.flags = flags;
  area.file = file;
  area.file_index = area.anonymous() ? 0 : file_index;
  area.locked = (flags & core::kMapLocked) != 0;
  if (area.shared() && area.anonymous()) {
    all_files_.push_back({});
    area.file = &all_files_.back();
    area.file->shmem = area.file->nameless = true;
    area.file->committed_pages = static_cast<int64_t>(end - first);
  }
  area.accounted = Accountable(area);
  mm.areas[first] = area;
  if ((flags & (core::kMapPopulate | core::kMapLocked)) != 0) Populate(mm, first, end, !area.shared());
}

void Model::Brk(Mm& mm, uint64_t to) {
  uint64_t from = mm.brk;
  mm.brk = to;
  if (from == 0 || from == to) return;
  if (to < from) {
    Unmap(mm, to, from);
  } else {
    Mmap(mm, from, to, core::kProtRead | core::kProtWrite, core::kMapPrivate | core::kMapAnonymous, nullptr,
         0);
  }
}

// Of one area, or a part of one; that is all a generator may ask.
void Model::Mremap(Mm& mm, uint64_t old_first, uint64_t old_end, uint64_t new_first, uint64_t new_end,
                   uint32_t flags) {
  if (FindArea(mm, old_first) == nullptr) return;
  bool moves = old_first != new_first;
  if (moves && new_first < old_end && old_first < new_end) return;
  SplitAt(mm, old_first);
  SplitAt(mm, old_end);
  Area area = *FindArea(mm, old_first);
  if (moves) {
    Unmap(mm, new_first, new_end);
  } else if (new_end > old_end) {
    Unmap(mm, old_end, new_end);
  }
  uint64_t kept_end = std::min(old_end, old_first + (new_end - new_first));
  if (kept_end < old_end) Unmap(mm, kept_end, old_end);
  if (moves) {
    std::vector<uint64_t> tables;
    for (const auto& [table, payer] : mm.tables) {
      if (table.first == 0) tables.push_back(table.second * 512);
    }
    for (uint64_t table : tables) {
      for (uint64_t page = std::max(table, old_first); page < std::min(table + 512, kept_end); ++page) {
        MakeTables(mm, page - old_first + new_first);
      }
    }
    std::map<uint64_t, Entry> moved;
    for (uint64_t page = old_first; page < kept_end; ++page) {
      auto found = mm.entries.find(page);
      if (found == mm.entries.end()) continue;
      moved[page - old_first + new_first] = found->second;
      mm.entries.erase(found);
    }
    mm.entries.insert(moved.begin(), moved.end());
    if ((new_first - old_first) % 512 == 0) ReclaimTables(mm, old_first, kept_end);
  }
  if (!moves || (flags & core::kMremapDontUnmap) == 0) mm.areas.erase(old_first);
  area.first = new_first;
  area.end = new_end;
  mm.areas[new_first] = area;
  if (moves && (flags & core::kMremapDontUnmap) == 0) FreeTables(mm, old_first, kept_end);
  if (area.locked) Populate(mm, new_first, new_end, true);
}

void Model::Mprotect(Mm& mm, uint64_t first, uint64_t end, uint32_t prot) {
  for (Area* area : AreasWithin(mm, first, end)) {
    area->prot = prot;
    if (!area->accounted) {
      area->accounted = Accountable(*area);
    } else if ((prot & core::kProtWrite) == 0 && area->anonymous() && !area->had_anon) {
      area->accounted = false;
    }
  }
}

void Model::Madvise(Mm& mm, uint64_t first, uint64_t end, uint32_t advice) {
  switch (advice) {
    case core::kMadvDontNeed:
    case core::kMadvDontNeedLocked:
      Zap(mm, first, end);
      ReclaimTables(mm, first, end);
      break;
    case core::kMadvGuardInstall:
      Zap(mm, first, end);
      break;
    case core::kMadvRemove:
      Zap(mm, first, end);
      for (Area* area : AreasWithin(mm, first, end)) {
        if (area->file == nullptr || !area->file->shmem) continue;
        for (uint64_t page = area->first; page < area->end; ++page) {
          uint64_t index = area->file_index + (page - area->first);
          if (area->file->pages.contains(index)) FileDelete(area->file, index, 0);
        }
      }
      break;
    case core::kMadvPopulateRead:
    case core::kMadvPopulateWrite:
      Populate(mm, first, end, advice == core::kMadvPopulateWrite);
      break;
    default:
      break;
  }
}

// ---- faults

// A page that has left its file is mapped nowhere, whatever an entry says.
bool Model::Present(Mm& mm, uint64_t page) {
  auto found = mm.entries.find(page);
  if (found == mm.entries.end()) return false;
  const FolioRef& folio = found->second.folio;
  if (folio == nullptr || folio->anon() || folio->cached) return true;
  Drop(mm, page);
  return false;
}

void Model::Fault(uint32_t tid, uint64_t page, uint32_t error_code) {
  Thread& thread = ThreadOf(tid);
  Thread hints = thread;
  thread = Thread{};
  thread.process = hints.process;
  thread.stack = hints.stack;
  if (hints.fault_major) return;  // it waits for the disk and comes again
  Mm& mm = *thread.process->mm;
  ++mm.group->happened.pgfault;
  bool write = (error_code & core::kFaultWrite) != 0;
  Area* area = FindArea(mm, page);
  bool shared = area != nullptr && area->shared();
  MakeTables(mm, page);
  if (Present(mm, page)) {
    if (write) WriteProtect(mm, page, area);
  } else if ((error_code & core::kFaultProtection) != 0) {
    if (write && !shared) SetAnonymous(mm, page, area);  // of a page that nobody saw come
  } else if (hints.fault_file != nullptr || hints.map_file != nullptr) {
    MapFile(mm, hints, page, area, write);
  } else if (shared || (area != nullptr && area->file != nullptr && area->file->shmem)) {
    MapShmem(mm, page, *area, write);
  } else {
    MapAnonymous(mm, page, area, write);
  }
}

void Model::WriteProtect(Mm& mm, uint64_t page, Area* area) {
  Entry& entry = mm.entries.at(page);
  bool own = entry.folio != nullptr && entry.folio->anon() && entry.folio->mappings() == 1;
  if (own || (area != nullptr && area->shared())) {
    entry.writable = true;
  } else {
    SetAnonymous(mm, page, area);
  }
}

void Model::MapFile(Mm& mm, const Thread& hints, uint64_t page, Area* area, bool write) {
  File* file = hints.fault_file != nullptr ? hints.fault_file : hints.map_file;
  if (area != nullptr && !area->anonymous()) area->file = file;
  if (write && (area == nullptr || !area->shared())) {
    SetAnonymous(mm, page, area);
    return;
  }
  if (hints.map_file != nullptr && area != nullptr) {  // around it: what is cached and lies in the area
    for (uint64_t index = hints.map_first; index < hints.map_end; ++index) {
      if (index < area->file_index || index - area->file_index >= area->end - area->first) continue;
      uint64_t at = area->first + (index - area->file_index);
      bool never_seen = !hints.map_file->pages.contains(index) && !hints.map_file->absent.contains(index);
      if (never_seen && hints.map_file->shmem) AddFolio(hints.map_file, index, 0, mm.group);
      auto cached = hints.map_file->pages.find(index);
      if (cached == hints.map_file->pages.end() || cached->second->readahead) continue;
      if (!HasTable(mm, at) || Present(mm, at)) continue;
      Map(mm, at, cached->second, index - cached->second->index, false);
    }
  }
  if (hints.fault_file == nullptr) return;
  auto cached = hints.fault_file->pages.find(hints.fault_index);
  if (cached == hints.fault_file->pages.end()) return;
  FolioRef folio = cached->second;
  for (size_t part = 0; part < folio->mapped.size(); ++part) {
    uint64_t at = page + folio->index + part - hints.fault_index;
    if (at != page && area != nullptr && (at < area->first || at >= area->end)) continue;
    if (HasTable(mm, at) && !Present(mm, at)) Map(mm, at, folio, part, area != nullptr && area->shared());
  }
}

// The object's page, made where it is not there; a write to a private area copies it.
void Model::MapShmem(Mm& mm, uint64_t page, Area& area, bool write) {
  if (area.file == nullptr || !area.file->shmem) return;
  uint64_t index = area.file_index + (page - area.first);
  if (!area.file->pages.contains(index)) AddFolio(area.file, index, 0, mm.group);
  FolioRef folio = area.file->pages.at(index);
  if (write && !area.shared()) {
    SetAnonymous(mm, page, &area);
  } else {
    Map(mm, page, folio, index - folio->index, area.shared());
  }
}

void Model::MapAnonymous(Mm& mm, uint64_t page, Area* area, bool write) {
  if (!write && config_.zero_page) {
    mm.entries[page] = Entry{};
  } else {
    SetAnonymous(mm, page, area);
  }
}

void Model::Populate(Mm& mm, uint64_t first, uint64_t end, bool write) {
  for (uint64_t page = first; page < end; ++page) {
    Area* area = FindArea(mm, page);
    if (area == nullptr) continue;
    bool object = area->file != nullptr && area->file->shmem;
    if (!object && !area->anonymous()) continue;  // a file's: its own events tell
    bool writes = write && !area->shared() && (area->prot & core::kProtWrite) != 0;
    MakeTables(mm, page);
    if (Present(mm, page)) {
      if (!writes || mm.entries.at(page).writable) continue;
      WriteProtect(mm, page, area);
    } else if (object) {
      MapShmem(mm, page, *area, writes);
    } else {
      MapAnonymous(mm, page, area, writes);
    }
    ++mm.group->happened.pgfault;
  }
}

FolioRef Model::NewAnonymous(Mm& mm) {
  FolioRef folio = std::make_shared<Folio>();
  folio->group = mm.group;
  folio->mapped = {0};
  ++mm.group->happened.pgpgin;
  return folio;
}

void Model::SetAnonymous(Mm& mm, uint64_t page, Area* area) {
  FolioRef folio = NewAnonymous(mm);
  if (area != nullptr) area->had_anon = true;
  Drop(mm, page);
  Map(mm, page, folio, 0, true);
}

void Model::Map(Mm& mm, uint64_t page, const FolioRef& folio, size_t part, bool writable) {
  ++folio->mapped[part];
  mm.entries[page] = {folio, part, writable};
}

void Model::Drop(Mm& mm, uint64_t page) {
  auto found = mm.entries.find(page);
  if (found == mm.entries.end()) return;
  Entry entry = found->second;
  mm.entries.erase(found);
  if (entry.folio != nullptr) Unmapped(*entry.folio, entry.part);
}

void Model::Unmapped(Folio& folio, size_t part) {
  --folio.mapped[part];
  if (folio.anon() && folio.mappings() == 0) ++folio.group->happened.pgpgout;
}

// ---- files

void Model::FileFault(Thread& thread, File* file, uint64_t index) {
  thread.fault_file = file;
  thread.fault_index = index;
  thread.fault_major = thread.fault_unseen = false;
  auto cached = file->pages.find(index);
  if (cached != file->pages.end()) {
    cached->second->readahead = false;
  } else if (!file->absent.contains(index)) {
    thread.fault_unseen = true;
  } else if (!file->shmem) {
    thread.fault_major = true;
    ++thread.process->mm->group->happened.pgmajfault;
  }
}

void Model::FileAdd(uint32_t tid, File* file, uint64_t index, uint32_t order) {
  Group* group = &groups_.front();
  if (Thread* thread = tid == 0 ? nullptr : Find(tid)) {
    group = thread->process->mm->group;
    bool awaited = thread->fault_unseen && thread->fault_file == file && thread->fault_index >= index &&
                   thread->fault_index < index + (uint64_t{1} << order);
    if (awaited) {
      thread->fault_unseen = false;
      thread->fault_major = true;
      ++group->happened.pgmajfault;
    }
  }
  AddFolio(file, index, order, group);
}

void Model::AddFolio(File* file, uint64_t index, uint32_t order, Group* group) {
  uint64_t pages = uint64_t{1} << order;
  for (uint64_t i = index; i < index + pages; ++i) {
    if (file->pages.contains(i)) FileDelete(file, i, 0);
  }
  FolioRef folio = std::make_shared<Folio>();
  folio->group = group;
  folio->file = file;
  folio->cached = true;
  folio->index = index;
  folio->mapped.assign(pages, 0);
  for (uint64_t i = index; i < index + pages; ++i) {
    file->pages[i] = folio;
    file->absent.erase(i);
  }
  group->happened.pgpgin += static_cast<int64_t>(pages);
}

// Every folio that holds a page of the range goes whole.  A page that is not there is known to be absent from
// now on.
void Model::FileDelete(File* file, uint64_t index, uint32_t order) {
  for (uint64_t i = index; i < index + (uint64_t{1} << order); ++i) {
    file->absent.insert(i);
    auto found = file->pages.find(i);
    if (found == file->pages.end()) continue;
    FolioRef folio = found->second;
    folio->cached = false;
    folio->group->happened.pgpgout += static_cast<int64_t>(folio->mapped.size());
    for (uint64_t page = folio->index; page < folio->index + folio->mapped.size(); ++page) {
      file->pages.erase(page);
      file->absent.insert(page);
    }
  }
}

void Model::FileRead(File* file, uint64_t first, uint64_t last) {
  for (uint64_t index = first; index <= last; ++index) {
    auto cached = file->pages.find(index);
    if (cached != file->pages.end()) cached->second->readahead = false;
  }
}

void Model::Dirty(File* file, uint64_t index) {
  auto cached = file->pages.find(index);
  if (cached != file->pages.end()) cached->second->dirty = true;
}

// ---- events

void Model::Apply(const core::Event& event) {
  uint32_t tid = event.tid();
  uint64_t page = event.page_number(), end = event.page_number() + event.pages();
  uint64_t index = event.index(), extra = event.extra();
  File* file = event.file() < files_.size() ? files_[event.file()] : nullptr;
  switch (event.kind()) {
    case EventKind::kFault:
      return Fault(tid, event.address() >> config_.page_shift, event.error_code());
    case EventKind::kFileFault:
      return FileFault(ThreadOf(tid), file, index);
    case EventKind::kMapPages: {
      Thread& thread = ThreadOf(tid);
      thread.map_file = file;
      thread.map_first = index;
      thread.map_end = index + extra + 1;
      thread.fault_major = false;
      return;
    }
    case EventKind::kFileAdd:
      return FileAdd(tid, file, index, event.extra());
    case EventKind::kFileDelete:
      return FileDelete(file, index, event.extra());
    case EventKind::kFileRead:
      return FileRead(file, index, index + extra);
    case EventKind::kFileDirty:
      return Dirty(file, index);
    case EventKind::kReadahead:
      if (file->pages.contains(index)) file->pages[index]->readahead = true;
      return;
    case EventKind::kMmapAnon:
      return Mmap(MmOf(tid), page, end, core::kProtRead | core::kProtWrite,
                  core::kMapPrivate | core::kMapAnonymous, nullptr, 0);
    case EventKind::kMunmap:
      return Unmap(MmOf(tid), page, end);
    case EventKind::kDontNeed:
      return Madvise(MmOf(tid), page, end, core::kMadvDontNeed);
    case EventKind::kBrk:
      return Brk(MmOf(tid),
                 (event.address() + (uint64_t{1} << config_.page_shift) - 1) >> config_.page_shift);
    case EventKind::kAccess:
      ThreadOf(tid);
      return;
    default:
      return;
  }
}

void Model::Apply(const core::WideEvent& event) {
  uint32_t tid = event.tid;
  auto page = [this](uint64_t address) { return address >> config_.page_shift; };
  auto mmap = [&](const wide::Mmap& map) {
    Mmap(MmOf(tid), page(map.address), page(map.address + map.length), map.prot, map.flags, files_[map.file],
         page(map.offset));
  };
  if (auto* path = std::get_if<wide::DefinePath>(&event.body)) {
    paths_.push_back(path->path);
  } else if (auto* file = std::get_if<wide::DefineFile>(&event.body)) {
    all_files_.push_back({});
    all_files_.back().shmem = file->shmem;
    files_.push_back(&all_files_.back());
  } else if (auto* map = std::get_if<wide::Mmap>(&event.body)) {
    mmap(*map);
  } else if (auto* area = std::get_if<wide::BaselineArea>(&event.body)) {
    mmap(area->area);
  } else if (auto* unmap = std::get_if<wide::Munmap>(&event.body)) {
    Unmap(MmOf(tid), page(unmap->address), page(unmap->address + unmap->length));
  } else if (auto* remap = std::get_if<wide::Mremap>(&event.body)) {
    Mremap(MmOf(tid), page(remap->old_address), page(remap->old_address + remap->old_length),
           page(remap->new_address), page(remap->new_address + remap->new_length), remap->flags);
  } else if (auto* protect = std::get_if<wide::Mprotect>(&event.body)) {
    Mprotect(MmOf(tid), page(protect->address), page(protect->address + protect->length), protect->prot);
  } else if (auto* advise = std::get_if<wide::Madvise>(&event.body)) {
    Madvise(MmOf(tid), page(advise->address), page(advise->address + advise->length), advise->advice);
  } else if (auto* lock = std::get_if<wide::Mlock>(&event.body)) {
    Mm& mm = MmOf(tid);
    for (Area* locked : AreasWithin(mm, page(lock->address), page(lock->address + lock->length))) {
      locked->locked = true;
      if (!lock->on_fault) Populate(mm, locked->first, locked->end, !locked->shared());
    }
  } else if (auto* unlock = std::get_if<wide::Munlock>(&event.body)) {
    Mm& mm = MmOf(tid);
    for (Area* locked : AreasWithin(mm, page(unlock->address), page(unlock->address + unlock->length))) {
      locked->locked = false;
    }
  } else if (auto* clone = std::get_if<wide::Clone>(&event.body)) {
    Clone(tid, *clone);
  } else if (auto* arguments = std::get_if<wide::ExecArguments>(&event.body)) {
    Process* process = ThreadOf(tid).process;
    if (process->exec_mm == nullptr) process->exec_mm = NewMm(process, process->group);
    if (process->exec_mm->pgd == nullptr) BeginExec(*process->exec_mm);
    for (uint32_t i = 0; i < std::max(arguments->pages, 1u); ++i) {
      ++process->exec_mm->group->happened.pgfault;
      process->exec_mm->arguments.push_back(NewAnonymous(*process->exec_mm));
      ++process->exec_mm->arguments.back()->mapped[0];
    }
  } else if (std::holds_alternative<wide::Exec>(event.body)) {
    Thread& thread = ThreadOf(tid);
    Process* process = thread.process;
    if (process->exec_mm == nullptr) Apply(core::WideEvent{0, 0, tid, 0, wide::ExecArguments{1}});
    Mm* old = process->mm;
    process->mm = process->exec_mm;
    process->exec_mm = nullptr;
    Group* stack = thread.stack;
    thread = Thread{};
    thread.process = process;
    thread.stack = stack;
    PutMm(old);
  } else if (auto* exit = std::get_if<wide::Exit>(&event.body)) {
    Exit(tid, exit->group_dead);
  } else if (std::holds_alternative<wide::ExitMmap>(event.body)) {
    if (Thread* thread = Find(tid)) EndProcess(thread->process);
  } else if (auto* range = std::get_if<wide::FileRange>(&event.body)) {
    File* of = files_[range->file];
    uint64_t step = uint64_t{1} << range->order;
    uint64_t end = range->index + std::max(range->count, step);
    for (uint64_t index = range->index; range->op == EventKind::kFileAdd && index < end; index += step) {
      FileAdd(tid, of, index, range->order);
    }
    for (uint64_t index = range->index; range->op == EventKind::kFileDelete && index < end; index += step) {
      FileDelete(of, index, range->order);
    }
    for (uint64_t i = 0; range->op == EventKind::kFileDirty && i < range->count; ++i)
      Dirty(of, range->index + i);
    if (range->op == EventKind::kFileRead) FileRead(of, range->index, range->index + range->count - 1);
  } else if (auto* create = std::get_if<wide::CgroupCreate>(&event.body)) {
    const std::string& path = paths_[create->path];
    for (size_t slash = 1; slash != std::string::npos; ++slash) {  // ancestors first
      slash = path.find('/', slash);
      std::string prefix = path.substr(0, slash);
      if (FindGroup(prefix) == nullptr) {
        size_t last = prefix.rfind('/');
        Group* parent = FindGroup(last == 0 ? "/" : prefix.substr(0, last));
        groups_.push_back({prefix, parent, true, {}});
      }
      if (slash == std::string::npos) break;
    }
  } else if (auto* remove = std::get_if<wide::CgroupRemove>(&event.body)) {
    Group* group = FindGroup(paths_[remove->path]);
    if (group == nullptr || group->parent == nullptr) return;
    for (const Group& child : groups_) {
      if (child.online && child.parent == group) return;
    }
    group->online = false;
  } else if (auto* attach = std::get_if<wide::CgroupAttach>(&event.body)) {
    if (Group* group = FindGroup(paths_[attach->path])) Attach(attach->moved_tid, group);
  } else if (auto* adj = std::get_if<wide::SetOomScoreAdj>(&event.body)) {
    ThreadOf(adj->target_tid).process->oom_score_adj = adj->oom_score_adj;
  } else if (auto* set = std::get_if<wide::SetOvercommit>(&event.body)) {
    policy_ = set->policy;
  } else if (auto* baseline = std::get_if<wide::BaselineProcess>(&event.body)) {
    if (Find(tid) != nullptr) return;
    Process* process = ThreadOf(baseline->tgid).process;
    if (tid != baseline->tgid) {
      ++process->threads;
      threads_[tid] = Thread{};
      threads_[tid].process = process;
    }
    Group* group = FindGroup(paths_[baseline->cgroup]);
    if (group == nullptr) return;
    Attach(tid, group);
    threads_[tid].stack = group;
    process->mm->tables_predate = false;
    if (process->mm->pgd == nullptr) process->mm->pgd = process->mm->group;
  } else if (auto* present = std::get_if<wide::BaselinePresent>(&event.body)) {
    Mm& mm = MmOf(tid);
    uint64_t first = page(present->address), end = first + present->pages;
    std::vector<Area*> areas = AreasWithin(mm, first, end);
    if (present->anonymous) {
      for (uint64_t at = first; at < end; ++at) {
        MakeTables(mm, at);
        if (!Present(mm, at)) SetAnonymous(mm, at, FindArea(mm, at));
      }
      return;
    }
    for (Area* in : areas) {
      for (uint64_t at = in->first; at < in->end && in->file != nullptr; ++at) {
        uint64_t index = in->file_index + (at - in->first);
        auto cached = in->file->pages.find(index);
        MakeTables(mm, at);
        if (cached == in->file->pages.end()) continue;
        if (!Present(mm, at)) Map(mm, at, cached->second, index - cached->second->index, false);
      }
    }
  } else if (auto* cached = std::get_if<wide::BaselineCached>(&event.body)) {
    Group* group = cached->cgroup == 0 ? &groups_.front() : FindGroup(paths_[cached->cgroup]);
    File* of = files_[cached->file];
    for (uint64_t index = cached->index; group != nullptr && index < cached->index + cached->pages; ++index) {
      if (of->pages.contains(index)) continue;
      AddFolio(of, index, 0, group);
      if (cached->dirty) Dirty(of, index);
    }
  } else if (std::holds_alternative<wide::ReclaimBegin>(event.body) ||
             std::holds_alternative<wide::ReclaimEnd>(event.body) ||
             std::holds_alternative<wide::Comm>(event.body)) {
    ThreadOf(tid);
  }
}

}  // namespace memcgd::model
