// A node as the bytes of a file of the data directory (data_dir.h): its name, its incarnation, where its
// streams stand and what they remember, then the core's snapshot.
//
//   magic │ version (1 byte) │ bytes of the head (8) │ checksum of the head (8) │ head │ snapshot, to the end
//
// Numbers are little-endian; the head is written as the core's archive writes.  The snapshot has a version
// and a checksum of its own.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_NODE_FILE_H_
#define MEMCGD_SERVER_NODE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/node_registry.h"

namespace memcgd::server {

inline constexpr uint8_t kNodeFileVersion = 1;

struct NodeFileBytes {
  std::string head;  // all before the snapshot
  std::string snapshot;

  size_t size() const { return head.size() + snapshot.size(); }
};

// REQUIRES: the node is retired.
NodeFileBytes WriteNodeFile(ServedNode* node);

// The node of that name.  `same_state`: nothing happened to the node since it was saved, and it keeps its
// incarnation; otherwise it gets another.  INVALID_ARGUMENT: no such file, another version's, another node's.
// DATA_LOSS: cut short or damaged.
absl::StatusOr<std::shared_ptr<ServedNode>> ReadNodeFile(std::string_view name, std::string_view bytes,
                                                         bool same_state);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_NODE_FILE_H_
