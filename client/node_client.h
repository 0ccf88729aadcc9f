// The unary calls of NodeService and CgroupService, typed, each with a deadline and the metadata
// x-memcg-node.
//
// Also what every talk with memcgd needs: a channel to an address, and one place that turns gRPC's errors
// into ours (StatusFromGrpc()).
//
// Thread safety: all of it.
#ifndef MEMCGD_CLIENT_NODE_CLIENT_H_
#define MEMCGD_CLIENT_NODE_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/credentials.h"
#include "memcgd/v1/cgroup.grpc.pb.h"
#include "memcgd/v1/node.grpc.pb.h"
#include "memcgd/v1/oom.grpc.pb.h"

namespace memcgd::client {

// The metadata by which balancers route a call.
inline constexpr char kNodeMetadata[] = "x-memcg-node";

// A server and how long to wait for it.
struct Server {
  std::string address;  // HOST:PORT or unix:PATH, as people write it
  std::chrono::milliseconds timeout{30'000};
  std::shared_ptr<grpc::Channel> channel;
};

// A channel to HOST:PORT or unix:PATH; connects when it is first used.  INVALID_ARGUMENT where the address is
// neither.  No proxy is asked on the way, whatever the environment says.  Channels to one address share a
// connection, but those that want their own.  `credentials`: as MakeChannel() takes them.
absl::StatusOr<Server> ConnectTo(const std::string& address, std::chrono::milliseconds timeout,
                                 bool own_connection = false, const Credentials& credentials = {});

// The same code and message, on one line; where the server cannot be reached or does not answer the message
// says which server and what to do.
absl::Status StatusFromGrpc(const grpc::Status& status, const Server& server);

class NodeClient {
 public:
  explicit NodeClient(Server server);

  absl::StatusOr<memcgd::v1::Node> CreateNode(const std::string& name, const memcgd::v1::NodeSpec& spec);
  absl::StatusOr<memcgd::v1::Node> GetNode(const std::string& name);
  // All nodes of the server, in order of name, whatever the number of pages.
  absl::StatusOr<std::vector<memcgd::v1::Node>> ListNodes();
  // `ratio_percent` and `kbytes`: at most one of them is not 0; both 0 leave them as they are.
  absl::StatusOr<memcgd::v1::Node> SetOvercommit(const std::string& name, memcgd::v1::OvercommitPolicy policy,
                                                 uint32_t ratio_percent, uint64_t kbytes);
  absl::Status DeleteNode(const std::string& name);

  absl::StatusOr<memcgd::v1::Cgroup> CreateCgroup(const std::string& node, const std::string& path);
  absl::StatusOr<memcgd::v1::Cgroup> GetCgroup(const std::string& node, const std::string& path);
  // `below` and all cgroups under it ("" or "/": all), in order of path.
  absl::StatusOr<std::vector<memcgd::v1::Cgroup>> ListCgroups(const std::string& node,
                                                              const std::string& below);
  absl::StatusOr<memcgd::v1::Cgroup> SetKnobs(const std::string& node, const std::string& path,
                                              const std::map<std::string, std::string>& knobs);
  absl::Status DeleteCgroup(const std::string& node, const std::string& path);
  // fast: within the answer's error_bound; else exact.
  absl::StatusOr<memcgd::v1::ReadCgroupResponse> ReadCgroup(const std::string& node, const std::string& path,
                                                            bool local, memcgd::v1::NameStyle names,
                                                            bool fast);

  // Bytes reclaimed.  ABORTED where less was to be had.  `swappiness`: 0 … 200, kAnonOnly, or the cgroups'
  // own.
  static constexpr uint32_t kAnonOnly = 201;
  absl::StatusOr<uint64_t> ReclaimCgroup(const std::string& node, const std::string& path, uint64_t bytes,
                                         std::optional<uint32_t> swappiness);
  // Peaks of one's own: those of the cgroup, and then `count` times (0: without end), each `every` after the
  // one before, those since then.  Ends as WatchOomRecords().
  absl::Status WatchPeak(const std::string& node, const std::string& path, std::chrono::milliseconds every,
                         uint64_t count, const std::atomic<bool>& cancelled,
                         const std::function<absl::Status(const memcgd::v1::WatchPeakResponse&)>& take);

  // Records after that one, all that the node remembers.
  absl::StatusOr<std::vector<memcgd::v1::OomRecord>> ListOomRecords(const std::string& node,
                                                                    uint64_t after_sequence);
  // The same, and then each as it comes, until `take` returns an error, which is returned, `cancelled`
  // becomes true (CANCELLED), or the server ends it.
  absl::Status WatchOomRecords(const std::string& node, uint64_t after_sequence,
                               const std::atomic<bool>& cancelled,
                               const std::function<absl::Status(const memcgd::v1::OomRecord&)>& take);

  const Server& server() const { return server_; }

 private:
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const std::string& node, const Request& request, Response* response);

  const Server server_;
  const std::unique_ptr<memcgd::v1::NodeService::Stub> nodes_;
  const std::unique_ptr<memcgd::v1::CgroupService::Stub> cgroups_;
  const std::unique_ptr<memcgd::v1::OomService::Stub> ooms_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_NODE_CLIENT_H_
