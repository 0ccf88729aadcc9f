// What a record may turn out to mean: the bodies of the events that wait in the window (event_window.h) for
// the builder.  Each is one event of the stream (proto/memcgd/v1/events.proto, docs/protocol.md), with
// handles for names.
//
// Thread safety: plain values.
#ifndef MEMCGD_CLIENT_WAITING_EVENT_H_
#define MEMCGD_CLIENT_WAITING_EVENT_H_

#include <cstdint>
#include <variant>

#include "client/batch_builder.h"
#include "client/cgroup_knobs.h"

namespace memcgd::client {

struct Nothing {};  // a place that turned out to hold no event

struct FaultEvent {
  uint64_t address;
  uint64_t instruction;  // 0: not wanted, or not known
  uint8_t error_code;
};
struct FileEvent {
  WordKind kind;
  uint8_t order;
  uint32_t file;
  uint64_t index;
  uint64_t count;
};
struct RangeEvent {
  WordKind kind;
  uint64_t address;
  uint64_t length;
};
struct BrkEvent {
  uint64_t address;
};
struct MmapEvent {
  uint64_t address;
  uint64_t length;
  uint64_t offset;
  uint32_t prot;
  uint32_t flags;
  uint32_t file;
  bool baseline;
};
struct MremapEvent {
  uint64_t old_address;
  uint64_t old_length;
  uint64_t new_address;
  uint64_t new_length;
  uint32_t flags;
};
struct MprotectEvent {
  uint64_t address, length;
  uint32_t prot;
};
struct MadviseEvent {
  uint64_t address, length;
  uint32_t advice;
};
struct MlockEvent {
  uint64_t address, length;
  bool on_fault;
};
struct MunlockEvent {
  uint64_t address, length;
};
struct CloneEvent {
  uint32_t child;
  bool thread;
  bool shares_mm;
};
struct ExecArgumentsEvent {};
struct ExecEvent {
  uint32_t name;
};
struct ExitEvent {
  bool group_dead;
};
struct ExitMmapEvent {};
struct CommEvent {
  uint32_t name;
};
struct CgroupCreateEvent {
  uint32_t path;
};
struct CgroupRemoveEvent {
  uint32_t path;
};
struct SetKnobEvent {
  uint32_t path;
  const CgroupKnob* knob;  // of the translation
};
struct CgroupAttachEvent {
  uint32_t path;
  uint32_t moved;
};
struct ReclaimBeginEvent {};
struct ReclaimEndEvent {
  uint64_t reclaimed_pages;
};
struct MarkVictimEvent {
  uint32_t victim;
};
struct OomScoreAdjEvent {
  uint32_t target;
  int32_t oom_score_adj;
};
struct BaselineProcessEvent {
  uint32_t tgid;
  uint32_t name;
};
struct MarkEvent {
  uint64_t id;
};

using Body =
    std::variant<Nothing, FaultEvent, FileEvent, RangeEvent, BrkEvent, MmapEvent, MremapEvent, MprotectEvent,
                 MadviseEvent, MlockEvent, MunlockEvent, CloneEvent, ExecArgumentsEvent, ExecEvent, ExitEvent,
                 ExitMmapEvent, CommEvent, CgroupCreateEvent, CgroupRemoveEvent, SetKnobEvent,
                 CgroupAttachEvent, ReclaimBeginEvent, ReclaimEndEvent, MarkVictimEvent, OomScoreAdjEvent,
                 BaselineProcessEvent, MarkEvent>;

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_WAITING_EVENT_H_
