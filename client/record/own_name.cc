#include "client/record/own_name.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client/record/proc_file.h"
#include "client/text_scanner.h"

namespace memcgd::client {
namespace {

constexpr char kPrefix[] = "memcgd-";

}  // namespace

std::string OwnName() { return absl::StrCat(kPrefix, getpid(), "-", StartTimeOf(getpid())); }

bool IsLeftBehind(std::string_view name) {
  TextScanner text(name);
  int32_t pid = 0;
  uint64_t start = 0;
  if (!text.Skip(kPrefix) || !text.ReadPid(&pid) || pid <= 0 || !text.Skip('-') ||
      !text.ReadDecimal(&start) || (!text.AtEnd() && text.Peek() != '-')) {
    return false;
  }
  return StartTimeOf(pid) != start;
}

}  // namespace memcgd::client
