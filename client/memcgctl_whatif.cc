// memcgctl whatif: one trace under many knobs.
#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_sweep.h"
#include "client/whatif_plot.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

constexpr size_t kMostPoints = 4095;  // the server's, less the first, which changes nothing

struct KnobFlag {
  const char* flag;
  const char* knob;
  const char* type;
  const char* help;
};
constexpr KnobFlag kKnobFlags[] = {
    {"--memory-max", "memory.max", "SIZE,SIZE…", "Values of memory.max"},
    {"--memory-high", "memory.high", "SIZE,SIZE…", "Values of memory.high"},
    {"--memory-low", "memory.low", "SIZE,SIZE…", "Values of memory.low"},
    {"--memory-min", "memory.min", "SIZE,SIZE…", "Values of memory.min"},
    {"--swap-max", "memory.swap.max", "SIZE,SIZE…", "Values of memory.swap.max"},
    {"--swappiness", "memory.swappiness", "N,N…", "Values of memory.swappiness, 0 to 200"},
};

struct WhatIfFlags {
  SweepFlags sweep;
  std::string cgroup;
  std::vector<std::string> show;
  std::vector<std::string> values[std::size(kKnobFlags)];
  std::string plot;
};

// Values by knob, in the order of kKnobFlags.
using Knobs = std::vector<std::pair<std::string, std::string>>;

// All combinations; the knob that comes first changes slowest.
std::vector<Knobs> Combinations(const WhatIfFlags& flags) {
  std::vector<Knobs> all = {{}};
  for (size_t i = 0; i < std::size(kKnobFlags); ++i) {
    if (flags.values[i].empty()) continue;
    std::vector<Knobs> longer;
    for (const Knobs& knobs : all) {
      for (const std::string& value : flags.values[i]) {
        longer.push_back(knobs);
        longer.back().emplace_back(kKnobFlags[i].knob, value);
        if (longer.size() > kMostPoints) return longer;
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string ResultJson(const v1::CgroupResult& result) {
  return absl::StrCat(
      "{\"peak\": ", result.peak_bytes(), ", \"usage\": ", result.usage_bytes(),
      ", \"refaults_file\": ", result.refaults_file(), ", \"refaults_anon\": ", result.refaults_anon(),
      ", \"major_faults\": ", result.major_faults(), ", \"pgscan\": ", result.pgscan(),
      ", \"pgsteal\": ", result.pgsteal(), ", \"high_events\": ", result.high_events(),
      ", \"high_delay_us\": ", result.high_delay_us(), ", \"max_events\": ", result.max_events(),
      ", \"oom_kills\": ", result.oom_kills(), "}");
}

std::string CurveJson(const v1::MissRatioCurve& curve) {
  const auto point = [](std::string* to, const v1::MissRatioPoint& one) {
    absl::StrAppendFormat(to, "[%d, %.6g]", one.cache_bytes(), one.miss_ratio());
  };
  return absl::StrCat("{\"references\": ", curve.references(),
                      ", \"distinct_pages\": ", curve.distinct_pages(),
                      ", \"sampling_rate\": ", absl::StrFormat("%.6g", curve.sampling_rate()),
                      ", \"points\": [", absl::StrJoin(curve.points(), ", ", point), "]}");
}

class WhatIfCommand {
 public:
  WhatIfCommand(Context* context, const Server& server, const WhatIfFlags& flags)
      : context_(*context),
        flags_(flags),
        sweep_(context, server, flags.sweep),
        knobs_(Combinations(flags)) {}

  int Run() {
    if (knobs_.size() > kMostPoints) {
      return FailUsage(absl::InvalidArgumentError(
          absl::StrCat("more than ", kMostPoints, " combinations of values: give fewer, or sweep in parts")));
    }
    if (const auto failed = sweep_.Load([](const v1::Batch&) {})) return *failed;
    if (const auto failed = sweep_.Run(Points(), &results_)) return *failed;
    // The plot first: what cannot be written must not look done.
    if (!flags_.plot.empty()) {
      const absl::Status status = WritePlot();
      if (!status.ok()) {
        PrintError(std::string(status.message()));
        return kExitFailed;
      }
    }
    const int code = Finish(&context_, context_.json() ? Json() : TableText());
    if (code == kExitOk && !context_.json()) PrintNote(kSweepBound);
    return code;
  }

 private:
  v1::SweepPoints Points() const {
    v1::SweepPoints points;
    *points.add_points() = sweep_.Base();
    for (const Knobs& knobs : knobs_) {
      if (knobs.empty()) continue;  // no value was given: the first point is all
      v1::Point point = sweep_.Base();
      for (const auto& [knob, value] : knobs) AddKnob(flags_.cgroup, knob, value, &point);
      *points.add_points() = std::move(point);
    }
    points.add_cgroups(flags_.cgroup);
    for (const std::string& path : flags_.show) points.add_cgroups(path);
    points.set_miss_ratio(true);
    return points;
  }

  // The values of a point, "" for each where it is the first.
  std::vector<std::string> ValuesOf(size_t point) const {
    std::vector<std::string> values(knobs_.front().size(), "-");
    for (size_t i = 0; point > 0 && i < values.size(); ++i) values[i] = knobs_[point - 1][i].second;
    return values;
  }

  std::string TableText() const {
    std::vector<std::string> head;
    for (const auto& [knob, value] : knobs_.front()) head.push_back(knob);
    for (const char* column : {"cgroup", "peak", "usage", "refault_file", "refault_anon", "refaults/s",
                               "majfault", "pgscan", "pgsteal", "high delay", "oom_kill"}) {
      head.emplace_back(column);
    }
    Table table(std::move(head));
    for (size_t i = 0; i < results_.size(); ++i) {
      for (const v1::CgroupResult& result : results_[i].cgroups()) {
        std::vector<std::string> row = ValuesOf(i);
        const double refaults = static_cast<double>(result.refaults_file() + result.refaults_anon());
        row.push_back(result.path());
        row.push_back(HumanBytes(static_cast<int64_t>(result.peak_bytes())));
        row.push_back(HumanBytes(static_cast<int64_t>(result.usage_bytes())));
        row.push_back(absl::StrCat(result.refaults_file()));
        row.push_back(absl::StrCat(result.refaults_anon()));
        row.push_back(sweep_.seconds() > 0 ? absl::StrFormat("%.1f", refaults / sweep_.seconds()) : "-");
        row.push_back(absl::StrCat(result.major_faults()));
        row.push_back(absl::StrCat(result.pgscan()));
        row.push_back(absl::StrCat(result.pgsteal()));
        row.push_back(HumanTime(result.high_delay_us()));
        row.push_back(absl::StrCat(result.oom_kills()));
        table.AddRow(std::move(row));
      }
    }
    return table.Text();
  }

  std::string Json() const {
    std::string json = absl::StrFormat("{\"events\": %d, \"seconds\": %.6f, \"cgroup\": %s,\n \"points\": [",
                                       sweep_.events(), sweep_.seconds(), JsonString(flags_.cgroup));
    for (size_t i = 0; i < results_.size(); ++i) {
      std::vector<std::string> knobs, cgroups;
      for (const auto& [knob, value] : i == 0 ? Knobs() : knobs_[i - 1])
        knobs.push_back(absl::StrCat(JsonString(knob), ": ", JsonString(value)));
      for (const v1::CgroupResult& result : results_[i].cgroups())
        cgroups.push_back(absl::StrCat(JsonString(result.path()), ": ", ResultJson(result)));
      absl::StrAppend(&json, i == 0 ? "\n  " : ",\n  ", "{\"knobs\": {", absl::StrJoin(knobs, ", "),
                      "}, \"cgroups\": {", absl::StrJoin(cgroups, ", "), "}}");
    }
    std::vector<std::string> curves;
    for (const v1::CgroupResult& result : results_.front().cgroups()) {
      curves.push_back(absl::StrCat(JsonString(result.path()), ": ", CurveJson(result.miss_ratio())));
    }
    return absl::StrCat(json, "],\n \"miss_ratio\": {", absl::StrJoin(curves, ",\n  "),
                        "},\n \"bound\": ", JsonString(kSweepBound), "}\n");
  }

  absl::Status WritePlot() const {
    WhatIfPlot plot;
    plot.cgroup = flags_.cgroup;
    plot.trace = absl::StrJoin(flags_.sweep.files, ", ");
    plot.bound = kSweepBound;
    for (size_t i = 0; i < results_.size(); ++i) {
      plot.points.push_back({i == 0 ? Knobs() : knobs_[i - 1], results_[i].cgroups(0)});
    }
    const std::string svg = PlotWhatIf(plot);
    std::ofstream file(flags_.plot, std::ios::binary);
    file << (absl::EndsWith(flags_.plot, ".html")
                 ? HtmlAround("memcgctl whatif " + flags_.cgroup, svg, TableText())
                 : svg);
    file.close();
    if (file.fail()) return absl::UnknownError(absl::StrCat("cannot write ", flags_.plot));
    return absl::OkStatus();
  }

  Context& context_;
  const WhatIfFlags& flags_;
  TraceSweep sweep_;
  const std::vector<Knobs> knobs_;
  std::vector<v1::PointResult> results_;  // the first of no knobs
};

}  // namespace

void AddWhatIfCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("whatif", "Run a trace under other limits and compare what comes of it");
  command->footer(
      "A row for each combination of the values, the first without any of them.  Values are written to the\n"
      "cgroup as soon as the trace makes it.  Limits are met by modelled reclaim, swap and OOM.");
  auto flags = std::make_shared<WhatIfFlags>();
  flags->sweep.AddTo(command);
  command->add_option("--cgroup", flags->cgroup, "The cgroup whose knobs are written")
      ->required()
      ->type_name("PATH");
  command->add_option("--show", flags->show, "A further cgroup to show; again for more")->type_name("PATH");
  for (size_t i = 0; i < std::size(kKnobFlags); ++i) {
    command->add_option(kKnobFlags[i].flag, flags->values[i], kKnobFlags[i].help)
        ->type_name(kKnobFlags[i].type)
        ->delimiter(',');
  }
  command
      ->add_option("--plot", flags->plot, "Draw refaults and the miss-ratio curve into FILE.svg or FILE.html")
      ->type_name("FILE")
      ->check([](const std::string& file) {
        const bool known = absl::EndsWith(file, ".svg") || absl::EndsWith(file, ".html");
        return known ? std::string() : absl::StrCat(file, " ends neither in .svg nor in .html");
      });
  SetCommand(command, context, [context, flags](NodeClient* client) {
    return WhatIfCommand(context, client->server(), *flags).Run();
  });
}

}  // namespace memcgd::client
