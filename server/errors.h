// Errors of the control path: absl::Status inside, google.rpc.Status with details on the wire.
//
// Details are payloads of the absl::Status, keyed by type URL, so that they are attached where the facts are
// known and travel with it; ToGrpcStatus() is the one place that maps.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_ERRORS_H_
#define MEMCGD_SERVER_ERRORS_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace memcgd::server {

// What an error is about.
struct Subject {
  std::string_view type;   // "node", "cgroup", "stream"
  std::string_view name;   // its name
  std::string_view field;  // the field of the request that names it
};

// The status with the detail that its code calls for: BadRequest for INVALID_ARGUMENT, ResourceInfo for
// NOT_FOUND and ALREADY_EXISTS, PreconditionFailure for FAILED_PRECONDITION.
absl::Status About(absl::Status status, const Subject& subject);

// `no type "name"`, `type "name" exists`, in the core's words, with their ResourceInfo.
absl::Status NotFound(const Subject& subject);
absl::Status AlreadyExists(const Subject& subject);
// INVALID_ARGUMENT with a BadRequest about that field.
absl::Status BadField(std::string_view field, std::string_view description);

// Adds an ErrorInfo of the domain "memcgd".  `reason` is UPPER_SNAKE_CASE and listed in docs/protocol.md.
absl::Status WithReason(absl::Status status, std::string_view reason,
                        std::initializer_list<std::pair<std::string_view, std::string>> metadata = {});

// Adds a RetryInfo: the request is worth another try so much later.
absl::Status WithRetry(absl::Status status, std::chrono::seconds delay);

// The same for the wire.  Message and details are cut to what a client's limit for metadata lets pass.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_ERRORS_H_
