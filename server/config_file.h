// The YAML file of --config: a map from the flags' names to values.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_CONFIG_FILE_H_
#define MEMCGD_SERVER_CONFIG_FILE_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace memcgd::server {

struct ConfigEntry {
  std::string value;
  int line = 0;  // from 1
};

// The entries of that file by key.  An error is one line that names the file and, where there is one, the
// line: missing, a directory, unreadable, too large, not YAML, not a map, a key twice, a value that is no
// scalar.
absl::StatusOr<std::map<std::string, ConfigEntry, std::less<>>> ReadConfigFile(const std::string& file);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_CONFIG_FILE_H_
