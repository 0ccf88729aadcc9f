#include "server/node_service.h"

#include <memory>
#include <vector>

#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/page_token.h"
#include "server/unary.h"
#include "server/wire.h"

namespace memcgd::server {
namespace {

constexpr char kQuery[] = "nodes";

// All but the state's hash, which takes a walk over the state.
void Describe(ServedNode* node, v1::Node* to) {
  to->set_name(node->name());
  to->set_incarnation(node->incarnation());
  FillNode(node->core()->Info(), to);
}

void DescribeWithHash(ServedNode* node, v1::Node* to) {
  Describe(node, to);
  to->set_state_hash(node->core()->StateHash());
}

}  // namespace

grpc::ServerUnaryReactor* NodeService::CreateNode(grpc::CallbackServerContext* context,
                                                  const v1::CreateNodeRequest* request,
                                                  v1::CreateNodeResponse* response) {
  const absl::Status admitted = access_.Check(*context, "NodeService.CreateNode", Right::kWriteNode);
  return RunUnary(context, workers_, admitted, [this, metadata = NodeMetadata(*context), request, response] {
    const absl::Status status = CheckNodeMetadata(metadata, request->name());
    if (!status.ok()) return status;
    const absl::Status room = budget_.CheckNew("node");
    if (!room.ok()) return room;
    const auto config = ToCore(request->spec());
    if (!config.ok()) return config.status();
    const auto node = registry_.Create(request->name(), *config);
    if (!node.ok()) return node.status();
    DescribeWithHash(node->get(), response->mutable_node());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* NodeService::GetNode(grpc::CallbackServerContext* context,
                                               const v1::GetNodeRequest* request,
                                               v1::GetNodeResponse* response) {
  const absl::Status admitted = access_.Check(*context, "NodeService.GetNode", Right::kReadNode);
  return RunUnary(context, workers_, admitted, [this, metadata = NodeMetadata(*context), request, response] {
    const absl::Status status = CheckNodeMetadata(metadata, request->name());
    if (!status.ok()) return status;
    const auto node = registry_.Find(request->name());
    if (!node.ok()) return node.status();
    DescribeWithHash(node->get(), response->mutable_node());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* NodeService::ListNodes(grpc::CallbackServerContext* context,
                                                 const v1::ListNodesRequest* request,
                                                 v1::ListNodesResponse* response) {
  const absl::Status admitted = access_.Check(*context, "NodeService.ListNodes", Right::kToken);
  return RunUnary(context, workers_, admitted,
                  [this, readable = access_.Readable(*context), request, response] {
                    return List(*request, readable, response);
                  });
}

absl::Status NodeService::List(const v1::ListNodesRequest& request, const NodeFilter& readable,
                               v1::ListNodesResponse* response) {
  const auto limit = PageSize(request.page_size(), kDefaultNodesPerPage, kMaxNodesPerPage);
  if (!limit.ok()) return limit.status();
  const auto after = ReadPageToken(kQuery, request.page_token());
  if (!after.ok()) return after.status();
  auto nodes = registry_.List(*after, *limit + 1, readable);  // one more tells whether there is another page
  const bool more = nodes.size() > *limit;
  if (more) nodes.pop_back();
  for (const std::shared_ptr<ServedNode>& node : nodes) Describe(node.get(), response->add_nodes());
  if (more) response->set_next_page_token(MakePageToken(kQuery, nodes.back()->name()));
  response->set_server(server_name_);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* NodeService::SetOvercommit(grpc::CallbackServerContext* context,
                                                     const v1::SetOvercommitRequest* request,
                                                     v1::SetOvercommitResponse* response) {
  const absl::Status admitted = access_.Check(*context, "NodeService.SetOvercommit", Right::kWriteNode);
  return RunUnary(context, workers_, admitted, [this, metadata = NodeMetadata(*context), request, response] {
    const absl::Status status = CheckNodeMetadata(metadata, request->name());
    if (!status.ok()) return status;
    const auto set = ToCore(*request);
    if (!set.ok()) return set.status();
    const auto node = registry_.Find(request->name());
    if (!node.ok()) return node.status();
    (*node)->core()->SetOvercommit(*set);
    DescribeWithHash(node->get(), response->mutable_node());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* NodeService::DeleteNode(grpc::CallbackServerContext* context,
                                                  const v1::DeleteNodeRequest* request,
                                                  v1::DeleteNodeResponse*) {
  const absl::Status admitted = access_.Check(*context, "NodeService.DeleteNode", Right::kWriteNode);
  return RunUnary(context, workers_, admitted, [this, metadata = NodeMetadata(*context), request] {
    const absl::Status status = CheckNodeMetadata(metadata, request->name());
    return status.ok() ? registry_.Delete(request->name()) : status;
  });
}

}  // namespace memcgd::server
