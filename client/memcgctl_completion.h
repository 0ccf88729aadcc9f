// Completion scripts for shells, made from the tree of subcommands that the parser itself uses.
#ifndef MEMCGD_CLIENT_MEMCGCTL_COMPLETION_H_
#define MEMCGD_CLIENT_MEMCGCTL_COMPLETION_H_

#include <CLI/App.hpp>
#include <string>

namespace memcgd::client {

// `shell` is bash, zsh or fish.  What an option takes is told by its type name: "a|b" is a choice, "FILE" a
// path.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_COMPLETION_H_
