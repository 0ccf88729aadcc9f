// memcgd's settings: a flag beats the environment, which beats the file.
//
// Thread safety: plain values and free functions.
#ifndef MEMCGD_SERVER_CONFIG_H_
#define MEMCGD_SERVER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/listen_address.h"
#include "server/server_limits.h"
#include "server/tls.h"

namespace memcgd::server {

// Which modelled cgroups /metrics/cgroups shows: those below `prefix` that are at most `depth` deep, and of
// them the `top` that use the most memory, of all nodes together.
struct CgroupFilter {
  std::string prefix = "/";
  uint32_t depth = 64;  // of the path: "/" is 0, "/a/b" is 2
  uint32_t top = 10000;
};

struct Config {
  ListenAddress listen;
  std::optional<ListenAddress> metrics_listen = std::nullopt;  // none: no metrics
  std::optional<CgroupFilter> cgroup_metrics = std::nullopt;   // none: no /metrics/cgroups
  std::optional<ListenAddress> health_listen = std::nullopt;   // none: health only where gRPC listens
  TlsFiles tls = {};
  std::string token_file = {};  // empty: whoever reaches the address may make every call
  bool insecure = false;  // asked for: an address that others reach, without TLS or a check of who calls
  ServerLimits limits = {};
  std::string data_dir = {};       // empty: nodes end with the server
  std::string log_level = "info";  // as spdlog names them
  std::string port_file = {};      // empty: none
  uint32_t apply_threads = 0;      // 0: as many as there are CPUs
  std::vector<uint32_t> pin = {};  // CPUs of this machine; empty: all
};

// What the command line asks for: to run with `config`, or to print `text` and exit with `exit_code`.
struct CommandLine {
  Config config;
  std::optional<int> exit_code;
  std::string text;  // one line where it is an error
};

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // an address that is taken, a file that cannot be written
inline constexpr int kExitUsage = 2;    // a bad flag, variable or configuration file

// Reads flags, the environment's MEMCGD_* and the file of --config.
CommandLine ReadCommandLine(int argc, const char* const* argv);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_CONFIG_H_
