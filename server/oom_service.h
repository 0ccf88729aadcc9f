// memcgd.v1.OomService: what the OOM killers of nodes saw and did.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_OOM_SERVICE_H_
#define MEMCGD_SERVER_OOM_SERVICE_H_

#include "memcgd/v1/oom.grpc.pb.h"
#include "server/access.h"
#include "server/limits.h"
#include "server/live_calls.h"
#include "server/node_registry.h"
#include "server/worker_pool.h"

namespace memcgd::server {

class OomWatch;

class OomService final : public v1::OomService::CallbackService {
 public:
  OomService(NodeRegistry* registry, Access* access, WorkerPool* workers)
      : registry_(*registry), access_(*access), workers_(workers) {}

  grpc::ServerUnaryReactor* ListOomRecords(grpc::CallbackServerContext* context,
                                           const v1::ListOomRecordsRequest* request,
                                           v1::ListOomRecordsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchOomRecordsResponse>* WatchOomRecords(
      grpc::CallbackServerContext* context, const v1::WatchOomRecordsRequest* request) override;

  // Ends the watches with UNAVAILABLE, and new ones from here on.
  void Drain();

 private:
  friend class OomWatch;

  NodeRegistry& registry_;
  Access& access_;
  WorkerPool* const workers_;
  LiveCalls<OomWatch> watches_{kMaxOomWatches, "watches"};
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_OOM_SERVICE_H_
