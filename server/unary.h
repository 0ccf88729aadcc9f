// How a unary call runs: its handler on a worker of ours, as it may wait for a node's cut.
#ifndef MEMCGD_SERVER_UNARY_H_
#define MEMCGD_SERVER_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "server/errors.h"
#include "server/worker_pool.h"

namespace memcgd::server {

// Runs `handler`, which returns an absl::Status, and ends the call with it; or ends it with `admitted`, what
// the check of access said, where that is an error.  Request and response live until then.
template <typename Handler>
grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context, WorkerPool* workers,
                                   const absl::Status& admitted, Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!admitted.ok()) {
    reactor->Finish(ToGrpcStatus(admitted));
    return reactor;
  }
  workers->Schedule([reactor, handler = std::move(handler)] { reactor->Finish(ToGrpcStatus(handler())); });
  return reactor;
}

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_UNARY_H_
