#include "server/cgroup_service.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/cgroup_path.h"
#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/page_token.h"
#include "server/path_text.h"
#include "server/text.h"
#include "server/unary.h"
#include "server/wire.h"

namespace memcgd::server {
namespace {

// What names the cgroup: `path`, and `below` for a list, where empty means all.
template <typename Request>
std::string PathTextOf(const Request& request) {
  if constexpr (requires { request.path(); }) {
    return request.path();
  } else {
    return request.below().empty() ? "/" : request.below();
  }
}

template <typename Request>
constexpr std::string_view PathField() {
  if constexpr (requires(const Request& request) { request.path(); }) return "path";
  return "below";
}

// The cgroup as it is now.
absl::Status Describe(ServedNode* node, const std::string& path, v1::Cgroup* to) {
  const auto info = node->core()->GetCgroup(path);
  if (info.ok()) FillCgroup(*info, to);
  return info.status();
}

absl::Status List(ServedNode* node, const std::string& below, const v1::ListCgroupsRequest& request,
                  v1::ListCgroupsResponse* response) {
  const std::string query = Cat("cgroups\n", node->name(), "\n", below);
  const auto limit = PageSize(request.page_size(), kDefaultCgroupsPerPage, kMaxCgroupsPerPage);
  if (!limit.ok()) return limit.status();
  const auto after = ReadPageToken(query, request.page_token());
  if (!after.ok()) return after.status();
  auto cgroups = node->core()->ListCgroups(below, *after, *limit + 1);  // one more: is there another page?
  if (!cgroups.ok()) return cgroups.status();
  const bool more = cgroups->size() > *limit;
  if (more) cgroups->pop_back();
  for (const auto& cgroup : *cgroups) FillCgroup(cgroup, response->add_cgroups());
  if (more) response->set_next_page_token(MakePageToken(query, cgroups->back().path));
  return absl::OkStatus();
}

absl::StatusOr<bool> WantsV1Names(v1::NameStyle names) {
  switch (names) {
    case v1::NAME_STYLE_UNSPECIFIED:
    case v1::NAME_STYLE_V2:
      return false;
    case v1::NAME_STYLE_V1:
      return true;
    default:
      return BadField("names", Cat(static_cast<int>(names), " is no style of names"));
  }
}

// In the kernel's own words, which the core reads.
absl::Status Reclaim(ServedNode* node, const std::string& path, const v1::ReclaimCgroupRequest& request,
                     v1::ReclaimCgroupResponse* response) {
  constexpr uint32_t kAnonOnly = 201;  // SWAPPINESS_ANON_ONLY
  if (request.bytes() > INT64_MAX) return BadField("bytes", Cat(request.bytes(), " are not below 2^63"));
  std::string text = Cat(request.bytes());
  if (request.has_swappiness()) {
    if (request.swappiness() > kAnonOnly) {
      return BadField("swappiness", Cat(request.swappiness(), " is not in 0 … 200, nor ", kAnonOnly,
                                        " for anonymous pages only"));
    }
    text += request.swappiness() == kAnonOnly ? " swappiness=max" : Cat(" swappiness=", request.swappiness());
  }
  uint64_t reclaimed_bytes = 0;
  absl::Status status = node->core()->Reclaim(path, text, &reclaimed_bytes);
  response->set_reclaimed_bytes(reclaimed_bytes);
  if (!absl::IsAborted(status)) return status;
  return WithReason(std::move(status), "RECLAIMED_LESS",
                    {{"requested_bytes", Cat(request.bytes())}, {"reclaimed_bytes", Cat(reclaimed_bytes)}});
}

}  // namespace

template <typename Request, typename Handler>
grpc::ServerUnaryReactor* CgroupService::Run(grpc::CallbackServerContext* context, const Request* request,
                                             const absl::Status& admitted, Handler handler) {
  return RunUnary(
      context, workers_, admitted,
      [this, metadata = NodeMetadata(*context), request, handler = std::move(handler)]() -> absl::Status {
        absl::Status status = CheckNodeMetadata(metadata, request->node());
        if (!status.ok()) return status;
        const auto node = registry_.Find(request->node());
        if (!node.ok()) return node.status();
        const std::string text = PathTextOf(*request);
        const Subject subject = {.type = "cgroup", .name = text, .field = PathField<Request>()};
        const std::string path = PathFromText(text);
        status = core::CheckCgroupPath(path);
        if (!status.ok()) return About(std::move(status), subject);
        status = handler(node->get(), path);
        // A handler's own checks have said already which field they are about.
        bool has_details = false;
        status.ForEachPayload([&has_details](absl::string_view, const absl::Cord&) { has_details = true; });
        return has_details ? status : About(std::move(status), subject);
      });
}

grpc::ServerUnaryReactor* CgroupService::CreateCgroup(grpc::CallbackServerContext* context,
                                                      const v1::CreateCgroupRequest* request,
                                                      v1::CreateCgroupResponse* response) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.CreateCgroup", Right::kWriteNode);
  return Run(context, request, admitted, [response](ServedNode* node, const std::string& path) {
    const absl::Status status = node->core()->CreateCgroup(path);
    return status.ok() ? Describe(node, path, response->mutable_cgroup()) : status;
  });
}

grpc::ServerUnaryReactor* CgroupService::GetCgroup(grpc::CallbackServerContext* context,
                                                   const v1::GetCgroupRequest* request,
                                                   v1::GetCgroupResponse* response) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.GetCgroup", Right::kReadNode);
  return Run(context, request, admitted, [response](ServedNode* node, const std::string& path) {
    return Describe(node, path, response->mutable_cgroup());
  });
}

grpc::ServerUnaryReactor* CgroupService::ListCgroups(grpc::CallbackServerContext* context,
                                                     const v1::ListCgroupsRequest* request,
                                                     v1::ListCgroupsResponse* response) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.ListCgroups", Right::kReadNode);
  return Run(context, request, admitted, [request, response](ServedNode* node, const std::string& below) {
    return List(node, below, *request, response);
  });
}

grpc::ServerUnaryReactor* CgroupService::SetKnobs(grpc::CallbackServerContext* context,
                                                  const v1::SetKnobsRequest* request,
                                                  v1::SetKnobsResponse* response) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.SetKnobs", Right::kWriteNode);
  return Run(context, request, admitted, [request, response](ServedNode* node, const std::string& path) {
    const std::map<std::string, std::string> knobs(request->knobs().begin(), request->knobs().end());
    absl::Status status = node->core()->SetKnobs(path, knobs);
    node->OomHappened();  // perhaps: a limit below usage
    if (absl::IsInvalidArgument(status)) {
      return About(std::move(status), {.type = "cgroup", .name = request->path(), .field = "knobs"});
    }
    return status.ok() ? Describe(node, path, response->mutable_cgroup()) : status;
  });
}

grpc::ServerUnaryReactor* CgroupService::DeleteCgroup(grpc::CallbackServerContext* context,
                                                      const v1::DeleteCgroupRequest* request,
                                                      v1::DeleteCgroupResponse*) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.DeleteCgroup", Right::kWriteNode);
  return Run(context, request, admitted,
             [](ServedNode* node, const std::string& path) { return node->core()->RemoveCgroup(path); });
}

grpc::ServerUnaryReactor* CgroupService::ReadCgroup(grpc::CallbackServerContext* context,
                                                    const v1::ReadCgroupRequest* request,
                                                    v1::ReadCgroupResponse* response) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.ReadCgroup", Right::kReadNode);
  return Run(context, request, admitted, [request, response](ServedNode* node, const std::string& path) {
    const absl::StatusOr<bool> v1_names = WantsV1Names(request->names());
    if (!v1_names.ok()) return v1_names.status();
    const auto reading = node->core()->ReadCgroup(path, request->local(), *v1_names, request->fast());
    if (reading.ok()) FillReading(*reading, response);
    return reading.status();
  });
}

grpc::ServerUnaryReactor* CgroupService::ReclaimCgroup(grpc::CallbackServerContext* context,
                                                       const v1::ReclaimCgroupRequest* request,
                                                       v1::ReclaimCgroupResponse* response) {
  const absl::Status admitted = access_.Check(*context, "CgroupService.ReclaimCgroup", Right::kWriteNode);
  return Run(context, request, admitted, [request, response](ServedNode* node, const std::string& path) {
    return Reclaim(node, path, *request, response);
  });
}

}  // namespace memcgd::server
