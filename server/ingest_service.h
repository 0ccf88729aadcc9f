// memcgd.v1.IngestService: the streams that feed nodes.
//
// Threads of its own, each with a completion queue.  A call belongs to one of them from its first message to
// its last: that thread is told what gRPC has read, applies it, and writes the answer.  Against gRPC's
// callbacks with a pool of workers that is two hand-overs from thread to thread a batch less, which cost more
// than all else of the transport (docs/performance.md).  The price: streams do not move to another thread
// where theirs is busy.  A new one goes to the thread that has fewest.
//
// Thread safety: all of it, but for the order AddTo(), Start(), Stop().
#ifndef MEMCGD_SERVER_INGEST_SERVICE_H_
#define MEMCGD_SERVER_INGEST_SERVICE_H_

#include <grpcpp/server_builder.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/stream_call.h"

namespace memcgd::server {

class IngestService {
 public:
  IngestService(const IngestParts& parts, const ServerLimits& limits, size_t threads)
      : parts_(parts), limits_(limits), queues_(threads) {}
  IngestService(const IngestService&) = delete;
  IngestService& operator=(const IngestService&) = delete;

  void AddTo(grpc::ServerBuilder* builder);
  // Takes calls from here on; the server has been started.  Each thread runs on one of the CPUs `pin`, in
  // turn, or, where it is empty, on all.
  absl::Status Start(const std::vector<uint32_t>& pin);
  // Ends the threads.  REQUIRES: the server was shut down, or never started.
  void Stop();

  // Ends the calls that have nothing to say or do not listen.  Often; not from the threads of calls.
  void EndIdle();
  size_t calls();

  // Tells every client to go elsewhere, and gives them `grace` to finish by themselves; then what was
  // received is applied and acknowledged, and the calls end with UNAVAILABLE.  Returns when they are over, or
  // at `deadline`. New calls are refused from here on.
  void Drain(std::chrono::milliseconds grace, std::chrono::steady_clock::time_point deadline);

 private:
  struct Queue {
    std::unique_ptr<grpc::ServerCompletionQueue> queue;
    std::thread thread;
    size_t calls = 0;  // under mutex_
  };
  struct Call {
    std::shared_ptr<StreamCall> call;
    Queue* queue;
    std::string peer = {};  // its address, without port
  };

  static void Run(grpc::ServerCompletionQueue* queue);
  // Waits for the next call.  One at a time, so that it can be given to the thread that has fewest then.
  void Accept();
  absl::Status OnStart(uint64_t id);
  absl::Status AdmitLocked(const std::string& peer);
  void Remove(uint64_t id);
  std::vector<std::shared_ptr<StreamCall>> Calls();
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);

  const IngestParts parts_;
  const ServerLimits limits_;
  RawIngestService service_;
  std::vector<Queue> queues_;

  // std::mutex for std::condition_variable; it guards what follows.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool draining_ = false;
  uint64_t last_id_ = 0;
  Call next_{};  // the one that waits for a client
  std::unordered_map<uint64_t, Call> calls_;
  std::unordered_map<std::string, uint64_t> calls_by_peer_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_INGEST_SERVICE_H_
