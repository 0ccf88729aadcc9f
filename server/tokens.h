// Bearer tokens: the tenants that they stand for, and the nodes that a tenant may read and write.
//
// The file holds no token, only SHA-256 hashes of them:
//
//   tokens:
//     - sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//       tenant: team-a
//       write: [team-a-]        # prefixes of nodes' names; "" is every node.  Who may write may read.
//       read: [shared-]
//       expires: 2027-01-01T00:00:00Z
//
// Thread safety: constant once read.
#ifndef MEMCGD_SERVER_TOKENS_H_
#define MEMCGD_SERVER_TOKENS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace memcgd::server {

using TokenHash = std::array<uint8_t, 32>;

struct Grant {
  TokenHash hash;
  std::string tenant;
  std::vector<std::string> read_prefixes, write_prefixes;
  absl::Time expires = absl::InfiniteFuture();

  bool MayWrite(std::string_view node) const;
  bool MayRead(std::string_view node) const;
};

class Tokens {
 public:
  // INVALID_ARGUMENT names file, line and what is wrong.
  static absl::StatusOr<std::shared_ptr<const Tokens>> Read(const std::string& file);

  // The token's grant, expired or not; null where there is none.  Takes the same time whichever it is.
  const Grant* Find(std::string_view token) const;
  size_t size() const { return grants_.size(); }

 private:
  std::vector<Grant> grants_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_TOKENS_H_
