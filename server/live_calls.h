// The calls of one kind that last: so many at a time, and none once the server stops.
//
// Call: Start() has it begin, End(status) has it end; its OnDone() removes it.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_LIVE_CALLS_H_
#define MEMCGD_SERVER_LIVE_CALLS_H_

#include <cstddef>
#include <memory>
#include <set>
#include <string_view>

#include "core/mutex.h"
#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {

template <class Call>
class LiveCalls {
 public:
  // `what` they are, in the error of one too many.
  LiveCalls(size_t most, std::string_view what) : most_(most), what_(what) {}

  // Starts the call, or ends it with `admitted`, what the check of access said, UNAVAILABLE or
  // RESOURCE_EXHAUSTED.  It lives until Remove().
  void Start(const std::shared_ptr<Call>& call, const absl::Status& admitted) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::Status refused = admitted;
    {
      core::Locked lock(mutex_);
      if (!refused.ok()) {
        // Nothing more to ask.
      } else if (draining_) {
        refused = Draining();
      } else if (calls_.size() >= most_) {
        refused = absl::ResourceExhaustedError(Cat("the server has ", most_, " ", what_, " already"));
      }
      calls_.insert(call);
    }
    refused.ok() ? call->Start() : call->End(refused);
  }
  // Ends the calls with UNAVAILABLE, and new ones from here on.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::set<std::shared_ptr<Call>> calls;
    {
      core::Locked lock(mutex_);
      draining_ = true;
      calls = calls_;
    }
    for (const std::shared_ptr<Call>& call : calls) call->End(Draining());
  }
  void Remove(const std::shared_ptr<Call>& call) ABSL_LOCKS_EXCLUDED(mutex_) {
    core::Locked lock(mutex_);
    calls_.erase(call);
  }

 private:
  static absl::Status Draining() {
    return WithReason(absl::UnavailableError("the server is stopping; watch again elsewhere or later"),
                      "DRAINING");
  }

  const size_t most_;
  const std::string_view what_;
  core::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_LIVE_CALLS_H_
