#include "client/amount.h"

#include <cctype>
#include <limits>

#include "absl/strings/str_cat.h"

namespace memcgd::client {

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  const auto bad = [&text](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" ", why, ": bytes are wanted, as 4096, 512M or 16G"));
  };
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  uint64_t bytes = 0;
  size_t at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    const auto digit = static_cast<uint64_t>(text[at] - '0');
    if (bytes > (kMax - digit) / 10) return bad("is too much");
    bytes = bytes * 10 + digit;
  }
  if (at == 0) return bad("is not an amount");
  std::string suffix;
  for (; at < text.size(); ++at)
    suffix += static_cast<char>(std::toupper(static_cast<unsigned char>(text[at])));
  if (suffix.empty() || suffix == "B") return bytes;
  const size_t unit = std::string("KMGT").find(suffix[0]);
  const std::string rest = suffix.substr(1);
  if (unit == std::string::npos || (!rest.empty() && rest != "B" && rest != "IB"))
    return bad("is not an amount");
  const unsigned shift = 10 * (static_cast<unsigned>(unit) + 1);
  if (bytes > kMax >> shift) return bad("is too much");
  return bytes << shift;
}

}  // namespace memcgd::client
