// What runs already: the threads to follow, and what of their memory there is before the first event, told to
// a node as baseline events.
//
// Read from /proc/PID/maps and pagemap, /proc/kpagecgroup and /proc/kpageflags, while the processes go on: it
// is near what was there at one moment, and not exact.  Pages of files that are in no address space are not
// seen.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_RECORD_RUNNING_H_
#define MEMCGD_CLIENT_RECORD_RUNNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/record/feed.h"
#include "client/record/memory_cgroup.h"

namespace memcgd::client {

// Thread-group leaders: the process and all its descendants; empty where it is gone.
std::vector<int32_t> ProcessesBelow(int32_t pid);
// The same of those in the cgroup and in all below it.
std::vector<int32_t> ProcessesIn(const MemoryHierarchy& hierarchy, const std::string& cgroup);
std::vector<int32_t> ThreadsOf(const std::vector<int32_t>& processes);

// Tells the node of these processes.  What is gone meanwhile is left out.
void SendBaseline(const MemoryHierarchy& hierarchy, const std::vector<int32_t>& processes, Feed* feed);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_RUNNING_H_
