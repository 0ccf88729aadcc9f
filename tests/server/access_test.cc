// Every call of every service × {no token, an unknown one, an expired one, a wrong tenant's, the right one},
// taken from the services' descriptors: a new call is tested before anybody thinks of it.
#include "server/access.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

constexpr char kOwn[] = "team-a-1";
constexpr char kForeign[] = "team-b-1";

// printf %s good | sha256sum, and so on.
constexpr char kTokenFile[] = R"(tokens:
  - sha256: 770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c  # good
    tenant: team-a
    write: [team-a-]
    read: [shared-]
  - sha256: d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa  # other
    tenant: team-b
    write: [team-b-]
  - sha256: fa64ea1e82e1206f828ab2a02917c7e92accb98e3b95881a1b4ad52b914b66e3  # expired
    tenant: team-a
    write: [team-a-]
    expires: 2020-01-01T00:00:00Z
)";

// All methods of the services in proto/.
std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MEMCGD_PROTO_DIR)) {
    if (entry.path().extension() != ".proto") continue;
    const std::string name = std::filesystem::relative(entry.path(), MEMCGD_PROTO_DIR);
    const auto* file = DescriptorPool::generated_pool()->FindFileByName(name);
    if (file == nullptr) {
      ADD_FAILURE() << name << " is not linked in";
      continue;
    }
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j)
        methods.push_back(file->service(i)->method(j));
    }
  }
  return methods;
}

// Names `node` wherever the message names one; false where it does nowhere.
bool NameNode(const std::string& node, Message* message) {
  const Descriptor* type = message->GetDescriptor();
  const auto* reflection = message->GetReflection();
  const auto set = [&](const char* name, const std::string& value) {
    const FieldDescriptor* field = type->FindFieldByName(name);
    const bool is_text =
        field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field->is_repeated();
    if (is_text) reflection->SetString(message, field, value);
    return is_text;
  };
  set("path", "/");
  set("stream_id", "s");
  if (set("node", node) || set("name", node)) return true;
  for (const char* name : {"open", "start"}) {
    const FieldDescriptor* field = type->FindFieldByName(name);
    if (field != nullptr) return NameNode(node, reflection->MutableMessage(message, field));
  }
  return false;
}

class AccessTest : public ServerFixture {
 protected:
  AccessTest() : file_(testing::TempDir() + "/tokens." + std::to_string(getpid())) {
    WriteTokens(kTokenFile);
    server_ = nullptr;
    Start(Config{.listen = {.host = "127.0.0.1"}, .token_file = file_});
  }
  ~AccessTest() override { std::filesystem::remove(file_); }

  void WriteTokens(const std::string& text) { std::ofstream(file_) << text; }

  static std::unique_ptr<grpc::ClientContext> ContextOf(const std::string& token, const std::string& node) {
    auto context = std::make_unique<grpc::ClientContext>();
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
    if (!node.empty()) context->AddMetadata("x-memcg-node", node);
    // A watch without end is one that was let in.
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(400));
    return context;
  }

  // How the call of that method ends that sends `request` and nothing more.
  grpc::Status Raw(const std::string& method, const std::string& token, const std::string& node,
                   const std::string& request) {
    const auto context = ContextOf(token, node);
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto call = stub.PrepareCall(context.get(), method, &queue);
    const auto done = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    if (done()) {
      const grpc::Slice slice(request);
      call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
      done();
      grpc::ByteBuffer answer;
      do {
        call->Read(&answer, nullptr);
      } while (done());
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    done();
    queue.Shutdown();
    return status;
  }

  // What the call says whose request names `node`, with that token and that metadata.  *about_node: whether
  // its request names one.
  grpc::Status Call(const MethodDescriptor* method, const std::string& token,
                    const std::string& metadata_node, const std::string& node, bool* about_node) {
    const Descriptor* type = method->input_type();
    const std::unique_ptr<Message> request(MessageFactory::generated_factory()->GetPrototype(type)->New());
    *about_node = method->service()->file()->package() == "memcgd.v1" && NameNode(node, request.get());
    return Raw("/" + method->service()->full_name() + "/" + method->name(), token, metadata_node,
               request->SerializeAsString());
  }

  std::string NodesSeenBy(const std::string& token) {
    auto context = ContextOf(token, "");
    v1::ListNodesResponse response;
    const grpc::Status status = nodes_->ListNodes(context.get(), {}, &response);
    if (!status.ok()) return status.error_message();
    std::string names;
    for (const v1::Node& node : response.nodes()) names += node.name() + " ";
    return names;
  }

  const std::string file_;
};

TEST_F(AccessTest, EveryCallAsksForItsRight) {
  const std::vector<const MethodDescriptor*> methods = AllMethods();
  ASSERT_GE(methods.size(), 19u);
  size_t about_nodes = 0;
  for (const MethodDescriptor* method : methods) {
    SCOPED_TRACE(method->full_name());
    bool about_node = false;
    const auto code = [&](const char* token, const char* metadata, const char* node) {
      return Call(method, token, metadata, node, &about_node).error_code();
    };
    EXPECT_EQ(code("", kOwn, kOwn), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(code("unknown", kOwn, kOwn), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(code("expired", kOwn, kOwn), grpc::StatusCode::UNAUTHENTICATED);
    const grpc::StatusCode right = code("good", kOwn, kOwn);
    EXPECT_NE(right, grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_NE(right, grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_NE(right, grpc::StatusCode::UNIMPLEMENTED);
    if (!about_node) continue;
    ++about_nodes;
    EXPECT_EQ(code("other", kOwn, kOwn), grpc::StatusCode::PERMISSION_DENIED);
    // Its own node for the balancer, another one in the request; and no node at all.
    EXPECT_EQ(code("other", kForeign, kOwn), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(code("good", "", kOwn), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(about_nodes, 16u);  // all but ListNodes, Check and Watch
}

TEST_F(AccessTest, ThereIsNoReflectionBesideTokens) {
  const std::string method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(Raw(method, "good", "", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(AccessTest, RefusedCallsLeaveNothingBehind) {
  for (const MethodDescriptor* method : AllMethods()) {
    bool about_node = false;
    EXPECT_FALSE(Call(method, "", kOwn, kOwn, &about_node).ok());
    EXPECT_FALSE(Call(method, "other", kOwn, kOwn, &about_node).ok() && about_node);
  }
  EXPECT_EQ(server_->TEST_registry()->size(), 0u);
  EXPECT_EQ(server_->TEST_metrics()->OpenStreams(), 0);
  EXPECT_GE(server_->TEST_metrics()->CallsRefused(), AllMethods().size());
}

TEST_F(AccessTest, ReadingIsLessThanWriting) {
  ASSERT_TRUE(server_->TEST_registry()->Create("shared-1", {}).ok());
  v1::GetNodeRequest get;
  get.set_name("shared-1");
  v1::GetNodeResponse got;
  EXPECT_TRUE(nodes_->GetNode(ContextOf("good", "shared-1").get(), get, &got).ok());
  v1::DeleteNodeRequest remove;
  remove.set_name("shared-1");
  v1::DeleteNodeResponse removed;
  const grpc::Status status = nodes_->DeleteNode(ContextOf("good", "shared-1").get(), remove, &removed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(), "tenant \"team-a\" may not write node \"shared-1\"");
}

TEST_F(AccessTest, ATenantSeesTheNodesThatItMayRead) {
  for (const char* name : {"other-1", "shared-1", "team-a-1", "team-a-2", "team-b-1"})
    ASSERT_TRUE(server_->TEST_registry()->Create(name, {}).ok());
  EXPECT_EQ(NodesSeenBy("good"), "shared-1 team-a-1 team-a-2 ");
  EXPECT_EQ(NodesSeenBy("other"), "team-b-1 ");
}

TEST_F(AccessTest, TokensAreReadAgainAndABadFileChangesNothing) {
  EXPECT_EQ(NodesSeenBy("good"), "");
  WriteTokens("tokens: 7\n");
  EXPECT_FALSE(server_->ReloadTokens().ok());
  EXPECT_EQ(NodesSeenBy("good"), "");
  WriteTokens("tokens: []\n");
  EXPECT_TRUE(server_->ReloadTokens().ok());
  EXPECT_EQ(NodesSeenBy("good"), "the token is unknown");
}

}  // namespace
}  // namespace memcgd::server
