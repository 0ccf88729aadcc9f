// A tracing instance of one's own: ring buffers and events that nobody else's tracing sees.  Removed with the
// object.
//
// Kernel counterpart: tracefs, instances/ (Documentation/trace/ftrace.rst).
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_TRACE_INSTANCE_H_
#define MEMCGD_CLIENT_RECORD_TRACE_INSTANCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/record/event_decoder.h"

struct tracefs_instance;

namespace memcgd::client {

// Says in one line what is missing to trace, and how to get it.  `mount`: mounts tracefs where it is not.
absl::Status CheckTracing(bool mount);
// Removes the instances that recordings left behind which were killed.  Returns their number.
int RemoveLeftInstances();

// Now, by the clock of the instances' events: CLOCK_MONOTONIC, "mono".
int64_t TraceClockNs();

class TraceInstance {
 public:
  // Its clock is the machine's monotonic one; it follows forks; it is off.  REQUIRES: CheckTracing().
  static absl::StatusOr<std::unique_ptr<TraceInstance>> Create(const std::string& name,
                                                               uint64_t buffer_bytes_per_cpu);
  ~TraceInstance();
  TraceInstance(const TraceInstance&) = delete;
  TraceInstance& operator=(const TraceInstance&) = delete;

  // False: the kernel has no such event.
  static bool HasEvent(const EventName& event);
  static absl::StatusOr<std::string> EventFormat(const EventName& event);
  absl::Status Enable(const EventName& event);
  // Only what these threads do, and their children from their fork on.
  absl::Status SetPids(const std::vector<int32_t>& pids);
  absl::Status TurnOn();
  absl::Status TurnOff();

  // per_cpu/cpuN/trace_pipe_raw, read without waiting.
  absl::StatusOr<int> OpenRaw(uint32_t cpu) const;
  // CPUs that have a buffer.
  std::vector<uint32_t> Cpus() const;
  // Events that did not find room, on all CPUs.
  uint64_t LostEvents() const;
  // Bytes of a sub-buffer: what one read returns at most.
  uint64_t SubBufferBytes() const;

 private:
  explicit TraceInstance(tracefs_instance* instance) : instance_(instance) {}
  absl::Status Write(const char* file, const std::string& text);

  tracefs_instance* const instance_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_TRACE_INSTANCE_H_
