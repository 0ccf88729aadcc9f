// memcgd.v1.WhatIfService: sweeps of one sequence of events over many points.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_WHATIF_SERVICE_H_
#define MEMCGD_SERVER_WHATIF_SERVICE_H_

#include <memory>
#include <unordered_set>

#include "memcgd/v1/whatif.grpc.pb.h"
#include "server/whatif_call.h"

namespace memcgd::server {

class WhatIfService final
    : public v1::WhatIfService::WithRawCallbackMethod_Sweep<v1::WhatIfService::Service> {
 public:
  explicit WhatIfService(const WhatIfParts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Sweep(
      grpc::CallbackServerContext* context) override;

  // Ends the sweeps under way with UNAVAILABLE, and new ones from here on: a sweep loses nothing but time.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Remove(const WhatIfCall* call) ABSL_LOCKS_EXCLUDED(mutex_);

  const WhatIfParts parts_;
  core::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_set<std::shared_ptr<WhatIfCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_WHATIF_SERVICE_H_
