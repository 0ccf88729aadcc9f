// memcg-loadgen: loads memcgd and measures.  docs/loadgen.md describes it.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>

#include "client/memcg_loadgen_app.h"
#include "client/memcgctl_command_line.h"

namespace memcgd::client {
namespace {

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
    return ExplainParse(app, error, "experiment", &out);
  }
  return context.run();
}

}  // namespace
}  // namespace memcgd::client

int main(int argc, char** argv) { return memcgd::client::Main(argc, argv); }
