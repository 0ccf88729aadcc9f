#include "client/memcgctl_exit.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace memcgd::client {
namespace {

// What to do about an error, empty where the message says it or nothing can be done.
std::string Advice(const absl::Status& status) {
  const absl::string_view message = status.message();
  const bool about_cgroup = absl::StrContains(message, "cgroup");
  const bool about_node = !about_cgroup && absl::StrContains(message, "node");
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      if (about_node) return "`memcgctl node list` shows those that are there";
      if (about_cgroup) return "`memcgctl cgroup ls` shows those that are there";
      return "";
    case absl::StatusCode::kAlreadyExists:
      if (about_node) return "take another name, or remove it: `memcgctl node delete`";
      if (about_cgroup) return "take another path, or remove it: `memcgctl cgroup delete`";
      return "";
    case absl::StatusCode::kFailedPrecondition:
      return about_cgroup ? "`memcgctl cgroup tree` shows what is in it" : "";
    case absl::StatusCode::kResourceExhausted:
      return "remove nodes that are no longer needed: `memcgctl node delete`";
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return "the log of memcgd may say more";
    default:
      return "";
  }
}

void PrintLine(const std::string& line) {
  // One write(2) a line: lines of several threads or processes do not mix.  There is nowhere to say that
  // standard error cannot be written to.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}}); }

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kDataLoss:
      return kExitStateLost;
    default:
      return kExitFailed;
  }
}

std::string ErrorLine(const absl::Status& status) {
  const std::string advice = Advice(status);
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(),
                      advice.empty() ? "" : absl::StrCat(" (", advice, ")"));
}

void PrintError(const std::string& text) { PrintLine(absl::StrCat("memcgctl: ", OneLine(text), "\n")); }

void PrintWarning(const std::string& text) {
  PrintLine(absl::StrCat("memcgctl: warning: ", OneLine(text), "\n"));
}

void PrintNote(const std::string& text) { PrintLine(absl::StrCat("memcgctl: note: ", OneLine(text), "\n")); }

ExitCode FailWith(const absl::Status& status) {
  PrintError(ErrorLine(status));
  return ExitCodeOf(status);
}

ExitCode FailUsage(const absl::Status& status) {
  PrintError(std::string(status.message()));
  return kExitUsage;
}

}  // namespace memcgd::client
