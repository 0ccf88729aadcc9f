#include "server/page_token.h"

#include <algorithm>
#include <cstring>

#include "server/content_hash.h"
#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

uint64_t SealOf(std::string_view query, std::string_view last) {
  ContentHash hash;
  hash.AddBytes(query);
  hash.AddBytes(last);
  return hash.Value();
}

}  // namespace

std::string MakePageToken(std::string_view query, std::string_view last) {
  const uint64_t seal = SealOf(query, last);
  std::string bytes(sizeof(seal), '\0');
  std::memcpy(bytes.data(), &seal, sizeof(seal));
  bytes += last;
  return absl::WebSafeBase64Escape(bytes);
}

absl::StatusOr<std::string> ReadPageToken(std::string_view query, std::string_view token) {
  if (token.empty()) return std::string();
  std::string bytes;
  uint64_t seal = 0;
  if (absl::WebSafeBase64Unescape(Piece(token), &bytes) && bytes.size() >= sizeof(seal)) {
    std::memcpy(&seal, bytes.data(), sizeof(seal));
    bytes.erase(0, sizeof(seal));
    if (seal == SealOf(query, bytes)) return bytes;
  }
  return BadField("page_token", Cat(Quoted(token), " is not from an answer to this list"));
}

absl::StatusOr<size_t> PageSize(int32_t requested, size_t otherwise, size_t most) {
  if (requested < 0) return BadField("page_size", Cat(requested, " is negative"));
  return requested == 0 ? otherwise : std::min(static_cast<size_t>(requested), most);
}

}  // namespace memcgd::server
