#include "server/server.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "server/limits.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What clients get to finish by themselves when they are told to go elsewhere.
constexpr milliseconds kGoAwayGrace{2000};
// What answers that were given get to reach their clients.
constexpr milliseconds kLastAnswers{500};
constexpr size_t kAdminThreads = 2;

uint32_t CpuCount() { return std::max(1u, std::thread::hardware_concurrency()); }

size_t ApplyThreads(const Config& config) {
  if (config.apply_threads != 0) return config.apply_threads;
  return config.pin.empty() ? CpuCount() : config.pin.size();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "memcgd";
}

void SetTransportLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxReceiveMessageBytes);
  // With SO_REUSEPORT a second server would share a busy port instead of failing.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A client whose machine is gone is noticed within 80 s; one that pings more than every 10 s is sent away.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  // gRPC 1.51 knows no defence against floods of headers and streams but these.
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1000);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  // Measured in docs/design.md: 10 % more throughput with large batches.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  builder->AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10);
}

}  // namespace

Server::Server(const Config& config)
    : health_({"memcgd.v1.IngestService", "memcgd.v1.NodeService", "memcgd.v1.CgroupService",
               "memcgd.v1.OomService", "memcgd.v1.WhatIfService", "grpc.health.v1.Health"}),
      admin_workers_(kAdminThreads),
      sweep_workers_(CpuCount()),
      ingest_({.registry = &registry_, .metrics = &metrics_}, ApplyThreads(config)),
      nodes_(&registry_, &admin_workers_, HostName()),
      cgroups_(&registry_, &admin_workers_),
      ooms_(&registry_, &admin_workers_),
      whatif_({.registry = &registry_,
               .admin_workers = &admin_workers_,
               .sweep_workers = &sweep_workers_,
               .sweep_threads = CpuCount()}) {}

Server::~Server() {
  health_.Stop();
  if (grpc_ != nullptr) grpc_->Shutdown(std::chrono::system_clock::now());
  ingest_.Stop();
  if (grpc_ != nullptr) grpc_->Wait();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config) {
  std::unique_ptr<Server> server(new Server(config));
  absl::Status status = server->Listen(config);
  if (!status.ok()) return status;
  return server;
}

absl::Status Server::Listen(const Config& config) {
  // Metrics first: what cannot listen there must not have served a call.
  if (config.metrics_listen.has_value()) {
    auto exposer =
        MetricsExposer::Start(*config.metrics_listen, config.cgroup_metrics, &metrics_, &registry_);
    if (!exposer.ok()) return exposer.status();
    exposer_ = *std::move(exposer);
  }
  absl::Status status = ListenGrpc(config.listen);
  if (!status.ok()) return status;
  return ingest_.Start(config.pin);
}

absl::Status Server::ListenGrpc(const ListenAddress& address) {
  absl::Status status = CheckUnixSocketFree(address);
  if (!status.ok()) return status;
  static const bool reflection = [] {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // for every ServerBuilder from here on
    return true;
  }();
  static_cast<void>(reflection);
  grpc::ServerBuilder builder;
  SetTransportLimits(&builder);
  int port = 0;
  builder.AddListeningPort(address.Text(), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&health_);
  ingest_.AddTo(&builder);
  builder.RegisterService(&nodes_);
  builder.RegisterService(&cgroups_);
  builder.RegisterService(&ooms_);
  builder.RegisterService(&whatif_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || port == 0) {
    grpc_ = nullptr;
    return absl::UnavailableError(
        Cat("cannot listen on ", address.Text(), ": ", WhyNotBound(address, "gRPC does not say why")));
  }
  address_ = address;
  if (!address.is_unix()) address_.port = static_cast<uint16_t>(port);
  return absl::OkStatus();
}

void Server::Drain(milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  health_.Stop();
  if (exposer_ != nullptr) exposer_->Drain();
  whatif_.Drain();
  ooms_.Drain();
  cgroups_.Drain();
  ingest_.Drain(std::min(kGoAwayGrace, limit / 2), deadline);
  admin_workers_.WaitUntilIdle(deadline);
  // All answers are given.  gRPC would wait for idle connections too, which a client that makes no call just
  // now may not close.
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  grpc_->Shutdown(std::chrono::system_clock::now() + std::clamp(left, milliseconds(0), kLastAnswers));
  grpc_->Wait();
}

}  // namespace memcgd::server
