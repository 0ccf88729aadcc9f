#include "client/memcgctl_command_line.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/memcgctl_exit.h"
#include "client/standard_error.h"

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

int Print(const CLI::App& app, const std::string& text, Output* out) {
  const absl::Status status = out->Write(text);
  if (status.ok()) return kExitOk;
  if (out->reader_is_gone()) return kExitBrokenPipe;
  WriteErrorLine(app.get_name() + ": ", ErrorLine(status));
  return ExitCodeOf(status);
}

}  // namespace

int ExplainParse(const CLI::App& app, const CLI::ParseError& error, std::string_view command_noun,
                 Output* out) {
  const CLI::App* command = CommandReached(&app);
  if (dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr) {
    const CLI::App* parent = command->get_parent();
    return Print(app, command->help(parent == nullptr ? "" : FullName(parent)), out);
  }
  if (error.get_exit_code() == 0) return Print(app, absl::StrCat(error.what(), "\n"), out);
  std::string message = error.what();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (!extras.empty()) {
    const bool flag = extras.front().size() > 1 && extras.front()[0] == '-';
    const bool wants_command = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
    message = flag            ? absl::StrCat("unknown flag ", extras.front())
              : wants_command ? absl::StrCat("unknown ", std::string(command_noun), " ", extras.front())
                              : absl::StrCat("one argument too many: ", extras.front());
  }
  WriteErrorLine(app.get_name() + ": ",
                 absl::StrCat(message, Origin(*command, message), " (see: ", FullName(command), " --help)"));
  return kExitUsage;
}

void AddCredentialOptions(CLI::App* app, const std::string& variable_prefix, Credentials* credentials) {
  const auto add = [&](const char* flag, const char* variable, std::string* file, const char* help) {
    app->add_option(flag, *file, help)->envname(absl::StrCat(variable_prefix, variable))->type_name("FILE");
  };
  add("--tls-ca", "_TLS_CA", &credentials->tls_ca,
      "Certificates (PEM) by which the server's must be signed; turns TLS on");
  add("--tls-cert", "_TLS_CERT", &credentials->tls_cert,
      "Our certificate chain (PEM), where the server asks");
  add("--tls-key", "_TLS_KEY", &credentials->tls_key, "Its private key (PEM)");
  add("--token-file", "_TOKEN_FILE", &credentials->token_file, "File whose one line is our bearer token");
}

}  // namespace memcgd::client
