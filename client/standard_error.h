// Lines for people on standard error.
//
// Thread safety: all of it.
#ifndef MEMCGD_CLIENT_STANDARD_ERROR_H_
#define MEMCGD_CLIENT_STANDARD_ERROR_H_

#include <string>
#include <string_view>

namespace memcgd::client {

// One write(2): what several threads or processes write does not mix.
void WriteStandardError(std::string_view text);
// The prefix and the text, as one line whatever the text holds.
void WriteErrorLine(std::string_view prefix, const std::string& text);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_STANDARD_ERROR_H_
