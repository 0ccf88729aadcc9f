#include "server/peak_call.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cgroup_path.h"
#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/path_text.h"
#include "server/text.h"
#include "server/wire.h"

namespace memcgd::server {

using core::Locked;

// Requests are answered by a worker, as that waits for the node's cut.  A read, an answer or a write is under
// way at any time but never two of them: so the worker's fields need no lock.
class PeakCall final : public PeakCalls::Reactor, public std::enable_shared_from_this<PeakCall> {
 public:
  PeakCall(PeakCalls* calls, std::vector<std::string> metadata)
      : calls_(*calls), metadata_(std::move(metadata)) {}

  void Start() { StartRead(&request_); }
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    const std::shared_ptr<PeakCall> self = shared_from_this();
    Locked lock(mutex_);
    if (!end_.has_value()) end_ = status;
    if (!answering_) FinishLocked();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());  // the client has nothing more to ask, or is gone
    Locked lock(mutex_);
    if (finished_) return;
    answering_ = true;
    calls_.workers_.Schedule([self = shared_from_this()] { self->Answer(); });
  }
  void OnWriteDone(bool ok) override {
    const std::shared_ptr<PeakCall> self = shared_from_this();
    Locked lock(mutex_);
    answering_ = false;
    if (!ok && !end_.has_value()) end_ = absl::CancelledError("the connection is gone");
    if (end_.has_value()) {
      FinishLocked();
    } else {
      StartRead(&request_);
    }
  }
  void OnDone() override {
    if (watch_.has_value()) {  // waits for the node's cut
      calls_.workers_.Schedule([node = node_, watch = *watch_] {
        if (const std::shared_ptr<ServedNode> living = node.lock()) living->core()->ClosePeaks(watch);
      });
    }
    calls_.calls_.Remove(shared_from_this());
  }

 private:
  // On a worker.
  void Answer() ABSL_LOCKS_EXCLUDED(mutex_) {
    response_.Clear();
    const absl::Status status = Read();
    Locked lock(mutex_);
    if (!status.ok() && !end_.has_value()) end_ = status;
    if (!end_.has_value()) {
      StartWrite(&response_);
      return;
    }
    answering_ = false;
    FinishLocked();
  }

  absl::Status Read() {
    if (!watch_.has_value()) {
      const absl::Status status = Open();
      if (!status.ok()) return status;
    } else if (!request_.node().empty() || !request_.path().empty()) {
      return BadField("node", "node and path may only be in the first request of a call");
    }
    const std::shared_ptr<ServedNode> node = node_.lock();
    const auto found = calls_.registry_.Find(name_);
    if (node == nullptr || !found.ok() || *found != node)
      return NotFound({.type = "node", .name = name_, .field = "node"});
    return About(ReadPeaks(node->core(), *watch_, request_, &response_),
                 {.type = "cgroup", .name = path_, .field = "path"});
  }

  absl::Status Open() {
    name_ = request_.node();
    path_ = request_.path();
    absl::Status status = CheckNodeMetadata(metadata_, name_);
    if (!status.ok()) return status;
    const auto node = calls_.registry_.Find(name_);
    if (!node.ok()) return node.status();
    auto watch = (*node)->core()->OpenPeaks(PathFromText(path_));
    if (!watch.ok()) return About(watch.status(), {.type = "cgroup", .name = path_, .field = "path"});
    node_ = *node;
    watch_ = *std::move(watch);
    return absl::OkStatus();
  }

  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(finished_, true)) Finish(ToGrpcStatus(*end_));
  }

  PeakCalls& calls_;
  const std::vector<std::string> metadata_;

  // Of whoever answers.
  v1::WatchPeakRequest request_;
  v1::WatchPeakResponse response_;
  std::string name_, path_;
  std::weak_ptr<ServedNode> node_;
  std::optional<PeakWatch> watch_;  // once the first request was good

  core::Mutex mutex_;
  bool answering_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

PeakCalls::Reactor* PeakCalls::Start(grpc::CallbackServerContext* context) {
  const auto call = std::make_shared<PeakCall>(this, NodeMetadata(*context));
  calls_.Start(call, access_.Check(*context, "CgroupService.WatchPeak", Right::kReadNode));
  return call.get();  // lives until its OnDone()
}

void PeakCalls::Drain() { calls_.Drain(); }

}  // namespace memcgd::server
