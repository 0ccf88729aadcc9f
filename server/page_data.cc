#include "server/page_data.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/cgroup_sample.h"
#include "server/path_text.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::CgroupSample;
using core::MemcgEvent;
using core::Stat;
using nlohmann::json;

struct PageFile {
  std::string_view name, bytes;
};
constexpr PageFile kPageFiles[] = {
#include "page_files.inc"
};

constexpr size_t kMostOoms = 100;
constexpr size_t kMostStreams = 1000;

void Answer(const json& body, HttpAnswer* answer) {
  answer->content_type = "application/json";
  // Names of streams are any bytes that gRPC lets through: what is no UTF-8 is replaced.
  answer->body += body.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The node of the parameter `node`, or null and an answer that says why.
std::shared_ptr<ServedNode> NodeOf(const HttpRequest& request, NodeRegistry* registry, HttpAnswer* answer) {
  const std::optional<std::string> name = request.Parameter("node");
  if (!name.has_value()) {
    answer->status = 400;
    Answer({{"error", "the parameter node is missing"}}, answer);
    return nullptr;
  }
  auto node = registry->Find(*name);
  if (node.ok()) return *std::move(node);
  answer->status = 404;
  Answer({{"error", std::string(node.status().message())}}, answer);
  return nullptr;
}

json LimitOf(uint64_t bytes) { return bytes == CgroupSample::kNoLimit ? json() : json(bytes); }

json CgroupJson(const CgroupSample& sample) {
  // An array, as there may be 10,000 of them: in the order of "columns".
  return {sample.id,
          PathToText(sample.path),
          sample.usage_bytes,
          LimitOf(sample.max_bytes),
          LimitOf(sample.high_bytes),
          sample.Of(Stat::kAnon),
          sample.Of(Stat::kFile),
          sample.Of(Stat::kKernel),
          sample.swap_bytes,
          sample.peak_bytes,
          sample.Of(Stat::kPgfault),
          sample.Of(Stat::kPgmajfault),
          sample.Of(Stat::kWorkingsetRefaultAnon) + sample.Of(Stat::kWorkingsetRefaultFile),
          sample.Of(MemcgEvent::kHigh),
          sample.Of(MemcgEvent::kMax),
          sample.Of(MemcgEvent::kOom),
          sample.Of(MemcgEvent::kOomKill)};
}
constexpr const char* kColumns[] = {"id",       "path",    "usage",  "max",    "high",       "anon",
                                    "file",     "kernel",  "swap",   "peak",   "faults",     "major",
                                    "refaults", "ev_high", "ev_max", "ev_oom", "ev_oom_kill"};

json OomJson(const core::OomRecord& record) {
  json victims = json::array();
  for (const auto& victim : record.victims) {
    if (!victim.killed) continue;
    victims.push_back({{"pid", victim.tgid},
                       {"comm", victim.comm},
                       {"cgroup", PathToText(victim.cgroup)},
                       {"rss_pages", victim.rss_pages},
                       {"oom_score_adj", victim.oom_score_adj}});
  }
  return {{"sequence", record.sequence},
          {"time_ns", record.time_ns},
          {"breached", PathToText(record.breached)},
          {"charged", PathToText(record.charged)},
          {"comm", record.comm},
          {"killed", std::move(victims)}};
}

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "image/svg+xml";
}

}  // namespace

void PageData::Nodes(const HttpRequest&, HttpAnswer* answer) {
  json nodes = json::array();
  for (const std::shared_ptr<ServedNode>& node : registry_.List("", SIZE_MAX)) {
    const core::NodeSample sample = node->core()->SampleNode();
    nodes.push_back({{"name", node->name()},
                     {"memory", sample.memory_bytes},
                     {"swap", sample.swap_bytes},
                     {"resident", sample.resident_bytes},
                     {"committed", sample.committed_as_bytes},
                     {"commit_limit", sample.commit_limit_bytes},
                     {"events", sample.events},
                     {"streams", sample.streams},
                     {"cgroups", sample.cgroups},
                     {"dying", sample.dying_cgroups},
                     {"oom_calls", sample.oom_calls},
                     {"time_ns", sample.time_ns}});
  }
  Answer({{"draining", draining_.load(std::memory_order_relaxed)}, {"nodes", std::move(nodes)}}, answer);
}

void PageData::Cgroups(const HttpRequest& request, HttpAnswer* answer) {
  const std::shared_ptr<ServedNode> node = NodeOf(request, &registry_, answer);
  if (node == nullptr) return;
  json cgroups = json::array();
  const core::NodeSample sample = node->core()->SampleCgroups(
      [&cgroups](const CgroupSample& cgroup) { cgroups.push_back(CgroupJson(cgroup)); });
  Answer({{"columns", kColumns}, {"time_ns", sample.time_ns}, {"cgroups", std::move(cgroups)}}, answer);
}

void PageData::Ooms(const HttpRequest& request, HttpAnswer* answer) {
  const std::shared_ptr<ServedNode> node = NodeOf(request, &registry_, answer);
  if (node == nullptr) return;
  const uint64_t calls = node->core()->SampleNode().oom_calls;
  json records = json::array();
  for (const core::OomRecord& record :
       node->core()->OomRecords(calls > kMostOoms ? calls - kMostOoms : 0, kMostOoms))
    records.push_back(OomJson(record));
  Answer({{"records", std::move(records)}}, answer);
}

void PageData::Streams(const HttpRequest& request, HttpAnswer* answer) {
  const std::shared_ptr<ServedNode> node = NodeOf(request, &registry_, answer);
  if (node == nullptr) return;
  json streams = json::array();
  for (const auto& [id, open] : node->ListStreams("", kMostStreams))
    streams.push_back({{"id", id}, {"open", open}});
  Answer({{"streams", std::move(streams)}}, answer);
}

HttpServer::Handlers PageHandlers(PageData* data) {
  HttpServer::Handlers handlers;
  for (const PageFile& file : kPageFiles) {
    handlers[file.name == "index.html" ? "/" : Cat("/", file.name)] = [&file](const HttpRequest&,
                                                                              HttpAnswer* answer) {
      answer->content_type = TypeOf(file.name);
      answer->body += file.bytes;
    };
  }
  const auto add = [&](const char* path, void (PageData::*handler)(const HttpRequest&, HttpAnswer*)) {
    handlers[path] = [data, handler](const HttpRequest& request, HttpAnswer* answer) {
      (data->*handler)(request, answer);
    };
  };
  add("/api/nodes", &PageData::Nodes);
  add("/api/cgroups", &PageData::Cgroups);
  add("/api/ooms", &PageData::Ooms);
  add("/api/streams", &PageData::Streams);
  return handlers;
}

}  // namespace memcgd::server
