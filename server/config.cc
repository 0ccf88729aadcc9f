#include "server/config.h"

#include <spdlog/common.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cgroup_path.h"
#include "server/config_file.h"
#include "server/cpu_list.h"
#include "server/path_text.h"
#include "server/text.h"
#include "server/version.h"

namespace memcgd::server {
namespace {

constexpr char kAbout[] =
    "memcgd: models the memory accounting of machines.  Takes their events over gRPC and answers as their "
    "kernels "
    "would.\nA flag beats its environment variable, which beats the configuration file.";

// One setting: its names, its default, and how its text becomes part of a Config.
struct Setting {
  std::string name;         // of the flag, without dashes, and the key of the file
  std::string environment;  // variable
  std::string help;
  std::string value;  // the default, then what was given
  std::function<absl::Status(const std::string& value, Config* config)> parse;
  CLI::Option* option = nullptr;
};

absl::Status ParseListen(const std::string& value, Config* config) {
  auto address = ParseListenAddress(value);
  if (address.ok()) config->listen = *std::move(address);
  return address.status();
}

absl::Status ParseMetricsListen(const std::string& value, Config* config) {
  config->metrics_listen.reset();
  if (value.empty() || value == "off") return absl::OkStatus();
  auto address = ParseListenAddress(value);
  if (!address.ok()) return address.status();
  if (address->is_unix())
    return absl::InvalidArgumentError(Cat(Quoted(value), " is a unix socket; give HOST:PORT"));
  config->metrics_listen = *std::move(address);
  return absl::OkStatus();
}

absl::Status BadCgroupMetrics(const std::string& value) {
  return absl::InvalidArgumentError(Cat(
      Quoted(value), " is not off, on, or depth=0…1000, top=1…1000000 and prefix=/PATH with commas between"));
}

absl::Status ParseCgroupMetrics(const std::string& value, Config* config) {
  constexpr uint32_t kMostDepth = 1000, kMostTop = 1'000'000;
  config->cgroup_metrics.reset();
  if (value.empty() || value == "off") return absl::OkStatus();
  CgroupFilter filter;
  std::string_view rest = value == "on" ? "" : std::string_view(value);
  while (!rest.empty()) {
    const size_t equals = rest.find('=');
    const std::string_view key = rest.substr(0, equals);
    if (equals == rest.npos) return BadCgroupMetrics(value);
    rest.remove_prefix(equals + 1);
    // A path may hold commas, and so it comes last.
    const std::string_view text = key == "prefix" ? rest : rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    uint32_t* number = key == "depth" ? &filter.depth : key == "top" ? &filter.top : nullptr;
    if (number != nullptr) {
      if (!absl::SimpleAtoi(Piece(text), number) || *number > (key == "depth" ? kMostDepth : kMostTop) ||
          (key == "top" && *number == 0))
        return BadCgroupMetrics(value);
    } else if (key == "prefix") {
      filter.prefix = PathFromText(text);
      const absl::Status status = core::CheckCgroupPath(filter.prefix);
      if (!status.ok()) return status;
    } else {
      return BadCgroupMetrics(value);
    }
  }
  config->cgroup_metrics = std::move(filter);
  return absl::OkStatus();
}

absl::Status ParseLogLevel(const std::string& value, Config* config) {
  static constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};
  if (std::find(std::begin(kLevels), std::end(kLevels), value) == std::end(kLevels)) {
    return absl::InvalidArgumentError(Cat(Quoted(value), " is not trace, debug, info, warn, error or off"));
  }
  config->log_level = value;
  return absl::OkStatus();
}

absl::Status ParseApplyThreads(const std::string& value, Config* config) {
  constexpr uint32_t kMost = 256;
  uint32_t threads = 0;
  if (!absl::SimpleAtoi(value, &threads) || threads > kMost) {
    return absl::InvalidArgumentError(Cat(Quoted(value), " is not a number 0 … ", kMost));
  }
  config->apply_threads = threads;
  return absl::OkStatus();
}

absl::Status ParsePin(const std::string& value, Config* config) {
  config->pin.clear();
  if (value.empty()) return absl::OkStatus();
  auto cpus = ParseCpuList(value);
  if (cpus.ok()) config->pin = *std::move(cpus);
  return cpus.status();
}

absl::Status ParsePortFile(const std::string& value, Config* config) {
  config->port_file = value;
  return absl::OkStatus();
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  const auto add = [&settings](std::string name, std::string environment, std::string value, std::string help,
                               auto parse) {
    settings.push_back({std::move(name), std::move(environment), std::move(help), std::move(value),
                        std::move(parse), nullptr});
  };
  add("listen", "MEMCGD_LISTEN", "127.0.0.1:7077",
      "Where gRPC listens: HOST:PORT or unix:PATH; port 0 takes any free one", ParseListen);
  add("metrics-listen", "MEMCGD_METRICS_LISTEN", "127.0.0.1:9477",
      "Where Prometheus may scrape /metrics: HOST:PORT; off: nowhere", ParseMetricsListen);
  add("cgroup-metrics", "MEMCGD_CGROUP_METRICS", "off",
      "Modelled cgroups on /metrics/cgroups: off, on, or depth=N,top=N,prefix=/PATH", ParseCgroupMetrics);
  add("log-level", "MEMCGD_LOG_LEVEL", "info", "trace, debug, info, warn, error or off", ParseLogLevel);
  add("apply-threads", "MEMCGD_APPLY_THREADS", "0", "Threads that apply events; 0: as many as there are CPUs",
      ParseApplyThreads);
  add("pin", "MEMCGD_PIN", "",
      "CPUs to run on, as 0-3,8; each thread that applies events stays on one of them", ParsePin);
  add("port-file", "MEMCGD_PORT_FILE", "", "File to write the addresses to once they are bound",
      ParsePortFile);
  return settings;
}

CommandLine Exit(int code, std::string text) {
  CommandLine line;
  line.exit_code = code;
  line.text = std::move(text);
  return line;
}

// An error is one line, wherever its words came from.
CommandLine UsageError(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Exit(kExitUsage, Cat("memcgd: ", text, "\n"));
}

// Takes from the file what neither flag nor environment gave, and checks the rest of it all the same.
absl::Status TakeFromFile(const std::string& file, std::vector<Setting>* settings) {
  const auto entries = ReadConfigFile(file);
  if (!entries.ok()) return entries.status();
  for (const auto& [key, entry] : *entries) {
    const auto at = std::find_if(settings->begin(), settings->end(),
                                 [&key = key](const Setting& setting) { return setting.name == key; });
    const std::string where = Cat("config file ", file, ", line ", entry.line, ": ");
    if (at == settings->end())
      return absl::InvalidArgumentError(Cat(where, "key ", Quoted(key), " is unknown"));
    Config checked;
    const absl::Status status = at->parse(entry.value, &checked);
    if (!status.ok()) {
      return absl::InvalidArgumentError(Cat(where, "key ", Quoted(key), ": ", std::string(status.message())));
    }
    if (at->option->count() == 0) at->value = entry.value;
  }
  return absl::OkStatus();
}

CommandLine Evaluate(const std::string& file, bool check_only, std::vector<Setting> settings) {
  if (!file.empty()) {
    const absl::Status status = TakeFromFile(file, &settings);
    if (!status.ok()) return UsageError(std::string(status.message()));
  }
  CommandLine line;
  for (const Setting& setting : settings) {
    const absl::Status status = setting.parse(setting.value, &line.config);
    if (!status.ok()) return UsageError(Cat("--", setting.name, ": ", std::string(status.message())));
  }
  if (check_only) return Exit(kExitOk, "configuration ok\n");
  return line;
}

}  // namespace

CommandLine ReadCommandLine(int argc, const char* const* argv) {
  CLI::App app(kAbout, "memcgd");
  app.set_version_flag("--version", Cat("memcgd ", kVersion));
  std::string file;
  bool check_only = false;
  app.add_option("--config", file, "YAML file with the flags' names as keys")->envname("MEMCGD_CONFIG");
  app.add_flag("--check-config", check_only, "Check flags, environment and file, and exit");
  std::vector<Setting> settings = Settings();
  for (Setting& setting : settings) {
    setting.option = app.add_option(Cat("--", setting.name), setting.value, setting.help)
                         ->envname(setting.environment)
                         ->capture_default_str();
  }
  // CLI11 reports by exception; they end at this edge.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Exit(kExitOk, app.help());
  } catch (const CLI::CallForVersion&) {
    return Exit(kExitOk, Cat(app.version(), "\n"));
  } catch (const CLI::Error& error) {
    return UsageError(error.what());
  }
  return Evaluate(file, check_only, std::move(settings));
}

}  // namespace memcgd::server
