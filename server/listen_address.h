// Where a server listens: "HOST:PORT", "[V6]:PORT" or "unix:PATH".
//
// Thread safety: plain values and free functions.
#ifndef MEMCGD_SERVER_LISTEN_ADDRESS_H_
#define MEMCGD_SERVER_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace memcgd::server {

struct ListenAddress {
  std::string unix_path = {};  // not empty: a unix socket
  std::string host = {};       // without brackets
  uint16_t port = 0;           // 0: any free one

  // Only processes of this machine reach it.  A name other than localhost counts as one that others reach.
  bool is_local() const;
  bool is_unix() const { return !unix_path.empty(); }
  // As it was written.
  std::string Text() const;
};

// INVALID_ARGUMENT says what is wrong.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// Why listening there failed, as the system says it when asked again; `otherwise` where it says nothing.
std::string WhyNotBound(const ListenAddress& address, std::string_view otherwise);

// OK where nobody answers on that unix socket.  gRPC removes a socket file before it binds, and would take a
// running server's address from it.
absl::Status CheckUnixSocketFree(const ListenAddress& address);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_LISTEN_ADDRESS_H_
