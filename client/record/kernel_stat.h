// What this kernel says of a cgroup in memory.stat, under cgroup v2's names, and how a model differs.
//
// The kernel's figures lag: an update waits on its CPU until 64 of them are there (for each CPU of the
// machine), or for two seconds.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_RECORD_KERNEL_STAT_H_
#define MEMCGD_CLIENT_RECORD_KERNEL_STAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/record/memory_cgroup.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client {

struct KernelStat {
  std::string name;    // v2's
  uint64_t value = 0;  // bytes or a count
};
// Recursive; empty where the cgroup is not there.
std::vector<KernelStat> ReadKernelStat(const MemoryHierarchy& hierarchy, const std::string& cgroup);

struct StatDifference {
  std::string name;
  int64_t kernel = 0, model = 0;  // bytes or counts
};
// The statistics that both have, those first by which a model is measured: anon and file.
std::vector<StatDifference> Compare(const std::vector<KernelStat>& kernel, const memcgd::v1::State& model,
                                    const std::string& cgroup);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_KERNEL_STAT_H_
