// CPU time of this process and of the server.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_LOADGEN_CPU_TIME_H_
#define MEMCGD_CLIENT_LOADGEN_CPU_TIME_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace memcgd::client::loadgen {

double OwnCpuSeconds();

// Where the server's CPU time is to be had; both empty: nowhere.
struct ServerCpu {
  int pid = 0;          // 0: not given.  /proc/PID/stat, in ticks of 10 ms
  std::string metrics;  // HOST:PORT whose /metrics has process_cpu_seconds_total

  bool known() const { return pid != 0 || !metrics.empty(); }
};
// The error says what is missing.
absl::StatusOr<double> ServerCpuSeconds(const ServerCpu& source);

// The value of process_cpu_seconds_total in a page of metrics.
std::optional<double> CpuSecondsInMetrics(std::string_view page);

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_CPU_TIME_H_
