#include "server/errors.h"

#include <optional>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/limits.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/";

template <typename Message>
void Attach(const Message& detail, absl::Status* status) {
  status->SetPayload(absl::StrCat(kTypePrefix, Message::descriptor()->full_name()),
                     absl::Cord(detail.SerializeAsString()));
}

// At most kMaxErrorMessageBytes, its middle left out where it is longer; never within a character of UTF-8.
std::string Fitting(std::string_view message) {
  if (message.size() <= kMaxErrorMessageBytes) return std::string(message);
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(message[at]) & 0xc0) == 0x80; };
  size_t head = kMaxErrorMessageBytes / 2;
  while (head > 0 && continues(head)) --head;
  size_t tail = message.size() - kMaxErrorMessageBytes / 2;
  while (tail < message.size() && continues(tail)) ++tail;
  return Cat(message.substr(0, head), " … ", message.substr(tail));
}

}  // namespace

absl::Status About(absl::Status status, const Subject& subject) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: {
      google::rpc::BadRequest detail;
      auto* violation = detail.add_field_violations();
      violation->set_field(std::string(subject.field));
      violation->set_description(Fitting(message));
      Attach(detail, &status);
      break;
    }
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists: {
      google::rpc::ResourceInfo detail;
      detail.set_resource_type(std::string(subject.type));
      detail.set_resource_name(std::string(subject.name));
      detail.set_description(Fitting(message));
      Attach(detail, &status);
      break;
    }
    case absl::StatusCode::kFailedPrecondition: {
      google::rpc::PreconditionFailure detail;
      auto* violation = detail.add_violations();
      violation->set_type(std::string(subject.type));
      violation->set_subject(std::string(subject.name));
      violation->set_description(Fitting(message));
      Attach(detail, &status);
      break;
    }
    default:
      break;
  }
  return status;
}

absl::Status NotFound(const Subject& subject) {
  return About(absl::NotFoundError(Cat("no ", subject.type, " ", Quoted(subject.name))), subject);
}

absl::Status AlreadyExists(const Subject& subject) {
  return About(absl::AlreadyExistsError(Cat(subject.type, " ", Quoted(subject.name), " exists")), subject);
}

absl::Status BadField(std::string_view field, std::string_view description) {
  return About(absl::InvalidArgumentError(Cat(field, ": ", description)),
               {.type = "", .name = "", .field = field});
}

absl::Status WithReason(absl::Status status, std::string_view reason,
                        std::initializer_list<std::pair<std::string_view, std::string>> metadata) {
  google::rpc::ErrorInfo detail;
  detail.set_reason(std::string(reason));
  detail.set_domain("memcgd");
  for (const auto& [key, value] : metadata) (*detail.mutable_metadata())[std::string(key)] = value;
  Attach(detail, &status);
  return status;
}

absl::Status WithRetry(absl::Status status, std::chrono::seconds delay) {
  google::rpc::RetryInfo detail;
  detail.mutable_retry_delay()->set_seconds(delay.count());
  Attach(detail, &status);
  return status;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());  // the numbers are the same
  const std::string message = Fitting(std::string_view(status.message().data(), status.message().size()));
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(code));
  wire.set_message(message);
  status.ForEachPayload([&wire](absl::string_view type_url, const absl::Cord& bytes) {
    auto* detail = wire.add_details();
    detail->set_type_url(std::string(type_url));
    detail->set_value(std::string(bytes));
  });
  // The largest first: a cgroup's path of 4 KiB may stand in one of them.
  while (wire.ByteSizeLong() > kMaxErrorDetailBytes && wire.details_size() > 0) {
    int largest = 0;
    for (int i = 1; i < wire.details_size(); ++i) {
      if (wire.details(i).value().size() > wire.details(largest).value().size()) largest = i;
    }
    wire.mutable_details()->DeleteSubrange(largest, 1);
  }
  return wire.details().empty() ? grpc::Status(code, message)
                                : grpc::Status(code, message, wire.SerializeAsString());
}

}  // namespace memcgd::server
