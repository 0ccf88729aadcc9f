#include "server/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "server/regular_file.h"
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
  const absl::StatusOr<std::string> text = ReadRegularFile("config file", file);
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
