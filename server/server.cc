#include "server/server.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

constexpr size_t kLeastQuotaBytes = size_t{64} << 20;
constexpr int kMaxReflectionThreads = 32;

constexpr milliseconds kMemoryEvery{20};
constexpr milliseconds kStreamsEvery{1000};

uint32_t CpuCount() { return std::max(1u, std::thread::hardware_concurrency()); }

size_t ApplyThreads(const Config& config) {
  if (config.apply_threads != 0) return config.apply_threads;
  return config.pin.empty() ? CpuCount() : config.pin.size();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "memcgd";
}

void SetTransportLimits(const MemoryBudget& budget, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxReceiveMessageBytes);
  // What connections hold; near it they read less.  Threads are those of reflection, a call each.
  grpc::ResourceQuota quota("memcgd");
  quota.Resize(std::max<uint64_t>(budget.limit_bytes() / 4, kLeastQuotaBytes));
  quota.SetMaxThreads(kMaxReflectionThreads);
  builder->SetResourceQuota(quota);
  // Who connects and says nothing, or has nothing more to ask, is sent away.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 600'000);
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

ServerLimits WithBudget(ServerLimits limits, const MemoryBudget& budget) {
  limits.node.memory_is_short = &budget.is_short();
  return limits;
}

std::set<std::string> ServiceNames() {
  return {"memcgd.v1.IngestService", "memcgd.v1.NodeService",   "memcgd.v1.CgroupService",
          "memcgd.v1.OomService",    "memcgd.v1.WhatIfService", "grpc.health.v1.Health"};
}

// Reflection is gRPC's own service, which its library adds to every server and which has no place for a check
// of access.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

// Starts what `builder` holds, for whom `acceptor` lets in.
std::unique_ptr<grpc::Server> StartFor(Acceptor* acceptor,
                                       const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                       const MemoryBudget& budget, grpc::ServerBuilder* builder) {
  SetTransportLimits(budget, builder);
  using Experimental = grpc::ServerBuilder::experimental_type;
  auto taker = builder->experimental().AddExternalConnectionAcceptor(
      Experimental::ExternalConnectionType::FROM_FD, credentials);
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server != nullptr) acceptor->Start(std::move(taker));
  return server;
}

}  // namespace

Server::Server(const Config& config)
    : budget_(config.limits.memory_bytes),
      limits_(WithBudget(config.limits, budget_)),
      registry_(limits_),
      access_(config.token_file, &metrics_),
      health_(ServiceNames(), &access_),
      probes_(ServiceNames(), nullptr),
      admin_workers_(kAdminThreads),
      sweep_workers_(CpuCount()),
      ingest_({.registry = &registry_, .access = &access_, .budget = &budget_, .metrics = &metrics_}, limits_,
              ApplyThreads(config)),
      nodes_(&registry_, &access_, &budget_, &admin_workers_, HostName()),
      cgroups_(&registry_, &access_, &admin_workers_),
      ooms_(&registry_, &access_, &admin_workers_),
      whatif_({.registry = &registry_,
               .access = &access_,
               .budget = &budget_,
               .admin_workers = &admin_workers_,
               .sweep_workers = &sweep_workers_,
               .sweep_threads = CpuCount()}) {}

Server::~Server() {
  {
    std::lock_guard lock(watch_mutex_);
    watch_ended_ = true;
  }
  watch_ends_.notify_all();
  if (watch_.joinable()) watch_.join();
  acceptor_ = nullptr;
  probe_acceptor_ = nullptr;
  health_.Stop();
  probes_.Stop();
  if (probe_grpc_ != nullptr) probe_grpc_->Shutdown(std::chrono::system_clock::now());
  if (grpc_ != nullptr) grpc_->Shutdown(std::chrono::system_clock::now());
  ingest_.Stop();
  if (grpc_ != nullptr) grpc_->Wait();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config) {
  std::unique_ptr<Server> server(new Server(config));
  absl::Status status = server->Load(config);
  if (!status.ok()) return status;
  status = server->Listen(config);
  if (!status.ok()) return status;
  server->watch_ = std::thread([server = server.get()] { server->Watch(); });
  return server;
}

absl::Status Server::Load(const Config& config) {
  if (config.data_dir.empty()) return absl::OkStatus();
  auto data_dir = DataDir::Open(config.data_dir);
  if (!data_dir.ok()) return data_dir.status();
  data_dir_ = *std::move(data_dir);
  registry_.OnDelete([this](const std::string& name) { return data_dir_->Remove(name); });
  return data_dir_->Load(&registry_);
}

void Server::Watch() {
  pthread_setname_np(pthread_self(), "watch");
  auto next_streams = steady_clock::now();
  std::unique_lock lock(watch_mutex_);
  while (!watch_ends_.wait_for(lock, kMemoryEvery, [this] { return watch_ended_; })) {
    const auto now = steady_clock::now();
    budget_.Sample(now);
    if (now < next_streams) continue;
    next_streams = now + kStreamsEvery;
    ingest_.EndIdle();
  }
}

std::vector<LimitUse> Server::LimitUses() {
  const core::NodeSizes largest = registry_.LargestSizes();
  return {{"memory_bytes", budget_.used_bytes(), budget_.limit_bytes()},
          {"streams", ingest_.calls(), limits_.streams},
          {"nodes", registry_.size(), limits_.nodes},
          {"pages", largest.pages, limits_.node.pages},
          {"files", largest.files, limits_.node.files},
          {"processes", largest.processes, limits_.node.processes},
          {"cgroups", largest.cgroups, limits_.node.cgroups}};
}

absl::Status Server::Listen(const Config& config) {
  metrics_.SetLimitUses([this] { return LimitUses(); });
  const absl::Status tokens = access_.Reload();
  if (!tokens.ok()) return tokens;
  // Metrics first: what cannot listen there must not have served a call.
  if (config.metrics_listen.has_value()) {
    auto exposer =
        MetricsExposer::Start(*config.metrics_listen, config.cgroup_metrics, &metrics_, &registry_);
    if (!exposer.ok()) return exposer.status();
    exposer_ = *std::move(exposer);
  }
  absl::Status status = ListenGrpc(config);
  if (!status.ok()) return status;
  status = ingest_.Start(config.pin);
  if (!status.ok() || !config.health_listen.has_value()) return status;
  return ListenProbes(*config.health_listen);  // last: what answers there serves
}

absl::Status Server::ListenGrpc(const Config& config) {
  grpc::ServerBuilder builder;
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  if (access_.has_tokens()) builder.SetOption(std::make_unique<WithoutReflection>());
  builder.RegisterService(&health_);
  ingest_.AddTo(&builder);
  builder.RegisterService(&nodes_);
  builder.RegisterService(&cgroups_);
  builder.RegisterService(&ooms_);
  builder.RegisterService(&whatif_);
  auto acceptor = Acceptor::Listen(config.listen);
  if (!acceptor.ok()) return acceptor.status();
  acceptor_ = *std::move(acceptor);
  const absl::Status begun = data_dir_ == nullptr ? absl::OkStatus() : data_dir_->Begin();
  if (!begun.ok()) return begun;
  grpc_ = StartFor(acceptor_.get(), ServerCredentialsOf(config.tls), budget_, &builder);
  return grpc_ != nullptr ? absl::OkStatus() : absl::UnavailableError("gRPC does not start");
}

absl::Status Server::ListenProbes(const ListenAddress& address) {
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<WithoutReflection>());
  builder.RegisterService(&probes_);
  auto acceptor = Acceptor::Listen(address);
  if (!acceptor.ok()) return acceptor.status();
  probe_acceptor_ = *std::move(acceptor);
  probe_grpc_ = StartFor(probe_acceptor_.get(), grpc::InsecureServerCredentials(), budget_, &builder);
  return probe_grpc_ != nullptr ? absl::OkStatus() : absl::UnavailableError("gRPC does not start");
}

void Server::Drain(milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  health_.Stop();
  if (exposer_ != nullptr) exposer_->Drain();
  probes_.Stop();
  whatif_.Drain();
  ooms_.Drain();
  cgroups_.Drain();
  ingest_.Drain(std::min(kGoAwayGrace, limit / 2), deadline);
  admin_workers_.WaitUntilIdle(deadline);
  // All answers are given.  gRPC would wait for idle connections too, which a client that makes no call just
  // now may not close.
  acceptor_->Stop();
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  grpc_->Shutdown(std::chrono::system_clock::now() + std::clamp(left, milliseconds(0), kLastAnswers));
  grpc_->Wait();
}

absl::Status Server::Save() {
  if (data_dir_ == nullptr) return absl::OkStatus();
  registry_.Retire(absl::UnavailableError("the server is stopping"));
  return data_dir_->Save(&registry_);
}

}  // namespace memcgd::server
