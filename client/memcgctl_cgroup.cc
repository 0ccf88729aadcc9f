// memcgctl cgroup ls|tree|get|stat|events|create|set|delete.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  absl::StrAppend(&json, ", \"peak\": ", reading.peak_bytes());
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
  return absl::StrCat("{\"path\": ", JsonString(path), ", \"events\": ", ItemsJson(reading.events()), "}\n");
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
  return Finish(context, format == "kernel" ? KernelText(reading->events())
                         : format == "json" ? EventsJson(flags.path, *reading)
                                            : ItemsTable(reading->events(), /*bytes_too=*/false));
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
  CLI::App* stat = AddReadCommand(cgroup, context, "stat",
                                  "Print memory.stat, current and peak (exact, flushed)", ReadStat, flags);
  stat->add_flag("--fast", flags->fast,
                 "What the node's form of statistics serves without a flush, within the error bound told");
  AddReadCommand(cgroup, context, "events", "Print memory.events (--local: memory.events.local)", ReadEvents,
                 std::make_shared<CgroupFlags>());
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
  AddSetCommand(cgroup, context);
  AddPlainCommand(cgroup, context, "delete", "Remove a cgroup", /*path_required=*/true, DeleteCgroup);
}

}  // namespace memcgd::client
