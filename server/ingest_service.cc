#include "server/ingest_service.h"

#include <algorithm>

#include "server/errors.h"

namespace memcgd::server {
namespace {

absl::Status Stopping() {
  return WithReason(
      absl::UnavailableError("the server is stopping; open the stream again elsewhere or later"), "DRAINING");
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* IngestService::Stream(
    grpc::CallbackServerContext* context) {
  std::shared_ptr<StreamCall> call;
  bool draining = false;
  {
    std::lock_guard lock(mutex_);
    const uint64_t id = ++last_id_;
    call = std::make_shared<StreamCall>(parts_, id, context, [this, id] { Remove(id); });
    calls_.emplace(id, call);
    draining = draining_;
  }
  call->Start();
  if (draining) call->GoAway(Stopping());
  return call.get();  // lives until its OnDone()
}

void IngestService::Drain(std::chrono::milliseconds grace, std::chrono::steady_clock::time_point deadline) {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  for (const std::shared_ptr<StreamCall>& call : Calls()) call->GoAway(Stopping());
  if (WaitUntilIdle(std::min(deadline, std::chrono::steady_clock::now() + grace))) return;
  for (const std::shared_ptr<StreamCall>& call : Calls()) call->StopReading(Stopping());
  WaitUntilIdle(deadline);
}

std::vector<std::shared_ptr<StreamCall>> IngestService::Calls() {
  std::vector<std::shared_ptr<StreamCall>> calls;
  std::lock_guard lock(mutex_);
  for (const auto& [id, call] : calls_) calls.push_back(call);
  return calls;
}

void IngestService::Remove(uint64_t id) {
  std::shared_ptr<StreamCall> last;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto at = calls_.find(id);
  if (at == calls_.end()) return;
  last = std::move(at->second);
  calls_.erase(at);
  if (calls_.empty()) idle_.notify_all();
}

bool IngestService::WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return calls_.empty(); });
}

}  // namespace memcgd::server
