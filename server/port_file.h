// The file of --port-file: tells scripts and tests which addresses were bound.
#ifndef MEMCGD_SERVER_PORT_FILE_H_
#define MEMCGD_SERVER_PORT_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace memcgd::server {

// Writes "listen=ADDRESS" and "metrics-listen=ADDRESS" (empty where there is none), a line each.  The file
// appears whole or not at all.
absl::Status WritePortFile(const std::string& file, std::string_view listen, std::string_view metrics_listen,
                           std::string_view health_listen);

// Removes what an earlier run left, so that nobody takes its addresses for ours.
void RemovePortFile(const std::string& file);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_PORT_FILE_H_
