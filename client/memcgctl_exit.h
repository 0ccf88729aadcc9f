// Exit codes of memcgctl, and how it says what went wrong: one line each on standard error.
#ifndef MEMCGD_CLIENT_MEMCGCTL_EXIT_H_
#define MEMCGD_CLIENT_MEMCGCTL_EXIT_H_

#include <string>

#include "absl/status/status.h"

namespace memcgd::client {

// docs/memcgctl.md has the table.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,        // the server refused, or writing the answer failed
  kExitUsage = 2,         // a flag, a subcommand, an argument or an environment variable
  kExitBadInput = 3,      // a file: missing, damaged, or (--strict) with a malformed line
  kExitUnreachable = 4,   // the server cannot be reached, or does not answer
  kExitStateLost = 5,     // the server lost the state that was fed (it was restarted): start again
  kExitLostEvents = 6,    // a recording lacks events that the kernel dropped
  kExitCannotRun = 126,   // record: the command cannot be run
  kExitNoCommand = 127,   // record: there is no such command
  kExitSignal = 128,      // plus the signal's number: 130 after Ctrl-C, 143 after SIGTERM
  kExitBrokenPipe = 141,  // who read standard output stopped reading
};

// The exit code that such an error of the server's side ends with.
ExitCode ExitCodeOf(const absl::Status& status);

// "NOT_FOUND: no node "x" (memcgctl node list shows those that do)": code, message and, where
// there is something to do about it, what.
std::string ErrorLine(const absl::Status& status);

// Prints "memcgctl: " and the text as one line on standard error, whole even where several threads print.
void PrintError(const std::string& text);
void PrintWarning(const std::string& text);
void PrintNote(const std::string& text);

// Prints the error and returns its exit code.
ExitCode FailWith(const absl::Status& status);
// The same where it is the user's words that are wrong.
ExitCode FailUsage(const absl::Status& status);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_EXIT_H_
