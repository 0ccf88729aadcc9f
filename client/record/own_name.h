// Names for what a recording makes outside of itself (tracing instances, a cgroup), by which a later one
// knows what was left behind by one that was killed: "memcgd-PID-STARTTIME", and perhaps a dash and a suffix.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_RECORD_OWN_NAME_H_
#define MEMCGD_CLIENT_RECORD_OWN_NAME_H_

#include <string>
#include <string_view>

namespace memcgd::client {

// This process's.
std::string OwnName();
// True where the name is such a one of a process that is gone.
bool IsLeftBehind(std::string_view name);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_OWN_NAME_H_
