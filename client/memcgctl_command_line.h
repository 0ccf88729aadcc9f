// What is said about a command line that was not taken, by memcgctl and by memcg-loadgen.
//
// Thread safety: a free function.
#ifndef MEMCGD_CLIENT_MEMCGCTL_COMMAND_LINE_H_
#define MEMCGD_CLIENT_MEMCGCTL_COMMAND_LINE_H_

#include <CLI/App.hpp>
#include <string_view>

#include "client/memcgctl_output.h"

namespace memcgd::client {

// Help and version go to `out`; all else is one line on standard error that names what is wrong.  Returns the
// exit code.  `command_noun`: what the program calls its subcommands.
int ExplainParse(const CLI::App& app, const CLI::ParseError& error, std::string_view command_noun,
                 Output* out);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_COMMAND_LINE_H_
