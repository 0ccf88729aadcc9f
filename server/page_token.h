// Page tokens of the list calls: opaque to clients, and good only for the list that they were made for.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_PAGE_TOKEN_H_
#define MEMCGD_SERVER_PAGE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace memcgd::server {

// A token that continues the list `query` (which list, of what) after the entry `last`.
std::string MakePageToken(std::string_view query, std::string_view last);

// The entry after which to go on: "" for an empty token, INVALID_ARGUMENT for one of another list or of
// nobody.
absl::StatusOr<std::string> ReadPageToken(std::string_view query, std::string_view token);

// The page size for a request: `otherwise` for 0, at most `most`; INVALID_ARGUMENT where negative.
absl::StatusOr<size_t> PageSize(int32_t requested, size_t otherwise, size_t most);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_PAGE_TOKEN_H_
