// Applies one batch to a node, event by event.
//
// CPUs' slots and address spaces are kept from event to event (run_locks.h).  Control events (cgroups, knobs,
// policy, marks) stand at a cut: the run lets go of everything, takes the cut alone, and goes on.
//
// Thread safety: one thread; the locks as said in mutex.h.
#ifndef MEMCGD_CORE_BATCH_RUN_H_
#define MEMCGD_CORE_BATCH_RUN_H_

#include <array>
#include <utility>

#include "core/event_stream.h"
#include "core/node.h"
#include "core/run_locks.h"
#include "core/workings.h"

namespace memcgd::core {

template <class Forms>
class BatchRun {
 public:
  BatchRun(Node& node, EventStream& stream, const Batch& batch, BatchResult& result)
      : node_(node),
        m_(static_cast<Workings<Forms>&>(*node.machine_)),
        stream_(stream),
        batch_(batch),
        result_(result),
        locks_(m_),
        models_(m_.charges.models_reclaim()),
        oom_seen_(m_.oom_calls.load(std::memory_order_relaxed)) {}

  // The batch was checked.
  void Run();

 private:
  struct RunThread {
    uint32_t tid = 0;
    Thread* thread = nullptr;
    Mm* mm = nullptr;
    uint64_t entered = 0;  // the epoch of the locks in which mm's mutex was taken
  };

  // The frequent events [begin, end).
  void ApplyEvents(size_t begin, size_t end);
  // The event and those after it as far as they are one thread's first touches.  The index of the first that
  // is not; its CPU, where it is `begin`, was entered.
  size_t TouchFirst(size_t begin, size_t end);
  // `outcome`: kInvalid, or what it came to already.
  void ApplyOne(const Event& event, Outcome outcome = Outcome::kInvalid);
  // The entry of the fault some events on, as long as a miss takes, of a thread whose address space is held.
  void PrefetchEntry(size_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const Event& event = batch_.events[i];
    const RunThread& run = run_threads_[event.tid() % run_threads_.size()];
    if (event.kind() == EventKind::kFault && run.tid == event.tid() && run.entered == locks_.epoch()) {
      run.mm->page_table.Prefetch(event.address() >> m_.page_shift);
    }
  }
  void EnterCpu(uint32_t cpu);
  void LeaveAll();
  // What an event freed and uncharged shows before the next one, so that peaks do not depend on how batches
  // were cut.
  void EndEvent() {
    if (slot_->ended.count != 0) m_.lru.FlushEnded(*slot_);
    m_.charges.FlushUncharge(*slot_);
    if (models_) EndModelled();
  }
  // The return to user space: what was charged over memory.high has its price.
  void EndModelled() {
    if (slot_->over_high_pages > 0) m_.reclaimer.HandleOverHigh(*slot_);
    result_.high_delay_us += std::exchange(slot_->high_delay_us, 0);
  }
  // Whether the OOM killer ended the thread's process, and no process has the id since.
  bool WasKilled(uint32_t tid) const;
  Outcome AfterOom(uint32_t tid, const auto& apply);
  template <typename Body>
  bool DropsWide(const WideEvent& wide, const Body& body);
  // The outcome of a control event; what was refused is worth a word.
  Outcome Note(const absl::Status& status);
  void AddNotable(Outcome outcome, absl::string_view detail);
  // Of an event that grows page by page, where the node may not.
  Outcome NoRoom();
  Outcome Apply(const Event& event);
  void ApplyWide(const WideEvent& wide);
  Thread& ThreadOf(uint32_t tid);
  Outcome FileFault(Thread& thread, FileId id, PageIndex index);
  Outcome FileAdd(uint32_t tid, FileId id, PageIndex index, uint32_t order);
  Outcome FileDelete(uint32_t tid, FileId id, PageIndex index, uint32_t order);
  Outcome FileRead(uint32_t tid, FileId id, PageIndex first, PageIndex last);
  // To those that watch the thread's cgroup or one above it.
  void TellFileRead(const Thread& thread, FileId id, PageIndex first, PageIndex last);
  Outcome FileDirty(uint32_t tid, FileId id, PageIndex index);
  Outcome FillAbsent(MemcgId memcg, File& file, PageIndex first, PageIndex last);
  Outcome Readahead(FileId id, PageIndex index);

  // Events that need no cut.
  Outcome Wide(const WideEvent& wide, const wide::DefinePath& define);
  Outcome Wide(const WideEvent& wide, const wide::DefineFile& define);
  Outcome Wide(const WideEvent& wide, const wide::DefineName& define);
  Outcome Wide(const WideEvent& wide, const wide::Mmap& map);
  Outcome Wide(const WideEvent& wide, const wide::Munmap& unmap);
  Outcome Wide(const WideEvent& wide, const wide::Brk& brk);
  Outcome Wide(const WideEvent& wide, const wide::Mremap& remap);
  Outcome Wide(const WideEvent& wide, const wide::Mprotect& protect);
  Outcome Wide(const WideEvent& wide, const wide::Madvise& advise);
  Outcome Wide(const WideEvent& wide, const wide::Mlock& lock);
  Outcome Wide(const WideEvent& wide, const wide::Munlock& unlock);
  Outcome Wide(const WideEvent& wide, const wide::Clone& clone);
  Outcome Wide(const WideEvent& wide, const wide::Exec& exec);
  Outcome Wide(const WideEvent& wide, const wide::ExecArguments& arguments);
  Outcome Wide(const WideEvent& wide, const wide::Exit& exit);
  Outcome Wide(const WideEvent& wide, const wide::ExitMmap&);
  Outcome Wide(const WideEvent& wide, const wide::Comm& comm);
  Outcome Wide(const WideEvent& wide, const wide::SetOomScoreAdj& set);
  Outcome Wide(const WideEvent& wide, const wide::FileRange& range);
  Outcome Wide(const WideEvent& wide, const wide::ReclaimBegin&);
  Outcome Wide(const WideEvent& wide, const wide::ReclaimEnd&);
  Outcome Wide(const WideEvent& wide, const wide::MarkVictim& victim);
  Outcome Wide(const WideEvent& wide, const wide::MigrateFolio& migrate);
  Outcome Wide(const WideEvent& wide, const wide::BaselineArea& area);
  Outcome Wide(const WideEvent& wide, const wide::BaselinePresent& present);
  // Control events: at a cut.
  Outcome Wide(const WideEvent& wide, const wide::Mark& mark);
  Outcome Wide(const WideEvent& wide, const wide::CgroupCreate& create);
  Outcome Wide(const WideEvent& wide, const wide::CgroupRemove& remove);
  Outcome Wide(const WideEvent& wide, const wide::CgroupAttach& attach);
  Outcome Wide(const WideEvent& wide, const wide::SetKnob& set);
  Outcome Wide(const WideEvent& wide, const wide::SetOvercommit& set);
  Outcome Wide(const WideEvent& wide, const wide::BaselineProcess& process);
  Outcome Wide(const WideEvent& wide, const wide::BaselineCached& cached);

  // The thread's address space, its mutex held until the locks' epoch ends.
  Mm& Enter(RunThread& run) { return run.entered == locks_.epoch() ? *run.mm : EnterSlow(run); }
  Mm& Enter(uint32_t tid) { return Enter(RunThreadOf(tid)); }
  // The thread of a run of frequent events and its address space, looked up once: what a thread uses changes
  // by wide events only, and its events come on one stream.
  RunThread& RunThreadOf(uint32_t tid) {
    RunThread& run = run_threads_[tid % run_threads_.size()];
    if (run.tid != tid) FindRunThread(tid, run);
    return run;
  }
  void FindRunThread(uint32_t tid, RunThread& run);
  Mm& EnterSlow(RunThread& run);

  Node& node_;
  Workings<Forms>& m_;
  EventStream& stream_;
  const Batch& batch_;
  BatchResult& result_;
  RunLocks locks_;
  const bool models_;
  uint64_t oom_seen_;  // the killer's calls, when this batch last looked
  CpuSlot* slot_ = nullptr;
  uint32_t position_ = 0;  // of the wide event at hand
  uint32_t last_us_ = 0;
  std::array<RunThread, 64> run_threads_;  // by the id's low bits: several CPUs' runs interleave
  bool unknown_thread_ = false;            // the event at hand met one
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_BATCH_RUN_H_
