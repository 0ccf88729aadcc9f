// The client's end of WhatIfService.Sweep: events once, then points over them, as often as one likes.
//
// Nobody waits for ever: an answer, if only how far the server is, comes within the server's timeout, or the
// call is given up.
//
// Thread safety: one thread at a time; on_progress runs on it.
#ifndef MEMCGD_CLIENT_SWEEP_CLIENT_H_
#define MEMCGD_CLIENT_SWEEP_CLIENT_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/node_client.h"
#include "memcgd/v1/whatif.grpc.pb.h"

namespace memcgd::client {

class SweepClient {
 public:
  struct Options {
    Server server;
    const std::atomic<bool>* cancelled = nullptr;
    std::function<void(const memcgd::v1::SweepProgress&)> on_progress;
  };

  // Begins the call.
  SweepClient(Options options, const memcgd::v1::SweepStart& start);
  // Cancels it where it is under way.
  ~SweepClient();
  SweepClient(const SweepClient&) = delete;
  SweepClient& operator=(const SweepClient&) = delete;

  // The next batch, which is numbered here.  REQUIRES: no Run() yet.
  absl::Status Send(memcgd::v1::Batch batch);
  // Runs the points; their results, in order.
  absl::StatusOr<std::vector<memcgd::v1::PointResult>> Run(const memcgd::v1::SweepPoints& points);
  // After the first Run().
  const memcgd::v1::SweepLoaded& loaded() const { return loaded_; }

 private:
  using Call = grpc::ClientReaderWriter<memcgd::v1::SweepRequest, memcgd::v1::SweepResponse>;

  absl::Status Write(const memcgd::v1::SweepRequest& request);
  // How the call ended, and why.
  absl::Status Ended();
  // Cancels the call where the command is interrupted, or the server is silent.
  void Watch();

  const Options options_;
  const std::unique_ptr<memcgd::v1::WhatIfService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Call> call_;
  uint64_t next_sequence_ = 1;
  memcgd::v1::SweepLoaded loaded_;
  absl::Status status_;  // of the call, once it ended
  bool ended_ = false;

  // Steady nanoseconds since which the server is waited for; 0: it is not.
  std::atomic<int64_t> waiting_since_{0};
  std::atomic<bool> silent_{false};
  std::atomic<bool> done_{false};
  std::thread watcher_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_SWEEP_CLIENT_H_
