#include "server/health_service.h"

#include <utility>

#include "server/errors.h"
#include "server/limits.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::Locked;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

}  // namespace

// One Watch call: writes the state once, and once more where the server stops; then the call ends.
//
// At most one operation is started at a time and none after Finish(), which is what the state below is for.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse>,
                                     public std::enable_shared_from_this<Watcher> {
 public:
  explicit Watcher(HealthService* service) : service_(*service) {}

  void Start(HealthCheckResponse::ServingStatus status) {
    self_ = shared_from_this();
    message_.set_status(status);
    StartWrite(&message_);
  }

  // Ends the call with that, and says nothing before.
  void Refuse(const absl::Status& why) {
    self_ = shared_from_this();
    Locked lock(mutex_);
    writing_ = false;
    finished_ = true;
    Finish(ToGrpcStatus(why));
  }

  // Ends the call, after a last word to those who watch something that is served.
  void Stop() {
    {
      Locked lock(mutex_);
      stopping_ = true;
      if (writing_ || finished_) return;  // OnWriteDone() goes on, or nothing is left to do
    }
    Continue(true);
  }

  void OnWriteDone(bool ok) override {
    {
      Locked lock(mutex_);
      writing_ = false;
    }
    Continue(ok);
  }

  void OnCancel() override {
    {
      Locked lock(mutex_);
      cancelled_ = true;
      if (writing_) return;
    }
    Continue(false);
  }

  void OnDone() override {
    const std::shared_ptr<Watcher> self = std::move(self_);
    Locked lock(service_.mutex_);
    service_.watchers_.erase(self);
  }

 private:
  // What comes next: nothing, the last word, or the end.
  void Continue(bool ok) {
    bool say_last_word = false;
    {
      Locked lock(mutex_);
      if (finished_ || writing_) return;
      const bool end = !ok || cancelled_;
      if (!end && !stopping_) return;
      say_last_word = !end && message_.status() == HealthCheckResponse::SERVING;
      if (say_last_word) {
        writing_ = true;
        message_.set_status(HealthCheckResponse::NOT_SERVING);
      } else {
        finished_ = true;
      }
    }
    if (say_last_word) {
      StartWrite(&message_);
    } else {
      Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is stopping"));
    }
  }

  HealthService& service_;
  std::shared_ptr<Watcher> self_;  // until OnDone()
  HealthCheckResponse message_;    // not changed while it is written

  core::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // Start() writes first of all
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

HealthService::HealthService(std::set<std::string> services, Access* access)
    : services_(std::move(services)), access_(access) {}

HealthService::~HealthService() = default;

absl::Status HealthService::Admit(const grpc::ServerContextBase& context, std::string_view rpc) {
  return access_ == nullptr ? absl::OkStatus() : access_->Check(context, rpc, Right::kToken);
}

void HealthService::Stop() {
  std::set<std::shared_ptr<Watcher>> watchers;
  {
    Locked lock(mutex_);
    serving_ = false;
    watchers = watchers_;
  }
  for (const std::shared_ptr<Watcher>& watcher : watchers) watcher->Stop();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status admitted = Admit(*context, "Health.Check");
  if (!admitted.ok()) {
    reactor->Finish(ToGrpcStatus(admitted));
    return reactor;
  }
  if (!request->service().empty() && !Knows(request->service())) {
    reactor->Finish(
        ToGrpcStatus(NotFound({.type = "service", .name = request->service(), .field = "service"})));
    return reactor;
  }
  {
    Locked lock(mutex_);
    response->set_status(serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext* context,
                                                                    const HealthCheckRequest* request) {
  const absl::Status admitted = Admit(*context, "Health.Watch");
  const auto watcher = std::make_shared<Watcher>(this);
  const bool known = request->service().empty() || Knows(request->service());
  bool serving = false, too_many = false;
  {
    Locked lock(mutex_);
    serving = serving_;
    too_many = watchers_.size() >= kMaxHealthWatches;
    watchers_.insert(watcher);
  }
  const auto status = serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  if (!admitted.ok()) {
    watcher->Refuse(admitted);
    return watcher.get();
  }
  watcher->Start(known ? status : HealthCheckResponse::SERVICE_UNKNOWN);
  // A server that stops, or has too many watchers, says its state and no more.
  if (!serving || too_many) watcher->Stop();
  return watcher.get();
}

}  // namespace memcgd::server
