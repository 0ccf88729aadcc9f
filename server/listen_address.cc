#include "server/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

// A file descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

std::string WhyNotBoundTcp(const ListenAddress& address, std::string_view otherwise) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), Cat(address.port).c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  std::string why(otherwise);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Socket probe(at->ai_family);
    const int on = 1;  // as a server sets it: a port in TIME_WAIT is not busy
    setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(probe.fd(), at->ai_addr, at->ai_addrlen) != 0 || listen(probe.fd(), 1) != 0) {
      why = std::strerror(errno);
      break;
    }
  }
  freeaddrinfo(found);
  return why;
}

}  // namespace

bool ListenAddress::is_local() const {
  in_addr v4{};
  return is_unix() || host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

std::string ListenAddress::Text() const {
  if (is_unix()) return Cat(kUnixPrefix, unix_path);
  return host.find(':') == host.npos ? Cat(host, ":", port) : Cat("[", host, "]:", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return absl::InvalidArgumentError(Cat(Quoted(text), " ", why));
  };
  ListenAddress address;
  if (text.starts_with(kUnixPrefix)) {
    address.unix_path = text.substr(kUnixPrefix.size());
    if (address.unix_path.empty()) return refuse("has no path after unix:");
    if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
      return refuse("has a longer path than a unix socket may have (107 bytes)");
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return refuse("is neither HOST:PORT nor unix:PATH");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return refuse("needs brackets around its IPv6 address");
  }
  if (host.empty()) return refuse("has no host; 0.0.0.0 or [::] is every address");
  if (host.find_first_of(" ,+/[]") != host.npos) return refuse("has a host that is none");
  uint32_t port = 0;
  const std::string_view digits = text.substr(colon + 1);
  if (digits.find_first_not_of("0123456789") != digits.npos || !absl::SimpleAtoi(Piece(digits), &port) ||
      port > 65535) {
    return refuse("has a port that is not 0 … 65535");
  }
  address.host = host;
  address.port = static_cast<uint16_t>(port);
  return address;
}

std::string WhyNotBound(const ListenAddress& address, std::string_view otherwise) {
  if (!address.is_unix()) return WhyNotBoundTcp(address, otherwise);
  Socket probe(AF_UNIX);
  const sockaddr_un name = UnixAddress(address.unix_path);
  if (bind(probe.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
    return std::strerror(errno);
  unlink(address.unix_path.c_str());  // ours, just made
  return std::string(otherwise);
}

absl::Status CheckUnixSocketFree(const ListenAddress& address) {
  if (!address.is_unix()) return absl::OkStatus();
  Socket probe(AF_UNIX);
  const sockaddr_un name = UnixAddress(address.unix_path);
  if (connect(probe.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
    return absl::UnavailableError(Cat("cannot listen on ", address.Text(), ": ", std::strerror(EADDRINUSE)));
  }
  return absl::OkStatus();
}

}  // namespace memcgd::server
