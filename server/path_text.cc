#include "server/path_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace memcgd::server {
namespace {

constexpr std::string_view kBackslash = "\\x5c";  // a backslash that is one

unsigned char At(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

unsigned HexValue(unsigned char digit) {
  return absl::ascii_isdigit(digit) ? digit - '0' : absl::ascii_tolower(digit) - 'a' + 10;
}

// Two digits of 80 … ff begin there.
bool IsHighByte(std::string_view text, size_t at) {
  return absl::ascii_isxdigit(At(text, at)) && HexValue(At(text, at)) >= 8 &&
         absl::ascii_isxdigit(At(text, at + 1));
}

// "5cx" begins there.
bool IsInnerBackslash(std::string_view text, size_t at) {
  return At(text, at) == '5' && absl::ascii_tolower(At(text, at + 1)) == 'c' && At(text, at + 2) == 'x';
}

// x { 5cx } HH, of any length.
bool IsTail(std::string_view text, size_t at) {
  if (At(text, at) != 'x') return false;
  ++at;
  while (IsInnerBackslash(text, at)) at += 3;
  return IsHighByte(text, at);
}

// The bytes of the character of UTF-8 that begins there; 0 where none does (RFC 3629, table 3-7 of Unicode).
size_t CharacterBytes(std::string_view text, size_t at) {
  const unsigned char lead = At(text, at);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xc2 && lead <= 0xdf   ? 2
                       : lead >= 0xe0 && lead <= 0xef ? 3
                       : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                      : 0;
  // The second byte keeps out overlong forms, surrogates and what is past U+10FFFF.
  const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (bytes == 0 || At(text, at + 1) < least || At(text, at + 1) > most) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if ((At(text, at + i) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

bool IsPlain(char c) { return static_cast<unsigned char>(c) < 0x80 && c != '\\'; }

}  // namespace

std::string PathToText(std::string_view path) {
  if (std::all_of(path.begin(), path.end(), IsPlain)) return std::string(path);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t at = 0; at < path.size();) {
    const size_t bytes = CharacterBytes(path, at);
    if (bytes == 0) {
      const unsigned char byte = At(path, at++);
      text.append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
    } else if (path[at] == '\\' && IsTail(path, at + 1)) {
      text.append(kBackslash);
      ++at;
    } else {
      text.append(path.substr(at, bytes));
      at += bytes;
    }
  }
  return text;
}

std::string PathFromText(std::string_view text) {
  if (text.find('\\') == text.npos) return std::string(text);
  std::string path;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || !IsTail(text, at + 1)) {
      path += text[at++];
    } else if (IsInnerBackslash(text, at + 2)) {
      path += '\\';
      at += kBackslash.size();
    } else {
      path += static_cast<char>(HexValue(At(text, at + 2)) << 4 | HexValue(At(text, at + 3)));
      at += kBackslash.size();
    }
  }
  return path;
}

}  // namespace memcgd::server
