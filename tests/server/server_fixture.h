// A real server on a free port, and the small client that the tests of the services share.
#ifndef MEMCGD_TESTS_SERVER_SERVER_FIXTURE_H_
#define MEMCGD_TESTS_SERVER_SERVER_FIXTURE_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/event.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "memcgd/v1/cgroup.grpc.pb.h"
#include "memcgd/v1/ingest.grpc.pb.h"
#include "memcgd/v1/node.grpc.pb.h"
#include "server/server.h"

namespace memcgd::server {

// A call's context: with the metadata, and bounded in time.
inline std::unique_ptr<grpc::ClientContext> ContextFor(const std::string& node) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (!node.empty()) context->AddMetadata("x-memcg-node", node);
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  return context;
}

// A write fault of a user's thread.
inline core::Event Fault(uint32_t tid, uint64_t address) {
  return {core::Event::Head(core::EventKind::kFault, 0, tid, 0),
          core::Event::AddressBody(address, core::kFaultWrite | core::kFaultUser)};
}

inline v1::Batch BatchOf(uint64_t sequence, std::initializer_list<core::Event> events) {
  v1::Batch batch;
  batch.set_sequence(sequence);
  batch.set_base_time_ns(static_cast<int64_t>(sequence) * 1'000'000);
  for (const core::Event& event : events) {
    batch.add_words(event.head);
    batch.add_words(event.body);
  }
  return batch;
}

inline void AddMark(uint64_t id, v1::Batch* batch) {
  v1::SideEvent* side = batch->add_side();
  side->set_position(batch->words_size() / 2);
  side->mutable_mark()->set_id(id);
}

// The detail of that type in a rich error, or none.
template <typename Detail>
std::optional<Detail> DetailOf(const grpc::Status& status) {
  google::rpc::Status rich;
  if (!rich.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : rich.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

// One call of IngestService.Stream.
class Feed {
 public:
  Feed(v1::IngestService::Stub* stub, const std::string& node)
      : node_(node), context_(ContextFor(node)), call_(stub->Stream(context_.get())) {}

  // Opens the stream; none where the server refused.
  std::optional<v1::Opened> Open(const std::string& stream_id, uint64_t incarnation = 0) {
    v1::StreamRequest request;
    request.mutable_open()->set_node(node_);
    request.mutable_open()->set_stream_id(stream_id);
    request.mutable_open()->set_incarnation(incarnation);
    call_->Write(request);
    const std::optional<v1::StreamResponse> response = Read();
    if (!response.has_value() || !response->has_opened()) return std::nullopt;
    return response->opened();
  }

  bool Write(const v1::StreamRequest& request) { return call_->Write(request); }
  bool Write(const v1::Batch& batch) {
    v1::StreamRequest request;
    *request.mutable_batch() = batch;
    return call_->Write(request);
  }

  // The next answer, or none at the call's end.
  std::optional<v1::StreamResponse> Read() {
    v1::StreamResponse response;
    if (!call_->Read(&response)) return std::nullopt;
    return response;
  }

  // Writes the batch and reads until it is acknowledged; the answers before the Ack go to `states`.
  std::optional<v1::Ack> Apply(const v1::Batch& batch, std::vector<v1::State>* states = nullptr) {
    Write(batch);
    while (std::optional<v1::StreamResponse> response = Read()) {
      if (response->has_state() && states != nullptr) states->push_back(response->state());
      if (response->has_ack() && response->ack().applied_through() >= batch.sequence())
        return response->ack();
    }
    return std::nullopt;
  }

  void WritesDone() {
    if (!std::exchange(writes_done_, true)) call_->WritesDone();
  }
  // How the call ended; answers that were not read go to `rest`.
  grpc::Status End(std::vector<v1::StreamResponse>* rest = nullptr) {
    WritesDone();
    while (std::optional<v1::StreamResponse> response = Read()) {
      if (rest != nullptr) rest->push_back(*response);
    }
    return call_->Finish();
  }

 private:
  const std::string node_;
  const std::unique_ptr<grpc::ClientContext> context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamResponse>> call_;
  bool writes_done_ = false;
};

class ServerFixture : public testing::Test {
 protected:
  ServerFixture() { Start(Config{.listen = {.host = "127.0.0.1"}}); }

  void Start(const Config& config) {
    absl::StatusOr<std::unique_ptr<Server>> started = Server::Start(config);
    if (!started.ok()) {
      ADD_FAILURE() << started.status();
      return;
    }
    server_ = *std::move(started);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments);
    ingest_ = v1::IngestService::NewStub(channel_);
    nodes_ = v1::NodeService::NewStub(channel_);
    cgroups_ = v1::CgroupService::NewStub(channel_);
  }

  grpc::Status CreateNode(const std::string& name, v1::Node* node = nullptr, const v1::NodeSpec& spec = {}) {
    v1::CreateNodeRequest request;
    request.set_name(name);
    *request.mutable_spec() = spec;
    v1::CreateNodeResponse response;
    const grpc::Status status = nodes_->CreateNode(ContextFor(name).get(), request, &response);
    if (node != nullptr) *node = response.node();
    return status;
  }

  grpc::Status GetNode(const std::string& name, v1::Node* node) {
    v1::GetNodeRequest request;
    request.set_name(name);
    v1::GetNodeResponse response;
    const grpc::Status status = nodes_->GetNode(ContextFor(name).get(), request, &response);
    *node = response.node();
    return status;
  }

  grpc::Status SetOvercommit(const std::string& name, v1::OvercommitPolicy policy, uint32_t ratio_percent,
                             uint64_t kbytes, v1::Node* node = nullptr) {
    v1::SetOvercommitRequest request;
    request.set_name(name);
    request.set_policy(policy);
    request.set_ratio_percent(ratio_percent);
    request.set_kbytes(kbytes);
    v1::SetOvercommitResponse response;
    const grpc::Status status = nodes_->SetOvercommit(ContextFor(name).get(), request, &response);
    if (node != nullptr) *node = response.node();
    return status;
  }

  grpc::Status DeleteNode(const std::string& name) {
    v1::DeleteNodeRequest request;
    request.set_name(name);
    v1::DeleteNodeResponse response;
    return nodes_->DeleteNode(ContextFor(name).get(), request, &response);
  }

  grpc::Status CreateCgroup(const std::string& node, const std::string& path) {
    v1::CreateCgroupRequest request;
    request.set_node(node);
    request.set_path(path);
    v1::CreateCgroupResponse response;
    return cgroups_->CreateCgroup(ContextFor(node).get(), request, &response);
  }

  grpc::Status DeleteCgroup(const std::string& node, const std::string& path) {
    v1::DeleteCgroupRequest request;
    request.set_node(node);
    request.set_path(path);
    v1::DeleteCgroupResponse response;
    return cgroups_->DeleteCgroup(ContextFor(node).get(), request, &response);
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::IngestService::Stub> ingest_;
  std::unique_ptr<v1::NodeService::Stub> nodes_;
  std::unique_ptr<v1::CgroupService::Stub> cgroups_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_TESTS_SERVER_SERVER_FIXTURE_H_
