// Small files of /proc, /sys and cgroups, read whole.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_RECORD_PROC_FILE_H_
#define MEMCGD_CLIENT_RECORD_PROC_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::client {

// Errors name the file and what the kernel said.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);
absl::Status WriteSmallFile(const std::string& path, std::string_view text);

// A value of lines such as "MemTotal:  24 kB" or "rss 4096": the number behind the name; `otherwise` without.
uint64_t NumberOfLine(std::string_view text, std::string_view name, uint64_t otherwise);

struct ProcessStatus {
  int32_t tgid = -1;  // -1: there is no such thread
  std::string name;
};
ProcessStatus ReadProcessStatus(int32_t tid);
// When the process began, in clock ticks since boot: with its number, what tells it from a later one.  0: it
// is gone.
uint64_t StartTimeOf(int32_t pid);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_PROC_FILE_H_
