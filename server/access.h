// Who may make which call: the one check of every call, before anything else is done about it.
//
// Without a token file whoever reaches the address may make every call.  With one a call carries the metadata
// "authorization: Bearer TOKEN", and x-memcg-node names the node that it is about; handlers hold the node of
// the request against that metadata (node_metadata.h), so that it cannot be about another one.
//
// A refusal is one line of the log, at most kMaxAuditLinesPerSecond; the next line tells how many were left
// out.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_ACCESS_H_
#define MEMCGD_SERVER_ACCESS_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/mutex.h"
#include "server/metrics.h"
#include "server/node_registry.h"
#include "server/tokens.h"

namespace memcgd::server {

// What a call needs; by node, the one of x-memcg-node.
enum class Right { kToken, kReadNode, kWriteNode };

class Access {
 public:
  // `token_file` may be empty: no tokens.
  Access(std::string token_file, ServerMetrics* metrics)
      : token_file_(std::move(token_file)), metrics_(*metrics) {}
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  // Reads the token file, where there is one.  An error leaves what was read before.
  absl::Status Reload() ABSL_LOCKS_EXCLUDED(mutex_);
  bool has_tokens() const { return !token_file_.empty(); }

  // UNAUTHENTICATED (no token, an unknown or an expired one), PERMISSION_DENIED, or INVALID_ARGUMENT where
  // the node's name is missing.  `rpc` is "Service.Method", for the log.
  absl::Status Check(const grpc::ServerContextBase& context, std::string_view rpc, Right right)
      ABSL_LOCKS_EXCLUDED(mutex_, audit_mutex_);
  // Which nodes the caller may read.
  NodeFilter Readable(const grpc::ServerContextBase& context) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::shared_ptr<const Tokens> tokens() ABSL_LOCKS_EXCLUDED(mutex_);
  void Audit(const grpc::ServerContextBase& context, std::string_view rpc, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(audit_mutex_);

  const std::string token_file_;
  ServerMetrics& metrics_;

  core::Mutex mutex_;
  std::shared_ptr<const Tokens> tokens_ ABSL_GUARDED_BY(mutex_);

  core::Mutex audit_mutex_;
  std::chrono::steady_clock::time_point audit_second_ ABSL_GUARDED_BY(audit_mutex_);
  uint32_t audit_lines_ ABSL_GUARDED_BY(audit_mutex_) = 0;  // in that second
  uint64_t suppressed_ ABSL_GUARDED_BY(audit_mutex_) = 0;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_ACCESS_H_
