// The events that wait, in the trace's order, until it shows what they mean.
//
// The ring's size is fixed: what is pushed out of it before it was understood is taken at its face value
// (docs/translation.md).
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_EVENT_WINDOW_H_
#define MEMCGD_CLIENT_EVENT_WINDOW_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/batch_builder.h"
#include "client/waiting_event.h"

namespace memcgd::client {

// A place in the window, counted from the trace's beginning.
using Slot = uint64_t;
inline constexpr Slot kNoSlot = 0;

struct Entry {
  EventPlace place;
  bool open = false;  // what it means is not known yet; `body` is its face value
  Body body;
};

// The entries that wait, in the trace's order, in a ring of fixed size.
class Window {
 public:
  explicit Window(size_t size) : ring_(std::bit_ceil(std::max<size_t>(size, 2))) {}

  bool empty() const { return begin_ == end_; }
  bool full() const { return end_ - begin_ == ring_.size(); }
  Entry& front() { return at(begin_); }
  void PopFront() { ++begin_; }

  // REQUIRES: !full().
  Slot Push(const EventPlace& place, const Body& body, bool open) {
    Entry& entry = at(end_);
    entry.place = place;
    entry.open = open;
    entry.body = body;
    return end_++;
  }
  // nullptr where the entry left the window already, and for kNoSlot.
  Entry* Find(Slot slot) { return slot >= begin_ ? &at(slot) : nullptr; }

 private:
  Entry& at(Slot slot) { return ring_[slot & (ring_.size() - 1)]; }

  std::vector<Entry> ring_;
  Slot begin_ = 1;  // kNoSlot is before all
  Slot end_ = 1;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_EVENT_WINDOW_H_
