// The metrics over HTTP; the only file pair that knows prometheus-cpp.
//
// Thread safety: Start() and destruction by one thread; scrapes come on threads of its own.
#ifndef MEMCGD_SERVER_METRICS_EXPOSER_H_
#define MEMCGD_SERVER_METRICS_EXPOSER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/listen_address.h"
#include "server/metrics.h"
#include "server/node_registry.h"

namespace memcgd::server {

class MetricsExposer {
 public:
  // Answers GET /metrics there until it is destroyed.  `metrics` and `registry` live longer.  UNAVAILABLE
  // says why the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(const ListenAddress& address,
                                                               const ServerMetrics* metrics,
                                                               NodeRegistry* registry);
  ~MetricsExposer();
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;

  // With the port that was bound.
  const ListenAddress& address() const { return address_; }

 private:
  struct Impl;
  MetricsExposer(std::unique_ptr<Impl> impl, ListenAddress address);

  std::unique_ptr<Impl> impl_;
  ListenAddress address_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_METRICS_EXPOSER_H_
