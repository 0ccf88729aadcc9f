// The rules by which records become events, and what they know: threads, files, cgroups, what waits.
//
// docs/translation.md has the rules.  Each chapter of it is a file: fault_rules.cc, page_cache_rules.cc,
// syscall_rules.cc, populate_rules.cc, fork_rules.cc, exec_rules.cc, exit_rules.cc, cgroup_rules.cc and, for
// the records that perf adds, perf_rules.cc; translation.cc has the window and the way of a record through
// it.
//
// Thread safety: one thread at a time.
//
// Invariants:
//   1. Whatever waits in the window and is open, a thread holds the slot of (Thread::fault, call and the
//   lines of call.populate, exec, clone,
//      reads_slot, exit_mmap_slot), and resolves it before it lets go of the slot.
//   2. Events leave at the window's front only: the order of slots is the order of the stream.
#ifndef MEMCGD_CLIENT_TRANSLATION_H_
#define MEMCGD_CLIENT_TRANSLATION_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "client/batch_builder.h"
#include "client/cgroup_knobs.h"
#include "client/cgroup_table.h"
#include "client/event_emitter.h"
#include "client/event_window.h"
#include "client/file_table.h"
#include "client/populate_run.h"
#include "client/thread_table.h"
#include "client/trace_record.h"
#include "client/trace_translator.h"
#include "client/waiting_event.h"

namespace memcgd::client {

class Translation {
 public:
  using Options = TraceTranslator::Options;
  using Counts = TraceTranslator::Counts;

  Translation(const Options& options, BatchBuilder* builder)
      : options_(options),
        builder_(builder),
        window_(options.window),
        files_(builder),
        knobs_(options.knobs),
        emitter_(builder) {
    if (options.root != 0) root_ = options.root;
    knobs_.Begin([this](const CgroupKnob& knob) { PushKnob(EventPlace{}, knob); });
  }

  // As TraceTranslator's.
  void Add(const TraceRecord& record);
  void Mark(uint64_t id);
  void SettleBefore(int64_t time_ns);
  void Finish();
  const Counts& counts() const { return counts_; }
  std::vector<CgroupKnobs::Missed> missed_knobs() const { return knobs_.missed(); }

 private:
  // ---- the window ----

  Slot PushAt(const EventPlace& place, const Body& body, bool open = false);
  void Push(const TraceRecord& record, const Body& body);
  Slot PushOpen(const TraceRecord& record, const Body& face_value);
  // What waits at `slot` is understood: it is `body`.  False where it has left the window.
  bool Resolve(Slot slot, const Body& body);
  void ResolveAsItIs(Slot slot);
  void ForceFrontOut();
  void Drain();
  EventPlace PlaceOf(const TraceRecord& record) const;
  // Of what concerns no thread.
  EventPlace NodePlaceOf(const TraceRecord& record) const;
  uint64_t PageOf(uint64_t byte) const;
  // Ranges are of whole pages; the kernel rounds their lengths up.
  uint64_t WholePages(uint64_t bytes) const;
  // Addresses that are no user memory's are refused by the kernel, and do not fit the protocol.
  bool IsUserRange(uint64_t address, uint64_t length) const;

  // ---- a record's way: first what waited for the thread's next one, then the record itself ----

  void Understand(Thread& thread, const TraceRecord& record);
  // A line written in an interrupt.  False where it is the thread's all the same.
  bool AddFromInterrupt(const TraceRecord& record);
  void OnRecord(const TraceRecord& record, Thread* thread);

  // ---- threads and their processes ----

  // The thread of the record, with a baseline where it is new.
  Thread& Known(const TraceRecord& record);
  // The same for what only the living do: a number that died has a new thread then, whose beginning was not
  // seen, or the last thread of a process took over its leader's number in exec.
  Thread& Living(const TraceRecord& record);
  Thread& BeginBaseline(const TraceRecord& record, int32_t tid, int32_t tgid, std::string_view name);
  Thread& BeginThread(int32_t tid, int32_t tgid);
  // Nothing more comes of this thread: what waits for it is taken as it is.
  void Settle(Thread& thread);
  // The process that another one's record is about.
  void EnsureProcess(const TraceRecord& record, int32_t pid);

  // ---- faults ----

  // Faults that never reach handle_mm_fault(): in an NMI, in any interrupt, or where preemption is disabled.
  // They may come in the middle of another fault.
  bool IsUnhandledFault(const TraceRecord& record);
  void OnPageFault(const TraceRecord& record);
  void CloseFault(Thread& thread, const TraceRecord& record);
  // mm_filemap_fault, mm_filemap_map_pages: what backs the thread's fault.
  void OnFileMapped(const TraceRecord& record);
  // The file's pages must be there before the fault maps them.
  void MoveFaultHere(Thread& thread);

  // ---- the page cache ----

  // The pages of first_byte … last_byte; one for a fault.
  FileEvent PagesOf(const TraceRecord& record, WordKind kind, uint32_t file) const;
  FileEvent FolioOf(const TraceRecord& record, WordKind kind, uint32_t file) const;
  // What is charged to the thread's cgroup, or marks pages as accessed by it.
  void OnFileUse(const TraceRecord& record);
  // Kernel threads let go of pages too: that needs no process.
  void OnFileDelete(const TraceRecord& record, const Thread* thread);
  // Deletions by kswapd are of a reclaim of the node: from the first of an unbroken run to the
  // thread's next other line.
  void BeginNodeReclaim(const TraceRecord& record, uint64_t pages);
  void EndNodeReclaim(Thread& thread, const TraceRecord& record);
  void OnFileDirty(const TraceRecord& record, Thread* thread);
  void UnderstandReadahead(Thread& thread, const TraceRecord& record);

  // ---- system calls ----

  void OnSyscallEnter(const TraceRecord& record);
  // Calls that unmap stand where they begin: the kernel unmaps before it returns, and another thread may get
  // the same addresses before the return is traced.
  Body AtEntry(const TraceRecord& record) const;
  static bool AdviceUnmaps(uint64_t advice);
  void OnSyscallExit(const TraceRecord& record, Thread& thread);
  Body AtReturn(const Call& call, uint64_t ret) const;
  Body MmapReturned(const Call& call, uint64_t address) const;

  // ---- calls that fault pages in ----

  // A line of such a call, outside of any page fault.
  void OnFilePopulated(Thread& thread, const TraceRecord& record, const FileEvent& event);
  // It does not fit the window.
  void LosePopulated(Call& call);
  void TellPopulated(const Process& process, Call& call, const std::vector<PopulateRun::Line>& lines);
  // What the kernel does for the line: nullopt where no area is known to have the page.
  std::optional<FaultEvent> PopulatedFault(const Process& process, const Call& call,
                                           const PopulateRun::Line& line) const;
  void FinishPopulatedMmap(Thread& thread, Call& call, const TraceRecord& record, const Body& mmap);
  void AbandonPopulated(Thread& thread, Call& call);
  void ChangeAreas(Process& process, const Call& call, uint64_t ret);

  // ---- fork ----

  void OnFork(const TraceRecord& record);
  void BeginChild(Thread& parent, const TraceRecord& record);
  // What the call that forks says about sharing; clone3 hides it.
  static std::optional<uint64_t> CloneFlags(const Call& call, int32_t child_tgid, bool named_thread);
  // The child's own records tell what it shares.
  void UnderstandClone(Thread& child, const TraceRecord& record);
  void ResolveClone(Thread& child, bool thread, bool shares_mm);

  // ---- exec ----

  // An exec's first sign may be a file read long before the exec is certain: its place is kept as long as the
  // thread does nothing but read files, up to a length that no exec has.
  void CountRead(Thread& thread, const TraceRecord& record);
  void ForgetReads(Thread& thread);
  Slot TakeReads(Thread& thread);
  void BeginExec(Thread& thread, const TraceRecord& record, PendingExec::Sign sign, const Body& face_value);
  void BeginKernelFaults(Thread& thread, const TraceRecord& record);
  void UnderstandExec(Thread& thread, const TraceRecord& record);
  // It was no exec: a buffer that the kernel filled, or the last reference to another process's address
  // space.
  void AbandonExec(Thread& thread);
  // It was one, as its entry says.
  void CompleteExec(Thread& thread);
  // sched_process_exec.
  void OnExec(const TraceRecord& record);

  // ---- exit ----

  void OnExit(const TraceRecord& record, Thread* thread);
  // No exit_mmap was seen so far: it is to come, or this trace has none, and then the address space ends
  // here.
  void EndUntraced(Thread& thread, const TraceRecord& record);
  // A process that was seen only when it ended left nothing that the stream would know.
  void BeginDead(const TraceRecord& record);
  void EndThread(Thread& thread);
  void OnExitMmap(const TraceRecord& record);
  void EndAddressSpaceOfDead(Thread& thread, const TraceRecord& record);
  // What was taken for an exec was the end.
  void EndAddressSpace(Thread& thread);
  void OnMarkVictim(const TraceRecord& record);
  void OnOomScoreAdj(const TraceRecord& record);

  // ---- perf's own records ----

  void OnPerfMmap(const TraceRecord& record);
  void OnPerfComm(const TraceRecord& record, Thread* thread);

  // ---- cgroups ----

  void OnCgroup(const TraceRecord& record);
  bool IsOurHierarchy(const TraceRecord& record);
  void PushKnob(const EventPlace& place, const CgroupKnob& knob);

  const Options options_;
  BatchBuilder* const builder_;
  Window window_;
  ThreadTable threads_;
  FileTable files_;
  CgroupTable cgroups_;
  CgroupKnobs knobs_;
  Emitter emitter_;
  std::optional<uint32_t> root_;
  bool traces_exit_mmap_ = false;  // the trace has such lines
  bool lacks_exit_mmap_ = false;   // an exit was followed by none
  uint8_t traced_depth_ = 0;       // what the tracer itself adds to the preempt depth of a fault
  int64_t last_time_ns_ = 0;
  Counts counts_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRANSLATION_H_
