#include "client/memcgctl_app.h"

#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/amount.h"
#include "client/memcgctl_command_line.h"
#include "client/memcgctl_completion.h"
#include "client/memcgctl_exit.h"

namespace memcgd::client {
namespace {

constexpr std::string_view kVersion = MEMCGD_VERSION;  // the project's

constexpr char kDescription[] =
    "Talks to memcgd: replays recorded traces into a modelled machine and reads what its cgroups hold, to "
    "the page.";
constexpr char kFooter[] =
    "Environment: MEMCGCTL_SERVER, MEMCGCTL_OUTPUT, MEMCGCTL_TIMEOUT, MEMCGCTL_NODE, MEMCGCTL_TLS_CA,\n"
    "MEMCGCTL_TLS_CERT, MEMCGCTL_TLS_KEY, MEMCGCTL_TOKEN_FILE; a flag wins over its "
    "variable.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad input file, 4 server not reached, 5 server lost the "
    "state,\n"
    "6 events were lost in recording, 130 Ctrl-C.  More: docs/memcgctl.md";

void AddGlobalOptions(CLI::App* app, Context* context) {
  app->add_option("--server", context->server, "Where memcgd listens: HOST:PORT or unix:PATH")
      ->envname("MEMCGCTL_SERVER")
      ->type_name("ADDR")
      ->capture_default_str();
  AddCredentialOptions(app, "MEMCGCTL", &context->credentials);
  app->add_option("-o,--output", context->output, "How to print: table (for people) or json (for programs)")
      ->envname("MEMCGCTL_OUTPUT")
      ->type_name("table|json")
      ->check(CLI::IsMember({"table", "json"}).description(""))
      ->capture_default_str();
  app->add_option("--timeout", context->timeout_seconds, "Most seconds to wait for an answer of the server")
      ->envname("MEMCGCTL_TIMEOUT")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 86400.0).description(""))
      ->capture_default_str();
}

void AddVersionCommand(CLI::App* app, Context* context) {
  CLI::App* command = app->add_subcommand("version", "Print the version of memcgctl");
  command->callback([context] {
    context->run = [context] {
      const std::string version(kVersion);
      return Finish(context, context->json() ? absl::StrCat("{\"version\": ", JsonString(version), "}\n")
                                             : absl::StrCat("memcgctl ", version, "\n"));
    };
  });
}

void AddCompletionCommand(CLI::App* app, Context* context) {
  CLI::App* command = app->add_subcommand("completion", "Print a completion script for a shell");
  command->footer(
      "bash: source <(memcgctl completion bash)\n"
      "zsh:  memcgctl completion zsh > ~/.zfunc/_memcgctl   (a directory of $fpath)\n"
      "fish: memcgctl completion fish > ~/.config/fish/completions/memcgctl.fish");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Which shell")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->callback([app, context, shell] {
    context->run = [app, context, shell] { return Finish(context, CompletionScript(*app, *shell)); };
  });
}

// Flags may stand behind the subcommand too, and each level wants a command.
void SetRules(CLI::App* app) {
  const auto commands = app->get_subcommands([](CLI::App*) { return true; });
  app->fallthrough(app->get_parent() != nullptr);
  if (!commands.empty()) app->require_subcommand(1);
  for (CLI::App* command : commands) SetRules(command);
}

}  // namespace

absl::StatusOr<Server> Context::Connect() const {
  return ConnectTo(server, std::chrono::milliseconds(std::llround(timeout_seconds * 1000)),
                   /*own_connection=*/false, credentials);
}

void BuildApp(CLI::App* app, Context* context) {
  app->name("memcgctl");
  app->description(kDescription);
  app->footer(kFooter);
  app->get_formatter()->column_width(34);
  app->set_help_flag("-h,--help", "Print this help");
  app->set_version_flag("--version", absl::StrCat("memcgctl ", std::string(kVersion)), "Print the version");
  AddGlobalOptions(app, context);
  AddReplayCommand(app, context);
  AddWhatIfCommand(app, context);
  AddAdviseCommand(app, context);
  AddRecordCommand(app, context);
  AddTopCommand(app, context);
  AddNodeCommands(app, context);
  AddCgroupCommands(app, context);
  AddOomCommands(app, context);
  AddVersionCommand(app, context);
  AddCompletionCommand(app, context);
  SetRules(app);
}

CLI::Option* AddBytesOption(CLI::App* app, const std::string& name, uint64_t* bytes,
                            const std::string& help) {
  const auto read = [bytes](const std::string& text) { *bytes = ParseBytes(text).value_or(0); };
  const auto check = [](const std::string& text) {
    const absl::StatusOr<uint64_t> parsed = ParseBytes(text);
    return parsed.ok() ? std::string() : std::string(parsed.status().message());
  };
  return app->add_option_function<std::string>(name, read, help)->type_name("BYTES")->check(check);
}

CLI::Option* AddNodeOption(CLI::App* app, std::string* node) {
  return app->add_option("--node", *node, "The node's name")
      ->envname("MEMCGCTL_NODE")
      ->type_name("NAME")
      ->required();
}

void SetCommand(CLI::App* app, Context* context, std::function<int(NodeClient*)> command) {
  app->callback([context, command = std::move(command)] {
    context->run = [context, command] {
      absl::StatusOr<Server> server = context->Connect();
      if (!server.ok()) return static_cast<int>(FailUsage(server.status()));
      NodeClient client(*std::move(server));
      return command(&client);
    };
  });
}

int Finish(Context* context, const std::string& text) {
  const absl::Status status = context->out->Write(text);
  if (status.ok()) return kExitOk;
  return context->out->reader_is_gone() ? kExitBrokenPipe : FailWith(status);
}

}  // namespace memcgd::client
