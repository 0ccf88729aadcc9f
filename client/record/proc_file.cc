#include "client/record/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace memcgd::client {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status ErrnoOf(const std::string& path) { return absl::ErrnoToStatus(errno, path); }

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoOf(path);
  std::string text;
  std::array<char, 16384> buffer;
  ssize_t got = 0;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<size_t>(got));
  absl::Status status = got < 0 ? ErrnoOf(path) : absl::OkStatus();
  close(fd);
  if (!status.ok()) return status;
  return text;
}

absl::Status WriteSmallFile(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoOf(path);
  const ssize_t written = write(fd, text.data(), text.size());
  absl::Status status = written < 0 ? ErrnoOf(path) : absl::OkStatus();
  close(fd);
  return status;
}

uint64_t NumberOfLine(std::string_view text, std::string_view name, uint64_t otherwise) {
  for (const absl::string_view line : absl::StrSplit(Absl(text), '\n')) {
    if (line.substr(0, name.size()) != Absl(name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(name.size()), absl::ByAnyChar(": \t"), absl::SkipEmpty());
    uint64_t value = 0;
    const char next = line.size() > name.size() ? line[name.size()] : '\0';
    if ((next == ':' || next == ' ' || next == '\t') && !words.empty() && absl::SimpleAtoi(words[0], &value))
      return value;
  }
  return otherwise;
}

ProcessStatus ReadProcessStatus(int32_t tid) {
  ProcessStatus status;
  const absl::StatusOr<std::string> text = ReadSmallFile(absl::StrCat("/proc/", tid, "/status"));
  const absl::StatusOr<std::string> comm = ReadSmallFile(absl::StrCat("/proc/", tid, "/comm"));
  if (!text.ok() || !comm.ok()) {
    status.name = "<...>";  // as tracefs says it
    return status;
  }
  status.tgid = static_cast<int32_t>(NumberOfLine(*text, "Tgid", 0));
  status.name = comm->substr(0, comm->rfind('\n'));
  return status;
}

uint64_t StartTimeOf(int32_t pid) {
  constexpr size_t kStartTime = 19;  // the 22nd field, counted behind the name
  const absl::StatusOr<std::string> stat = ReadSmallFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return 0;
  const size_t name_end = stat->rfind(") ");
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(stat->substr(name_end + 2), ' ');
  uint64_t start = 0;
  return fields.size() > kStartTime && absl::SimpleAtoi(fields[kStartTime], &start) ? start : 0;
}

}  // namespace memcgd::client
