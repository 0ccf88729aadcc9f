// The log: spdlog to stderr, gRPC's own lines with it.
//
// Thread safety: Init…() once, before other threads; logging by all.
#ifndef MEMCGD_SERVER_LOG_H_
#define MEMCGD_SERVER_LOG_H_

#include <string>

namespace memcgd::server {

// `level` as Config::log_level.
void InitLog(const std::string& level);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_LOG_H_
