// memcgd as one object: nodes, services, metrics and the addresses that they listen on.
//
// Thread safety: Start(), Drain() and destruction by one thread.
#ifndef MEMCGD_SERVER_SERVER_H_
#define MEMCGD_SERVER_SERVER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/acceptor.h"
#include "server/access.h"
#include "server/cgroup_service.h"
#include "server/config.h"
#include "server/data_dir.h"
#include "server/health_service.h"
#include "server/ingest_service.h"
#include "server/memory_budget.h"
#include "server/metrics.h"
#include "server/metrics_exposer.h"
#include "server/node_registry.h"
#include "server/node_service.h"
#include "server/oom_service.h"
#include "server/whatif_service.h"
#include "server/worker_pool.h"

namespace memcgd::server {

class Server {
 public:
  // Listens and serves.  UNAVAILABLE names the address that cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config);
  // Stops at once: calls that are under way are cancelled.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Health says NOT_SERVING, streams are told to go elsewhere and end with all that they sent applied and
  // acknowledged, other calls finish.  Takes at most about `limit`.
  void Drain(std::chrono::milliseconds limit);
  // Saves every node, where there is a data directory; nothing is applied any more.  UNAVAILABLE names what
  // could not be saved.  REQUIRES: Drain().
  absl::Status Save();

  // As bound, for example "127.0.0.1:7077".
  std::string address() const { return acceptor_->address().Text(); }
  // Empty where there are no metrics.
  std::string metrics_address() const { return exposer_ == nullptr ? "" : exposer_->address().Text(); }

  // Empty where health checks have no address of their own.
  std::string health_address() const {
    return probe_grpc_ == nullptr ? "" : probe_acceptor_->address().Text();
  }

  // Reads the token file again; a bad one leaves the tokens as they were.
  absl::Status ReloadTokens() { return access_.Reload(); }

  // Direct channels and direct looks, for tests.
  grpc::Server* TEST_grpc() { return grpc_.get(); }
  NodeRegistry* TEST_registry() { return &registry_; }
  ServerMetrics* TEST_metrics() { return &metrics_; }

 private:
  explicit Server(const Config& config);
  absl::Status Load(const Config& config);
  absl::Status Listen(const Config& config);
  // Looks at memory and at streams, over and over.
  void Watch();
  std::vector<LimitUse> LimitUses();
  absl::Status ListenGrpc(const Config& config);
  absl::Status ListenProbes(const ListenAddress& address);

  // In order of dependence; destroyed from the last.
  std::unique_ptr<DataDir> data_dir_;  // null: nodes end with the server
  MemoryBudget budget_;
  const ServerLimits limits_;
  NodeRegistry registry_;
  ServerMetrics metrics_;
  Access access_;
  HealthService health_, probes_;
  // Apart from the threads of ingest_: neither a slow question nor a sweep keeps events waiting.
  WorkerPool admin_workers_;
  WorkerPool sweep_workers_;
  IngestService ingest_;
  NodeService nodes_;
  CgroupService cgroups_;
  OomService ooms_;
  WhatIfService whatif_;
  std::unique_ptr<MetricsExposer> exposer_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> grpc_;
  // Of health checks alone, and null where there is none.
  std::unique_ptr<Acceptor> probe_acceptor_;
  std::unique_ptr<grpc::Server> probe_grpc_;

  std::mutex watch_mutex_;  // std::mutex for std::condition_variable
  std::condition_variable watch_ends_;
  bool watch_ended_ = false;
  std::thread watch_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_SERVER_H_
