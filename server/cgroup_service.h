// memcgd.v1.CgroupService: the cgroups of a node.
//
// Each handler: check, one call of the core, map the outcome, reply.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_CGROUP_SERVICE_H_
#define MEMCGD_SERVER_CGROUP_SERVICE_H_

#include "memcgd/v1/cgroup.grpc.pb.h"
#include "server/access.h"
#include "server/node_registry.h"
#include "server/peak_call.h"
#include "server/worker_pool.h"

namespace memcgd::server {

class CgroupService final : public v1::CgroupService::CallbackService {
 public:
  CgroupService(NodeRegistry* registry, Access* access, WorkerPool* workers)
      : registry_(*registry), access_(*access), workers_(workers), peak_calls_(registry, access, workers) {}

  grpc::ServerUnaryReactor* CreateCgroup(grpc::CallbackServerContext* context,
                                         const v1::CreateCgroupRequest* request,
                                         v1::CreateCgroupResponse* response) override;
  grpc::ServerUnaryReactor* GetCgroup(grpc::CallbackServerContext* context,
                                      const v1::GetCgroupRequest* request,
                                      v1::GetCgroupResponse* response) override;
  grpc::ServerUnaryReactor* ListCgroups(grpc::CallbackServerContext* context,
                                        const v1::ListCgroupsRequest* request,
                                        v1::ListCgroupsResponse* response) override;
  grpc::ServerUnaryReactor* SetKnobs(grpc::CallbackServerContext* context, const v1::SetKnobsRequest* request,
                                     v1::SetKnobsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCgroup(grpc::CallbackServerContext* context,
                                         const v1::DeleteCgroupRequest* request,
                                         v1::DeleteCgroupResponse* response) override;
  grpc::ServerUnaryReactor* ReadCgroup(grpc::CallbackServerContext* context,
                                       const v1::ReadCgroupRequest* request,
                                       v1::ReadCgroupResponse* response) override;
  grpc::ServerUnaryReactor* ReclaimCgroup(grpc::CallbackServerContext* context,
                                          const v1::ReclaimCgroupRequest* request,
                                          v1::ReclaimCgroupResponse* response) override;
  PeakCalls::Reactor* WatchPeak(grpc::CallbackServerContext* context) override {
    return peak_calls_.Start(context);
  }

  // Ends the watches of peaks with UNAVAILABLE, and new ones from here on.
  void Drain() { peak_calls_.Drain(); }

 private:
  // Checks metadata and path, finds the node, and runs `handler` on it; about `path` is what it fails with.
  template <typename Request, typename Handler>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const Request* request,
                                const absl::Status& admitted, Handler handler);

  NodeRegistry& registry_;
  Access& access_;
  WorkerPool* const workers_;
  PeakCalls peak_calls_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_CGROUP_SERVICE_H_
