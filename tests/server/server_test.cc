// The server as a whole: health, reflection, metrics, addresses.
#include "server/server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/port_file.h"
#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Any free port of the loopback.
ListenAddress AnyPort() { return {.host = "127.0.0.1"}; }

class ServerTest : public ServerFixture {
 protected:
  HealthCheckResponse::ServingStatus HealthOf(const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    const grpc::Status status = Health::NewStub(channel_)->Check(ContextFor("").get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  // The answer of server reflection to a request in its wire form.
  std::string Reflect(const std::string& request) {
    grpc::GenericStub generic(channel_);
    grpc::CompletionQueue queue;
    const auto context = ContextFor("");
    const auto call = generic.PrepareCall(
        context.get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
    const auto next = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    EXPECT_TRUE(next());
    const grpc::Slice slice(request);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    EXPECT_TRUE(next());
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    EXPECT_TRUE(next());
    call->WritesDone(nullptr);
    next();
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    grpc::Slice bytes;
    EXPECT_TRUE(answer.DumpToSingleSlice(&bytes).ok());
    return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
  }
};

TEST_F(ServerTest, HealthKnowsTheServerAndItsServices) {
  EXPECT_EQ(HealthOf(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(HealthOf("memcgd.v1.IngestService"), HealthCheckResponse::SERVING);
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  HealthCheckResponse response;
  const grpc::Status status = Health::NewStub(channel_)->Check(ContextFor("").get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(status.error_message().find("no.such.Service"), std::string::npos);
}

TEST_F(ServerTest, HealthTellsItsWatchersThatTheServerStops) {
  const auto stub = Health::NewStub(channel_);
  const auto context = ContextFor(""), unknown_context = ContextFor("");
  HealthCheckRequest request;
  HealthCheckResponse response;
  const auto watch = stub->Watch(context.get(), request);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  request.set_service("no.such.Service");
  const auto unknown = stub->Watch(unknown_context.get(), request);
  ASSERT_TRUE(unknown->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  std::thread drain([this] { server_->Drain(std::chrono::seconds(5)); });
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_FALSE(unknown->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  drain.join();
}

TEST_F(ServerTest, AWatcherThatLeavesIsForgotten) {
  const auto stub = Health::NewStub(channel_);
  for (int i = 0; i < 20; ++i) {
    const auto context = ContextFor("");
    HealthCheckResponse response;
    const auto watch = stub->Watch(context.get(), HealthCheckRequest());
    ASSERT_TRUE(watch->Read(&response));
    context->TryCancel();
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(ServerTest, ReflectionListsOurServicesAndDescribesHealth) {
  const std::string services = Reflect(std::string("\x3a\x00", 2));  // list_services: ""
  for (const char* name : {"memcgd.v1.IngestService", "memcgd.v1.NodeService", "memcgd.v1.CgroupService",
                           "grpc.health.v1.Health"}) {
    EXPECT_NE(services.find(name), std::string::npos) << name;
  }
  const std::string health = Reflect("\x22\x15grpc.health.v1.Health");  // file_containing_symbol
  EXPECT_NE(health.find("HealthCheckResponse"), std::string::npos);
}

TEST_F(ServerTest, TheMarginsOfAStoppedServerAreRefused) {
  std::thread drain([this] { server_->Drain(std::chrono::seconds(5)); });
  drain.join();
  EXPECT_EQ(CreateNode("late").error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, ABusyPortIsOneLine) {
  Config config;
  config.listen = *ParseListenAddress(server_->address());
  const auto second = Server::Start(config);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(), "cannot listen on " + server_->address() + ": Address already in use");
}

TEST_F(ServerTest, ABusyMetricsPortIsOneLine) {
  Config config;
  config.listen = AnyPort();
  config.metrics_listen = *ParseListenAddress(server_->address());
  const auto second = Server::Start(config);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(),
            "cannot listen on " + server_->address() + " for metrics: Address already in use");
}

TEST_F(ServerTest, AnAddressThatIsNotOursIsOneLine) {
  Config config;
  config.listen = {.host = "203.0.113.1", .port = 7077};
  EXPECT_EQ(Server::Start(config).status().message(),
            "cannot listen on 203.0.113.1:7077: Cannot assign requested address");
  config.listen = {.unix_path = "/no/such/directory/socket"};
  EXPECT_EQ(Server::Start(config).status().message(),
            "cannot listen on unix:/no/such/directory/socket: No such file or directory");
}

TEST_F(ServerTest, AUnixSocketServesAndIsNotTakenAway) {
  const std::string path = testing::TempDir() + "/server_test." + std::to_string(getpid()) + ".sock";
  Config config;
  config.listen = {.unix_path = path};
  Start(config);
  EXPECT_EQ(server_->address(), "unix:" + path);
  EXPECT_TRUE(CreateNode("n").ok());
  const auto second = Server::Start(config);
  EXPECT_EQ(second.status().message(), "cannot listen on unix:" + path + ": Address already in use");
  EXPECT_EQ(CreateNode("n").error_code(), grpc::StatusCode::ALREADY_EXISTS) << "the first one still serves";
}

TEST_F(ServerTest, AStaleUnixSocketIsReplaced) {
  const std::string path = testing::TempDir() + "/server_test." + std::to_string(getpid()) + ".stale";
  {
    // A server that crashed leaves its file.
    sockaddr_storage storage{};
    storage.ss_family = AF_UNIX;
    path.copy(reinterpret_cast<char*>(&storage) + sizeof(storage.ss_family), path.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&storage), sizeof(storage.ss_family) + path.size() + 1),
              0);
    close(fd);
  }
  Config config;
  config.listen = {.unix_path = path};
  Start(config);
  EXPECT_TRUE(CreateNode("n").ok());
}

class MetricsTest : public ServerFixture {
 protected:
  MetricsTest() {
    Config config;
    config.listen = AnyPort();
    config.metrics_listen = AnyPort();
    Start(config);
  }

  // What a scrape answers, by hand.
  std::string Get(const std::string& path) {
    const ListenAddress address = *ParseListenAddress(server_->metrics_address());
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, got);
    close(fd);
    return answer;
  }

  // The value of that series, or -1.
  static double Value(const std::string& scrape, const std::string& series) {
    const size_t at = scrape.find("\n" + series + " ");
    return at == scrape.npos ? -1 : std::stod(scrape.substr(at + series.size() + 2));
  }
};

TEST_F(MetricsTest, AScrapeTellsWhatWasApplied) {
  ASSERT_TRUE(CreateNode("n").ok());
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  v1::Batch batch = BatchOf(1, {Fault(7, 0x1000000), Fault(7, 0x1001000)});
  AddMark(1, &batch);
  ASSERT_TRUE(feed.Apply(batch).has_value());
  ASSERT_TRUE(feed.Apply(batch).has_value());  // a repeat
  const std::string scrape = Get("/metrics");
  EXPECT_EQ(scrape.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_EQ(Value(scrape, "memcgd_events_total{kind=\"fault\"}"), 2);
  EXPECT_EQ(Value(scrape, "memcgd_events_total{kind=\"mark\"}"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_events_total{kind=\"munmap\"}"), 0);
  EXPECT_EQ(Value(scrape, "memcgd_batches_total{result=\"applied\"}"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_batches_total{result=\"repeated\"}"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_batches_total{result=\"gap\"}"), 0);
  EXPECT_EQ(Value(scrape, "memcgd_batch_apply_seconds_count"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_batch_apply_seconds_bucket{le=\"+Inf\"}"), 1);
  EXPECT_GT(Value(scrape, "memcgd_batch_apply_seconds_sum"), 0);
  EXPECT_EQ(Value(scrape, "memcgd_streams"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_nodes"), 1);
  EXPECT_GT(Value(scrape, "process_cpu_seconds_total"), 0);
  EXPECT_NE(scrape.find("memcgd_build_info{compiler="), std::string::npos);
  // Outcomes of two faults of a thread that nobody announced, outside every area.
  double outcomes = 0;
  for (const char* outcome : {"ok", "no_area", "unknown_thread", "unseen_page"}) {
    const double value =
        Value(scrape, std::string("memcgd_event_outcomes_total{outcome=\"") + outcome + "\"}");
    EXPECT_GE(value, 0) << outcome;
    outcomes += value;
  }
  EXPECT_GE(outcomes, 2);
}

TEST_F(MetricsTest, RefusedBatchesAreCountedByReason) {
  ASSERT_TRUE(CreateNode("n").ok());
  v1::Batch malformed = BatchOf(1, {});
  malformed.add_words(1);
  for (const v1::Batch& batch : {malformed, BatchOf(5, {})}) {
    Feed feed(ingest_.get(), "n");
    ASSERT_TRUE(feed.Open("s").has_value());
    EXPECT_FALSE(feed.Apply(batch).has_value());
    feed.End();
  }
  const std::string scrape = Get("/metrics");
  EXPECT_EQ(Value(scrape, "memcgd_batches_total{result=\"malformed\"}"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_batches_total{result=\"gap\"}"), 1);
  EXPECT_EQ(Value(scrape, "memcgd_batch_apply_seconds_count"), 0);
}

TEST_F(MetricsTest, WhatMechanismsDidOutlivesTheirNodes) {
  const auto totals = [this] {
    const std::string scrape = Get("/metrics");
    std::map<std::string, double> values;
#define MEMCGD_READ(field, help) values[#field] = Value(scrape, "memcgd_mechanism_" #field "_total");
    MEMCGD_MECHANISM_COUNTERS(MEMCGD_READ)
#undef MEMCGD_READ
    return values;
  };
  for (const auto& [name, value] : totals()) EXPECT_EQ(value, 0) << name << ": there is no node";
  ASSERT_TRUE(CreateNode("n").ok());
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  ASSERT_TRUE(feed.Apply(BatchOf(1, {Fault(7, 0x1000000), Fault(7, 0x1001000)})).has_value());
  v1::Node node;
  ASSERT_TRUE(GetNode("n", &node).ok());
  const auto with_node = totals();
  EXPECT_GE(with_node.at("charges_walked"), static_cast<double>(node.mechanism_counters().charges_walked()));
  EXPECT_EQ(with_node.at("barriers"), 2);
  ASSERT_TRUE(DeleteNode("n").ok());
  for (const auto& [name, value] : totals()) EXPECT_GE(value, with_node.at(name)) << name;
}

TEST(PortFileTest, AppearsWholeAndNamesTheAddresses) {
  const std::string file = testing::TempDir() + "/port_file." + std::to_string(getpid());
  ASSERT_TRUE(WritePortFile(file, "127.0.0.1:1", "", "").ok());
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text, "listen=127.0.0.1:1\nmetrics-listen=\nhealth-listen=\n");
  RemovePortFile(file);
  EXPECT_NE(access(file.c_str(), F_OK), 0);
  EXPECT_EQ(WritePortFile("/no/such/directory/file", "x", "", "").message(),
            "cannot write port file /no/such/directory/file: No such file or directory");
}

}  // namespace
}  // namespace memcgd::server
