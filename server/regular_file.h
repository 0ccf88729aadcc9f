// A small file that settings name: read whole, or why not.
//
// Thread safety: a free function.
#ifndef MEMCGD_SERVER_REGULAR_FILE_H_
#define MEMCGD_SERVER_REGULAR_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace memcgd::server {

// At most kMaxConfigFileBytes.  INVALID_ARGUMENT "WHAT FILE: why" where that is no regular file, too large or
// not readable.
absl::StatusOr<std::string> ReadRegularFile(std::string_view what, const std::string& file);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_REGULAR_FILE_H_
