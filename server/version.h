// The version that --version, memcgd_build_info and the log show: the project's, as CMakeLists.txt has it.
#ifndef MEMCGD_SERVER_VERSION_H_
#define MEMCGD_SERVER_VERSION_H_

#include <string_view>

namespace memcgd::server {

inline constexpr std::string_view kVersion = MEMCGD_VERSION;

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_VERSION_H_
