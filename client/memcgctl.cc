// memcgctl: the command line of memcgd.  docs/memcgctl.md describes it.
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>

#include "client/memcgctl_app.h"
#include "client/memcgctl_command_line.h"

namespace memcgd::client {
namespace {

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
    return ExplainParse(app, error, "subcommand", &out);
  }
  return context.run();
}

}  // namespace
}  // namespace memcgd::client

int main(int argc, char** argv) { return memcgd::client::Main(argc, argv); }
