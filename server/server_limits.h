// Limits that the settings give, and how near each is: what keeps one client from taking the server from the
// others.  Those that are fixed stand in limits.h; docs/limits.md has all.
//
// Thread safety: plain values.
#ifndef MEMCGD_SERVER_SERVER_LIMITS_H_
#define MEMCGD_SERVER_SERVER_LIMITS_H_

#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/node.h"

namespace memcgd::server {

struct ServerLimits {
  uint64_t streams = 10'000;           // open at a time
  uint64_t streams_per_peer = 10'000;  // of one address
  uint64_t nodes = 10'000;
  core::NodeLimits node = {
      .processes = 1'000'000, .cgroups = 200'000, .cgroup_depth = 256, .areas = 1'000'000};
  uint64_t memory_bytes = 0;                // of the process; 0: nine tenths of what it may have
  std::chrono::seconds stream_idle{3600};   // without a batch; 0: for ever
  std::chrono::seconds stream_stalled{60};  // with an answer that the client does not take; 0: for ever
};

// One limit.
struct LimitUse {
  std::string_view name;
  uint64_t used = 0;  // of limits of a node: the fullest node's
  uint64_t limit = 0;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_SERVER_LIMITS_H_
