#include "client/memcgctl_exit.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/standard_error.h"

namespace memcgd::client {
namespace {

// What to do about an error, empty where the message says it or nothing can be done.
std::string Advice(const absl::Status& status) {
  const absl::string_view message = status.message();
  const bool about_cgroup = absl::StrContains(message, "cgroup");
  const bool about_node = !about_cgroup && absl::StrContains(message, "node");
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      if (absl::StrContains(message, "nearest")) return "";  // it says what there is
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
      return about_node ? "remove nodes that are no longer needed: `memcgctl node delete`" : "";
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return "the log of memcgd may say more";
    default:
      return "";
  }
}

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

void PrintError(const std::string& text) { WriteErrorLine("memcgctl: ", text); }

void PrintWarning(const std::string& text) { WriteErrorLine("memcgctl: warning: ", text); }

void PrintNote(const std::string& text) { WriteErrorLine("memcgctl: note: ", text); }

ExitCode FailWith(const absl::Status& status) {
  PrintError(ErrorLine(status));
  return ExitCodeOf(status);
}

ExitCode FailUsage(const absl::Status& status) {
  PrintError(std::string(status.message()));
  return kExitUsage;
}

}  // namespace memcgd::client
