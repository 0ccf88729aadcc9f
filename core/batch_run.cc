#include "core/batch_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/node_cut.h"

namespace memcgd::core {
namespace {

// Those that may make or end threads and address spaces: they need none held.
template <typename Body>
inline constexpr bool kOfProcesses =
    std::is_same_v<Body, wide::Clone> || std::is_same_v<Body, wide::Exec> ||
    std::is_same_v<Body, wide::ExecArguments> || std::is_same_v<Body, wide::Exit> ||
    std::is_same_v<Body, wide::ExitMmap> || std::is_same_v<Body, wide::Comm> ||
    std::is_same_v<Body, wide::SetOomScoreAdj>;

// The control events: each stands at a cut.
template <typename Body>
inline constexpr bool kAtCut =
    std::is_same_v<Body, wide::Mark> || std::is_same_v<Body, wide::CgroupCreate> ||
    std::is_same_v<Body, wide::CgroupRemove> || std::is_same_v<Body, wide::CgroupAttach> ||
    std::is_same_v<Body, wide::SetKnob> || std::is_same_v<Body, wide::SetOvercommit> ||
    std::is_same_v<Body, wide::BaselineProcess> || std::is_same_v<Body, wide::BaselineCached>;

constexpr size_t kAhead = 12;  // events that an entry is brought near before

}  // namespace

template <class Forms>
void BatchRun<Forms>::Run()
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the cut is let go of and taken again at control events
  node_.cut_->lock.LockShared();
  if (models_) m_.tree.StartFlushes(batch_.base_time_ns);
  size_t done = 0;
  for (const WideEvent& wide : batch_.wide) {
    ApplyEvents(done, wide.position);
    done = position_ = wide.position;
    ApplyWide(wide);
  }
  ApplyEvents(done, batch_.events.size());
  LeaveAll();
  result_.ptes_walked += locks_.ptes_walked();
  int64_t last_ns = batch_.base_time_ns + int64_t{1000} * last_us_;
  for (const WideEvent& wide : batch_.wide) last_ns = std::max(last_ns, wide.time_ns);
  int64_t seen = m_.time_ns.load(std::memory_order_relaxed);
  while (last_ns > seen && !m_.time_ns.compare_exchange_weak(seen, last_ns, std::memory_order_relaxed)) {
  }
  node_.cut_->lock.UnlockShared();
}

template <class Forms>
void BatchRun<Forms>::ApplyEvents(size_t begin, size_t end) {
  for (size_t i = begin; i < end;) {
    const Event& event = batch_.events[i];
    if (slot_ == nullptr || slot_->cpu != event.cpu()) EnterCpu(event.cpu());
    if (models_) slot_->now_ns = batch_.base_time_ns + int64_t{1000} * event.time_us();
    if (size_t next = TouchFirst(i, end); next != i) {
      i = next;
      continue;
    }
    PrefetchEntry(std::min(i + kAhead, end - 1));
    last_us_ = std::max(last_us_, event.time_us());
    ApplyOne(event);
    ++i;
  }
}

template <class Forms>
size_t BatchRun<Forms>::TouchFirst(size_t begin,
                                   size_t end) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // locks_ has the mutex
  const Event& first = batch_.events[begin];
  const RunThread& run = run_threads_[first.tid() % run_threads_.size()];
  if (first.kind() != EventKind::kFault || run.tid != first.tid() || run.entered != locks_.epoch() ||
      !run.thread->hints.empty()) {
    return begin;
  }
  size_t done = 0;
  if (!models_) {
    done = m_.faults.TryFirstTouches(*slot_, *run.mm, batch_.events.subspan(begin, end - begin), &last_us_);
  }
  if (done == 0) {
    Outcome outcome = m_.faults.TryFirstTouch(*slot_, *run.mm, first.address(), first.error_code());
    if (outcome == Outcome::kInvalid) return begin;
    last_us_ = std::max(last_us_, first.time_us());
    if (outcome != Outcome::kOk) {
      ApplyOne(first, outcome);
      return begin + 1;
    }
    done = 1;
    EndEvent();
  }
  result_.events[static_cast<size_t>(EventKind::kFault)] += done;
  result_.outcomes[static_cast<size_t>(Outcome::kOk)] += done;
  return begin + done;
}

template <class Forms>
void BatchRun<Forms>::ApplyOne(const Event& event, Outcome outcome) {
  ++result_.events[static_cast<size_t>(event.kind())];
  if (models_ && WasKilled(event.tid())) {
    ++result_.outcomes[static_cast<size_t>(Outcome::kDropped)];
    return;
  }
  if (outcome == Outcome::kInvalid) outcome = Apply(event);
  if (slot_->oom_at != MemcgId::kNone) {
    outcome = AfterOom(event.tid(), [&] { return Apply(event); });
  }
  if (unknown_thread_ && outcome == Outcome::kOk) outcome = Outcome::kUnknownThread;
  unknown_thread_ = false;
  ++result_.outcomes[static_cast<size_t>(outcome)];
  EndEvent();
}

// A charge of the event gave up.  The killer stands at a cut; then the event is tried again, until it fits,
// its own process is dead, or there is nobody left to kill.
template <class Forms>
Outcome BatchRun<Forms>::AfterOom(uint32_t tid, const auto& apply) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (bool first = true;; first = false) {
    uint32_t cpu = slot_->cpu;
    int64_t now_ns = slot_->now_ns;
    Memcg& at = m_.tree.Get(std::exchange(slot_->oom_at, MemcgId::kNone));
    Memcg& charged = m_.tree.Get(std::exchange(slot_->oom_memcg, MemcgId::kNone));
    EndEvent();
    LeaveAll();
    run_threads_ = {};
    node_.cut_->lock.UnlockShared();
    node_.cut_->lock.Lock();
    EnterCpu(cpu);
    slot_->now_ns = now_ns;
    // Another stream may have made room meanwhile; once, as what looks like room may be what the event itself
    // gave back when it was refused.
    bool killed =
        (first && at.memory.margin_pages() >= slot_->oom_pages) || m_.oom.Kill(*slot_, at, charged, tid);
    if (!m_.oom_records.empty() && m_.oom_records.back().sequence > oom_seen_) {
      oom_seen_ = m_.oom_records.back().sequence;
      result_.ooms.push_back(oom_seen_);
    }
    LeaveAll();
    node_.FreeDyingAtCut();
    node_.cut_->lock.Unlock();
    node_.cut_->lock.LockShared();
    EnterCpu(cpu);
    slot_->now_ns = now_ns;
    if (!killed) return Outcome::kLimit;
    if (WasKilled(tid)) return Outcome::kDropped;
    slot_->retries = true;
    Outcome outcome = apply();
    slot_->retries = false;
    if (slot_->oom_at == MemcgId::kNone) return outcome;
  }
}

template <class Forms>
bool BatchRun<Forms>::WasKilled(uint32_t tid) const {
  if (m_.oom_calls.load(std::memory_order_relaxed) == 0 || tid == 0) return false;
  return m_.table.threads.Exists(tid) && m_.table.threads.Get(tid).oom_killed;
}

template <class Forms>
void BatchRun<Forms>::EnterCpu(uint32_t cpu) {
  slot_ = &locks_.EnterCpu(cpu);
}

template <class Forms>
void BatchRun<Forms>::LeaveAll() {
  locks_.LeaveAll();
  slot_ = nullptr;
}

template <class Forms>
Outcome BatchRun<Forms>::Note(const absl::Status& status) {
  if (status.ok()) return Outcome::kOk;
  Outcome outcome = absl::IsInvalidArgument(status) ? Outcome::kInvalid : Outcome::kNoCgroup;
  AddNotable(outcome, status.message());
  return outcome;
}

template <class Forms>
void BatchRun<Forms>::AddNotable(Outcome outcome, absl::string_view detail) {
  if (result_.notables.size() < BatchResult::kMaxNotables)
    result_.notables.push_back({position_, outcome, std::string(detail)});
}

template <class Forms>
Outcome BatchRun<Forms>::NoRoom() {
  AddNotable(Outcome::kEnomem, "the node may not grow further: the event was not applied to its end");
  return Outcome::kEnomem;
}

template <class Forms>
Thread& BatchRun<Forms>::ThreadOf(uint32_t tid) {
  Thread* thread = m_.processes.Find(tid);
  if (thread != nullptr) return *thread;
  unknown_thread_ = true;
  locks_.LeaveSpaces();
  return m_.processes.FindOrCreate(tid, tid);
}

template <class Forms>
void BatchRun<Forms>::FindRunThread(uint32_t tid, RunThread& run) {
  run = {tid, &ThreadOf(tid), nullptr, 0};
}

// The process may end by another stream's event while its address space is waited for: so look again.
template <class Forms>
Mm& BatchRun<Forms>::EnterSlow(RunThread& run) {
  Processes<Forms>& processes = m_.processes;
  do {
    run.thread = &ThreadOf(run.tid);
    run.mm = &processes.MmOf(*run.thread);
    locks_.EnterSpace(*run.mm);
  } while (processes.Find(run.tid) != run.thread || &processes.MmOf(*run.thread) != run.mm);
  run.entered = locks_.epoch();
  return *run.mm;
}

template <class Forms>
Outcome BatchRun<Forms>::Apply(const Event& event) {
  switch (event.kind()) {
    case EventKind::kFault: {
      RunThread& run = RunThreadOf(event.tid());
      FaultHints& hints = run.thread->hints;
      Mm& mm = Enter(run);
      mm.mutex.AssertHeld();
      Outcome outcome = m_.faults.Handle(*slot_, mm, hints, event.address(), event.error_code());
      if (!hints.empty()) hints = FaultHints{};
      return outcome;
    }
    case EventKind::kFileFault:
      return FileFault(*RunThreadOf(event.tid()).thread, stream_.File(event.file()), event.index());
    case EventKind::kMapPages: {
      FaultHints& hints = RunThreadOf(event.tid()).thread->hints;
      hints.map_file = stream_.File(event.file());
      hints.map_first = event.index();
      hints.map_end = PageIndex{event.index()} + event.extra() + 1;
      hints.fault_major = false;
      return Outcome::kOk;
    }
    case EventKind::kInstruction:
      RunThreadOf(event.tid()).thread->hints.instruction = event.address() >> m_.page_shift;
      return Outcome::kOk;
    case EventKind::kFileAdd:
      return FileAdd(event.tid(), stream_.File(event.file()), event.index(), event.extra());
    case EventKind::kFileDelete:
      return FileDelete(event.tid(), stream_.File(event.file()), event.index(), event.extra());
    case EventKind::kFileRead:
      return FileRead(event.tid(), stream_.File(event.file()), event.index(),
                      PageIndex{event.index()} + event.extra());
    case EventKind::kFileWrite:
      return Outcome::kOk;  // its pages' additions and dirtying are events of their own
    case EventKind::kFileDirty:
      return FileDirty(event.tid(), stream_.File(event.file()), event.index());
    case EventKind::kReadahead:
      return Readahead(stream_.File(event.file()), event.index());
    case EventKind::kMmapAnon: {
      wide::Mmap map;
      map.address = event.page_number() << m_.page_shift;
      map.length = event.pages() << m_.page_shift;
      map.prot = kProtRead | kProtWrite;
      map.flags = kMapPrivate | kMapAnonymous;
      Mm& mm = Enter(event.tid());
      mm.mutex.AssertHeld();
      return m_.spaces.Mmap(*slot_, mm, map, FileId::kNone);
    }
    case EventKind::kMunmap: {
      Mm& mm = Enter(event.tid());
      mm.mutex.AssertHeld();
      return m_.spaces.Munmap(*slot_, mm, {event.page_number(), event.page_number() + event.pages()});
    }
    case EventKind::kDontNeed: {
      Mm& mm = Enter(event.tid());
      mm.mutex.AssertHeld();
      return m_.spaces.Madvise(*slot_, mm, {event.page_number(), event.page_number() + event.pages()},
                               kMadvDontNeed);
    }
    case EventKind::kBrk: {
      Mm& mm = Enter(event.tid());
      mm.mutex.AssertHeld();
      return m_.spaces.Brk(*slot_, mm, event.address());
    }
    case EventKind::kAccess: {
      Mm& mm = Enter(event.tid());
      mm.mutex.AssertHeld();
      return m_.faults.Access(*slot_, mm, event.address());
    }
    case EventKind::kInvalid:
      break;
  }
  CheckFailed("a checked event", __FILE__, __LINE__);
}

// filemap_fault(): a page that is not in the cache makes it major, once: the retry finds it.
template <class Forms>
Outcome BatchRun<Forms>::FileFault(Thread& thread, FileId id, PageIndex index) {
  FaultHints& hints = thread.hints;
  const bool again = (hints.fault_major || hints.fault_unseen) && hints.fault_file == id &&
                     hints.fault_index == index;  // the retry: no other read
  if (m_.file_reads_watched && !again) TellFileRead(thread, id, index, index);
  hints.fault_file = id;
  hints.fault_index = index;
  hints.fault_major = hints.fault_unseen = false;
  File& file = m_.files.Get(id);
  Locked lock(file.mutex);
  DiskReads::End(file, index, index);
  FolioId page = m_.cache.Find(file, index);
  if (page != FolioId::kNone) {
    m_.arena.Get(m_.arena.HeadOf(page)).Clear(kFolioReadahead);
  } else if (m_.cache.NeverSeen(file, index)) {
    hints.fault_unseen = true;
  } else if (!file.shmem) {
    hints.fault_major = true;
    m_.charges.ModStat(*slot_, m_.processes.MmOf(thread).memcg.load(std::memory_order_relaxed),
                       Stat::kPgmajfault, 1);
  }
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::FileAdd(uint32_t tid, FileId id, PageIndex index, uint32_t order) {
  // A task that nobody saw (a kernel thread) charges the root.
  Thread* thread = tid == 0 ? nullptr : m_.processes.Find(tid);
  MemcgId memcg = MemcgId::kRoot;
  if (thread != nullptr) {
    memcg = m_.processes.MmOf(*thread).memcg.load(std::memory_order_relaxed);
    FaultHints& hints = thread->hints;
    if (hints.fault_unseen && hints.fault_file == id && hints.fault_index >= index &&
        hints.fault_index < index + (PageIndex{1} << order)) {
      hints.fault_unseen = false;
      hints.fault_major = true;
      m_.charges.ModStat(*slot_, memcg, Stat::kPgmajfault, 1);
    }
  }
  File& file = m_.files.Get(id);
  // The buffer layer touches a disk's own pages while they wait in the batch.
  uint32_t flags = m_.files.IsBlockDevice(file) ? kFolioActive : 0;
  if (models_) {  // what a read or a fault then needs and readahead could not have tries harder
    {
      Locked lock(file.mutex);
      file.traced_pages += int64_t{1} << order;
    }
    return m_.cache.Fill(*slot_, file, index, order, memcg, ChargeMode::kNoRetry, flags) == CacheAdd::kRefused
               ? Outcome::kLimit
               : Outcome::kOk;
  }
  Locked lock(file.mutex);
  switch (m_.cache.Add(*slot_, file, index, order, memcg, flags)) {
    case CacheAdd::kAdded:
      return Outcome::kOk;
    case CacheAdd::kReplaced:
      return Outcome::kCacheMismatch;
    case CacheAdd::kRefused:
      return Outcome::kLimit;
  }
  CheckFailed("a page is added, replaces another or is refused", __FILE__, __LINE__);
}

template <class Forms>
Outcome BatchRun<Forms>::FileDelete(uint32_t tid, FileId id, PageIndex index, uint32_t order) {
  Thread* thread = tid == 0 ? nullptr : m_.processes.Find(tid);
  MemcgId evictor = MemcgId::kNone;
  File& file = m_.files.Get(id);
  if (thread != nullptr) {
    if (models_ && thread->in_reclaim) {  // the trace's kernel's choice, not the model's
      Locked lock(file.mutex);
      if (!m_.cache.NeverSeen(file, index)) file.traced_pages -= int64_t{1} << order;
      return Outcome::kOk;
    }
    if (thread->in_reclaim) evictor = m_.processes.MmOf(*thread).memcg.load(std::memory_order_relaxed);
    m_.lru.Drain(*slot_);  // folio_batch_release() of truncation, lru_add_drain() of reclaim
  }
  Locked lock(file.mutex);
  bool unseen = m_.cache.NeverSeen(file, index);
  // A page from before the stream goes: nothing of it was counted.
  bool known = m_.cache.Delete(*slot_, file, index, order, evictor) || unseen;
  if (models_ && !unseen && (file.traced_pages -= int64_t{1} << order) == 0)
    m_.cache.TruncateRest(*slot_, file);
  return known || models_ ? Outcome::kOk : Outcome::kCacheMismatch;
}

template <class Forms>
Outcome BatchRun<Forms>::FileRead(uint32_t tid, FileId id, PageIndex first, PageIndex last) {
  Thread* thread = tid == 0 ? nullptr : m_.processes.Find(tid);
  ReadPosition unknown;
  ReadPosition* position = &unknown;
  if (thread != nullptr) {
    auto known = std::find_if(thread->reads.begin(), thread->reads.end(),
                              [id](const ReadPosition& read) { return read.file == id; });
    if (known == thread->reads.end()) {
      known = thread->reads.begin() + thread->next_read;
      thread->next_read = static_cast<uint8_t>((thread->next_read + 1) % thread->reads.size());
    }
    position = &*known;
  }
  if (m_.file_reads_watched && thread != nullptr) TellFileRead(*thread, id, first, last);
  File& file = m_.files.Get(id);
  if (models_ && thread != nullptr) {
    Outcome outcome =
        FillAbsent(m_.processes.MmOf(*thread).memcg.load(std::memory_order_relaxed), file, first, last);
    if (outcome != Outcome::kOk) return outcome;
  }
  Locked lock(file.mutex);
  m_.cache.Read(*slot_, file, first, last, *position);
  return Outcome::kOk;
}

template <class Forms>
void BatchRun<Forms>::TellFileRead(const Thread& thread, FileId id, PageIndex first, PageIndex last) {
  const MemcgId reader = m_.processes.MmOf(thread).memcg.load(std::memory_order_relaxed);
  for (const Memcg* level = &m_.tree.Get(reader); level != nullptr; level = level->parent) {
    if (level->file_reads != nullptr) level->file_reads->Read(id, first, last);
  }
}

// A read or write of pages that the model has reclaimed though the trace's kernel had not: misses.
template <class Forms>
Outcome BatchRun<Forms>::FillAbsent(MemcgId memcg, File& file, PageIndex first, PageIndex last) {
  for (PageIndex index = first; index <= last && m_.MayGrow(); ++index) {
    {
      Locked lock(file.mutex);
      while (index <= last && !m_.cache.IsAbsent(file, index)) ++index;
    }
    if (index > last) break;
    if (m_.cache.Fill(*slot_, file, index, 0, memcg, ChargeMode::kRetry) == CacheAdd::kRefused)
      return Outcome::kLimit;
  }
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::FileDirty(uint32_t tid, FileId id, PageIndex index) {
  File& file = m_.files.Get(id);
  Thread* thread = models_ && tid != 0 ? m_.processes.Find(tid) : nullptr;
  if (thread != nullptr) {
    Outcome outcome =
        FillAbsent(m_.processes.MmOf(*thread).memcg.load(std::memory_order_relaxed), file, index, index);
    if (outcome != Outcome::kOk) return outcome;
  }
  Locked lock(file.mutex);
  DiskReads::End(file, index, index);
  FolioId page = m_.cache.Find(file, index);
  if (page == FolioId::kNone) return Outcome::kOk;  // from before the stream: not counted
  m_.cache.MarkDirty(*slot_, m_.arena.HeadOf(page));
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Readahead(FileId id, PageIndex index) {
  File& file = m_.files.Get(id);
  Locked lock(file.mutex);
  FolioId page = m_.cache.Find(file, index);
  if (page != FolioId::kNone) m_.arena.Get(m_.arena.HeadOf(page)).Set(kFolioReadahead);
  return Outcome::kOk;
}

template <class Forms>
void BatchRun<Forms>::ApplyWide(const WideEvent& wide) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  ++result_.wide_events;
  std::visit(
      [&]<typename Body>(const Body& body) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        if constexpr (kAtCut<Body>) {
          LeaveAll();
          node_.cut_->lock.UnlockShared();
          node_.cut_->lock.Lock();
          EnterCpu(wide.cpu);
        } else if (slot_ == nullptr || slot_->cpu != wide.cpu) {
          EnterCpu(wide.cpu);
        }
        if constexpr (kAtCut<Body> || kOfProcesses<Body>) {
          locks_.LeaveSpaces();
          run_threads_ = {};
        }
        slot_->now_ns = wide.time_ns;
        Outcome outcome = Outcome::kDropped;
        if (!models_ || !DropsWide(wide, body)) {
          outcome = Wide(wide, body);
          if constexpr (!kAtCut<Body>) {
            if (slot_->oom_at != MemcgId::kNone)
              outcome = AfterOom(wide.tid, [&] { return Wide(wide, body); });
          } else {
            slot_->oom_at = MemcgId::kNone;  // what existed before the stream kills nobody
          }
        }
        if (unknown_thread_ && outcome == Outcome::kOk) outcome = Outcome::kUnknownThread;
        unknown_thread_ = false;
        EndEvent();
        ++result_.outcomes[static_cast<size_t>(outcome)];
        if constexpr (kAtCut<Body>) {
          LeaveAll();
          node_.FreeDyingAtCut();
          node_.cut_->lock.Unlock();
          node_.cut_->lock.LockShared();
        }
      },
      wide.body);
}

// What a killed process did not do: its threads' events, and whatever would have begun with it.
template <class Forms>
template <typename Body>
bool BatchRun<Forms>::DropsWide(const WideEvent& wide, const Body& body) {
  if constexpr (std::is_same_v<Body, wide::CgroupAttach>) {
    return WasKilled(body.moved_tid);
  } else if constexpr (std::is_same_v<Body, wide::SetOomScoreAdj>) {
    return WasKilled(body.target_tid);
  } else if constexpr (std::is_same_v<Body, wide::Clone>) {
    if (!WasKilled(wide.tid)) return false;
    m_.processes.ExitStale(*slot_, body.child_tid);
    Locked lock(m_.table.mutex);
    m_.table.Ensure(body.child_tid).oom_killed = true;
    return true;
  } else {
    return WasKilled(wide.tid);
  }
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::DefinePath& define) {
  stream_.DefinePath(define.path);
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::DefineFile& define) {
  stream_.DefineFile(m_.files.Open(define.dev, define.ino, define.shmem));
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::DefineName& define) {
  stream_.DefineName(define.name);
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Mmap& map) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Mmap(*slot_, mm, map, stream_.File(map.file));
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Munmap& unmap) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Munmap(*slot_, mm, m_.spaces.RangeOf(unmap.address, unmap.length));
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Brk& brk) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Brk(*slot_, mm, brk.address);
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Mremap& remap) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Mremap(*slot_, mm, remap);
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Mprotect& protect) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Mprotect(*slot_, mm, m_.spaces.RangeOf(protect.address, protect.length), protect.prot);
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Madvise& advise) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Madvise(*slot_, mm, m_.spaces.RangeOf(advise.address, advise.length), advise.advice);
}

namespace {
// Address 0 and length 0: all of it.
template <class Forms>
PageRange LockRange(const AddressSpaces<Forms>& spaces, uint64_t address, uint64_t length) {
  return address == 0 && length == 0 ? spaces.RangeOf(0, kMaxAddress + 1) : spaces.RangeOf(address, length);
}
}  // namespace

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Mlock& lock) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Mlock(*slot_, mm, LockRange(m_.spaces, lock.address, lock.length), lock.on_fault);
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Munlock& unlock) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Munlock(*slot_, mm, LockRange(m_.spaces, unlock.address, unlock.length));
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Clone& clone) {
  ThreadOf(wide.tid);
  if (!m_.MayGrow()) return NoRoom();
  return m_.processes.Clone(*slot_, wide.tid, clone);
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Exec& exec) {
  m_.processes.Exec(*slot_, ThreadOf(wide.tid), stream_.Name(exec.name));
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::ExecArguments& arguments) {
  if (!m_.MayGrow()) return NoRoom();
  m_.processes.ExecArguments(*slot_, ThreadOf(wide.tid), std::max(arguments.pages, 1u));
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Exit& exit) {
  Thread* thread = m_.processes.Find(wide.tid);
  if (thread == nullptr) return Outcome::kUnknownThread;
  m_.processes.Exit(*slot_, *thread, exit.group_dead);
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::ExitMmap&) {
  Thread* thread = m_.processes.Find(wide.tid);
  if (thread == nullptr) return Outcome::kUnknownThread;
  m_.processes.ExitMmap(*slot_, *thread);
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::Comm& comm) {
  m_.processes.SetComm(ThreadOf(wide.tid), stream_.Name(comm.name));
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::SetOomScoreAdj& set) {
  m_.processes.SetOomScoreAdj(ThreadOf(set.target_tid), set.oom_score_adj);
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::FileRange& range) {
  FileId file = stream_.File(range.file);
  switch (range.op) {
    case EventKind::kFileAdd:
    case EventKind::kFileDelete: {
      PageIndex step = PageIndex{1} << range.order;
      Outcome outcome = Outcome::kOk;
      for (PageIndex index = range.index; index < range.index + std::max(range.count, step); index += step) {
        if (range.op == EventKind::kFileAdd && !m_.MayGrow(range.order)) return NoRoom();
        Outcome one = range.op == EventKind::kFileAdd ? FileAdd(wide.tid, file, index, range.order)
                                                      : FileDelete(wide.tid, file, index, range.order);
        if (one != Outcome::kOk) outcome = one;
      }
      return outcome;
    }
    case EventKind::kFileFault:
      return FileFault(ThreadOf(wide.tid), file, range.index);
    case EventKind::kMapPages: {
      FaultHints& hints = ThreadOf(wide.tid).hints;
      hints.map_file = file;
      hints.map_first = range.index;
      hints.map_end = range.index + range.count;
      hints.fault_major = false;
      return Outcome::kOk;
    }
    case EventKind::kFileRead:
      if (!m_.MayGrow()) return NoRoom();
      return FileRead(wide.tid, file, range.index, range.index + range.count - 1);
    case EventKind::kFileDirty:
      for (uint64_t i = 0; i < range.count; ++i) {
        if (!m_.MayGrow()) return NoRoom();
        Outcome outcome = FileDirty(wide.tid, file, range.index + i);
        if (outcome != Outcome::kOk) return outcome;
      }
      return Outcome::kOk;
    case EventKind::kReadahead:
      if (!m_.MayGrow()) return NoRoom();
      for (uint64_t i = 0; i < range.count; ++i) Readahead(file, range.index + i);
      return Outcome::kOk;
    default:
      return Outcome::kOk;
  }
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::ReclaimBegin&) {
  ThreadOf(wide.tid).in_reclaim = true;
  if (!models_) m_.lru.Drain(*slot_);
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::ReclaimEnd&) {
  ThreadOf(wide.tid).in_reclaim = false;
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::MarkVictim& victim) {
  if (models_) return Outcome::kOk;  // the model kills by itself
  Thread* thread = m_.processes.Find(victim.victim_tid);
  if (thread == nullptr) return Outcome::kUnknownThread;
  Memcg& memcg = m_.tree.Get(m_.processes.ProcessOf(*thread).memcg.load(std::memory_order_relaxed));
  // The trace does not say which limit was breached: the nearest one above the victim that is set, else its
  // own.
  Memcg* breached = &memcg;
  while (breached->memory.max_pages() == PageCounter::kMax && breached->parent != nullptr)
    breached = breached->parent;
  if (breached->parent == nullptr) breached = &memcg;
  breached->CountEvent(MemcgEvent::kOom);
  memcg.CountEvent(MemcgEvent::kOomKill);
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::MigrateFolio& migrate) {
  Memcg* memcg = m_.tree.Find(stream_.Path(migrate.path));
  if (memcg == nullptr)
    return Note(absl::NotFoundError(absl::StrCat("no cgroup ", stream_.Path(migrate.path))));
  if (migrate.file != 0) {
    File& file = m_.files.Get(stream_.File(migrate.file));
    Locked lock(file.mutex);
    FolioId page = m_.cache.Find(file, migrate.index);
    if (page == FolioId::kNone) return Outcome::kUnseenPage;
    slot_->held_file = &file;
    bool moved =
        m_.lru.Migrate(*slot_, m_.arena.HeadOf(page), memcg->id, m_.FolioLockOf(m_.arena.HeadOf(page)));
    slot_->held_file = nullptr;
    return moved ? Outcome::kOk : Outcome::kCacheMismatch;
  }
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.faults.Migrate(*slot_, mm, migrate.address, memcg->id);
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::BaselineArea& area) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  return m_.spaces.Mmap(*slot_, mm, area.area, stream_.File(area.area.file));
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::BaselinePresent& present) {
  Mm& mm = Enter(wide.tid);
  mm.mutex.AssertHeld();
  m_.spaces.AddPresent(*slot_, mm, m_.spaces.RangeOf(present.address, present.pages << m_.page_shift),
                       present.anonymous);
  return m_.MayGrow() ? Outcome::kOk : NoRoom();
}

// ---- at a cut

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::Mark& mark) {
  result_.marks.push_back(node_.ReadAllAtCut(mark.id));
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::CgroupCreate& create) {
  return Note(node_.CreateCgroupAtCut(stream_.Path(create.path), true));
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::CgroupRemove& remove) {
  return Note(node_.RemoveCgroupAtCut(stream_.Path(remove.path), true));
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::CgroupAttach& attach) {
  Memcg* memcg = m_.tree.Find(stream_.Path(attach.path));
  if (memcg == nullptr)
    return Note(absl::NotFoundError(absl::StrCat("no cgroup ", stream_.Path(attach.path))));
  m_.processes.Attach(ThreadOf(attach.moved_tid), *memcg);
  return Outcome::kOk;
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::SetKnob& set) {
  return Note(node_.SetKnobsAtCut(stream_.Path(set.path), {{set.knob, set.value}}));
}
template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::SetOvercommit& set) {
  node_.SetOvercommitAtCut(set);
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent& wide, const wide::BaselineProcess& process) {
  bool is_new = m_.processes.Find(wide.tid) == nullptr;
  Thread& thread = m_.processes.FindOrCreate(wide.tid, process.tgid);
  if (!is_new) return Outcome::kOk;
  if (process.name != 0) m_.processes.SetComm(thread, stream_.Name(process.name));
  if (process.cgroup == 0) return Outcome::kOk;
  Memcg* memcg = m_.tree.Find(stream_.Path(process.cgroup));
  if (memcg == nullptr) return Outcome::kNoCgroup;
  m_.processes.Attach(thread, *memcg);
  m_.processes.ChargeBaseline(*slot_, thread);
  return Outcome::kOk;
}

template <class Forms>
Outcome BatchRun<Forms>::Wide(const WideEvent&, const wide::BaselineCached& cached) {
  MemcgId memcg = MemcgId::kRoot;
  if (cached.cgroup != 0) {
    Memcg* found = m_.tree.Find(stream_.Path(cached.cgroup));
    if (found == nullptr) return Outcome::kNoCgroup;
    memcg = found->id;
  }
  File& file = m_.files.Get(stream_.File(cached.file));
  uint32_t flags = cached.active ? kFolioActive : 0;
  for (PageIndex index = cached.index; index < cached.index + cached.pages; ++index) {
    if (!m_.MayGrow()) return NoRoom();
    if (models_ &&
        m_.cache.Fill(*slot_, file, index, 0, memcg, ChargeMode::kNoRetry, flags) == CacheAdd::kRefused)
      return Outcome::kLimit;
    Locked lock(file.mutex);
    bool added = models_;
    if (m_.cache.Find(file, index) == FolioId::kNone) {
      if (m_.cache.Add(*slot_, file, index, 0, memcg, flags) == CacheAdd::kRefused) return Outcome::kLimit;
      added = true;
    }
    if (added && cached.dirty) m_.cache.MarkDirty(*slot_, m_.cache.Find(file, index));
  }
  return Outcome::kOk;
}

template class BatchRun<DefaultForms>;
template class BatchRun<ChosenForms>;

}  // namespace memcgd::core
