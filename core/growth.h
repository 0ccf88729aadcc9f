// What a batch could add to a node, at most: known before it is applied, so that a batch that could pass a
// limit is refused whole.
//
// The bound is that of the batch's events as if each met nothing that is there already: a limit is kept
// within one batch's events, from below.  What one event can multiply (populating a range, a run of a file's
// pages, a baseline, a fork) is not in it: such events ask Machine::MayGrow() as they go.
//
// Thread safety: plain values and a free function.
#ifndef MEMCGD_CORE_GROWTH_H_
#define MEMCGD_CORE_GROWTH_H_

#include <cstdint>

#include "core/event.h"
#include "core/process_table.h"

namespace memcgd::core {

struct Growth {
  uint64_t events = 0;       // that may make anything grow; those that only free are none
  uint64_t pages = 0;        // descriptors
  uint64_t large_pages = 0;  // of them, those in folios of several
  uint64_t files = 0;
  uint64_t processes = 0;
  uint64_t cgroups = 0;
  uint64_t marks = 0;

  Growth& operator+=(const Growth& other);
  Growth& operator-=(const Growth& other);
};

// From the numbers of events alone: what a batch is measured by while the node is far from its limits.
Growth RoughGrowth(const Batch& batch);
// From each event, and the threads that are there.
Growth GrowthOf(const Batch& batch, const ProcessTable& table);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_GROWTH_H_
