// The modelled cgroups in Prometheus' text format, under cAdvisor's names; docs/metrics.md lists them.
//
// Read at the scrape, beside batches, and nothing on their way.  A cgroup's labels are rendered once: its id
// is not given twice, nor is a node's incarnation.
//
// Thread safety: all of it; renderings take turns.
#ifndef MEMCGD_SERVER_CGROUP_METRICS_H_
#define MEMCGD_SERVER_CGROUP_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/cgroup_sample.h"
#include "core/mutex.h"
#include "server/config.h"
#include "server/node_registry.h"

namespace memcgd::server {

class CgroupMetrics {
 public:
  // `registry` lives longer.
  CgroupMetrics(CgroupFilter filter, NodeRegistry* registry)
      : filter_(std::move(filter)), registry_(*registry) {}

  void Render(std::string* text) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Row {
    const std::string* labels;  // of a Cgroup below
    core::CgroupSample sample;
  };
  struct Cgroup {
    std::string labels;
    enum class Place : uint8_t { kShown, kTooDeep, kElsewhere } place;
    uint64_t seen = 0;  // at which rendering
  };
  struct Node {
    std::string labels;
    std::unordered_map<uint32_t, Cgroup> cgroups;
    core::NodeSample sample;
    uint64_t seen = 0;
  };
  struct LeftOut {
    uint64_t depth = 0, prefix = 0, top = 0;
  };

  Cgroup MakeCgroup(const std::string& node, std::string_view path) const;
  LeftOut Sample() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SampleNode(ServedNode* served, Node* node, LeftOut* left_out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RenderNodes(std::string* text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RenderCgroups(std::string* text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CgroupFilter filter_;
  NodeRegistry& registry_;
  core::Mutex mutex_;
  uint64_t renderings_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Node> nodes_ ABSL_GUARDED_BY(mutex_);  // by incarnation
  std::vector<Row> rows_ ABSL_GUARDED_BY(mutex_);                     // kept: fresh memory costs more
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_CGROUP_METRICS_H_
