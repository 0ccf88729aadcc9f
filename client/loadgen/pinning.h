// Which CPUs there are, and a thread that stays on one of them.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_LOADGEN_PINNING_H_
#define MEMCGD_CLIENT_LOADGEN_PINNING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::client::loadgen {

// "0-3,8": numbers and ranges, each CPU once, in the order given.
absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text);
// "0-3,8" of sorted numbers.
std::string CpuListText(const std::vector<uint32_t>& cpus);

// The CPUs on which this process may run, ascending.
std::vector<uint32_t> UsableCpus();
// FAILED_PRECONDITION names the first that is not there or not ours.
absl::Status CheckCpus(const std::vector<uint32_t>& cpus);
// Its NUMA node, -1 where the kernel does not say.
int NumaNodeOf(uint32_t cpu);

// Puts the calling thread on that CPU alone.
absl::Status PinThisThread(uint32_t cpu);

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_PINNING_H_
