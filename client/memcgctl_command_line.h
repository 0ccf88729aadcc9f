// What the command lines of memcgctl and memcg-loadgen have in common: flags about access, and what is said
// where one was not taken.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_MEMCGCTL_COMMAND_LINE_H_
#define MEMCGD_CLIENT_MEMCGCTL_COMMAND_LINE_H_

#include <CLI/App.hpp>
#include <string>
#include <string_view>

#include "client/credentials.h"
#include "client/memcgctl_output.h"

namespace memcgd::client {

// Help and version go to `out`; all else is one line on standard error that names what is wrong.  Returns the
// exit code.  `command_noun`: what the program calls its subcommands.
int ExplainParse(const CLI::App& app, const CLI::ParseError& error, std::string_view command_noun,
                 Output* out);

// --tls-ca, --tls-cert, --tls-key and --token-file, with the variables that begin with that prefix
// ("MEMCGCTL").
void AddCredentialOptions(CLI::App* app, const std::string& variable_prefix, Credentials* credentials);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_COMMAND_LINE_H_
