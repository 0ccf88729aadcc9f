// memcgctl cgroup ls|tree|get|stat|events|peak|create|set|reclaim|delete.
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/amount.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using Cgroups = std::vector<v1::Cgroup>;

struct CgroupFlags {
  std::string node;
  std::string path;
  std::vector<std::string> knobs;  // NAME=VALUE
  std::string format;              // empty: as -o says
  bool local = false;
  bool v1_names = false;
  bool fast = false;
  bool swap = false;
  std::string amount;      // of reclaim: "100M", or "100M swappiness=60"
  std::string swappiness;  // 0 to 200, or max; empty: the cgroups' own
  double every_seconds = 1;
  uint64_t count = 0;
};

int PrintCgroup(Context* context, const v1::Cgroup& cgroup) {
  return Finish(context, context->json() ? CgroupJson(cgroup) + "\n" : CgroupTable(cgroup));
}

absl::StatusOr<Cgroups> CgroupsOf(NodeClient* client, const CgroupFlags& flags) {
  return client->ListCgroups(flags.node, flags.path == "/" ? "" : flags.path);
}

std::string CgroupsJson(const Cgroups& cgroups) {
  const auto json = [](std::string* to, const v1::Cgroup& cgroup) { to->append(CgroupJson(cgroup)); };
  return absl::StrCat("[", absl::StrJoin(cgroups, ",\n ", json), "]\n");
}

int ListCgroups(NodeClient* client, Context* context, const CgroupFlags& flags) {
  absl::StatusOr<Cgroups> cgroups = CgroupsOf(client, flags);
  if (!cgroups.ok()) return FailWith(cgroups.status());
  return Finish(context, context->json() ? CgroupsJson(*cgroups) : CgroupListTable(*cgroups));
}

int DrawTree(NodeClient* client, Context* context, const CgroupFlags& flags) {
  absl::StatusOr<Cgroups> cgroups = CgroupsOf(client, flags);
  if (!cgroups.ok()) return FailWith(cgroups.status());
  return Finish(context, context->json() ? CgroupsJson(*cgroups) : CgroupTree(*cgroups));
}

int GetCgroup(NodeClient* client, Context* context, const CgroupFlags& flags) {
  absl::StatusOr<v1::Cgroup> cgroup = client->GetCgroup(flags.node, flags.path);
  return cgroup.ok() ? PrintCgroup(context, *cgroup) : FailWith(cgroup.status());
}

int CreateCgroup(NodeClient* client, Context* context, const CgroupFlags& flags) {
  absl::StatusOr<v1::Cgroup> cgroup = client->CreateCgroup(flags.node, flags.path);
  return cgroup.ok() ? PrintCgroup(context, *cgroup) : FailWith(cgroup.status());
}

int SetKnobs(NodeClient* client, Context* context, const CgroupFlags& flags) {
  std::map<std::string, std::string> knobs;
  for (const std::string& knob : flags.knobs) {
    const size_t equals = knob.find('=');  // checked to be there when the flags were read
    if (knob.substr(0, equals) == "memory.reclaim") {
      return FailUsage(absl::InvalidArgumentError(
          "memory.reclaim is no knob that keeps its value: memcgctl cgroup reclaim PATH SIZE"));
    }
    if (!knobs.emplace(knob.substr(0, equals), knob.substr(equals + 1)).second) {
      return FailUsage(absl::InvalidArgumentError(absl::StrCat(knob.substr(0, equals), " is given twice")));
    }
  }
  absl::StatusOr<v1::Cgroup> cgroup = client->SetKnobs(flags.node, flags.path, knobs);
  return cgroup.ok() ? PrintCgroup(context, *cgroup) : FailWith(cgroup.status());
}

int DeleteCgroup(NodeClient* client, Context* /*context*/, const CgroupFlags& flags) {
  const absl::Status status = client->DeleteCgroup(flags.node, flags.path);
  return status.ok() ? kExitOk : FailWith(status);
}

std::string StatJson(const std::string& path, const v1::ReadCgroupResponse& reading) {
  std::string json = absl::StrCat("{\"path\": ", JsonString(path));
  if (reading.has_current_bytes()) absl::StrAppend(&json, ", \"current\": ", reading.current_bytes());
  absl::StrAppend(
      &json, ", \"peak\": ", reading.peak_bytes(), ", \"swap_current\": ", reading.swap_current_bytes(),
      ", \"swap_peak\": ", reading.swap_peak_bytes(), ", \"high_delay_us\": ", reading.high_delay_us());
  if (reading.has_root_usage()) {
    absl::StrAppend(&json, ", \"anon_and_file\": ", reading.root_usage().anon_and_file_bytes(),
                    ", \"total_less_free\": ", reading.root_usage().total_less_free_bytes());
  }
  absl::StrAppend(&json, ", \"error_bound\": ", reading.error_bound());
  return absl::StrCat(json, ", \"stat\": ", ItemsJson(reading.stat()), "}\n");
}

std::string StatTable(const v1::ReadCgroupResponse& reading) {
  std::string text;
  const auto line = [&text](const char* name, uint64_t bytes) {
    absl::StrAppend(&text, name, " ", HumanBytes(static_cast<int64_t>(bytes)), "\n");
  };
  if (reading.has_current_bytes()) line("memory.current:", reading.current_bytes());
  line("memory.peak:", reading.peak_bytes());
  line("memory.swap.current:", reading.swap_current_bytes());
  line("memory.swap.peak:", reading.swap_peak_bytes());
  absl::StrAppend(&text, "delay at memory.high: ", HumanTime(reading.high_delay_us()), "\n");
  if (reading.has_root_usage()) {
    line("anon + file:", reading.root_usage().anon_and_file_bytes());
    line("total - free:", reading.root_usage().total_less_free_bytes());
  }
  if (reading.error_bound() != 0) {
    absl::StrAppend(&text, "each line within: ", reading.error_bound(), " pages or counts\n");
  }
  return absl::StrCat(text, "\n", ItemsTable(reading.stat(), /*bytes_too=*/true));
}

std::string EventsJson(const std::string& path, const v1::ReadCgroupResponse& reading) {
  return absl::StrCat("{\"path\": ", JsonString(path), ", \"events\": ", ItemsJson(reading.events()),
                      ", \"swap_events\": ", ItemsJson(reading.swap_events()), "}\n");
}

// memory.events, or memory.swap.events where --swap asks for it.
const auto& EventsOf(const v1::ReadCgroupResponse& reading, const CgroupFlags& flags) {
  return flags.swap ? reading.swap_events() : reading.events();
}

absl::StatusOr<v1::ReadCgroupResponse> Read(NodeClient* client, const CgroupFlags& flags) {
  return client->ReadCgroup(flags.node, flags.path, flags.local,
                            flags.v1_names ? v1::NAME_STYLE_V1 : v1::NAME_STYLE_V2, flags.fast);
}

int ReadStat(NodeClient* client, Context* context, const CgroupFlags& flags) {
  absl::StatusOr<v1::ReadCgroupResponse> reading = Read(client, flags);
  if (!reading.ok()) return FailWith(reading.status());
  const std::string& format = flags.format.empty() ? context->output : flags.format;
  return Finish(context, format == "kernel" ? KernelText(reading->stat())
                         : format == "json" ? StatJson(flags.path, *reading)
                                            : StatTable(*reading));
}

int ReadEvents(NodeClient* client, Context* context, const CgroupFlags& flags) {
  absl::StatusOr<v1::ReadCgroupResponse> reading = Read(client, flags);
  if (!reading.ok()) return FailWith(reading.status());
  const std::string& format = flags.format.empty() ? context->output : flags.format;
  return Finish(context, format == "kernel" ? KernelText(EventsOf(*reading, flags))
                         : format == "json" ? EventsJson(flags.path, *reading)
                                            : ItemsTable(EventsOf(*reading, flags), /*bytes_too=*/false));
}

// What the kernel takes behind the amount: "swappiness=60".
absl::Status ParseReclaim(const CgroupFlags& flags, uint64_t* bytes, std::optional<uint32_t>* swappiness) {
  constexpr std::string_view kSwappiness = "swappiness=";
  const size_t space = flags.amount.find(' ');
  const absl::StatusOr<uint64_t> amount = ParseBytes(flags.amount.substr(0, space));
  if (!amount.ok()) return amount.status();
  *bytes = *amount;
  std::string text = flags.swappiness;
  if (space != std::string::npos) {
    const std::string rest = flags.amount.substr(space + 1);
    if (rest.substr(0, kSwappiness.size()) != kSwappiness || !text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", rest, "\" is not wanted behind the amount: swappiness=N once, as the kernel has it"));
    }
    text = rest.substr(kSwappiness.size());
  } else if (text.empty()) {
    return absl::OkStatus();
  }
  uint32_t number = NodeClient::kAnonOnly;
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  if (text != "max" && (!digits || !absl::SimpleAtoi(text, &number) || number > 200)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is no swappiness: 0 to 200 are wanted, or max for anonymous pages only"));
  }
  *swappiness = number;
  return absl::OkStatus();
}

int Reclaim(NodeClient* client, Context* context, const CgroupFlags& flags) {
  uint64_t bytes = 0;
  std::optional<uint32_t> swappiness;
  const absl::Status parsed = ParseReclaim(flags, &bytes, &swappiness);
  if (!parsed.ok()) return FailUsage(parsed);
  absl::StatusOr<uint64_t> reclaimed = client->ReclaimCgroup(flags.node, flags.path, bytes, swappiness);
  if (!reclaimed.ok()) return FailWith(reclaimed.status());
  return Finish(context, context->json() ? absl::StrCat("{\"path\": ", JsonString(flags.path),
                                                        ", \"reclaimed\": ", *reclaimed, "}\n")
                                         : absl::StrCat("reclaimed ",
                                                        HumanBytes(static_cast<int64_t>(*reclaimed)), "\n"));
}

std::string PeaksText(const v1::WatchPeakResponse& peaks, bool json) {
  if (json) {
    return absl::StrCat("{\"peak\": ", peaks.memory_peak_bytes(),
                        ", \"swap_peak\": ", peaks.swap_peak_bytes(),
                        ", \"current\": ", peaks.memory_current_bytes(),
                        ", \"swap_current\": ", peaks.swap_current_bytes(), "}\n");
  }
  const auto human = [](uint64_t bytes) { return HumanBytes(static_cast<int64_t>(bytes)); };
  return absl::StrCat("memory.peak ", human(peaks.memory_peak_bytes()), "  memory.swap.peak ",
                      human(peaks.swap_peak_bytes()), "  memory.current ",
                      human(peaks.memory_current_bytes()), "  memory.swap.current ",
                      human(peaks.swap_current_bytes()), "\n");
}

int WatchPeak(NodeClient* client, Context* context, const CgroupFlags& flags) {
  const auto print = [context](const v1::WatchPeakResponse& peaks) {
    return context->out->Write(PeaksText(peaks, context->json()));
  };
  const std::chrono::milliseconds every(std::llround(flags.every_seconds * 1000));
  const absl::Status status =
      client->WatchPeak(flags.node, flags.path, every, flags.count, context->interrupt->flag(), print);
  if (context->out->reader_is_gone()) return kExitBrokenPipe;
  if (context->interrupt->flag()) return kExitSignal + context->interrupt->signal();
  return status.ok() ? kExitOk : FailWith(status);
}

// A command that is about one node and one path.  Its flags are its own: CLI11 hands a variable of the
// environment to the commands that were not asked for, too.
CLI::App* AddCommand(CLI::App* cgroup, const char* command, const char* help, bool path_required,
                     CgroupFlags* flags) {
  CLI::App* app = cgroup->add_subcommand(command, help);
  AddNodeOption(app, &flags->node);
  const char* what = path_required ? "The cgroup: / or /a/b" : "Only this cgroup and those below it [/]";
  app->add_option("path", flags->path, what)->required(path_required)->type_name("PATH");
  return app;
}

using Action = int (*)(NodeClient*, Context*, const CgroupFlags&);

void AddPlainCommand(CLI::App* cgroup, Context* context, const char* command, const char* help,
                     bool path_required, Action action) {
  auto flags = std::make_shared<CgroupFlags>();
  SetCommand(AddCommand(cgroup, command, help, path_required, flags.get()), context,
             [=](NodeClient* client) { return action(client, context, *flags); });
}

CLI::App* AddReadCommand(CLI::App* cgroup, Context* context, const char* command, const char* help,
                         Action action, const std::shared_ptr<CgroupFlags>& flags) {
  CLI::App* app = AddCommand(cgroup, command, help, /*path_required=*/true, flags.get());
  app->add_flag("--local", flags->local, "Only the cgroup itself, without those below it");
  app->add_flag("--v1", flags->v1_names, "The names of cgroup v1; in memory.stat local and total_ ones");
  app->add_option("--format", flags->format, "How to print: as -o, or the very text of the kernel's file")
      ->type_name("table|json|kernel")
      ->check(CLI::IsMember({"table", "json", "kernel"}).description(""));
  SetCommand(app, context, [=](NodeClient* client) { return action(client, context, *flags); });
  return app;
}

void AddReadCommands(CLI::App* cgroup, Context* context) {
  auto flags = std::make_shared<CgroupFlags>();
  CLI::App* stat =
      AddReadCommand(cgroup, context, "stat",
                     "Print memory.stat, current and peak, of swap too (exact, flushed)", ReadStat, flags);
  stat->add_flag("--fast", flags->fast,
                 "What the node's form of statistics serves without a flush, within the error bound told");
  flags = std::make_shared<CgroupFlags>();
  CLI::App* events = AddReadCommand(cgroup, context, "events",
                                    "Print memory.events (--local: memory.events.local)", ReadEvents, flags);
  events->add_flag("--swap", flags->swap, "memory.swap.events; JSON has both, with and without it");
}

void AddSetCommand(CLI::App* cgroup, Context* context) {
  auto flags = std::make_shared<CgroupFlags>();
  CLI::App* app = AddCommand(cgroup, "set", "Write knobs: all of them or, where one is refused, none",
                             /*path_required=*/true, flags.get());
  const auto check = [](const std::string& knob) {
    const size_t equals = knob.find('=');
    return equals == std::string::npos || equals == 0
               ? absl::StrCat("\"", knob, "\" is not NAME=VALUE, as memory.max=512M")
               : std::string();
  };
  app->add_option("knob", flags->knobs, "What to write, as memory.max=512M")
      ->required()
      ->type_name("KNOB=VALUE")
      ->check(check);
  SetCommand(app, context, [=](NodeClient* client) { return SetKnobs(client, context, *flags); });
}

void AddReclaimCommand(CLI::App* cgroup, Context* context) {
  auto flags = std::make_shared<CgroupFlags>();
  CLI::App* app =
      AddCommand(cgroup, "reclaim", "Reclaim from a cgroup and those below it, as memory.reclaim does",
                 /*path_required=*/true, flags.get());
  app->add_option("size", flags->amount,
                  "How much: bytes, as 100M, or all that the kernel takes: \"100M swappiness=60\"")
      ->required()
      ->type_name("SIZE");
  app->add_option("--swappiness", flags->swappiness,
                  "In place of memory.swappiness: 0 to 200, or max for anonymous pages only")
      ->type_name("N|max");
  SetCommand(app, context, [=](NodeClient* client) { return Reclaim(client, context, *flags); });
}

void AddPeakCommand(CLI::App* cgroup, Context* context) {
  auto flags = std::make_shared<CgroupFlags>();
  CLI::App* app = AddCommand(
      cgroup, "peak", "Print the peaks of a cgroup, and then, again and again, those since the last line",
      /*path_required=*/true, flags.get());
  app->add_option("--every", flags->every_seconds, "Between two lines")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.01, 86400.0).description(""))
      ->capture_default_str();
  app->add_option("--count", flags->count, "Lines after the first [0: until Ctrl-C]")->type_name("N");
  SetCommand(app, context, [=](NodeClient* client) { return WatchPeak(client, context, *flags); });
}

}  // namespace

void AddCgroupCommands(CLI::App* app, Context* context) {
  CLI::App* cgroup = app->add_subcommand("cgroup", "Read and change the cgroups of a node");
  AddPlainCommand(cgroup, context, "ls", "List cgroups", /*path_required=*/false, ListCgroups);
  AddPlainCommand(cgroup, context, "tree", "Draw the tree of cgroups", /*path_required=*/false, DrawTree);
  AddPlainCommand(cgroup, context, "get", "Print a cgroup's place and knobs", /*path_required=*/true,
                  GetCgroup);
  AddReadCommands(cgroup, context);
  AddPlainCommand(cgroup, context, "create", "Make a cgroup; its parent exists", /*path_required=*/true,
                  CreateCgroup);
  AddPeakCommand(cgroup, context);
  AddSetCommand(cgroup, context);
  AddReclaimCommand(cgroup, context);
  AddPlainCommand(cgroup, context, "delete", "Remove a cgroup", /*path_required=*/true, DeleteCgroup);
}

}  // namespace memcgd::client
