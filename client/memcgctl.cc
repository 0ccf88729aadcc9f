// memcgctl: the command line of memcgd.  docs/memcgctl.md describes it.
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"

namespace memcgd::client {
namespace {

// "memcgctl node create": the commands that were recognised, down to where reading stopped.
const CLI::App* CommandReached(const CLI::App* app) {
  for (const CLI::App* command : app->get_subcommands()) return CommandReached(command);
  return app;
}

std::string FullName(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : absl::StrCat(FullName(app->get_parent()), " ", app->get_name());
}

// " (from MEMCGCTL_OUTPUT)" where the message is about a value that the environment gave.
std::string Origin(const CLI::App& command, const std::string& message) {
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      const char* value =
          option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
      const bool named = message.rfind(option->get_name() + ":", 0) == 0;
      if (named && value != nullptr && option->results() == std::vector<std::string>{value}) {
        return absl::StrCat(" (from ", option->get_envname(), ")");
      }
    }
  }
  return "";
}

// Help and version go to standard output; all else is one line that names what is wrong.
int ExplainParse(const CLI::App& app, const CLI::ParseError& error, Context* context) {
  const CLI::App* command = CommandReached(&app);
  if (dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr) {
    const CLI::App* parent = command->get_parent();
    return Finish(context, command->help(parent == nullptr ? "" : FullName(parent)));
  }
  if (error.get_exit_code() == 0) return Finish(context, absl::StrCat(error.what(), "\n"));
  std::string message = error.what();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (!extras.empty()) {
    const bool flag = extras.front().size() > 1 && extras.front()[0] == '-';
    const bool wants_command = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
    message = absl::StrCat(flag            ? "unknown flag "
                           : wants_command ? "unknown subcommand "
                                           : "one argument too many: ",
                           extras.front());
  }
  PrintError(absl::StrCat(message, Origin(*command, message), " (see: ", FullName(command), " --help)"));
  return kExitUsage;
}

int Main(int argc, char** argv) {
  Interrupt interrupt;
  // A reader that goes away is seen where we write.
  signal(SIGPIPE, SIG_IGN);
  Output out(STDOUT_FILENO);
  Context context(&out, &interrupt);
  CLI::App app;
  BuildApp(&app, &context);
  try {  // the one place where exceptions are met: CLI11 reports with them
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExplainParse(app, error, &context);
  }
  return context.run();
}

}  // namespace
}  // namespace memcgd::client

int main(int argc, char** argv) { return memcgd::client::Main(argc, argv); }
