// The bits of frequent events (docs/protocol.md), and a writer that fills a batch's words in place.
#ifndef MEMCGD_CLIENT_LOADGEN_EVENT_WORDS_H_
#define MEMCGD_CLIENT_LOADGEN_EVENT_WORDS_H_

#include <cstddef>
#include <cstdint>

#include "client/batch_builder.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client::loadgen {

inline constexpr uint32_t kPageSize = 4096;
inline constexpr uint32_t kUserWriteFault = 2 | 4;  // x86's error code: write, user
inline constexpr uint64_t kMaxRangePages = 524287;  // of a frequent event
inline constexpr int64_t kNsPerEvent = 1000;        // of model time: a fault's order of magnitude

inline uint64_t AddressBody(uint64_t address, uint32_t error_code) {
  return address | uint64_t{error_code} << 57;
}
inline uint64_t FileBody(uint32_t file, uint32_t index, uint32_t extra) {
  return file | uint64_t{index} << 24 | uint64_t{extra} << 56;
}
inline uint64_t RangeBody(uint64_t page, uint64_t pages) { return page | pages << 45; }

// Writes at most `events` frequent events into `batch`, which it clears; what the batch held before is used
// again, so that a batch filled over and over allocates nothing.  Event times count up by a microsecond.
//
// Thread safety: one thread at a time.
class WordWriter {
 public:
  // Model time begins at *time_ns, which is moved on by Finish().
  WordWriter(memcgd::v1::Batch* batch, size_t events, int64_t* time_ns)
      : batch_(*batch), time_ns_(*time_ns), left_(events) {
    batch_.Clear();
    batch_.set_base_time_ns(time_ns_);
    batch_.mutable_words()->Reserve(static_cast<int>(2 * events));
    begin_ = next_ = batch_.mutable_words()->AddNAlreadyReserved(static_cast<int>(2 * events));
  }
  WordWriter(const WordWriter&) = delete;
  WordWriter& operator=(const WordWriter&) = delete;

  // How many more events fit.
  size_t left() const { return left_; }

  // REQUIRES: left() > 0.
  void Add(WordKind kind, uint32_t cpu, uint32_t tid, uint64_t body) {
    const auto us = static_cast<uint64_t>(next_ - begin_) / 2;
    *next_++ = static_cast<uint64_t>(kind) | uint64_t{cpu} << 6 | uint64_t{tid} << 16 | us << 38;
    *next_++ = body;
    --left_;
  }

  // A side event at this place; the caller fills its oneof.  REQUIRES: left() > 0.
  memcgd::v1::SideEvent* AddSide(uint32_t cpu, uint32_t tid) {
    memcgd::v1::SideEvent* side = batch_.add_side();
    const auto position = static_cast<uint32_t>((next_ - begin_) / 2);
    side->set_position(position);
    side->set_cpu(cpu);
    side->set_tid(tid);
    side->set_time_offset_ns(kNsPerEvent * position);
    --left_;
    return side;
  }

  void Finish() {
    batch_.mutable_words()->Truncate(static_cast<int>(next_ - begin_));
    time_ns_ += kNsPerEvent * ((next_ - begin_) / 2 + batch_.side_size());
  }

 private:
  memcgd::v1::Batch& batch_;
  int64_t& time_ns_;
  size_t left_;
  uint64_t* begin_;
  uint64_t* next_;
};

// How many events a batch has, frequent and side ones together.
inline uint64_t EventsOf(const memcgd::v1::Batch& batch) {
  return static_cast<uint64_t>(batch.words_size()) / 2 + static_cast<uint64_t>(batch.side_size());
}

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_EVENT_WORDS_H_
