// The knobs of a cgroup: which there are, what they take.
#ifndef MEMCGD_CORE_KNOBS_H_
#define MEMCGD_CORE_KNOBS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace memcgd::core {

// Of a node, bytes: what amounts are rounded by, and what shares are of.
struct KnobSizes {
  uint32_t page = 4096;
  uint64_t memory = 0;
  uint64_t swap = 0;
};

// The value as reading the knob's file would print it ("max", bytes rounded down to pages, or a number), or
// INVALID_ARGUMENT that names knob, value and what it takes.  Values: "max", or bytes with an optional suffix
// K, M, G, T, P or E, or a share of the node's memory or swap, 0% … 100% (memory.min, low, high, max,
// memory.swap.high, memory.swap.max); 0 or 1 (memory.oom.group); 0 … 200 (memory.swappiness).
absl::StatusOr<std::string> CheckKnob(std::string_view knob, std::string_view value, const KnobSizes& sizes);

// Every knob with the value that a new cgroup has.
std::map<std::string, std::string> DefaultKnobs();

// What is written to memory.reclaim: "BYTES", or "BYTES swappiness=S" with S in 0 … 200 or "max".
struct ReclaimRequest {
  int64_t pages = 0;
  std::optional<uint32_t> swappiness;  // 201: anonymous pages only
};
absl::StatusOr<ReclaimRequest> ParseReclaimRequest(std::string_view request, uint32_t page_size);

// Pages of a checked amount; PageCounter::kMax for "max".
int64_t KnobPages(std::string_view checked, uint32_t page_size);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_KNOBS_H_
