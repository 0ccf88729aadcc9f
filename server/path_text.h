// Cgroup paths as strings of the wire.  The kernel's names are bytes; protobuf's strings are UTF-8.
//
// A byte that is no part of valid UTF-8 is written \xHH, its value in two hexadecimal digits, 80 to ff; all
// else stands for itself, so that systemd's names (system-getty\x2dtty1) are written as they are.  A
// backslash that would begin such an escape, or one of the following form, is written \x5c: "\x5cx80" is the
// six bytes \x80 of a name.  Formally, where
//     tail = "x" { "5cx" } ("8" … "f") hexdigit,
// a backslash followed by a tail is written "\x5c", the tail following as it is; hexadecimal digits have
// either case.  Every path has one text that these functions give, and reading that text gives the path.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_PATH_TEXT_H_
#define MEMCGD_SERVER_PATH_TEXT_H_

#include <string>
#include <string_view>

namespace memcgd::server {

// The text of a path, or of any bytes: valid UTF-8.
std::string PathToText(std::string_view path);
std::string PathFromText(std::string_view text);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_PATH_TEXT_H_
