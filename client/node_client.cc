#include "client/node_client.h"

#include <grpcpp/support/channel_arguments.h>

#include <charconv>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

// A State holds every cgroup of a node: 10⁵ of them, with 60 statistics of up to 9 bytes each, fit.
constexpr int kMaxReceiveBytes = 256 << 20;
constexpr size_t kMaxSocketPathBytes = 107;  // sockaddr_un's 108 less the NUL

bool IsPort(std::string_view text) {
  unsigned port = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, port);
  return result.ec == std::errc() && result.ptr == end && port >= 1 && port <= 65535;
}

absl::Status CheckAddress(std::string_view address) {
  const auto bad = [address](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("server address \"", std::string(address), "\" ",
                                                   std::string(why), ": HOST:PORT or unix:PATH is wanted"));
  };
  if (address.substr(0, 5) == "unix:") {
    const std::string_view path = address.substr(5);
    if (path.empty()) return bad("has no path");
    if (path.size() > kMaxSocketPathBytes) return bad("has a path longer than a socket may have (107 bytes)");
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad("has no host or no port");
  const bool bracketed = address[0] == '[' && address[colon - 1] == ']';
  if (!bracketed && address.find(':') != colon) return bad("has an IPv6 host without brackets");
  if (!IsPort(address.substr(colon + 1))) return bad("has no port of 1 to 65535");
  return absl::OkStatus();
}

std::string Seconds(std::chrono::milliseconds time) {
  return absl::StrCat(static_cast<double>(time.count()) / 1000, " s");
}

// Why gRPC could not connect, without the layers that it names on the way: "Connection refused".
std::string Reason(std::string message) {
  for (const char* layer : {"last error: ", "UNKNOWN: ", "Failed to connect to remote host: "}) {
    const size_t at = message.rfind(layer);
    if (at != std::string::npos) message.erase(0, at + std::strlen(layer));
  }
  return message;
}

std::string OneLine(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\r\n", " "}, {"\n", " "}});
}

}  // namespace

absl::StatusOr<Server> ConnectTo(const std::string& address, std::chrono::milliseconds timeout,
                                 bool own_connection, const Credentials& credentials) {
  absl::Status status = CheckAddress(address);
  if (!status.ok()) return status;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A server that was restarted is found again soon, not after gRPC's own backoff of up to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // In spite of its name, what an attempt to connect gets before it counts as failed.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // Frames of a MiB carry a batch whole.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  auto channel = MakeChannel(address, credentials, arguments);
  if (!channel.ok()) return channel.status();
  return Server{address, timeout, *std::move(channel)};
}

absl::Status StatusFromGrpc(const grpc::Status& status, const Server& server) {
  if (status.ok()) return absl::OkStatus();
  // The numbers are the same by design of both.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const std::string message = OneLine(status.error_message());
  if (code == absl::StatusCode::kUnavailable && status.error_details().empty()) {
    return absl::UnavailableError(absl::StrCat("cannot reach memcgd at ", server.address, ": ",
                                               Reason(message), ", is it running? (memcgd --listen ",
                                               server.address, ")"));
  }
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError(absl::StrCat("memcgd at ", server.address, " did not answer within ",
                                                    Seconds(server.timeout), " (--timeout)"));
  }
  if (code == absl::StatusCode::kUnimplemented) {
    return absl::UnimplementedError(absl::StrCat("what answers at ", server.address,
                                                 " does not know this call, is it memcgd, of this version? (",
                                                 message, ")"));
  }
  return absl::Status(code, message.empty() ? "(the server gave no reason)" : message);
}

NodeClient::NodeClient(Server server)
    : server_(std::move(server)),
      nodes_(v1::NodeService::NewStub(server_.channel)),
      cgroups_(v1::CgroupService::NewStub(server_.channel)),
      ooms_(v1::OomService::NewStub(server_.channel)) {}

template <typename Stub, typename Request, typename Response>
absl::Status NodeClient::Call(Stub* stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                              const std::string& node, const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + server_.timeout);
  // List is of the whole server, and says so by having no node.
  if (!node.empty()) context.AddMetadata(kNodeMetadata, node);
  return StatusFromGrpc((stub->*method)(&context, request, response), server_);
}

absl::StatusOr<v1::Node> NodeClient::CreateNode(const std::string& name, const v1::NodeSpec& spec) {
  v1::CreateNodeRequest request;
  request.set_name(name);
  *request.mutable_spec() = spec;
  v1::CreateNodeResponse response;
  absl::Status status = Call(nodes_.get(), &v1::NodeService::Stub::CreateNode, name, request, &response);
  if (!status.ok()) return status;
  return std::move(*response.mutable_node());
}

absl::StatusOr<v1::Node> NodeClient::GetNode(const std::string& name) {
  v1::GetNodeRequest request;
  request.set_name(name);
  v1::GetNodeResponse response;
  absl::Status status = Call(nodes_.get(), &v1::NodeService::Stub::GetNode, name, request, &response);
  if (!status.ok()) return status;
  return std::move(*response.mutable_node());
}

absl::StatusOr<std::vector<v1::Node>> NodeClient::ListNodes() {
  v1::ListNodesRequest request;
  request.set_page_size(1000);
  std::vector<v1::Node> nodes;
  do {
    v1::ListNodesResponse response;
    absl::Status status = Call(nodes_.get(), &v1::NodeService::Stub::ListNodes, "", request, &response);
    if (!status.ok()) return status;
    for (v1::Node& node : *response.mutable_nodes()) nodes.push_back(std::move(node));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return nodes;
}

absl::StatusOr<v1::Node> NodeClient::SetOvercommit(const std::string& name, v1::OvercommitPolicy policy,
                                                   uint32_t ratio_percent, uint64_t kbytes) {
  v1::SetOvercommitRequest request;
  request.set_name(name);
  request.set_policy(policy);
  request.set_ratio_percent(ratio_percent);
  request.set_kbytes(kbytes);
  v1::SetOvercommitResponse response;
  absl::Status status = Call(nodes_.get(), &v1::NodeService::Stub::SetOvercommit, name, request, &response);
  if (!status.ok()) return status;
  return std::move(*response.mutable_node());
}

absl::Status NodeClient::DeleteNode(const std::string& name) {
  v1::DeleteNodeRequest request;
  request.set_name(name);
  v1::DeleteNodeResponse response;
  return Call(nodes_.get(), &v1::NodeService::Stub::DeleteNode, name, request, &response);
}

absl::StatusOr<v1::Cgroup> NodeClient::CreateCgroup(const std::string& node, const std::string& path) {
  v1::CreateCgroupRequest request;
  request.set_node(node);
  request.set_path(path);
  v1::CreateCgroupResponse response;
  absl::Status status =
      Call(cgroups_.get(), &v1::CgroupService::Stub::CreateCgroup, node, request, &response);
  if (!status.ok()) return status;
  return std::move(*response.mutable_cgroup());
}

absl::StatusOr<v1::Cgroup> NodeClient::GetCgroup(const std::string& node, const std::string& path) {
  v1::GetCgroupRequest request;
  request.set_node(node);
  request.set_path(path);
  v1::GetCgroupResponse response;
  absl::Status status = Call(cgroups_.get(), &v1::CgroupService::Stub::GetCgroup, node, request, &response);
  if (!status.ok()) return status;
  return std::move(*response.mutable_cgroup());
}

absl::StatusOr<std::vector<v1::Cgroup>> NodeClient::ListCgroups(const std::string& node,
                                                                const std::string& below) {
  v1::ListCgroupsRequest request;
  request.set_node(node);
  request.set_below(below);
  request.set_page_size(10000);
  std::vector<v1::Cgroup> cgroups;
  do {
    v1::ListCgroupsResponse response;
    absl::Status status =
        Call(cgroups_.get(), &v1::CgroupService::Stub::ListCgroups, node, request, &response);
    if (!status.ok()) return status;
    for (v1::Cgroup& cgroup : *response.mutable_cgroups()) cgroups.push_back(std::move(cgroup));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return cgroups;
}

absl::StatusOr<v1::Cgroup> NodeClient::SetKnobs(const std::string& node, const std::string& path,
                                                const std::map<std::string, std::string>& knobs) {
  v1::SetKnobsRequest request;
  request.set_node(node);
  request.set_path(path);
  request.mutable_knobs()->insert(knobs.begin(), knobs.end());
  v1::SetKnobsResponse response;
  absl::Status status = Call(cgroups_.get(), &v1::CgroupService::Stub::SetKnobs, node, request, &response);
  if (!status.ok()) return status;
  return std::move(*response.mutable_cgroup());
}

absl::Status NodeClient::DeleteCgroup(const std::string& node, const std::string& path) {
  v1::DeleteCgroupRequest request;
  request.set_node(node);
  request.set_path(path);
  v1::DeleteCgroupResponse response;
  return Call(cgroups_.get(), &v1::CgroupService::Stub::DeleteCgroup, node, request, &response);
}

absl::StatusOr<v1::ReadCgroupResponse> NodeClient::ReadCgroup(const std::string& node,
                                                              const std::string& path, bool local,
                                                              v1::NameStyle names, bool fast) {
  v1::ReadCgroupRequest request;
  request.set_node(node);
  request.set_path(path);
  request.set_local(local);
  request.set_names(names);
  request.set_fast(fast);
  v1::ReadCgroupResponse response;
  absl::Status status = Call(cgroups_.get(), &v1::CgroupService::Stub::ReadCgroup, node, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<std::vector<v1::OomRecord>> NodeClient::ListOomRecords(const std::string& node,
                                                                      uint64_t after_sequence) {
  v1::ListOomRecordsRequest request;
  request.set_node(node);
  request.set_after_sequence(after_sequence);
  std::vector<v1::OomRecord> records;
  while (true) {
    v1::ListOomRecordsResponse response;
    absl::Status status = Call(ooms_.get(), &v1::OomService::Stub::ListOomRecords, node, request, &response);
    if (!status.ok()) return status;
    if (response.records().empty()) return records;
    for (v1::OomRecord& record : *response.mutable_records()) records.push_back(std::move(record));
    request.set_after_sequence(records.back().sequence());
  }
}

absl::StatusOr<uint64_t> NodeClient::ReclaimCgroup(const std::string& node, const std::string& path,
                                                   uint64_t bytes, std::optional<uint32_t> swappiness) {
  v1::ReclaimCgroupRequest request;
  request.set_node(node);
  request.set_path(path);
  request.set_bytes(bytes);
  if (swappiness.has_value()) request.set_swappiness(*swappiness);
  v1::ReclaimCgroupResponse response;
  absl::Status status =
      Call(cgroups_.get(), &v1::CgroupService::Stub::ReclaimCgroup, node, request, &response);
  if (!status.ok()) return status;
  return response.reclaimed_bytes();
}

absl::Status NodeClient::WatchPeak(const std::string& node, const std::string& path,
                                   std::chrono::milliseconds every, uint64_t count,
                                   const std::atomic<bool>& cancelled,
                                   const std::function<absl::Status(const v1::WatchPeakResponse&)>& take) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSlice{50};
  grpc::ClientContext context;
  context.AddMetadata(kNodeMetadata, node);
  // No answer may take longer than the timeout; the call itself lasts as long as is wished.
  std::atomic<Clock::rep> deadline{(Clock::now() + server_.timeout).time_since_epoch().count()};
  std::atomic<bool> late{false};
  const std::jthread watcher([&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kSlice)) {
      late = late || Clock::now().time_since_epoch().count() > deadline;
      if (late || cancelled) context.TryCancel();
    }
  });
  const auto call = cgroups_->WatchPeak(&context);
  v1::WatchPeakRequest request;
  request.set_node(node);
  request.set_path(path);
  request.set_reset_memory(true);
  request.set_reset_swap(true);
  absl::Status taken;
  v1::WatchPeakResponse response;
  for (uint64_t answers = 0; call->Write(request) && call->Read(&response); ++answers) {
    const auto next = Clock::now() + every;
    deadline = (next + server_.timeout).time_since_epoch().count();
    taken = take(response);
    if (!taken.ok() || (count != 0 && answers == count)) break;
    while (!cancelled && Clock::now() < next) std::this_thread::sleep_for(std::min(kSlice, every));
    request.clear_node();
    request.clear_path();
  }
  taken.ok() ? void(call->WritesDone()) : context.TryCancel();
  const grpc::Status status = call->Finish();
  if (!taken.ok()) return taken;
  if (cancelled) return absl::CancelledError("interrupted");
  return StatusFromGrpc(late ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "") : status, server_);
}

absl::Status NodeClient::WatchOomRecords(const std::string& node, uint64_t after_sequence,
                                         const std::atomic<bool>& cancelled,
                                         const std::function<absl::Status(const v1::OomRecord&)>& take) {
  constexpr std::chrono::milliseconds kSlice{50};
  grpc::ClientContext context;
  context.AddMetadata(kNodeMetadata, node);
  const std::jthread watcher([&](const std::stop_token& stop) {
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kSlice)) {
      if (cancelled) context.TryCancel();
    }
  });
  v1::WatchOomRecordsRequest request;
  request.set_node(node);
  request.set_after_sequence(after_sequence);
  const auto call = ooms_->WatchOomRecords(&context, request);
  absl::Status taken;
  v1::WatchOomRecordsResponse response;
  while (taken.ok() && call->Read(&response)) taken = take(response.record());
  if (!taken.ok()) context.TryCancel();
  const grpc::Status status = call->Finish();
  if (!taken.ok()) return taken;
  return cancelled ? absl::CancelledError("interrupted") : StatusFromGrpc(status, server_);
}

}  // namespace memcgd::client
