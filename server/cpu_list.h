// CPUs of this machine, as --pin names them: "0-3,8".
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_CPU_LIST_H_
#define MEMCGD_SERVER_CPU_LIST_H_

#include <pthread.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::server {

// INVALID_ARGUMENT where the text is no list, or names a CPU twice or one that this process may not use.
absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text);

// The thread runs on these CPUs and no others.  REQUIRES: a list of ParseCpuList(), not empty.
absl::Status PinThread(pthread_t thread, const std::vector<uint32_t>& cpus);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_CPU_LIST_H_
