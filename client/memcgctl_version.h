// The version that `memcgctl version` shows.
#ifndef MEMCGD_CLIENT_MEMCGCTL_VERSION_H_
#define MEMCGD_CLIENT_MEMCGCTL_VERSION_H_

#include <string_view>

#ifndef MEMCGD_VERSION
#define MEMCGD_VERSION "0.1.0"
#endif

namespace memcgd::client {

inline constexpr std::string_view kVersion = MEMCGD_VERSION;

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_VERSION_H_
