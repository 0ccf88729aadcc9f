// Gives events that are understood to the builder, in their order.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_EVENT_EMITTER_H_
#define MEMCGD_CLIENT_EVENT_EMITTER_H_

#include <cstdint>

#include "client/batch_builder.h"
#include "client/event_window.h"
#include "client/waiting_event.h"

namespace memcgd::client {

class Emitter {
 public:
  explicit Emitter(BatchBuilder* builder) : builder_(builder) {}

  uint64_t events() const { return events_; }

  void Emit(const Entry& entry) {
    place_ = &entry.place;
    std::visit(*this, entry.body);
  }

  void operator()(const Nothing&) {}
  void operator()(const FaultEvent& event) {
    if (event.instruction != 0) Address(WordKind::kInstruction, event.instruction, 0);
    Address(WordKind::kFault, event.address, event.error_code);
  }
  void operator()(const FileEvent& event) {
    ++events_;
    builder_->AddFile(*place_, event.kind, event.file, event.index, event.count, event.order);
  }
  void operator()(const RangeEvent& event) {
    ++events_;
    builder_->AddRange(*place_, event.kind, event.address, event.length);
  }
  void operator()(const BrkEvent& event) { Address(WordKind::kBrk, event.address, 0); }
  void operator()(const MmapEvent& event) {
    auto* side = Side();
    auto* mmap = event.baseline ? side->mutable_baseline_area()->mutable_area() : side->mutable_mmap();
    mmap->set_address(event.address);
    mmap->set_length(event.length);
    mmap->set_prot(event.prot);
    mmap->set_flags(event.flags);
    mmap->set_file(event.file);
    mmap->set_offset(event.offset);
  }
  void operator()(const MremapEvent& event) {
    auto* mremap = Side()->mutable_mremap();
    mremap->set_old_address(event.old_address);
    mremap->set_old_length(event.old_length);
    mremap->set_new_address(event.new_address);
    mremap->set_new_length(event.new_length);
    mremap->set_flags(event.flags);
  }
  void operator()(const MprotectEvent& event) {
    auto* mprotect = Side()->mutable_mprotect();
    mprotect->set_address(event.address);
    mprotect->set_length(event.length);
    mprotect->set_prot(event.prot);
  }
  void operator()(const MadviseEvent& event) {
    auto* madvise = Side()->mutable_madvise();
    madvise->set_address(event.address);
    madvise->set_length(event.length);
    madvise->set_advice(event.advice);
  }
  void operator()(const MlockEvent& event) {
    auto* mlock = Side()->mutable_mlock();
    mlock->set_address(event.address);
    mlock->set_length(event.length);
    mlock->set_on_fault(event.on_fault);
  }
  void operator()(const MunlockEvent& event) {
    auto* munlock = Side()->mutable_munlock();
    munlock->set_address(event.address);
    munlock->set_length(event.length);
  }
  void operator()(const CloneEvent& event) {
    auto* clone = Side()->mutable_clone();
    clone->set_child_tid(event.child);
    clone->set_thread(event.thread);
    clone->set_shares_mm(event.shares_mm);
  }
  void operator()(const ExecArgumentsEvent&) { Side()->mutable_exec_arguments(); }
  void operator()(const ExecEvent& event) { Side()->mutable_exec()->set_name(event.name); }
  void operator()(const ExitEvent& event) { Side()->mutable_exit()->set_group_dead(event.group_dead); }
  void operator()(const ExitMmapEvent&) { Side()->mutable_exit_mmap(); }
  void operator()(const CommEvent& event) { Side()->mutable_comm()->set_name(event.name); }
  void operator()(const CgroupCreateEvent& event) { Side()->mutable_cgroup_create()->set_path(event.path); }
  void operator()(const CgroupRemoveEvent& event) { Side()->mutable_cgroup_remove()->set_path(event.path); }
  void operator()(const SetKnobEvent& event) {
    auto* set = Side()->mutable_set_knob();
    set->set_path(event.path);
    set->set_knob(event.knob->knob);
    set->set_value(event.knob->value);
  }
  void operator()(const CgroupAttachEvent& event) {
    auto* attach = Side()->mutable_cgroup_attach();
    attach->set_path(event.path);
    attach->set_moved_tid(event.moved);
  }
  void operator()(const ReclaimBeginEvent&) { Side()->mutable_reclaim_begin(); }
  void operator()(const ReclaimEndEvent& event) {
    Side()->mutable_reclaim_end()->set_reclaimed_pages(event.reclaimed_pages);
  }
  void operator()(const MarkVictimEvent& event) {
    Side()->mutable_mark_victim()->set_victim_tid(event.victim);
  }
  void operator()(const OomScoreAdjEvent& event) {
    auto* set = Side()->mutable_set_oom_score_adj();
    set->set_target_tid(event.target);
    set->set_oom_score_adj(event.oom_score_adj);
  }
  void operator()(const BaselineProcessEvent& event) {
    auto* process = Side()->mutable_baseline_process();
    process->set_tgid(event.tgid);
    process->set_name(event.name);
  }
  void operator()(const MarkEvent& event) { Side()->mutable_mark()->set_id(event.id); }

 private:
  void Address(WordKind kind, uint64_t address, uint32_t error_code) {
    ++events_;
    builder_->AddAddress(*place_, kind, address, error_code);
  }
  memcgd::v1::SideEvent* Side() {
    ++events_;
    return builder_->AddSide(*place_);
  }

  BatchBuilder* const builder_;
  const EventPlace* place_ = nullptr;
  uint64_t events_ = 0;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_EVENT_EMITTER_H_
