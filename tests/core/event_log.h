// Events of a stream in order, frequent and wide ones, built by name and applied in batches of any size.
//
// Addresses are given as page numbers of the log's page size.
#ifndef MEMCGD_TESTS_CORE_EVENT_LOG_H_
#define MEMCGD_TESTS_CORE_EVENT_LOG_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/event.h"
#include "core/node.h"

namespace memcgd::core {

struct Step {
  Event event;
  std::shared_ptr<const WideEvent> wide;  // where it is not null, it is the event
};

class EventLog {
 public:
  explicit EventLog(uint32_t page_shift = 12) : page_shift_(page_shift) {}

  // The CPU of the events that follow.
  EventLog& OnCpu(uint32_t cpu) {
    cpu_ = cpu;
    return *this;
  }
  uint32_t cpu() const { return cpu_; }
  // So much later than the event before, the next one comes.
  void Wait(uint32_t us) { time_us_ += us; }
  uint32_t page_shift() const { return page_shift_; }

  // ---- frequent events
  void Fault(uint32_t tid, uint64_t page, uint32_t error_code) {
    Push(EventKind::kFault, tid, Event::AddressBody(page << page_shift_, error_code));
  }
  void Write(uint32_t tid, uint64_t page) { Fault(tid, page, kFaultUser | kFaultWrite); }
  void Read(uint32_t tid, uint64_t page) { Fault(tid, page, kFaultUser); }
  void WriteProtected(uint32_t tid, uint64_t page) {
    Fault(tid, page, kFaultUser | kFaultWrite | kFaultProtection);
  }
  void FileFault(uint32_t tid, uint32_t file, uint32_t index) {
    PushFile(EventKind::kFileFault, tid, file, index, 0);
  }
  void MapPages(uint32_t tid, uint32_t file, uint32_t first, uint32_t pages) {
    PushFile(EventKind::kMapPages, tid, file, first, pages - 1);
  }
  void FileAdd(uint32_t tid, uint32_t file, uint32_t index, uint32_t order = 0) {
    PushFile(EventKind::kFileAdd, tid, file, index, order);
  }
  void FileDelete(uint32_t tid, uint32_t file, uint32_t index, uint32_t order = 0) {
    PushFile(EventKind::kFileDelete, tid, file, index, order);
  }
  void FileRead(uint32_t tid, uint32_t file, uint32_t first, uint32_t pages = 1) {
    PushFile(EventKind::kFileRead, tid, file, first, pages - 1);
  }
  void FileDirty(uint32_t tid, uint32_t file, uint32_t index) {
    PushFile(EventKind::kFileDirty, tid, file, index, 0);
  }
  void Readahead(uint32_t tid, uint32_t file, uint32_t index) {
    PushFile(EventKind::kReadahead, tid, file, index, 0);
  }
  void MmapAnon(uint32_t tid, uint64_t page, uint64_t pages) {
    Push(EventKind::kMmapAnon, tid, Event::RangeBody(page, pages));
  }
  void Munmap(uint32_t tid, uint64_t page, uint64_t pages) {
    Push(EventKind::kMunmap, tid, Event::RangeBody(page, pages));
  }
  void DontNeed(uint32_t tid, uint64_t page, uint64_t pages) {
    Push(EventKind::kDontNeed, tid, Event::RangeBody(page, pages));
  }
  void Brk(uint32_t tid, uint64_t page) {
    Push(EventKind::kBrk, tid, Event::AddressBody(page << page_shift_, 0));
  }
  void Access(uint32_t tid, uint64_t page) {
    Push(EventKind::kAccess, tid, Event::AddressBody(page << page_shift_, 0));
  }

  // Writes to fresh anonymous memory.
  void Touch(uint32_t tid, uint64_t page, uint64_t pages) {
    MmapAnon(tid, page, pages);
    for (uint64_t i = 0; i < pages; ++i) Write(tid, page + i);
  }
  // ---- wide events
  void Wide(uint32_t tid, WideBody body) {
    steps_.push_back({{}, std::make_shared<WideEvent>(WideEvent{0, cpu_, tid, 0, std::move(body)})});
  }
  void Mmap(uint32_t tid, uint64_t page, uint64_t pages, uint32_t prot, uint32_t flags, uint32_t file = 0,
            uint64_t file_page = 0) {
    Wide(tid, wide::Mmap{Bytes(page), Bytes(pages), prot, flags, file, Bytes(file_page)});
  }
  void Mremap(uint32_t tid, uint64_t old_page, uint64_t old_pages, uint64_t new_page, uint64_t new_pages,
              uint32_t flags = 0) {
    Wide(tid, wide::Mremap{Bytes(old_page), Bytes(old_pages), Bytes(new_page), Bytes(new_pages), flags});
  }
  void Mprotect(uint32_t tid, uint64_t page, uint64_t pages, uint32_t prot) {
    Wide(tid, wide::Mprotect{Bytes(page), Bytes(pages), prot});
  }
  void Madvise(uint32_t tid, uint64_t page, uint64_t pages, uint32_t advice) {
    Wide(tid, wide::Madvise{Bytes(page), Bytes(pages), advice});
  }
  void Mlock(uint32_t tid, uint64_t page, uint64_t pages, bool on_fault = false) {
    Wide(tid, wide::Mlock{Bytes(page), Bytes(pages), on_fault});
  }
  void Munlock(uint32_t tid, uint64_t page, uint64_t pages) {
    Wide(tid, wide::Munlock{Bytes(page), Bytes(pages)});
  }
  void Fork(uint32_t parent, uint32_t child) { Wide(parent, wide::Clone{child, false, false}); }
  void Vfork(uint32_t parent, uint32_t child) { Wide(parent, wide::Clone{child, false, true}); }
  void CloneThread(uint32_t parent, uint32_t child) { Wide(parent, wide::Clone{child, true, true}); }
  void Exec(uint32_t tid, uint32_t argument_pages = 1) {
    Wide(tid, wide::ExecArguments{argument_pages});
    Wide(tid, wide::Exec{0});
  }
  // The end of a process of one thread, as a trace tells it.
  void Exit(uint32_t tid) {
    Wide(tid, wide::Exit{true});
    Wide(tid, wide::ExitMmap{});
  }
  void ExitThread(uint32_t tid) { Wide(tid, wide::Exit{false}); }
  void FileRange(uint32_t tid, EventKind op, uint32_t file, uint64_t index, uint64_t count,
                 uint32_t order = 0) {
    Wide(tid, wide::FileRange{op, file, index, count, order});
  }
  void DefinePath(uint32_t handle, std::string path) { Wide(0, wide::DefinePath{handle, std::move(path)}); }
  void DefineFile(uint32_t handle, uint32_t dev, uint64_t ino, bool shmem = false) {
    Wide(0, wide::DefineFile{handle, dev, ino, shmem});
  }
  void CgroupCreate(uint32_t path) { Wide(0, wide::CgroupCreate{path}); }
  void CgroupRemove(uint32_t path) { Wide(0, wide::CgroupRemove{path}); }
  void Attach(uint32_t path, uint32_t tid) { Wide(0, wide::CgroupAttach{path, tid}); }
  void SetKnob(uint32_t path, std::string knob, std::string value) {
    Wide(0, wide::SetKnob{path, std::move(knob), std::move(value)});
  }
  void SetOomScoreAdj(uint32_t target_tid, int32_t oom_score_adj) {
    Wide(0, wide::SetOomScoreAdj{target_tid, oom_score_adj});
  }
  void Mark(uint64_t id) { Wide(0, wide::Mark{id}); }
  void ReclaimBegin(uint32_t tid) { Wide(tid, wide::ReclaimBegin{}); }
  void ReclaimEnd(uint32_t tid) { Wide(tid, wide::ReclaimEnd{}); }

  std::vector<Step>& steps() { return steps_; }
  const std::vector<Step>& steps() const { return steps_; }
  void clear() { steps_.clear(); }

 private:
  uint64_t Bytes(uint64_t pages) const { return pages << page_shift_; }
  void Push(EventKind kind, uint32_t tid, uint64_t body) {
    steps_.push_back({{Event::Head(kind, cpu_, tid, time_us_++), body}, nullptr});
  }
  void PushFile(EventKind kind, uint32_t tid, uint32_t file, uint32_t index, uint32_t extra) {
    Push(kind, tid, Event::FileBody(file, index, extra));
  }

  const uint32_t page_shift_;
  uint32_t cpu_ = 0;
  uint32_t time_us_ = 0;
  std::vector<Step> steps_;
};

// Applies steps [first, end) in batches of at most `batch` of them; stops at the first that is refused.
inline absl::Status ApplySteps(Node& node, EventStream* stream, const std::vector<Step>& steps, size_t first,
                               size_t end, size_t batch, BatchResult* result, int64_t base_time_ns = 0) {
  std::vector<Event> events;
  std::vector<WideEvent> wides;
  for (size_t begin = first; begin < end; begin += batch) {
    events.clear();
    wides.clear();
    for (size_t i = begin; i < std::min(begin + batch, end); ++i) {
      if (steps[i].wide == nullptr) {
        events.push_back(steps[i].event);
      } else {
        wides.push_back(*steps[i].wide);
        wides.back().position = static_cast<uint32_t>(events.size());
      }
    }
    absl::Status status = node.Apply(stream, Batch{base_time_ns, events, wides}, result);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace memcgd::core

#endif  // MEMCGD_TESTS_CORE_EVENT_LOG_H_
