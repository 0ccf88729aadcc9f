// grpc.health.v1.Health, our own: server reflection has no descriptor for gRPC's built-in one.
//
// Knows the empty name (the whole server) and the names of our services, all of one state.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_HEALTH_SERVICE_H_
#define MEMCGD_SERVER_HEALTH_SERVICE_H_

#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "core/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/access.h"

namespace memcgd::server {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // `services` are the full names that it answers for beside "".
  // Whoever calls needs a token of `access`, or none where that is null.
  HealthService(std::set<std::string> services, Access* access);
  ~HealthService() override;

  // NOT_SERVING from here on: watchers are told, and their calls end so that the server can stop.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;

  absl::Status Admit(const grpc::ServerContextBase& context, std::string_view rpc);
  bool Knows(const std::string& service) const { return services_.contains(service); }

  const std::set<std::string> services_;
  Access* const access_;
  core::Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = true;
  std::set<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_HEALTH_SERVICE_H_
