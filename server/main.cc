// memcgd: the server.  See --help, docs/protocol.md and docs/metrics.md.
#include <malloc.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "server/config.h"
#include "server/cpu_list.h"
#include "server/log.h"
#include "server/port_file.h"
#include "server/server.h"
#include "server/version.h"

namespace {

using memcgd::server::Config;
using memcgd::server::Server;

constexpr std::chrono::seconds kDrainLimit{8};
constexpr timespec kExitLimit{10, 0};  // for what follows a first signal, until nodes are saved
std::atomic<bool> saving{false};

// glibc gives the top of the heap back after each large message and faults it in again for the next: 88 ns an
// event against 7.6.
void KeepHeap() {
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
}

// As many connections as the system grants; the soft limit is for programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The signals that are waited for, and so are blocked in every thread.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write past a limit of the file's size fails, as on a full disk
  return signals;
}

// A second signal, or time, ends the process at once.
void WatchDrain(const sigset_t& signals) {
  sigset_t stop = signals;
  sigdelset(&stop, SIGHUP);
  int signal = sigtimedwait(&stop, nullptr, &kExitLimit);
  if (signal < 0 && saving) signal = sigwaitinfo(&stop, nullptr);  // to write all takes as long as it takes
  spdlog::warn(signal > 0 ? "a second signal: ending at once" : "draining takes too long: ending at once");
  std::_Exit(signal > 0 ? 128 + signal : memcgd::server::kExitFailure);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "memcgd: %s\n", std::string(status.message()).c_str());
  return memcgd::server::kExitFailure;
}

// SIGHUP reads the tokens again; returns the signal that stops the server.
int AwaitStop(const sigset_t& signals, Server* server) {
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) {
    const absl::Status status = server->ReloadTokens();
    if (status.ok()) {
      spdlog::info("SIGHUP: tokens read again");
    } else {
      spdlog::error("SIGHUP: tokens stay as they were: {}", std::string(status.message()));
    }
  }
  return signal;
}

int Run(const Config& config, const sigset_t& signals) {
  if (!config.pin.empty()) {  // what this thread starts from here on stays there too
    const absl::Status status = memcgd::server::PinThread(pthread_self(), config.pin);
    if (!status.ok()) return Fail(status);
  }
  if (!config.port_file.empty()) memcgd::server::RemovePortFile(config.port_file);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config);
  if (!server.ok()) return Fail(server.status());
  const std::string listen = (*server)->address(), metrics = (*server)->metrics_address();
  const std::string health = (*server)->health_address();
  if (!config.port_file.empty()) {
    const absl::Status status = memcgd::server::WritePortFile(config.port_file, listen, metrics, health);
    if (!status.ok()) return Fail(status);
  }
  spdlog::info("memcgd {} listens on {}, metrics on {}", memcgd::server::kVersion, listen,
               metrics.empty() ? "no address" : metrics);
  const int signal = AwaitStop(signals, server->get());
  spdlog::info("{}: draining", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  std::thread(WatchDrain, signals).detach();
  (*server)->Drain(kDrainLimit);
  spdlog::info("drained");
  saving = true;
  const absl::Status saved = (*server)->Save();
  return saved.ok() ? memcgd::server::kExitOk : Fail(saved);
}

}  // namespace

int main(int argc, char** argv) {
  const memcgd::server::CommandLine line = memcgd::server::ReadCommandLine(argc, argv);
  if (line.exit_code.has_value()) {
    std::fputs(line.text.c_str(), *line.exit_code == memcgd::server::kExitOk ? stdout : stderr);
    return *line.exit_code;
  }
  KeepHeap();
  RaiseDescriptorLimit();
  const sigset_t signals = BlockSignals();
  memcgd::server::InitLog(line.config.log_level);
  return Run(line.config, signals);
}
