// Amounts of memory as users write them.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_AMOUNT_H_
#define MEMCGD_CLIENT_AMOUNT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace memcgd::client {

// A number of bytes: digits and perhaps K, M, G or T (of 1024; KiB and KB are the same).  Below 2^63.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_AMOUNT_H_
