// memcg-loadgen: loads memcgd and measures.  docs/loadgen.md describes it.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/memcg_loadgen_app.h"
#include "client/memcgctl_exit.h"

namespace memcgd::client {
namespace {

// Help and version go to standard output; all else is one line that names what is wrong.
int ExplainParse(const CLI::App& app, const CLI::ParseError& error, LoadgenContext* context) {
  const CLI::App* command = &app;
  for (const CLI::App* reached : app.get_subcommands()) command = reached;
  const std::string full_name =
      command == &app ? app.get_name() : absl::StrCat(app.get_name(), " ", command->get_name());
  if (dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr) {
    const absl::Status status = context->out->Write(command->help(command == &app ? "" : app.get_name()));
    return status.ok() ? kExitOk : kExitFailed;
  }
  if (error.get_exit_code() == 0) {
    return context->out->Write(absl::StrCat(error.what(), "\n")).ok() ? kExitOk : kExitFailed;
  }
  std::string message = error.what();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (!extras.empty()) {
    const bool flag = extras.front().size() > 1 && extras.front()[0] == '-';
    message = absl::StrCat(flag              ? "unknown flag "
                           : command == &app ? "unknown experiment "
                                             : "one argument too many: ",
                           extras.front());
  }
  PrintLoadgenError(absl::StrCat(message, " (see: ", full_name, " --help)"));
  return kExitUsage;
}

// As the server does: glibc gives the top of the heap back after each message and faults it in again.
void KeepHeap() {
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

int Main(int argc, char** argv) {
  KeepHeap();
  Interrupt interrupt;
  signal(SIGPIPE, SIG_IGN);  // a reader that goes away is seen where we write
  Output out(STDOUT_FILENO);
  LoadgenContext context(&out, &interrupt);
  CLI::App app;
  BuildLoadgenApp(&app, &context);
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
