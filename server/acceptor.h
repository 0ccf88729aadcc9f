// The listening socket and the thread that accepts from it, for gRPC.
//
// gRPC 1.51's own listener stops for good once accept() fails for want of descriptors or memory.  This one
// turns the connection away, waits a moment and goes on.
//
// Thread safety: Listen(), Start(), Stop() and destruction by one thread.
#ifndef MEMCGD_SERVER_ACCEPTOR_H_
#define MEMCGD_SERVER_ACCEPTOR_H_

#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/listen_address.h"

namespace memcgd::server {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { Close(); }

  int fd() const { return fd_; }
  void Close();

 private:
  int fd_;
};

class Acceptor {
 public:
  using Taker = grpc::experimental::ExternalConnectionAcceptor;

  // Bound and listening; nobody is let in yet.  UNAVAILABLE says why not.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const ListenAddress& address);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Gives connections to `taker`, whose server has been started.
  void Start(std::unique_ptr<Taker> taker);
  // No more connections: who tries is refused.
  void Stop();

  // With the real port.
  const ListenAddress& address() const { return address_; }

 private:
  explicit Acceptor(ListenAddress address) : address_(std::move(address)) {}
  absl::Status ListenTcp();
  absl::Status ListenUnix();
  void Run();
  // All that wait there.
  void AcceptFrom(int listener);
  // The one that waits first is closed, in the place of a descriptor that was kept for this.
  void TurnAway(int listener, int error);

  ListenAddress address_;
  std::vector<Descriptor> listeners_;
  Descriptor stop_;   // an eventfd
  Descriptor spare_;  // given up where there is no other
  std::unique_ptr<Taker> taker_;
  std::chrono::steady_clock::time_point next_complaint_{};
  std::thread thread_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_ACCEPTOR_H_
