#include "client/translation.h"

namespace memcgd::client {

void Translation::OnCgroup(const TraceRecord& record) {
  if (record.op == TraceOp::kCgroupRelease) return;
  if (!IsOurHierarchy(record)) return;
  if (!IsCgroupPath(record.path)) {
    ++counts_.bad_paths;
    return;
  }
  const uint32_t path = builder_->PathHandle(record.path);
  const EventPlace place = NodePlaceOf(record);
  if (record.op == TraceOp::kCgroupRmdir) {
    cgroups_.Remove(record.path);
    knobs_.Remove(record.path);
    PushAt(place, CgroupRemoveEvent{path});
    return;
  }
  if (cgroups_.Create(record.path)) {
    PushAt(place, CgroupCreateEvent{path});
    knobs_.Appear(record.path, [&](const CgroupKnob& knob) { PushKnob(place, knob); });
  }
  if (record.op != TraceOp::kCgroupAttachTask || record.child_pid <= 0) return;
  EnsureProcess(record, record.child_pid);
  PushAt(place, CgroupAttachEvent{path, static_cast<uint32_t>(record.child_pid)});
}

void Translation::PushKnob(const EventPlace& place, const CgroupKnob& knob) {
  PushAt(place, SetKnobEvent{builder_->PathHandle(knob.path), &knob});
}

bool Translation::IsOurHierarchy(const TraceRecord& record) {
  if (!root_.has_value() && record.op != TraceOp::kCgroupRmdir) root_ = record.root;
  if (root_ == record.root) return true;
  ++counts_.other_hierarchy;
  return false;
}

}  // namespace memcgd::client
