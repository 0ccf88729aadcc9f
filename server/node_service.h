// memcgd.v1.NodeService: the nodes of this server.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_NODE_SERVICE_H_
#define MEMCGD_SERVER_NODE_SERVICE_H_

#include <string>
#include <utility>

#include "memcgd/v1/node.grpc.pb.h"
#include "server/access.h"
#include "server/memory_budget.h"
#include "server/node_registry.h"
#include "server/worker_pool.h"

namespace memcgd::server {

class NodeService final : public v1::NodeService::CallbackService {
 public:
  // `server_name` is what ListNodes says of itself.
  NodeService(NodeRegistry* registry, Access* access, const MemoryBudget* budget, WorkerPool* workers,
              std::string server_name)
      : registry_(*registry),
        access_(*access),
        budget_(*budget),
        workers_(workers),
        server_name_(std::move(server_name)) {}

  grpc::ServerUnaryReactor* CreateNode(grpc::CallbackServerContext* context,
                                       const v1::CreateNodeRequest* request,
                                       v1::CreateNodeResponse* response) override;
  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context, const v1::GetNodeRequest* request,
                                    v1::GetNodeResponse* response) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* SetOvercommit(grpc::CallbackServerContext* context,
                                          const v1::SetOvercommitRequest* request,
                                          v1::SetOvercommitResponse* response) override;
  grpc::ServerUnaryReactor* DeleteNode(grpc::CallbackServerContext* context,
                                       const v1::DeleteNodeRequest* request,
                                       v1::DeleteNodeResponse* response) override;

 private:
  absl::Status List(const v1::ListNodesRequest& request, const NodeFilter& readable,
                    v1::ListNodesResponse* response);

  NodeRegistry& registry_;
  Access& access_;
  const MemoryBudget& budget_;
  WorkerPool* const workers_;
  const std::string server_name_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_NODE_SERVICE_H_
