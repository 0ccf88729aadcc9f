#include "server/whatif_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::Locked;

absl::Status Stopping() {
  return WithReason(absl::UnavailableError("the server is stopping; sweep again elsewhere or later"),
                    "DRAINING");
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* WhatIfService::Sweep(
    grpc::CallbackServerContext* context) {
  auto remove = std::make_shared<WhatIfCall*>(nullptr);
  const auto call = std::make_shared<WhatIfCall>(parts_, context, [this, remove] { Remove(*remove); });
  *remove = call.get();
  // About no node where it names none; that of a request must be that of the metadata.
  const Right right = NodeMetadata(*context).empty() ? Right::kToken : Right::kReadNode;
  absl::Status refused = parts_.access->Check(*context, "WhatIfService.Sweep", right);
  if (refused.ok()) refused = parts_.budget->CheckNew("sweep");
  {
    Locked lock(mutex_);
    if (!refused.ok()) {
      // Nothing more to ask.
    } else if (draining_) {
      refused = Stopping();
    } else if (calls_.size() >= kMaxSweeps) {
      refused = absl::ResourceExhaustedError(
          Cat("the server runs ", kMaxSweeps, " sweeps already; try again when one is done"));
    }
    calls_.insert(call);
  }
  call->Start();
  if (!refused.ok()) call->End(refused);
  return call.get();  // lives until its OnDone()
}

void WhatIfService::Drain() {
  std::vector<std::shared_ptr<WhatIfCall>> calls;
  {
    Locked lock(mutex_);
    draining_ = true;
    calls.assign(calls_.begin(), calls_.end());
  }
  for (const std::shared_ptr<WhatIfCall>& call : calls) call->End(Stopping());
}

void WhatIfService::Remove(const WhatIfCall* call) {
  std::shared_ptr<WhatIfCall> last;  // destroyed without the lock
  Locked lock(mutex_);
  const auto at = std::find_if(calls_.begin(), calls_.end(),
                               [call](const std::shared_ptr<WhatIfCall>& one) { return one.get() == call; });
  if (at == calls_.end()) return;
  last = *at;
  calls_.erase(at);
}

}  // namespace memcgd::server
