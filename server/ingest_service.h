// memcgd.v1.IngestService: the streams that feed nodes.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_INGEST_SERVICE_H_
#define MEMCGD_SERVER_INGEST_SERVICE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memcgd/v1/ingest.grpc.pb.h"
#include "server/stream_call.h"

namespace memcgd::server {

class IngestService final
    : public v1::IngestService::WithRawCallbackMethod_Stream<v1::IngestService::Service> {
 public:
  explicit IngestService(const IngestParts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext* context) override;

  // Tells every client to go elsewhere, and gives them `grace` to finish by themselves; then what was
  // received is applied and acknowledged, and the calls end with UNAVAILABLE.  Returns when they are over, or
  // at `deadline`. New calls are refused from here on.
  void Drain(std::chrono::milliseconds grace, std::chrono::steady_clock::time_point deadline);

 private:
  std::vector<std::shared_ptr<StreamCall>> Calls();
  void Remove(uint64_t id);
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);

  const IngestParts parts_;

  // std::mutex for std::condition_variable; it guards what follows.
  std::mutex mutex_;
  std::condition_variable idle_;
  bool draining_ = false;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<StreamCall>> calls_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_INGEST_SERVICE_H_
