// The metadata x-memcg-node that every call about a node carries: balancers route by it without reading
// messages.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_NODE_METADATA_H_
#define MEMCGD_SERVER_NODE_METADATA_H_

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace memcgd::server {

// Its values; a call has one, or is refused below.
std::vector<std::string> NodeMetadata(const grpc::ServerContextBase& context);

// INVALID_ARGUMENT: a call about a node without it.
absl::Status MissingNode();

// OK where there is one and it is the node that the request names; INVALID_ARGUMENT naming both otherwise.
absl::Status CheckNodeMetadata(const std::vector<std::string>& metadata, std::string_view node);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_NODE_METADATA_H_
