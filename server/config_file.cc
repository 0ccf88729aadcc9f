#include "server/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/limits.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using Entries = std::map<std::string, ConfigEntry, std::less<>>;

absl::Status Refuse(const std::string& file, std::string_view why) {
  return absl::InvalidArgumentError(Cat("config file ", file, ": ", why));
}

absl::Status RefuseLine(const std::string& file, int line, std::string_view why) {
  return absl::InvalidArgumentError(Cat("config file ", file, ", line ", line, ": ", why));
}

absl::StatusOr<std::string> ReadFile(const std::string& file) {
  // Without O_NONBLOCK a FIFO would hold the start of the server for ever.
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Refuse(file, std::strerror(errno));
  struct stat status = {};
  std::string text;
  ssize_t got = -1;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<uint64_t>(status.st_size) <= kMaxConfigFileBytes) {
    text.resize(status.st_size);
    got = read(fd, text.data(), text.size());
  }
  const int error = errno;
  close(fd);
  if (S_ISDIR(status.st_mode)) return Refuse(file, "is a directory");
  if (!S_ISREG(status.st_mode)) return Refuse(file, "is not a regular file");
  if (static_cast<uint64_t>(status.st_size) > kMaxConfigFileBytes)
    return Refuse(file, "is larger than 1 MiB");
  if (got < 0) return Refuse(file, std::strerror(error));
  text.resize(got);
  return text;
}

absl::StatusOr<Entries> EntriesOf(const std::string& file, const YAML::Node& root) {
  Entries entries;
  if (root.IsNull()) return entries;  // empty, or comments only
  if (!root.IsMap()) return RefuseLine(file, root.Mark().line + 1, "is not a map of settings");
  for (const auto& pair : root) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) return RefuseLine(file, line, "a key is not a name");
    const std::string& key = pair.first.Scalar();
    if (pair.second.IsNull()) return RefuseLine(file, line, Cat("key ", Quoted(key), " has no value"));
    if (!pair.second.IsScalar()) {
      return RefuseLine(file, line, Cat("key ", Quoted(key), " has a list or a map, not a value"));
    }
    const ConfigEntry entry = {.value = pair.second.Scalar(), .line = line};
    const auto [at, is_new] = entries.emplace(key, entry);
    if (!is_new)
      return RefuseLine(file, line, Cat("key ", Quoted(key), " stands in line ", at->second.line, " too"));
  }
  return entries;
}

}  // namespace

absl::StatusOr<Entries> ReadConfigFile(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return text.status();
  // yaml-cpp throws where the text is not YAML; exceptions end at this edge.
  try {
    return EntriesOf(file, YAML::Load(*text));
  } catch (const YAML::Exception& error) {
    std::string why = error.msg;
    std::replace(why.begin(), why.end(), '\n', ' ');
    return error.mark.is_null() ? Refuse(file, why) : RefuseLine(file, error.mark.line + 1, why);
  }
}

}  // namespace memcgd::server
