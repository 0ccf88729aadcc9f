#include "server/access.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::Locked;

constexpr char kKey[] = "authorization";
constexpr std::string_view kScheme = "Bearer ";

absl::Status Unauthenticated(std::string_view message, std::string_view reason) {
  return WithReason(absl::UnauthenticatedError(Piece(message)), reason);
}

// The token that the call carries; empty where it has none, or several.
std::string_view TokenOf(const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kKey);
  if (begin == end || std::next(begin) != end) return {};
  const std::string_view value(begin->second.data(), begin->second.size());
  if (!absl::StartsWithIgnoreCase(Piece(value), Piece(kScheme))) return {};
  return value.substr(kScheme.size());
}

absl::StatusOr<const Grant*> GrantOf(const Tokens& tokens, const grpc::ServerContextBase& context) {
  const std::string_view token = TokenOf(context);
  if (token.empty()) {
    return Unauthenticated("a token is wanted: one metadata authorization: Bearer TOKEN", "NO_TOKEN");
  }
  const Grant* grant = tokens.Find(token);
  if (grant == nullptr) return Unauthenticated("the token is unknown", "UNKNOWN_TOKEN");
  if (grant->expires <= absl::Now()) {
    return Unauthenticated(Cat("the token of tenant ", Quoted(grant->tenant), " expired on ",
                               absl::FormatTime(absl::RFC3339_sec, grant->expires, absl::UTCTimeZone())),
                           "EXPIRED_TOKEN");
  }
  return grant;
}

absl::Status CheckNodes(const Grant& grant, const std::vector<std::string>& nodes, Right right) {
  if (nodes.empty()) return MissingNode();
  for (const std::string& node : nodes) {
    const bool write = right == Right::kWriteNode;
    if (write ? grant.MayWrite(node) : grant.MayRead(node)) continue;
    return WithReason(absl::PermissionDeniedError(Cat("tenant ", Quoted(grant.tenant), " may not ",
                                                      write ? "write" : "read", " node ", Quoted(node))),
                      "NODE_DENIED", {{"tenant", grant.tenant}, {"node", node}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Access::Reload() {
  if (!has_tokens()) return absl::OkStatus();
  auto tokens = Tokens::Read(token_file_);
  if (!tokens.ok()) return tokens.status();
  Locked lock(mutex_);
  tokens_ = *std::move(tokens);
  return absl::OkStatus();
}

std::shared_ptr<const Tokens> Access::tokens() {
  Locked lock(mutex_);
  return tokens_;
}

absl::Status Access::Check(const grpc::ServerContextBase& context, std::string_view rpc, Right right) {
  if (!has_tokens()) return absl::OkStatus();
  const std::shared_ptr<const Tokens> tokens = this->tokens();
  const absl::StatusOr<const Grant*> grant = GrantOf(*tokens, context);
  absl::Status status = grant.status();
  if (status.ok() && right != Right::kToken) status = CheckNodes(**grant, NodeMetadata(context), right);
  if (!status.ok()) Audit(context, rpc, status);
  return status;
}

NodeFilter Access::Readable(const grpc::ServerContextBase& context) {
  if (!has_tokens()) return [](std::string_view) { return true; };
  const std::shared_ptr<const Tokens> tokens = this->tokens();
  const absl::StatusOr<const Grant*> grant = GrantOf(*tokens, context);
  return [tokens, grant = grant.ok() ? *grant : nullptr](std::string_view node) {
    return grant != nullptr && grant->MayRead(node);
  };
}

void Access::Audit(const grpc::ServerContextBase& context, std::string_view rpc, const absl::Status& why) {
  metrics_.RecordCallRefused();
  uint64_t suppressed = 0;
  {
    Locked lock(audit_mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - audit_second_ >= std::chrono::seconds(1)) {
      audit_second_ = now;
      audit_lines_ = 0;
    }
    if (audit_lines_ == kMaxAuditLinesPerSecond) {
      ++suppressed_;
      return;
    }
    ++audit_lines_;
    suppressed = std::exchange(suppressed_, 0);
  }
  if (suppressed != 0) spdlog::warn("audit: {} refusals more, not logged one by one", suppressed);
  spdlog::warn("audit: refused {} of {}: {}", rpc, context.peer(),
               std::string_view(why.message().data(), why.message().size()));
}

}  // namespace memcgd::server
