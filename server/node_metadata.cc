#include "server/node_metadata.h"

#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr char kKey[] = "x-memcg-node";

}  // namespace

std::vector<std::string> NodeMetadata(const grpc::ServerContextBase& context) {
  std::vector<std::string> values;
  const auto [begin, end] = context.client_metadata().equal_range(kKey);
  for (auto at = begin; at != end; ++at) values.emplace_back(at->second.data(), at->second.size());
  return values;
}

absl::Status MissingNode() { return WithReason(BadField(kKey, "the metadata is missing"), "NODE_MISMATCH"); }

absl::Status CheckNodeMetadata(const std::vector<std::string>& metadata, std::string_view node) {
  if (metadata.empty()) {
    return WithReason(BadField(kKey, Cat("the metadata is missing; the request names node ", Quoted(node))),
                      "NODE_MISMATCH", {{"request", std::string(node)}});
  }
  for (const std::string& value : metadata) {
    if (value == node) continue;
    return WithReason(
        BadField(kKey, Cat("the metadata names node ", Quoted(value), ", the request node ", Quoted(node))),
        "NODE_MISMATCH", {{"metadata", value}, {"request", std::string(node)}});
  }
  return absl::OkStatus();
}

}  // namespace memcgd::server
