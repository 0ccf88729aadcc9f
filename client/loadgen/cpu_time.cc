#include "client/loadgen/cpu_time.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace memcgd::client::loadgen {
namespace {

absl::StatusOr<double> CpuSecondsOfProcess(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  std::istringstream fields(text.substr(end_of_name + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // state … cmajflt
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int Connect(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return -1;
  int fd = -1;
  for (const addrinfo* one = found; one != nullptr && fd < 0; one = one->ai_next) {
    fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    const timeval limit{2, 0};
    if (fd >= 0) {
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    }
    if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) != 0) {
      close(fd);
      fd = -1;
    }
  }
  freeaddrinfo(found);
  return fd;
}

// HTTP/1.0: the body ends where the connection does.
absl::StatusOr<std::string> Get(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(address, " is no HOST:PORT"));
  const int fd = Connect(address.substr(0, colon), address.substr(colon + 1));
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot reach the metrics at ", address));
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", address, "\r\n\r\n");
  std::string answer;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    constexpr size_t kMost = size_t{64} << 20;
    char buffer[16384];
    for (ssize_t got = 0; answer.size() < kMost && (got = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return answer;
}

}  // namespace

double OwnCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::optional<double> CpuSecondsInMetrics(std::string_view page) {
  constexpr std::string_view kName = "process_cpu_seconds_total";
  for (size_t at = page.find(kName); at != std::string_view::npos; at = page.find(kName, at + 1)) {
    const bool line_begins = at == 0 || page[at - 1] == '\n';
    const char after = at + kName.size() < page.size() ? page[at + kName.size()] : '\n';
    if (!line_begins || (after != ' ' && after != '{')) continue;
    const std::string line(page.substr(at, page.substr(at).find('\n')));
    return std::strtod(line.c_str() + line.rfind(' '), nullptr);
  }
  return std::nullopt;
}

absl::StatusOr<double> ServerCpuSeconds(const ServerCpu& source) {
  if (source.pid != 0) return CpuSecondsOfProcess(source.pid);
  absl::StatusOr<std::string> page = Get(source.metrics, "/metrics");
  if (!page.ok()) return page.status();
  const std::optional<double> seconds = CpuSecondsInMetrics(*page);
  if (!seconds.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("the metrics at ", source.metrics, " have no process_cpu_seconds_total"));
  }
  return *seconds;
}

}  // namespace memcgd::client::loadgen
