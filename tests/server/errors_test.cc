#include "server/errors.h"

#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/limits.h"
#include "server/page_token.h"
#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

constexpr Subject kSubject = {.type = "cgroup", .name = "/a/b", .field = "path"};

TEST(ErrorsTest, CodeAndMessageArrive) {
  const grpc::Status status = ToGrpcStatus(absl::UnavailableError("later"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "later");
  EXPECT_EQ(status.error_details(), "");
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(ErrorsTest, EachCodeCarriesItsDetail) {
  const auto bad = DetailOf<google::rpc::BadRequest>(ToGrpcStatus(BadField("page_size", "-1 is negative")));
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->field_violations(0).field(), "page_size");
  const auto missing = DetailOf<google::rpc::ResourceInfo>(ToGrpcStatus(NotFound(kSubject)));
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->resource_type(), "cgroup");
  EXPECT_EQ(missing->resource_name(), "/a/b");
  EXPECT_TRUE(DetailOf<google::rpc::ResourceInfo>(ToGrpcStatus(AlreadyExists(kSubject))).has_value());
  const auto precondition = DetailOf<google::rpc::PreconditionFailure>(
      ToGrpcStatus(About(absl::FailedPreconditionError("has children"), kSubject)));
  ASSERT_TRUE(precondition.has_value());
  EXPECT_EQ(precondition->violations(0).subject(), "/a/b");
  EXPECT_EQ(precondition->violations(0).description(), "has children");
}

TEST(ErrorsTest, ReasonsAreForPrograms) {
  const auto info = DetailOf<google::rpc::ErrorInfo>(
      ToGrpcStatus(WithReason(absl::AbortedError("x"), "STREAM_REOPENED", {{"stream_id", "s"}})));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "STREAM_REOPENED");
  EXPECT_EQ(info->domain(), "memcgd");
  EXPECT_EQ(info->metadata().at("stream_id"), "s");
}

TEST(ErrorsTest, AnErrorFitsIntoTheMetadataOfAClient) {
  std::string path = "/";
  while (path.size() < 4000) path += "ü";
  const absl::Status status = About(absl::NotFoundError("cgroup " + path + " does not exist"),
                                    {.type = "cgroup", .name = path, .field = "path"});
  const grpc::Status wire = ToGrpcStatus(WithReason(status, "GONE"));
  EXPECT_LE(wire.error_message().size(), kMaxErrorMessageBytes + 8);
  EXPECT_LE(wire.error_details().size(), kMaxErrorDetailBytes);
  EXPECT_TRUE(wire.error_message().ends_with("ü does not exist"));
  EXPECT_TRUE(DetailOf<google::rpc::ErrorInfo>(wire).has_value()) << "only the largest detail is left out";
}

TEST(PageTokenTest, ATokenLeadsOnInItsOwnListOnly) {
  const std::string token = MakePageToken("cgroups\nn\n/", "/a/b");
  EXPECT_EQ(*ReadPageToken("cgroups\nn\n/", token), "/a/b");
  EXPECT_EQ(*ReadPageToken("cgroups\nn\n/", ""), "");
  EXPECT_FALSE(ReadPageToken("cgroups\nn\n/a", token).ok());
  EXPECT_FALSE(ReadPageToken("nodes", token).ok());
  for (const std::string& bad : {std::string("x"), std::string("!!!"), token + "AAAA", token.substr(4)}) {
    EXPECT_EQ(ReadPageToken("cgroups\nn\n/", bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(PageTokenTest, SizesAreBounded) {
  EXPECT_EQ(*PageSize(0, 100, 1000), 100u);
  EXPECT_EQ(*PageSize(7, 100, 1000), 7u);
  EXPECT_EQ(*PageSize(5000, 100, 1000), 1000u);
  EXPECT_EQ(PageSize(-1, 100, 1000).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace memcgd::server
