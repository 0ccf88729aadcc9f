// One cgroup as a scrape sees it: what can be read beside batches, of every cgroup in one pass.
//
// Kernel counterpart: what cAdvisor reads of a cgroup's files, in one look.
//
// Thread safety: plain values; see Node::SampleCgroups().
#ifndef MEMCGD_CORE_CGROUP_SAMPLE_H_
#define MEMCGD_CORE_CGROUP_SAMPLE_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "core/memcg.h"

namespace memcgd::core {

struct CgroupSample {
  static constexpr uint64_t kNoLimit = UINT64_MAX;

  // Of a statistic, with all that is below: bytes or a count.
  uint64_t Of(Stat line) const { return static_cast<uint64_t>(stat[static_cast<size_t>(line)]); }
  uint64_t Of(MemcgEvent event) const { return static_cast<uint64_t>(events[static_cast<size_t>(event)]); }

  std::string_view path;               // as long as the call that shows the sample
  uint32_t id = 0;                     // not given twice on a node
  uint64_t usage_bytes = 0;            // of the root: anon and file, as runc reads it
  uint64_t total_less_free_bytes = 0;  // of the root only: what the machine has in use
  uint64_t peak_bytes = 0;
  uint64_t max_bytes = kNoLimit;
  uint64_t high_bytes = kNoLimit;
  uint64_t low_bytes = 0;
  uint64_t swap_max_bytes = kNoLimit;
  uint64_t swap_bytes = 0;
  uint64_t failcnt = 0;  // charges that met its limit
  std::array<int64_t, kStats> stat{};
  std::array<int64_t, kMemcgEvents> events{};
  uint64_t local_faults = 0;  // of the cgroup alone
  uint64_t local_major_faults = 0;
  uint64_t error_bound_bytes = 0;
  uint64_t error_bound_pages = 0;  // no line of `stat` is further from its exact value, in pages or counts
};

// The node beside them.
struct NodeSample {
  uint64_t memory_bytes = 0;
  uint64_t swap_bytes = 0;
  uint64_t resident_bytes = 0;  // pages in use, by any cgroup or none
  uint64_t committed_as_bytes = 0;
  uint64_t commit_limit_bytes = 0;
  uint64_t events = 0;
  uint64_t streams = 0;
  uint64_t cgroups = 0;
  uint64_t dying_cgroups = 0;
  uint64_t oom_calls = 0;
  int64_t time_ns = 0;  // the model's
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CGROUP_SAMPLE_H_
