// Building messages for people.  Debian's absl::string_view is not std::string_view; this is where they meet.
#ifndef MEMCGD_SERVER_TEXT_H_
#define MEMCGD_SERVER_TEXT_H_

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace memcgd::server {

inline absl::string_view Piece(std::string_view text) { return {text.data(), text.size()}; }
template <typename Number>
requires std::is_arithmetic_v<Number> Number Piece(Number number) { return number; }

// The parts, one after another: strings and numbers.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  return absl::StrCat(Piece(parts)...);
}

// A name as messages show it: in quotes, control characters escaped, cut where it is long.
inline std::string Quoted(std::string_view name) {
  constexpr size_t kShownBytes = 200;
  const bool cut = name.size() > kShownBytes;
  return Cat("\"", absl::Utf8SafeCHexEscape(Piece(name.substr(0, kShownBytes))), cut ? "…\"" : "\"");
}

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_TEXT_H_
