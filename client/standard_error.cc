#include "client/standard_error.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace memcgd::client {

void WriteStandardError(std::string_view text) {
  // There is nowhere to say that standard error cannot be written to.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void WriteErrorLine(std::string_view prefix, const std::string& text) {
  WriteStandardError(absl::StrCat(absl::string_view(prefix.data(), prefix.size()),
                                  absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}}), "\n"));
}

}  // namespace memcgd::client
