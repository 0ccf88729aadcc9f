// Metrics and the live page over HTTP; the only file pair that knows prometheus-cpp.
//
// Thread safety: Start() and destruction by one thread; requests come on threads of its own.
#ifndef MEMCGD_SERVER_METRICS_EXPOSER_H_
#define MEMCGD_SERVER_METRICS_EXPOSER_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "server/cgroup_metrics.h"
#include "server/config.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/node_registry.h"
#include "server/page_data.h"

namespace memcgd::server {

class MetricsExposer {
 public:
  // Answers GET /metrics, /metrics/cgroups where it has a filter, and / there until it is destroyed.
  // `metrics` and `registry` live longer.  UNAVAILABLE says why the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(
      const ListenAddress& address, const std::optional<CgroupFilter>& cgroup_metrics,
      const ServerMetrics* metrics, NodeRegistry* registry);
  ~MetricsExposer();
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;

  // With the port that was bound.
  const ListenAddress& address() const { return http_->address(); }
  // The page says from here on that the server stops.
  void Drain() { page_data_.Drain(); }

 private:
  class Reader;
  MetricsExposer(const ServerMetrics* metrics, NodeRegistry* registry);

  const std::unique_ptr<Reader> reader_;
  PageData page_data_;
  std::unique_ptr<CgroupMetrics> cgroups_;
  std::unique_ptr<HttpServer> http_;  // destroyed first: its handlers use the others
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_METRICS_EXPOSER_H_
