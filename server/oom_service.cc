#include "server/oom_service.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/page_token.h"
#include "server/text.h"
#include "server/unary.h"
#include "server/wire.h"

namespace memcgd::server {

using core::Locked;

grpc::ServerUnaryReactor* OomService::ListOomRecords(grpc::CallbackServerContext* context,
                                                     const v1::ListOomRecordsRequest* request,
                                                     v1::ListOomRecordsResponse* response) {
  const absl::Status admitted = access_.Check(*context, "OomService.ListOomRecords", Right::kReadNode);
  return RunUnary(context, workers_, admitted, [this, metadata = NodeMetadata(*context), request, response] {
    absl::Status status = CheckNodeMetadata(metadata, request->node());
    if (!status.ok()) return status;
    const auto node = registry_.Find(request->node());
    if (!node.ok()) return node.status();
    const auto limit = PageSize(request->page_size(), kDefaultOomsPerPage, kMaxOomsPerPage);
    if (!limit.ok()) return limit.status();
    for (v1::OomRecord& record : OomRecordsOf((*node)->core(), request->after_sequence(), *limit)) {
      response->mutable_records()->Add(std::move(record));
    }
    return absl::OkStatus();
  });
}

// One call of WatchOomRecords.  Records are read by a worker, as that waits for the node's cut, and written
// in reactions; while any wait to be written none are read.
class OomWatch final : public grpc::ServerWriteReactor<v1::WatchOomRecordsResponse>,
                       public std::enable_shared_from_this<OomWatch> {
 public:
  OomWatch(OomService* service, std::vector<std::string> metadata, const v1::WatchOomRecordsRequest& request)
      : service_(*service),
        metadata_(std::move(metadata)),
        name_(request.node()),
        after_(request.after_sequence()) {}

  void Start() {
    Locked lock(mutex_);
    ReadLocked();
  }
  void End(const absl::Status& status) {
    const std::shared_ptr<OomWatch> self = shared_from_this();
    Locked lock(mutex_);
    EndLocked(status);
  }

  void OnWriteDone(bool ok) override {
    const std::shared_ptr<OomWatch> self = shared_from_this();
    Locked lock(mutex_);
    writing_ = false;
    if (!ok) EndLocked(absl::CancelledError("the connection is gone"));
    WriteLocked();
  }
  void OnCancel() override { End(absl::CancelledError("the call was cancelled")); }
  void OnDone() override {
    if (node_ != nullptr) node_->StopTellingOoms(this);
    service_.watches_.Remove(shared_from_this());
  }

 private:
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!end_.has_value()) end_ = status;
    unsent_.clear();
    WriteLocked();
  }

  // What comes next: a write, the end, or another look.
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!unsent_.empty()) {
      writing_ = true;
      *response_.mutable_record() = std::move(unsent_.front());
      unsent_.pop_front();
      StartWrite(&response_);
    } else if (end_.has_value()) {
      finished_ = !reading_;
      if (finished_) Finish(ToGrpcStatus(*end_));
    } else if (look_again_) {
      ReadLocked();
    }
  }

  void Told() {
    const std::shared_ptr<OomWatch> self = shared_from_this();
    Locked lock(mutex_);
    look_again_ = true;
    if (!reading_) WriteLocked();
  }

  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    reading_ = true;
    look_again_ = false;
    service_.workers_->Schedule([self = shared_from_this()] { self->Look(); });
  }

  // On a worker, one at a time.
  void Look() {
    std::vector<v1::OomRecord> records;
    const absl::Status status = Read(&records);
    Locked lock(mutex_);
    reading_ = false;
    if (!status.ok() && !end_.has_value()) end_ = status;
    if (!records.empty()) {
      after_ = records.back().sequence();
      look_again_ = true;
    }
    if (!end_.has_value()) unsent_.insert(unsent_.end(), records.begin(), records.end());
    WriteLocked();
  }

  absl::Status Read(std::vector<v1::OomRecord>* records) {
    absl::Status status = CheckNodeMetadata(metadata_, name_);
    if (!status.ok()) return status;
    const auto node = service_.registry_.Find(name_);
    if (!node.ok()) return node.status();
    if (node_ == nullptr) {
      node_ = *node;
      node_->TellOoms(this, [weak = weak_from_this()] {
        if (const std::shared_ptr<OomWatch> watch = weak.lock()) watch->Told();
      });
    }
    if (*node != node_) return NotFound({.type = "node", .name = name_, .field = "node"});
    *records = OomRecordsOf(node_->core(), after_, kDefaultOomsPerPage);
    return absl::OkStatus();
  }

  OomService& service_;
  const std::vector<std::string> metadata_;
  const std::string name_;

  // The reader's.
  std::shared_ptr<ServedNode> node_;
  uint64_t after_;

  v1::WatchOomRecordsResponse response_;  // being written
  core::Mutex mutex_;
  std::deque<v1::OomRecord> unsent_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool look_again_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerWriteReactor<v1::WatchOomRecordsResponse>* OomService::WatchOomRecords(
    grpc::CallbackServerContext* context, const v1::WatchOomRecordsRequest* request) {
  const auto watch = std::make_shared<OomWatch>(this, NodeMetadata(*context), *request);
  watches_.Start(watch, access_.Check(*context, "OomService.WatchOomRecords", Right::kReadNode));
  return watch.get();  // lives until its OnDone()
}

void OomService::Drain() { watches_.Drain(); }

}  // namespace memcgd::server
