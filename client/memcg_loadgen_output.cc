#include "client/memcg_loadgen_output.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_output.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using loadgen::CaseResult;
using loadgen::FormResult;
using loadgen::HarmonicMean;
using loadgen::Histogram;
using loadgen::Ratio;
using loadgen::TurnResult;
using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}};

std::string RateText(double rate) {
  if (rate >= 1e6) return absl::StrFormat("%.2f M", rate / 1e6);
  return rate >= 1e4 ? absl::StrFormat("%.1f k", rate / 1e3) : absl::StrFormat("%.0f", rate);
}

std::string TimeText(uint64_t ns) {
  const double us = static_cast<double>(ns) / 1e3;
  if (us < 1e3) return absl::StrFormat("%.1f µs", us);
  return us < 1e6 ? absl::StrFormat("%.2f ms", us / 1e3) : absl::StrFormat("%.2f s", us / 1e6);
}

std::string RatioText(const Ratio& ratio) { return absl::StrFormat("%.3f", ratio.median); }
std::string SpreadText(const Ratio& ratio) { return absl::StrFormat("%.3f – %.3f", ratio.min, ratio.max); }

double Mean(const std::vector<TurnResult>& turns, double (*value)(const TurnResult&)) {
  double sum = 0;
  for (const TurnResult& turn : turns) sum += value(turn);
  return turns.empty() ? 0 : sum / static_cast<double>(turns.size());
}

double OwnCpus(const TurnResult& turn) { return turn.seconds > 0 ? turn.own_cpu_seconds / turn.seconds : 0; }
double ServerCpus(const TurnResult& turn) {
  return turn.seconds > 0 ? turn.server_cpu_seconds.value_or(0) / turn.seconds : 0;
}
// The time that reads of memory.stat took, as a share of the time that went by: at most this much of a CPU.
double PollShare(const TurnResult& turn) { return turn.seconds > 0 ? turn.poll_seconds / turn.seconds : 0; }

bool ServerCpuKnown(const LoadgenRun& run) {
  for (const CaseResult& result : run.results) {
    for (const FormResult& form : result.forms) {
      if (!form.UnitsPerCpuSecond().empty()) return true;
    }
  }
  return false;
}

// Calls row(case, form, cells) for each form that was measured, the cells beginning with its names.
template <typename Row>
void ForRows(const LoadgenRun& run, Row row) {
  for (const CaseResult& result : run.results) {
    for (const FormResult& form : result.forms) {
      if (form.turns.empty()) continue;
      std::vector<std::string> cells = {result.measured.label};
      if (!run.compared.empty()) cells.push_back(form.form);
      row(result, form, std::move(cells));
    }
  }
}

std::vector<std::string> Head(const LoadgenRun& run, std::vector<std::string> more) {
  std::vector<std::string> head = {"case"};
  if (!run.compared.empty()) head.push_back(run.compared);
  head.insert(head.end(), more.begin(), more.end());
  return head;
}

std::string ThroughputTable(const LoadgenRun& run) {
  const std::string unit(run.experiment.unit);
  const bool cpu_known = ServerCpuKnown(run);
  std::vector<std::string> head = {absl::StrCat(unit, "/s")};
  if (cpu_known) head.insert(head.end(), {absl::StrCat(unit, "/CPU s"), "server CPUs"});
  if (unit != "events") head.push_back("events/s");
  head.insert(head.end(), {"own CPUs", "not OK", "turns"});
  Table table(Head(run, head));
  ForRows(run, [&](const CaseResult&, const FormResult& form, std::vector<std::string> cells) {
    std::vector<double> events;
    for (const TurnResult& turn : form.turns) events.push_back(turn.EventsPerSecond());
    cells.push_back(RateText(HarmonicMean(form.UnitsPerSecond())));
    if (cpu_known) {
      const std::vector<double> rates = form.UnitsPerCpuSecond();
      cells.push_back(rates.empty() ? "-" : RateText(HarmonicMean(rates)));
      cells.push_back(rates.empty() ? "-" : absl::StrFormat("%.2f", Mean(form.turns, ServerCpus)));
    }
    if (unit != "events") cells.push_back(RateText(HarmonicMean(events)));
    cells.push_back(absl::StrFormat("%.2f", Mean(form.turns, OwnCpus)));
    cells.push_back(absl::StrCat(form.NotOk()));
    cells.push_back(absl::StrCat(form.turns.size()));
    table.AddRow(std::move(cells));
  });
  return absl::StrCat("Throughput (harmonic means)\n", table.Text());
}

std::string LatencyTable(const LoadgenRun& run) {
  Table table(Head(run, {"p50", "p90", "p99", "p99.9", "max", "batches"}));
  ForRows(run, [&](const CaseResult&, const FormResult& form, std::vector<std::string> cells) {
    const Histogram latency = form.Latency();
    for (const auto& [name, percent] : kPercentiles) cells.push_back(TimeText(latency.Percentile(percent)));
    cells.push_back(TimeText(latency.max()));
    cells.push_back(absl::StrCat(latency.count()));
    table.AddRow(std::move(cells));
  });
  return absl::StrCat("\nLatency of a batch, from ", run.options.rate > 0 ? "the time it was due" : "sending",
                      " to its acknowledgement\n", table.Text());
}

// The same case without reads.
const FormResult* Unpolled(const LoadgenRun& run, const CaseResult& polled, const std::string& form) {
  for (const CaseResult& result : run.results) {
    if (result.measured.polls != 0 || result.measured.cgroups != polled.measured.cgroups ||
        result.measured.streams != polled.measured.streams) {
      continue;
    }
    for (const FormResult& one : result.forms) {
      if (one.form == form && !one.turns.empty()) return &one;
    }
  }
  return nullptr;
}

// How much less a writer gets done than without reads: by CPU time of the server where that is known.
std::string SlowDown(const FormResult* without, const FormResult& with, bool by_cpu) {
  const auto rate = [by_cpu](const FormResult& form) {
    return HarmonicMean(by_cpu ? form.UnitsPerCpuSecond() : form.UnitsPerSecond());
  };
  if (without == nullptr || rate(*without) <= 0) return "-";
  return absl::StrFormat("%.2f %%", 100 * (1 - rate(with) / rate(*without)));
}

std::string PollTable(const LoadgenRun& run) {
  const bool cpu_known = ServerCpuKnown(run);
  Table table(Head(run, {"reads", "p50", "p99", "max", "of a CPU, at most",
                         cpu_known ? "writer's slow-down (CPU)" : "writer's slow-down"}));
  bool any = false;
  ForRows(run, [&](const CaseResult& result, const FormResult& form, std::vector<std::string> cells) {
    if (result.measured.polls == 0) return;
    any = true;
    const Histogram polls = form.Polls();
    cells.push_back(absl::StrCat(polls.count()));
    for (double percent : {50.0, 99.0}) cells.push_back(TimeText(polls.Percentile(percent)));
    cells.push_back(TimeText(polls.max()));
    cells.push_back(absl::StrFormat("%.3f %%", 100 * Mean(form.turns, PollShare)));
    cells.push_back(SlowDown(Unpolled(run, result, form.form), form, cpu_known));
    table.AddRow(std::move(cells));
  });
  return any ? absl::StrCat("\nReads of memory.stat beside it\n", table.Text()) : "";
}

// Counters that stayed 0 in all rows are left out.
std::string CounterTable(const LoadgenRun& run) {
  std::set<std::string> counted;
  ForRows(run, [&](const CaseResult&, const FormResult& form, const std::vector<std::string>&) {
    for (const TurnResult& turn : form.turns) {
      for (const auto& [counter, value] : turn.counters_per_unit) {
        if (value > 0) counted.insert(counter);
      }
    }
  });
  if (counted.empty()) return "";
  Table table(Head(run, {counted.begin(), counted.end()}));
  ForRows(run, [&](const CaseResult&, const FormResult& form, std::vector<std::string> cells) {
    for (const std::string& counter : counted) {
      double sum = 0;
      for (const TurnResult& turn : form.turns) {
        const auto found = turn.counters_per_unit.find(counter);
        if (found != turn.counters_per_unit.end()) sum += found->second;
      }
      cells.push_back(absl::StrFormat("%.4g", sum / static_cast<double>(form.turns.size())));
    }
    table.AddRow(std::move(cells));
  });
  return absl::StrCat("\nCounters of the mechanisms, for each of the ", std::string(run.experiment.unit),
                      "\n", table.Text());
}

std::string RatioTable(const LoadgenRun& run) {
  if (run.compared.empty()) return "";
  const std::string unit(run.experiment.unit);
  const bool cpu_known = ServerCpuKnown(run);
  std::vector<std::string> head = {"case", absl::StrCat(unit, "/s"), "min – max"};
  if (cpu_known) head.insert(head.end(), {absl::StrCat(unit, "/CPU s"), "min – max"});
  head.push_back("pairs");
  Table table(head);
  bool any = false;
  std::string newer, older;
  for (const CaseResult& result : run.results) {
    const std::optional<Ratio> wall = result.PerSecond(), cpu = result.PerCpuSecond();
    if (!wall.has_value()) continue;
    any = true;
    older = result.forms[0].form;
    newer = result.forms[1].form;
    std::vector<std::string> cells = {result.measured.label, RatioText(*wall), SpreadText(*wall)};
    if (cpu_known) {
      cells.push_back(cpu.has_value() ? RatioText(*cpu) : "-");
      cells.push_back(cpu.has_value() ? SpreadText(*cpu) : "-");
    }
    cells.push_back(absl::StrCat(wall->pairs));
    table.AddRow(std::move(cells));
  }
  return any ? absl::StrCat("\nRatio ", newer, " / ", older, " (median of the pairs)\n", table.Text()) : "";
}

// Outcomes that are not OK, over all turns.
std::string OutcomeLine(const LoadgenRun& run) {
  std::vector<uint64_t> sums(v1::Outcome_ARRAYSIZE);
  for (const CaseResult& result : run.results) {
    for (const FormResult& form : result.forms) {
      for (const TurnResult& turn : form.turns) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += turn.outcomes[i];
      }
    }
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (i == v1::OUTCOME_OK || sums[i] == 0) continue;
    parts.push_back(absl::StrCat(
        sums[i], " ", v1::Outcome_Name(static_cast<v1::Outcome>(i)).substr(sizeof("OUTCOME_") - 1)));
  }
  return parts.empty() ? "" : absl::StrCat("\nNot OK: ", absl::StrJoin(parts, ", "), "\n");
}

std::string NumaText(int node) { return node < 0 ? "unknown" : absl::StrCat(node); }

// Of the case with the most workers.
std::string Places(const LoadgenRun& run) {
  const std::vector<loadgen::WorkerPlace>* most = nullptr;
  for (const CaseResult& result : run.results) {
    for (const FormResult& form : result.forms) {
      for (const TurnResult& turn : form.turns) {
        if (most == nullptr || turn.places.size() > most->size()) most = &turn.places;
      }
    }
  }
  if (most == nullptr) return "";
  std::map<uint32_t, std::vector<std::string>> on;
  std::map<uint32_t, int> node;
  for (const loadgen::WorkerPlace& place : *most) {
    on[place.cpu].push_back(absl::StrCat(place.worker));
    node[place.cpu] = place.numa_node;
  }
  std::string text;
  if (most->size() > on.size()) {
    text = absl::StrCat("up to ", most->size(), " workers on ", on.size(), on.size() == 1 ? " CPU" : " CPUs",
                        ", several to a CPU\n");
  }
  for (const auto& [cpu, workers] : on) {
    const bool many = workers.size() > 12;
    absl::StrAppend(&text, "CPU ", cpu, " (NUMA node ", NumaText(node[cpu]), "): ",
                    many ? absl::StrCat(workers.size(), " workers")
                         : absl::StrCat("worker ", absl::StrJoin(workers, ", ")),
                    "\n");
  }
  return text;
}

std::string Heading(const LoadgenRun& run) {
  const loadgen::TurnOptions& options = run.options;
  std::string loop = options.rate > 0
                         ? absl::StrFormat("open loop, %s events/s", RateText(options.rate))
                         : absl::StrCat("closed loop, ", options.window, " batches on their way");
  std::vector<std::string> forms;
  for (const auto& [name, form] : run.forms) forms.push_back(absl::StrCat(name, "=", form));
  return absl::StrCat(
      std::string(run.experiment.name), ": ", loop, ", batches of ", options.batch_events, " events, ",
      absl::StrFormat("%g s after %g s of warm-up, ", options.duration_seconds, options.warmup_seconds),
      options.nodes, options.nodes == 1 ? " node" : " nodes", ", seed ", options.seed,
      forms.empty() ? "" : absl::StrCat(", ", absl::StrJoin(forms, ", ")),
      run.interrupted ? " (interrupted)" : "", "\n");
}

Json LatencyJson(const Histogram& latency) {
  Json json = {{"count", latency.count()}, {"mean_ns", latency.Mean()}};
  for (const auto& [name, percent] : kPercentiles) {
    json[absl::StrCat(name, "_ns")] = latency.Percentile(percent);
  }
  json["max_ns"] = latency.max();
  return json;
}

Json TurnJson(const TurnResult& turn) {
  Json json = {{"seconds", turn.seconds},
               {"events", turn.events},
               {"units", turn.units},
               {"batches", turn.batches},
               {"events_per_second", turn.EventsPerSecond()},
               {"units_per_second", turn.UnitsPerSecond()},
               {"own_cpu_seconds", turn.own_cpu_seconds},
               {"server_cpu_seconds", nullptr},
               {"units_per_server_cpu_second", nullptr},
               {"latency", LatencyJson(turn.latency_ns)}};
  if (turn.server_cpu_seconds.has_value()) json["server_cpu_seconds"] = *turn.server_cpu_seconds;
  if (turn.UnitsPerCpuSecond().has_value()) json["units_per_server_cpu_second"] = *turn.UnitsPerCpuSecond();
  if (turn.polls != 0) json["reads"] = LatencyJson(turn.poll_ns);
  Json outcomes = Json::object();
  for (size_t i = 0; i < turn.outcomes.size(); ++i) {
    if (turn.outcomes[i] == 0) continue;
    outcomes[v1::Outcome_Name(static_cast<v1::Outcome>(i)).substr(sizeof("OUTCOME_") - 1)] = turn.outcomes[i];
  }
  json["outcomes"] = outcomes;
  if (!turn.counters_per_unit.empty()) json["mechanism_counters_per_unit"] = turn.counters_per_unit;
  Json places = Json::array();
  for (const loadgen::WorkerPlace& place : turn.places) {
    places.push_back({{"worker", place.worker}, {"cpu", place.cpu}, {"numa_node", place.numa_node}});
  }
  json["workers"] = places;
  return json;
}

Json RatioJson(const std::optional<Ratio>& ratio) {
  if (!ratio.has_value()) return nullptr;
  return {{"median", ratio->median}, {"min", ratio->min}, {"max", ratio->max}, {"pairs", ratio->pairs}};
}

Json CaseJson(const CaseResult& result) {
  Json json = {
      {"case", result.measured.label}, {"x", result.measured.x}, {"streams", result.measured.streams}};
  Json forms = Json::array();
  for (const FormResult& form : result.forms) {
    Json one = Json::object();
    if (!form.form.empty()) one["form"] = form.form;
    one["units_per_second_hmean"] = HarmonicMean(form.UnitsPerSecond());
    const std::vector<double> per_cpu = form.UnitsPerCpuSecond();
    one["units_per_server_cpu_second_hmean"] = per_cpu.empty() ? Json(nullptr) : Json(HarmonicMean(per_cpu));
    one["latency"] = LatencyJson(form.Latency());
    one["turns"] = Json::array();
    for (const TurnResult& turn : form.turns) one["turns"].push_back(TurnJson(turn));
    forms.push_back(one);
  }
  json["forms"] = forms;
  if (result.forms.size() == 2) {
    json["ratio_per_second"] = RatioJson(result.PerSecond());
    json["ratio_per_server_cpu_second"] = RatioJson(result.PerCpuSecond());
  }
  return json;
}

}  // namespace

std::string LoadgenText(const LoadgenRun& run) {
  return absl::StrCat(Heading(run), Places(run), "\n", ThroughputTable(run), LatencyTable(run),
                      PollTable(run), CounterTable(run), RatioTable(run), OutcomeLine(run));
}

std::string LoadgenJson(const LoadgenRun& run) {
  const loadgen::TurnOptions& options = run.options;
  Json json = {{"experiment", std::string(run.experiment.name)},
               {"unit", std::string(run.experiment.unit)},
               {"interrupted", run.interrupted},
               {"batch_events", options.batch_events},
               {"nodes", options.nodes},
               {"rate", options.rate},
               {"window", options.window},
               {"duration_seconds", options.duration_seconds},
               {"warmup_seconds", options.warmup_seconds},
               {"seed", options.seed},
               {"cpus", options.cpus},
               {"compared", run.compared.empty() ? Json(nullptr) : Json(run.compared)},
               {"mechanisms", run.forms}};
  json["cases"] = Json::array();
  for (const CaseResult& result : run.results) json["cases"].push_back(CaseJson(result));
  return json.dump(2) + "\n";
}

}  // namespace memcgd::client
