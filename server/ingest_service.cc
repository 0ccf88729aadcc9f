#include "server/ingest_service.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "server/cpu_list.h"
#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

absl::Status Stopping() {
  return WithReason(
      absl::UnavailableError("the server is stopping; open the stream again elsewhere or later"), "DRAINING");
}

absl::Status TooMany(std::string_view whose, uint64_t limit) {
  constexpr std::chrono::seconds kRetryDelay{5};
  return WithRetry(WithReason(absl::ResourceExhaustedError(
                                  Cat(whose, " has ", limit, " streams open; no more are allowed")),
                              "TOO_MANY_STREAMS"),
                   kRetryDelay);
}

// "ipv4:10.0.3.7:41218" → "ipv4:10.0.3.7".  All of a unix socket are one.
std::string WithoutPort(const std::string& peer) {
  return peer.starts_with("unix") ? "unix" : peer.substr(0, peer.rfind(':'));
}

}  // namespace

void IngestService::AddTo(grpc::ServerBuilder* builder) {
  builder->RegisterService(&service_);
  for (Queue& queue : queues_) queue.queue = builder->AddCompletionQueue();
}

absl::Status IngestService::Start(const std::vector<uint32_t>& pin) {
  absl::Status status;
  for (size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = queues_[i];
    queue.thread = std::thread(Run, queue.queue.get());
    pthread_setname_np(queue.thread.native_handle(), Cat("apply-", i).c_str());
    if (!pin.empty()) status.Update(PinThread(queue.thread.native_handle(), {pin[i % pin.size()]}));
  }
  Accept();
  return status;
}

void IngestService::Stop() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_.empty() && next_.call == nullptr; });
  }
  for (Queue& queue : queues_) {
    if (!queue.thread.joinable()) continue;
    queue.queue->Shutdown();
    queue.thread.join();
  }
}

void IngestService::Run(grpc::ServerCompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) StreamCall::Complete(tag, ok);
}

void IngestService::Accept() {
  std::lock_guard lock(mutex_);
  Queue& queue = *std::min_element(queues_.begin(), queues_.end(),
                                   [](const Queue& a, const Queue& b) { return a.calls < b.calls; });
  const uint64_t id = ++last_id_;
  next_ = {std::make_shared<StreamCall>(parts_, id), &queue};
  next_.call->Request(
      &service_, queue.queue.get(), [this, id] { return OnStart(id); }, [this, id] { Remove(id); });
}

absl::Status IngestService::OnStart(uint64_t id) {
  absl::Status admitted;
  {
    std::lock_guard lock(mutex_);
    next_.peer = WithoutPort(next_.call->peer());
    admitted = AdmitLocked(next_.peer);
    ++next_.queue->calls;
    ++calls_by_peer_[next_.peer];
    calls_.emplace(id, std::exchange(next_, {}));
  }
  Accept();
  return admitted;
}

absl::Status IngestService::AdmitLocked(const std::string& peer) {
  if (draining_) return Stopping();
  if (calls_.size() >= limits_.streams) return TooMany("the server", limits_.streams);
  const auto of_peer = calls_by_peer_.find(peer);
  if (of_peer != calls_by_peer_.end() && of_peer->second >= limits_.streams_per_peer)
    return TooMany(peer, limits_.streams_per_peer);
  return parts_.budget->CheckNew("stream");
}

void IngestService::EndIdle() {
  const auto now = std::chrono::steady_clock::now();
  for (const std::shared_ptr<StreamCall>& call : Calls()) {
    if (!call->EndIfIdle(now, limits_.stream_idle, limits_.stream_stalled)) continue;
    parts_.metrics->RecordStreamClosed();
    spdlog::info("closed a stream of {} that was idle or not read", call->peer());
  }
}

size_t IngestService::calls() {
  std::lock_guard lock(mutex_);
  return calls_.size();
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
  for (const auto& [id, call] : calls_) calls.push_back(call.call);
  return calls;
}

void IngestService::Remove(uint64_t id) {
  Call last;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto at = calls_.find(id);
  if (at == calls_.end()) {  // no client came before the server was shut down
    last = std::exchange(next_, {});
  } else {
    last = std::move(at->second);
    --last.queue->calls;
    if (--calls_by_peer_[last.peer] == 0) calls_by_peer_.erase(last.peer);
    calls_.erase(at);
  }
  changed_.notify_all();
}

bool IngestService::WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return calls_.empty(); });
}

}  // namespace memcgd::server
