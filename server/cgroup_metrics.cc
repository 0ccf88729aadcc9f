#include "server/cgroup_metrics.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "server/kubepods.h"
#include "server/path_text.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::CgroupSample;
using core::Locked;
using core::MemcgEvent;
using core::NodeSample;
using core::Stat;

// One series of each cgroup (or node): its labels before the common ones, and its value.
template <class Sample>
struct Series {
  std::string_view labels;
  uint64_t (*value)(const Sample&);
};
template <class Sample>
struct Family {
  std::string_view name, type, help;
  std::vector<Series<Sample>> series;
};

uint64_t Less(uint64_t from, uint64_t amount) { return from > amount ? from - amount : 0; }
// cAdvisor shows no limit as 0.
uint64_t OrZero(uint64_t limit) { return limit == CgroupSample::kNoLimit ? 0 : limit; }

const std::vector<Family<CgroupSample>>& CgroupFamilies() {
  using S = const CgroupSample&;
  static const std::vector<Family<CgroupSample>> families = {
      {"container_memory_usage_bytes",
       "gauge",
       "memory.current; of the root, anon and file.",
       {{"", [](S s) { return s.usage_bytes; }}}},
      {"container_memory_working_set_bytes",
       "gauge",
       "Usage less inactive_file.",
       {{"", [](S s) { return Less(s.usage_bytes, s.Of(Stat::kInactiveFile)); }}}},
      {"container_memory_rss",
       "gauge",
       "anon of memory.stat, bytes.",
       {{"", [](S s) { return s.Of(Stat::kAnon); }}}},
      {"container_memory_cache",
       "gauge",
       "file of memory.stat, bytes.",
       {{"", [](S s) { return s.Of(Stat::kFile); }}}},
      {"container_memory_mapped_file",
       "gauge",
       "file_mapped of memory.stat, bytes.",
       {{"", [](S s) { return s.Of(Stat::kFileMapped); }}}},
      {"container_memory_kernel_usage",
       "gauge",
       "kernel of memory.stat, bytes.",
       {{"", [](S s) { return s.Of(Stat::kKernel); }}}},
      {"container_memory_total_active_file_bytes",
       "gauge",
       "active_file of memory.stat.",
       {{"", [](S s) { return s.Of(Stat::kActiveFile); }}}},
      {"container_memory_total_inactive_file_bytes",
       "gauge",
       "inactive_file of memory.stat.",
       {{"", [](S s) { return s.Of(Stat::kInactiveFile); }}}},
      {"container_memory_swap",
       "gauge",
       "memory.swap.current, bytes.",
       {{"", [](S s) { return s.swap_bytes; }}}},
      {"container_memory_max_usage_bytes", "gauge", "memory.peak.", {{"", [](S s) { return s.peak_bytes; }}}},
      {"container_memory_failcnt",
       "counter",
       "Charges that met the cgroup's limit.",
       {{"", [](S s) { return s.failcnt; }}}},
      {"container_memory_failures_total",
       "counter",
       "Page faults: pgfault and pgmajfault of memory.stat.",
       {{"failure_type=\"pgfault\",scope=\"container\",", [](S s) { return s.local_faults; }},
        {"failure_type=\"pgfault\",scope=\"hierarchy\",", [](S s) { return s.Of(Stat::kPgfault); }},
        {"failure_type=\"pgmajfault\",scope=\"container\",", [](S s) { return s.local_major_faults; }},
        {"failure_type=\"pgmajfault\",scope=\"hierarchy\",", [](S s) { return s.Of(Stat::kPgmajfault); }}}},
      {"container_oom_events_total",
       "counter",
       "oom_kill of memory.events.",
       {{"", [](S s) { return s.Of(MemcgEvent::kOomKill); }}}},
      {"container_spec_memory_limit_bytes",
       "gauge",
       "memory.max; 0: no limit.",
       {{"", [](S s) { return OrZero(s.max_bytes); }}}},
      {"container_spec_memory_swap_limit_bytes",
       "gauge",
       "memory.swap.max; 0: no limit, or none allowed.",
       {{"", [](S s) { return OrZero(s.swap_max_bytes); }}}},
      {"memcgd_cgroup_working_set_bytes",
       "gauge",
       "The working set by three readings: docs/metrics.md.",
       {{"reading=\"cadvisor\",", [](S s) { return Less(s.usage_bytes, s.Of(Stat::kInactiveFile)); }},
        {"reading=\"kubelet\",",
         [](S s) {
           return Less(std::max(s.total_less_free_bytes, s.usage_bytes), s.Of(Stat::kInactiveFile));
         }},
        {"reading=\"kernel\",",
         [](S s) { return s.Of(Stat::kActiveAnon) + s.Of(Stat::kActiveFile) + s.Of(Stat::kUnevictable); }}}},
      {"memcgd_cgroup_events_total",
       "counter",
       "memory.events, by line.",
       {{"event=\"low\",", [](S s) { return s.Of(MemcgEvent::kLow); }},
        {"event=\"high\",", [](S s) { return s.Of(MemcgEvent::kHigh); }},
        {"event=\"max\",", [](S s) { return s.Of(MemcgEvent::kMax); }},
        {"event=\"oom\",", [](S s) { return s.Of(MemcgEvent::kOom); }},
        {"event=\"oom_kill\",", [](S s) { return s.Of(MemcgEvent::kOomKill); }},
        {"event=\"oom_group_kill\",", [](S s) { return s.Of(MemcgEvent::kOomGroupKill); }}}},
      {"memcgd_cgroup_refaults_total",
       "counter",
       "workingset_refault_anon and _file of memory.stat, pages.",
       {{"kind=\"anon\",", [](S s) { return s.Of(Stat::kWorkingsetRefaultAnon); }},
        {"kind=\"file\",", [](S s) { return s.Of(Stat::kWorkingsetRefaultFile); }}}},
      {"memcgd_cgroup_error_bound_bytes",
       "gauge",
       "How far a figure in bytes may be from its exact value.",
       {{"figure=\"counter\",", [](S) { return uint64_t{0}; }},
        {"figure=\"statistic\",", [](S s) { return s.error_bound_bytes; }}}},
      {"memcgd_cgroup_error_bound_events",
       "gauge",
       "How far a count of memory.stat may be from its exact value.",
       {{"", [](S s) { return s.error_bound_pages; }}}},
  };
  return families;
}

const std::vector<Family<NodeSample>>& NodeFamilies() {
  using S = const NodeSample&;
  static const std::vector<Family<NodeSample>> families = {
      {"machine_memory_bytes",
       "gauge",
       "Memory of the modelled machine.",
       {{"", [](S s) { return s.memory_bytes; }}}},
      {"machine_swap_bytes",
       "gauge",
       "Swap of the modelled machine.",
       {{"", [](S s) { return s.swap_bytes; }}}},
      {"memcgd_node_committed_as_bytes",
       "gauge",
       "Committed_AS.",
       {{"", [](S s) { return s.committed_as_bytes; }}}},
      {"memcgd_node_commit_limit_bytes",
       "gauge",
       "CommitLimit.",
       {{"", [](S s) { return s.commit_limit_bytes; }}}},
      {"memcgd_node_cgroups", "gauge", "Cgroups that are online.", {{"", [](S s) { return s.cgroups; }}}},
      {"memcgd_node_dying_cgroups",
       "gauge",
       "Removed cgroups that are still charged.",
       {{"", [](S s) { return s.dying_cgroups; }}}},
      {"memcgd_node_events_total", "counter", "Events applied.", {{"", [](S s) { return s.events; }}}},
      {"memcgd_node_oom_calls_total",
       "counter",
       "Calls of the OOM killer.",
       {{"", [](S s) { return s.oom_calls; }}}},
  };
  return families;
}

// \, " and newline, as the format wants them, in valid UTF-8 that still tells any two paths apart.
void AppendLabel(std::string_view name, std::string_view value, std::string* to) {
  *to += name;
  *to += "=\"";
  for (const char c : PathToText(value)) {
    if (c == '\n') {
      *to += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') *to += '\\';
    *to += c;
  }
  *to += '"';
}

template <class Sample>
void AppendHead(const Family<Sample>& family, std::string* text) {
  *text += Cat("# HELP ", family.name, " ", family.help, "\n# TYPE ", family.name, " ", family.type, "\n");
}

// `begin`: the name and the labels before the common ones.  Three appends a series: there are 100,000.
void AppendSeries(std::string_view begin, std::string_view labels, uint64_t value, std::string* text) {
  char end[23] = {'}', ' '};
  char* const digits_end = std::to_chars(end + 2, end + sizeof(end) - 1, value).ptr;
  *digits_end = '\n';
  text->append(begin);
  text->append(labels);
  text->append(end, digits_end + 1);
}

uint32_t DepthOf(std::string_view path) {
  return path == "/" ? 0 : static_cast<uint32_t>(std::count(path.begin(), path.end(), '/'));
}

bool IsAtOrBelow(std::string_view path, std::string_view prefix) {
  return prefix == "/" ||
         (path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/'));
}

}  // namespace

CgroupMetrics::Cgroup CgroupMetrics::MakeCgroup(const std::string& node, std::string_view path) const {
  Cgroup cgroup;
  cgroup.place = !IsAtOrBelow(path, filter_.prefix) ? Cgroup::Place::kElsewhere
                 : DepthOf(path) > filter_.depth    ? Cgroup::Place::kTooDeep
                                                    : Cgroup::Place::kShown;
  if (cgroup.place != Cgroup::Place::kShown) return cgroup;
  const KubernetesNames names = NamesOfPath(path);
  AppendLabel("container", names.container_id, &cgroup.labels);
  AppendLabel(",id", path, &cgroup.labels);
  AppendLabel(",image", "", &cgroup.labels);
  AppendLabel(",name", names.container_id, &cgroup.labels);
  AppendLabel(",namespace", "", &cgroup.labels);
  AppendLabel(",node", node, &cgroup.labels);
  AppendLabel(",pod", names.pod_uid, &cgroup.labels);
  return cgroup;
}

void CgroupMetrics::SampleNode(ServedNode* served, Node* node, LeftOut* left_out) {
  node->sample = served->core()->SampleCgroups(
      [&](const CgroupSample& sample) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // under mutex_
        auto at = node->cgroups.find(sample.id);
        if (at == node->cgroups.end()) {
          at = node->cgroups.emplace(sample.id, MakeCgroup(served->name(), sample.path)).first;
        }
        Cgroup& cgroup = at->second;
        cgroup.seen = renderings_;
        switch (cgroup.place) {
          case Cgroup::Place::kTooDeep:
            ++left_out->depth;
            break;
          case Cgroup::Place::kElsewhere:
            ++left_out->prefix;
            break;
          case Cgroup::Place::kShown:
            rows_.push_back({&cgroup.labels, sample});
        }
      });
  if (node->cgroups.size() > node->sample.cgroups) {
    std::erase_if(node->cgroups, [this](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // under mutex_
      return entry.second.seen != renderings_;
    });
  }
}

CgroupMetrics::LeftOut CgroupMetrics::Sample() {
  ++renderings_;
  rows_.clear();
  LeftOut left_out;
  for (const std::shared_ptr<ServedNode>& served : registry_.List("", SIZE_MAX)) {
    Node& node = nodes_[served->incarnation()];
    if (node.labels.empty()) AppendLabel("node", served->name(), &node.labels);
    node.seen = renderings_;
    SampleNode(served.get(), &node, &left_out);
  }
  std::erase_if(nodes_, [this](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // under mutex_
    return entry.second.seen != renderings_;
  });
  if (rows_.size() > filter_.top) {
    left_out.top = rows_.size() - filter_.top;
    std::nth_element(rows_.begin(), rows_.begin() + filter_.top, rows_.end(),
                     [](const Row& a, const Row& b) { return a.sample.usage_bytes > b.sample.usage_bytes; });
    rows_.resize(filter_.top);
  }
  return left_out;
}

void CgroupMetrics::RenderNodes(std::string* text) const {
  for (const Family<NodeSample>& family : NodeFamilies()) {
    AppendHead(family, text);
    for (const auto& [incarnation, node] : nodes_) {
      for (const auto& series : family.series) {
        AppendSeries(Cat(family.name, "{", series.labels), node.labels, series.value(node.sample), text);
      }
    }
  }
}

void CgroupMetrics::RenderCgroups(std::string* text) const {
  for (const Family<CgroupSample>& family : CgroupFamilies()) {
    AppendHead(family, text);
    for (const auto& series : family.series) {
      const std::string begin = Cat(family.name, "{", series.labels);
      for (const Row& row : rows_) AppendSeries(begin, *row.labels, series.value(row.sample), text);
    }
  }
}

void CgroupMetrics::Render(std::string* text) {
  Locked lock(mutex_);
  const LeftOut left_out = Sample();
  *text +=
      "# HELP memcgd_cgroups_left_out Cgroups that the filter leaves out, by what of it.\n"
      "# TYPE memcgd_cgroups_left_out gauge\n";
  AppendSeries("memcgd_cgroups_left_out{", "reason=\"depth\"", left_out.depth, text);
  AppendSeries("memcgd_cgroups_left_out{", "reason=\"prefix\"", left_out.prefix, text);
  AppendSeries("memcgd_cgroups_left_out{", "reason=\"top\"", left_out.top, text);
  RenderNodes(text);
  RenderCgroups(text);
}

}  // namespace memcgd::server
