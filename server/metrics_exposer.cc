#include "server/metrics_exposer.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "server/text.h"
#include "server/version.h"

namespace memcgd::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;  // begins with "Clang"
#else
constexpr char kCompiler[] = "g++ " __VERSION__;
#endif

constexpr std::string_view kTextFormat = "text/plain; version=0.0.4; charset=utf-8";

ClientMetric Counter(std::string_view label, std::string_view value, uint64_t count) {
  ClientMetric metric;
  metric.label.push_back({std::string(label), std::string(value)});
  metric.counter.value = static_cast<double>(count);
  return metric;
}

MetricFamily Gauge(std::string name, std::string help, double value) {
  ClientMetric metric;
  metric.gauge.value = value;
  return {std::move(name), std::move(help), MetricType::Gauge, {std::move(metric)}};
}

MetricFamily Total(std::string name, std::string help, uint64_t count) {
  ClientMetric metric;
  metric.counter.value = static_cast<double>(count);
  return {std::move(name), std::move(help), MetricType::Counter, {std::move(metric)}};
}

}  // namespace

// The model of prometheus-cpp that reads our counters when it is asked: no registry, no shared doubles.
class MetricsExposer::Reader final : public prometheus::Collectable {
 public:
  Reader(const ServerMetrics* metrics, NodeRegistry* registry) : metrics_(*metrics), registry_(*registry) {}

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families = {
        Events(),
        Outcomes(),
        Batches(),
        Total("memcgd_streams_closed_total", "Streams closed as idle, stalled or never opened.",
              metrics_.StreamsClosed()),
        Total("memcgd_calls_refused_total", "Calls that the check of access refused.",
              metrics_.CallsRefused()),
        Gauge("memcgd_streams", "Streams that are open now.", static_cast<double>(metrics_.OpenStreams())),
        Gauge("memcgd_nodes", "Nodes of this server.", static_cast<double>(registry_.size())),
        Durations(),
        ProcessCpu(),
        BuildInfo()};
    AddMechanisms(&families);
    AddLimits(&families);
    return families;
  }

 private:
  MetricFamily Events() const {
    // A frequent kind and a wide one may share a name (munmap, brk): they are one kind of event.
    std::map<std::string_view, uint64_t> counts;
    for (int kind = 1; kind < core::kEventKinds; ++kind) {
      counts[NameOf(static_cast<core::EventKind>(kind))] +=
          metrics_.Events(static_cast<core::EventKind>(kind));
    }
    for (size_t kind = 0; kind < kWideKindNames; ++kind)
      counts[WideKindName(kind)] += metrics_.WideEvents(kind);
    MetricFamily family{"memcgd_events_total", "Events applied, by kind.", MetricType::Counter, {}};
    for (const auto& [name, count] : counts) family.metric.push_back(Counter("kind", name, count));
    return family;
  }

  MetricFamily Outcomes() const {
    MetricFamily family{
        "memcgd_event_outcomes_total", "Events applied, by what became of them.", MetricType::Counter, {}};
    for (int i = 1; i < core::kOutcomes; ++i) {
      const auto outcome = static_cast<core::Outcome>(i);
      family.metric.push_back(Counter("outcome", NameOf(outcome), metrics_.Outcomes(outcome)));
    }
    return family;
  }

  MetricFamily Batches() const {
    MetricFamily family{"memcgd_batches_total", "Batches received, by result.", MetricType::Counter, {}};
    for (size_t i = 0; i < kBatchOutcomes; ++i) {
      const auto outcome = static_cast<BatchOutcome>(i);
      family.metric.push_back(Counter("result", NameOf(outcome), metrics_.Batches(outcome)));
    }
    return family;
  }

  MetricFamily Durations() const {
    constexpr double kNsPerSecond = 1e9;
    ClientMetric metric;
    uint64_t cumulative = 0;
    for (size_t i = 0; i <= ServerMetrics::kBoundsNs.size(); ++i) {
      cumulative += metrics_.Durations(i);
      const double bound = i < ServerMetrics::kBoundsNs.size() ? ServerMetrics::kBoundsNs[i] / kNsPerSecond
                                                               : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({cumulative, bound});
    }
    // Of the buckets just read, not of a counter beside them: a scrape is consistent in itself.
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = static_cast<double>(metrics_.DurationSumNs()) / kNsPerSecond;
    return {"memcgd_batch_apply_seconds",
            "Time to check and apply a batch, waiting for its node included.",
            MetricType::Histogram,
            {std::move(metric)}};
  }

  void AddMechanisms(std::vector<MetricFamily>* families) const {
    const core::MechanismCounters totals = registry_.MechanismTotals();
    const auto add = [families](const char* name, std::string_view help, uint64_t count) {
      ClientMetric metric;
      metric.counter.value = static_cast<double>(count);
      families->push_back({Cat("memcgd_mechanism_", name, "_total"),
                           Cat("Of all nodes: ", help, "."),
                           MetricType::Counter,
                           {std::move(metric)}});
    };
#define MEMCGD_ADD_COUNTER(field, help) add(#field, help, totals.field);
    MEMCGD_MECHANISM_COUNTERS(MEMCGD_ADD_COUNTER)
#undef MEMCGD_ADD_COUNTER
  }

  void AddLimits(std::vector<MetricFamily>* families) const {
    MetricFamily used{"memcgd_limit_used",
                      "How much of a limit is used; of a node's, by the fullest.",
                      MetricType::Gauge,
                      {}};
    MetricFamily limit{"memcgd_limit", "Limits, by name.", MetricType::Gauge, {}};
    for (const LimitUse& use : metrics_.LimitUses()) {
      for (const auto& [family, value] : {std::pair(&used, use.used), std::pair(&limit, use.limit)}) {
        ClientMetric metric;
        metric.label.push_back({"limit", std::string(use.name)});
        metric.gauge.value = static_cast<double>(value);
        family->metric.push_back(std::move(metric));
      }
    }
    families->push_back(std::move(used));
    families->push_back(std::move(limit));
  }

  // By the name that every Prometheus client library gives it.
  static MetricFamily ProcessCpu() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    ClientMetric metric;
    metric.counter.value = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    return {"process_cpu_seconds_total",
            "CPU time of the server, user and system.",
            MetricType::Counter,
            {metric}};
  }

  static MetricFamily BuildInfo() {
    MetricFamily family = Gauge("memcgd_build_info", "Always 1; the labels tell the build.", 1);
    family.metric[0].label = {{"compiler", kCompiler}, {"version", std::string(kVersion)}};
    return family;
  }

  const ServerMetrics& metrics_;
  NodeRegistry& registry_;
};

MetricsExposer::MetricsExposer(const ServerMetrics* metrics, NodeRegistry* registry)
    : reader_(std::make_unique<Reader>(metrics, registry)), page_data_(registry) {}

MetricsExposer::~MetricsExposer() = default;

absl::StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(
    const ListenAddress& address, const std::optional<CgroupFilter>& cgroup_metrics,
    const ServerMetrics* metrics, NodeRegistry* registry) {
  std::unique_ptr<MetricsExposer> exposer(new MetricsExposer(metrics, registry));
  HttpServer::Handlers handlers = PageHandlers(&exposer->page_data_);
  handlers["/metrics"] = [reader = exposer->reader_.get()](const HttpRequest&, HttpAnswer* answer) {
    answer->content_type = kTextFormat;
    answer->body += prometheus::TextSerializer().Serialize(reader->Collect());
  };
  if (cgroup_metrics.has_value()) {
    exposer->cgroups_ = std::make_unique<CgroupMetrics>(*cgroup_metrics, registry);
    handlers["/metrics/cgroups"] = [cgroups = exposer->cgroups_.get()](const HttpRequest&,
                                                                       HttpAnswer* answer) {
      answer->content_type = kTextFormat;
      cgroups->Render(&answer->body);
    };
  }
  auto http = HttpServer::Start(address, std::move(handlers));
  if (!http.ok()) return http.status();
  exposer->http_ = *std::move(http);
  return exposer;
}

}  // namespace memcgd::server
