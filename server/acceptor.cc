#include "server/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr int kBacklog = 4096;  // the kernel's default for net.core.somaxconn
constexpr std::chrono::milliseconds kPause{20};
constexpr std::chrono::seconds kComplainEvery{10};

void Set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

absl::Status CannotListen(const ListenAddress& address, std::string_view why) {
  return absl::UnavailableError(Cat("cannot listen on ", address.Text(), ": ", why));
}

Descriptor OpenSpare() { return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

uint16_t PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

void SetPort(sockaddr* name, uint16_t port) {
  if (name->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(name)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(name)->sin_port = htons(port);
  }
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const ListenAddress& address) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(address));
  absl::Status status = address.is_unix() ? acceptor->ListenUnix() : acceptor->ListenTcp();
  if (!status.ok()) return status;
  return acceptor;
}

// All addresses of the name, on one port.
absl::Status Acceptor::ListenTcp() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address_.host.c_str(), Cat(address_.port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address_, gai_strerror(error));
  absl::Status status;
  for (const addrinfo* at = found; at != nullptr && status.ok(); at = at->ai_next) {
    Descriptor listener(socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (listener.fd() < 0) continue;  // localhost may have an address of a family that the machine has not
    Set(listener.fd(), SOL_SOCKET, SO_REUSEADDR, 1);  // a port in TIME_WAIT is not busy
    Set(listener.fd(), IPPROTO_TCP, TCP_NODELAY, 1);  // connections inherit it
    if (at->ai_family == AF_INET6)
      Set(listener.fd(), IPPROTO_IPV6, IPV6_V6ONLY, address_.host == "::" ? 0 : 1);
    SetPort(at->ai_addr, address_.port);
    if (bind(listener.fd(), at->ai_addr, at->ai_addrlen) != 0 || listen(listener.fd(), kBacklog) != 0) {
      if (errno == EADDRNOTAVAIL && (at->ai_next != nullptr || !listeners_.empty())) continue;
      status = CannotListen(address_, std::strerror(errno));
    }
    if (address_.port == 0) address_.port = PortOf(listener.fd());
    listeners_.push_back(std::move(listener));
  }
  freeaddrinfo(found);
  if (status.ok() && listeners_.empty()) return CannotListen(address_, "the machine has no such address");
  return status;
}

absl::Status Acceptor::ListenUnix() {
  absl::Status status = CheckUnixSocketFree(address_);
  if (!status.ok()) return status;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address_.unix_path.data(), address_.unix_path.size());
  struct stat there {};
  if (stat(name.sun_path, &there) == 0 && S_ISSOCK(there.st_mode)) unlink(name.sun_path);  // nobody answers
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(listener.fd(), kBacklog) != 0) {
    return CannotListen(address_, std::strerror(errno));
  }
  listeners_.push_back(std::move(listener));
  return absl::OkStatus();
}

void Acceptor::Start(std::unique_ptr<Taker> taker) {
  taker_ = std::move(taker);
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  spare_ = OpenSpare();
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "accept");
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    static_cast<void>(!write(stop_.fd(), &one, sizeof(one)));
    thread_.join();
  }
  if (!listeners_.empty() && address_.is_unix()) unlink(address_.unix_path.c_str());
  listeners_.clear();
}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::Run() {
  std::vector<pollfd> waits = {{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
  for (const Descriptor& listener : listeners_)
    waits.push_back({.fd = listener.fd(), .events = POLLIN, .revents = 0});
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;  // EINTR
    if (waits[0].revents != 0) return;
    for (size_t i = 1; i < waits.size(); ++i) {
      if (waits[i].revents != 0) AcceptFrom(waits[i].fd);
    }
  }
}

void Acceptor::AcceptFrom(int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Taker::NewConnectionParameters connection;
      connection.listener_fd = listener;
      connection.fd = fd;
      taker_->HandleNewConnection(&connection);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return TurnAway(listener, errno);
    if (errno != EINTR && errno != ECONNABORTED) return;  // EAGAIN, or a connection's own error
  }
}

void Acceptor::TurnAway(int listener, int error) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_complaint_) {
    next_complaint_ = now + kComplainEvery;
    spdlog::error("{}: connections to {} are turned away", std::strerror(error), address_.Text());
  }
  spare_.Close();
  Descriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)).Close();
  spare_ = OpenSpare();
  std::this_thread::sleep_for(kPause);
}

}  // namespace memcgd::server
