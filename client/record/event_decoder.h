// Makes TraceRecords of the kernel's raw events: binary, as they lie in a tracing instance's ring buffers.
// Which bytes a field has is read from the events' format files when the decoder is made.
//
// Kernel counterpart: the tracepoints' TP_STRUCT__entry()s; events/SYSTEM/EVENT/format.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_EVENT_DECODER_H_
#define MEMCGD_CLIENT_RECORD_EVENT_DECODER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/record/thread_names.h"
#include "client/trace_record.h"

struct tep_handle;

namespace memcgd::client {

struct RawEvent {
  const char* data = nullptr;
  size_t size = 0;
  uint32_t cpu = 0;
  int64_t time_ns = 0;
};

// A tracepoint that replay has a use for.
struct EventName {
  const char* system;
  std::string event;
};

class EventDecoder {
 public:
  EventDecoder();
  ~EventDecoder();
  EventDecoder(const EventDecoder&) = delete;
  EventDecoder& operator=(const EventDecoder&) = delete;

  // All that can be decoded, in the order of their table.
  static std::vector<EventName> Events();
  // Reads the event's format, the text of its format file; INTERNAL where a field is missing.
  absl::Status AddEvent(const EventName& event, const std::string& format);

  // False: the event is none of those added, or only told the names of threads.  The record's strings hold as
  // long as the event's bytes, and until the next call.
  bool Decode(const RawEvent& event, ThreadNames* names, TraceRecord* record);

 private:
  struct Field {
    uint16_t offset = 0;
    uint8_t size = 0;
    bool is_signed = false;
    bool is_text = false;      // the array itself
    bool is_dynamic = false;   // 16 bits of offset, and of length above them
    bool is_relative = false;  // the offset counts from the field's end
  };
  struct Layout {
    int definition = -1;  // index in the table of events; -1: none of ours
    Syscall syscall = Syscall::kNone;
    std::array<Field, 6> fields{};
    size_t field_count = 0;
  };

  static uint64_t Number(const RawEvent& event, const Field& field);
  static std::string_view Text(const RawEvent& event, const Field& field);
  static void FillHead(const RawEvent& event, ThreadNames* names, TraceRecord* record);
  static void TakeTaskEvent(const Layout& layout, const RawEvent& event, ThreadNames* names);
  static void FillSyscall(const Layout& layout, const RawEvent& event, TraceRecord* record);

  tep_handle* const tep_;
  std::vector<Layout> layouts_;  // by the event's id
  std::string ip_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_EVENT_DECODER_H_
