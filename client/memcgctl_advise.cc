// memcgctl advise: the smallest memory.max that holds, for each cgroup.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_sweep.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

constexpr uint64_t kUnit = 1 << 20;  // limits are advised in MiB
// Points of a cgroup in a round: each round leaves an eighth of the range.
constexpr uint64_t kPointsOfARound = 7;
// What the server looks at in a point, and how many cgroups a round is about: their points, with a look at
// each of them, stay within what it answers at a time.
constexpr size_t kMostCgroups = 1024;
constexpr int kCgroupsOfARound = 64;

struct AdviseFlags {
  SweepFlags sweep;
  std::string cgroup;
  double max_refaults_per_second = 10;
  bool no_oom = true;
  std::string format;
};

// Which cgroups had a process in them, from the events themselves.
class ProcessGroups {
 public:
  void See(const v1::Batch& batch) {
    for (const v1::SideEvent& side : batch.side()) {
      if (side.has_define_path()) paths_[side.define_path().handle()] = side.define_path().path();
      if (side.has_cgroup_attach()) Add(side.cgroup_attach().path());
      if (side.has_baseline_process()) Add(side.baseline_process().cgroup());
    }
  }
  // The root has no limit.
  const std::set<std::string>& paths() const { return with_process_; }

 private:
  void Add(uint32_t handle) {
    const auto at = paths_.find(handle);
    if (at != paths_.end() && at->second != "/") with_process_.insert(at->second);
  }

  std::map<uint32_t, std::string> paths_;
  std::set<std::string> with_process_;
};

// A cgroup's search, in units.
struct Search {
  std::string path;
  uint64_t fails = 0;  // the largest that is known not to hold; nothing holds with 0
  uint64_t holds = 0;  // the smallest that is known to hold, and so are all larger ones that were tried
  v1::CgroupResult without_limit;
  v1::CgroupResult at_limit;

  bool done() const { return holds - fails <= std::max<uint64_t>(1, holds / 64); }
};

class AdviseCommand {
 public:
  AdviseCommand(Context* context, const Server& server, const AdviseFlags& flags)
      : context_(*context), server_(server), flags_(flags), sweep_(context, server, flags.sweep) {}

  int Run() {
    ProcessGroups groups;
    if (const auto failed = sweep_.Load([&groups](const v1::Batch& batch) { groups.See(batch); }))
      return *failed;
    if (const auto failed = Begin(groups.paths())) return *failed;
    while (std::any_of(searches_.begin(), searches_.end(), [](const Search& one) { return !one.done(); })) {
      if (const auto failed = Round()) return *failed;
    }
    const std::string format = !flags_.format.empty() ? flags_.format : context_.output;
    const int code = Finish(&context_, format == "yaml" ? Yaml() : format == "json" ? Json() : TableText());
    if (code == kExitOk && format == "table") PrintNote(kSweepBound);
    return code;
  }

 private:
  // What each cgroup takes without a limit.
  std::optional<int> Begin(std::set<std::string> paths) {
    if (!flags_.cgroup.empty()) {
      paths = {flags_.cgroup};
    } else if (!flags_.sweep.node.empty()) {
      absl::StatusOr<std::vector<v1::Cgroup>> there = NodeClient(server_).ListCgroups(flags_.sweep.node, "");
      if (!there.ok()) return FailWith(there.status());
      for (const v1::Cgroup& cgroup : *there) {
        if (cgroup.processes() != 0 && cgroup.path() != "/") paths.insert(cgroup.path());
      }
    }
    if (paths.empty()) {
      PrintWarning("no cgroup but the root has a process in the trace: there is nothing to advise");
      return std::nullopt;
    }
    if (paths.size() > kMostCgroups) {
      return FailUsage(absl::InvalidArgumentError(
          absl::StrCat(paths.size(), " cgroups have a process; at most ", kMostCgroups,
                       " are advised at a time: name one with --cgroup")));
    }
    v1::SweepPoints points;
    *points.add_points() = sweep_.Base();
    for (const std::string& path : paths) points.add_cgroups(path);
    std::vector<v1::PointResult> results;
    if (const auto failed = sweep_.Run(points, &results)) return failed;
    for (const v1::CgroupResult& result : results[0].cgroups()) {
      Search search;
      search.path = result.path();
      search.holds = result.peak_bytes() / kUnit + 1;
      search.without_limit = search.at_limit = result;
      if (IsHopeless(search)) search.fails = search.holds;
      searches_.push_back(std::move(search));
    }
    return std::nullopt;
  }

  // Some points between what fails and what holds, of each cgroup that is not done.
  std::optional<int> Round() {
    struct Try {
      Search* search;
      uint64_t limit;
    };
    std::vector<Try> tries;
    v1::SweepPoints points;
    for (Search& search : searches_) {
      if (search.done()) continue;
      if (points.cgroups_size() == kCgroupsOfARound) break;
      points.add_cgroups(search.path);
      const uint64_t range = search.holds - search.fails;
      for (uint64_t i = 1; i <= std::min(kPointsOfARound, range - 1); ++i) {
        const uint64_t limit = search.fails + range * i / (std::min(kPointsOfARound, range - 1) + 1);
        v1::Point point = sweep_.Base();
        AddKnob(search.path, "memory.max", absl::StrCat(limit * kUnit), &point);
        *points.add_points() = std::move(point);
        tries.push_back({&search, limit});
      }
    }
    std::vector<v1::PointResult> results;
    if (const auto failed = sweep_.Run(points, &results)) return failed;
    // From the largest down, each cgroup until its first that fails.
    for (size_t i = tries.size(); i-- > 0;) {
      Search& search = *tries[i].search;
      const auto& all = results[i].cgroups();
      const auto at = std::find_if(all.begin(), all.end(),
                                   [&](const v1::CgroupResult& one) { return one.path() == search.path; });
      if (tries[i].limit <= search.fails) continue;
      if (Holds(*at)) {
        search.holds = tries[i].limit;
        search.at_limit = *at;
      } else {
        search.fails = tries[i].limit;
      }
    }
    return std::nullopt;
  }

  double RefaultsPerSecond(const v1::CgroupResult& result) const {
    const auto refaults = static_cast<double>(result.refaults_file() + result.refaults_anon());
    return sweep_.seconds() > 0 ? refaults / sweep_.seconds() : refaults;
  }

  bool Holds(const v1::CgroupResult& result) const {
    return RefaultsPerSecond(result) <= flags_.max_refaults_per_second &&
           (!flags_.no_oom || result.oom_kills() == 0);
  }

  // Without a limit it refaults already, or is killed: a limit does not help.
  bool IsHopeless(const Search& search) const { return !Holds(search.without_limit); }

  std::string TableText() const {
    Table table({"cgroup", "memory.max", "peak without", "refaults/s", "refaults/s without", "oom_kill"});
    for (const Search& search : searches_) {
      table.AddRow({search.path, IsHopeless(search) ? "none holds" : absl::StrCat(search.holds, " MiB"),
                    HumanBytes(static_cast<int64_t>(search.without_limit.peak_bytes())),
                    absl::StrFormat("%.1f", RefaultsPerSecond(search.at_limit)),
                    absl::StrFormat("%.1f", RefaultsPerSecond(search.without_limit)),
                    absl::StrCat(search.at_limit.oom_kills())});
    }
    return table.Text();
  }

  std::string Json() const {
    const auto cgroup = [this](std::string* to, const Search& search) {
      absl::StrAppend(to, JsonString(search.path),
                      ": {\"memory_max\": ", IsHopeless(search) ? "null" : absl::StrCat(search.holds * kUnit),
                      ", \"peak_without_limit\": ", search.without_limit.peak_bytes(),
                      absl::StrFormat(", \"refaults_per_second\": %.3f", RefaultsPerSecond(search.at_limit)),
                      absl::StrFormat(", \"refaults_per_second_without_limit\": %.3f",
                                      RefaultsPerSecond(search.without_limit)),
                      ", \"oom_kills\": ", search.at_limit.oom_kills(), "}");
    };
    return absl::StrCat(absl::StrFormat("{\"events\": %d, \"seconds\": %.6f,\n \"cgroups\": {",
                                        sweep_.events(), sweep_.seconds()),
                        absl::StrJoin(searches_, ",\n  ", cgroup),
                        "},\n \"bound\": ", JsonString(kSweepBound), "}\n");
  }

  // By cgroup, what a container's `resources:` are to be.
  std::string Yaml() const {
    std::string yaml = absl::StrCat("# ", kSweepBound, "\n");
    if (searches_.empty()) absl::StrAppend(&yaml, "{}\n");
    for (const Search& search : searches_) {
      absl::StrAppend(&yaml, JsonString(search.path), ":\n");  // JSON's strings are YAML's too
      if (IsHopeless(search)) {
        absl::StrAppend(
            &yaml, "  # no memory.max holds: without one it misses the bound already\n  resources: {}\n");
        continue;
      }
      absl::StrAppend(&yaml, "  resources:\n    requests:\n      memory: ", search.holds,
                      "Mi\n    limits:\n      memory: ", search.holds, "Mi\n");
    }
    return yaml;
  }

  Context& context_;
  const Server server_;
  const AdviseFlags& flags_;
  TraceSweep sweep_;
  std::vector<Search> searches_;
};

}  // namespace

void AddAdviseCommand(CLI::App* app, Context* context) {
  CLI::App* command =
      app->add_subcommand("advise", "Find the smallest memory.max that holds for each cgroup of a trace");
  command->footer(
      "Runs the trace under one limit after the other, by bisection, one cgroup at a time limited.  A limit "
      "holds\n"
      "where refaults stay within --max-refaults-per-second and nothing is killed.");
  auto flags = std::make_shared<AdviseFlags>();
  flags->sweep.AddTo(command);
  command->add_option("--cgroup", flags->cgroup, "Only this one [all that have a process]")
      ->type_name("PATH");
  command
      ->add_option("--max-refaults-per-second", flags->max_refaults_per_second,
                   "Most refaults, of files and anonymous memory, in a second of the trace")
      ->type_name("R")
      ->check(CLI::Range(0.0, 1e9).description(""))
      ->capture_default_str();
  command->add_flag("--no-oom,!--allow-oom", flags->no_oom,
                    "No limit holds under which something is killed [so it is]; --allow-oom: it may hold");
  AddChoice(command, "--format", &flags->format, {"table", "json", "yaml"},
            "yaml: `resources:` of Kubernetes for each cgroup [as -o says]");
  SetCommand(command, context, [context, flags](NodeClient* client) {
    return AdviseCommand(context, client->server(), *flags).Run();
  });
}

}  // namespace memcgd::client
