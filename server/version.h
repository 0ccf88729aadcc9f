// The version that --version, memcgd_build_info and the log show.
#ifndef MEMCGD_SERVER_VERSION_H_
#define MEMCGD_SERVER_VERSION_H_

#include <string_view>

#ifndef MEMCGD_VERSION
#define MEMCGD_VERSION "0.1.0"
#endif

namespace memcgd::server {

inline constexpr std::string_view kVersion = MEMCGD_VERSION;

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_VERSION_H_
