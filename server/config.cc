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
#include "server/tokens.h"
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
  bool is_switch = false;  // a flag that may stand without value
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

absl::Status ParseHealthListen(const std::string& value, Config* config) {
  config->health_listen.reset();
  if (value.empty() || value == "off") return absl::OkStatus();
  auto address = ParseListenAddress(value);
  if (address.ok()) config->health_listen = *std::move(address);
  return address.status();
}

// Of a text that is taken as it is.
auto Take(std::string Config::*field) {
  return [field](const std::string& value, Config* config) {
    config->*field = value;
    return absl::OkStatus();
  };
}

auto Take(std::string TlsFiles::*field) {
  return [field](const std::string& value, Config* config) {
    config->tls.*field = value;
    return absl::OkStatus();
  };
}

absl::Status ParseInsecure(const std::string& value, Config* config) {
  if (value != "true" && value != "false")
    return absl::InvalidArgumentError(Cat(Quoted(value), " is neither true nor false"));
  config->insecure = value == "true";
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

// A number from `least` to `most`.
absl::Status ParseNumber(const std::string& value, uint64_t least, uint64_t most, uint64_t* number) {
  if (absl::SimpleAtoi(value, number) && *number >= least && *number <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(Quoted(value), " is not a number ", least, " … ", most));
}

// Of the limit that `field` finds.
template <typename Field>
auto TakeLimit(uint64_t most, Field field) {
  return [most, field](const std::string& value, Config* config) {
    return ParseNumber(value, 1, most, &field(config->limits));
  };
}

auto TakeSeconds(std::chrono::seconds ServerLimits::*field) {
  return [field](const std::string& value, Config* config) {
    uint64_t seconds = 0;
    absl::Status status = ParseNumber(value, 0, 1'000'000, &seconds);
    config->limits.*field = std::chrono::seconds(seconds);
    return status;
  };
}

// "4G": a number, and K, M, G or T of 1024.
absl::Status ParseMemoryBudget(const std::string& value, Config* config) {
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  constexpr uint64_t kMost = uint64_t{1} << 50;
  config->limits.memory_bytes = 0;
  if (value == "auto") return absl::OkStatus();
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = value.empty() ? kUnits.npos : kUnits.find(value.back());
  const std::string digits = unit == kUnits.npos ? value : value.substr(0, value.size() - 1);
  const unsigned shift = unit == kUnits.npos ? 0 : 10 * (static_cast<unsigned>(unit) + 1);
  uint64_t number = 0;
  if (!absl::SimpleAtoi(digits, &number) || number > kMost >> shift || number << shift < kLeast)
    return absl::InvalidArgumentError(
        Cat(Quoted(value), " is neither auto nor bytes from 64M to 1024T, as 4G"));
  config->limits.memory_bytes = number << shift;
  return absl::OkStatus();
}

absl::Status ParsePin(const std::string& value, Config* config) {
  config->pin.clear();
  if (value.empty()) return absl::OkStatus();
  auto cpus = ParseCpuList(value);
  if (cpus.ok()) config->pin = *std::move(cpus);
  return cpus.status();
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  const auto add = [&settings](std::string name, std::string environment, std::string value, std::string help,
                               auto parse) {
    settings.push_back({std::move(name), std::move(environment), std::move(help), std::move(value),
                        std::move(parse), false, nullptr});
  };
  add("listen", "MEMCGD_LISTEN", "127.0.0.1:7077",
      "Where gRPC listens: HOST:PORT or unix:PATH; port 0 takes any free one", ParseListen);
  add("metrics-listen", "MEMCGD_METRICS_LISTEN", "127.0.0.1:9477",
      "Where Prometheus may scrape /metrics: HOST:PORT; off: nowhere", ParseMetricsListen);
  add("cgroup-metrics", "MEMCGD_CGROUP_METRICS", "off",
      "Modelled cgroups on /metrics/cgroups: off, on, or depth=N,top=N,prefix=/PATH", ParseCgroupMetrics);
  add("health-listen", "MEMCGD_HEALTH_LISTEN", "off",
      "Where gRPC health checks are answered, and nothing else, without TLS and token: HOST:PORT or "
      "unix:PATH; off: nowhere",
      ParseHealthListen);
  add("tls-cert", "MEMCGD_TLS_CERT", "", "The server's certificate chain, PEM; turns TLS on",
      Take(&TlsFiles::cert));
  add("tls-key", "MEMCGD_TLS_KEY", "", "Its private key, PEM", Take(&TlsFiles::key));
  add("tls-client-ca", "MEMCGD_TLS_CLIENT_CA", "",
      "Certificates, PEM, by which clients must be signed; none: clients need no certificate",
      Take(&TlsFiles::client_ca));
  add("token-file", "MEMCGD_TOKEN_FILE", "", "File of bearer tokens; read again on SIGHUP",
      Take(&Config::token_file));
  add("insecure", "MEMCGD_INSECURE", "false",
      "Let --listen be an address that others reach though whoever does may make every call", ParseInsecure);
  settings.back().is_switch = true;
  add("data-dir", "MEMCGD_DATA_DIR", "",
      "Directory to which nodes are saved when the server stops, and from which they are loaded at the "
      "start; "
      "none: they end with the server",
      Take(&Config::data_dir));
  add("memory-budget", "MEMCGD_MEMORY_BUDGET", "auto",
      "Memory that the server may take, as 4G; auto: nine tenths of what the machine or its cgroup has",
      ParseMemoryBudget);
  const auto add_limit = [&add](const char* name, const char* environment, const char* value,
                                const char* help, uint64_t most,
                                auto field) { add(name, environment, value, help, TakeLimit(most, field)); };
  constexpr uint64_t kMany = 1'000'000;
  add_limit("max-streams", "MEMCGD_MAX_STREAMS", "10000", "Streams that are open at a time", kMany,
            [](ServerLimits& limits) -> uint64_t& { return limits.streams; });
  add_limit("max-streams-per-peer", "MEMCGD_MAX_STREAMS_PER_PEER", "10000",
            "Of them, those of one client's address", kMany,
            [](ServerLimits& limits) -> uint64_t& { return limits.streams_per_peer; });
  add_limit("max-nodes", "MEMCGD_MAX_NODES", "10000", "Nodes", kMany,
            [](ServerLimits& limits) -> uint64_t& { return limits.nodes; });
  add_limit("max-pages", "MEMCGD_MAX_PAGES", "201326592", "Page descriptors of a node",
            core::NodeLimits::kMostPages,
            [](ServerLimits& limits) -> uint64_t& { return limits.node.pages; });
  add_limit("max-files", "MEMCGD_MAX_FILES", "15728640", "Files of a node", core::NodeLimits::kMostFiles,
            [](ServerLimits& limits) -> uint64_t& { return limits.node.files; });
  add_limit("max-processes", "MEMCGD_MAX_PROCESSES", "1000000", "Processes of a node",
            core::NodeLimits::kMostProcesses,
            [](ServerLimits& limits) -> uint64_t& { return limits.node.processes; });
  add_limit("max-areas", "MEMCGD_MAX_AREAS", "1000000", "Areas of an address space; past them mmap is ENOMEM",
            1u << 30, [](ServerLimits& limits) -> uint64_t& { return limits.node.areas; });
  add_limit("max-cgroups", "MEMCGD_MAX_CGROUPS", "200000", "Cgroups of a node, dying ones too",
            core::NodeLimits::kMostCgroups,
            [](ServerLimits& limits) -> uint64_t& { return limits.node.cgroups; });
  add_limit("max-cgroup-depth", "MEMCGD_MAX_CGROUP_DEPTH", "256", "Levels of cgroups below the root", 2048,
            [](ServerLimits& limits) -> uint64_t& { return limits.node.cgroup_depth; });
  add("stream-idle", "MEMCGD_STREAM_IDLE", "3600",
      "Seconds without a batch after which a stream is closed; 0: never",
      TakeSeconds(&ServerLimits::stream_idle));
  add("stream-stalled", "MEMCGD_STREAM_STALLED", "60",
      "Seconds after which a stream is closed whose client does not take an answer; 0: never",
      TakeSeconds(&ServerLimits::stream_stalled));
  add("log-level", "MEMCGD_LOG_LEVEL", "info", "trace, debug, info, warn, error or off", ParseLogLevel);
  add("apply-threads", "MEMCGD_APPLY_THREADS", "0", "Threads that apply events; 0: as many as there are CPUs",
      ParseApplyThreads);
  add("pin", "MEMCGD_PIN", "",
      "CPUs to run on, as 0-3,8; each thread that applies events stays on one of them", ParsePin);
  add("port-file", "MEMCGD_PORT_FILE", "", "File to write the addresses to once they are bound",
      Take(&Config::port_file));
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

// What the settings about access are together, and the files that they name.
absl::Status CheckAccessSettings(const Config& config) {
  absl::Status status = CheckTlsFiles(config.tls);
  if (!status.ok()) return status;
  const bool tls = !config.tls.empty();
  const bool local = config.listen.is_local();
  if (!config.token_file.empty()) {
    status = Tokens::Read(config.token_file).status();
    if (!status.ok()) return status;
    if (!tls && !local) {
      return absl::InvalidArgumentError(Cat("--token-file: tokens could be read on their way to ",
                                            config.listen.Text(), "; give --tls-cert and --tls-key too"));
    }
  }
  const bool guarded = tls && (!config.token_file.empty() || !config.tls.client_ca.empty());
  if (local || guarded || config.insecure) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("--listen: whoever reaches ", config.listen.Text(),
          " could feed and read every node; give --tls-cert and --tls-key with --token-file or "
          "--tls-client-ca, or --insecure where that is meant"));
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
  const absl::Status status = CheckAccessSettings(line.config);
  if (!status.ok()) return UsageError(std::string(status.message()));
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
    const std::string flag = Cat("--", setting.name);
    setting.option = setting.is_switch ? app.add_flag(flag, setting.value, setting.help)
                                       : app.add_option(flag, setting.value, setting.help);
    setting.option->envname(setting.environment)->capture_default_str();
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
