// memcg-loadgen's flags, and what it does with them.
#ifndef MEMCGD_CLIENT_MEMCG_LOADGEN_APP_H_
#define MEMCGD_CLIENT_MEMCG_LOADGEN_APP_H_

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/loadgen/experiment.h"
#include "client/loadgen/turn.h"
#include "client/memcgctl_interrupt.h"
#include "client/memcgctl_output.h"

namespace memcgd::client {

struct LoadgenContext {
  LoadgenContext(Output* out_stream, Interrupt* interrupt_watch)
      : out(out_stream), interrupt(interrupt_watch) {}

  Output* const out;
  Interrupt* const interrupt;

  std::string output = "table";
  std::string compare, plot, trace;
  uint32_t repeats = 2;
  loadgen::TurnOptions turn;
  loadgen::Settings settings;
  loadgen::Forms forms;

  // The experiment that was asked for; returns the exit code.
  std::function<int()> run;
};

// Fills `app`, whose options point into `context`.
void BuildLoadgenApp(CLI::App* app, LoadgenContext* context);

// Measures and prints; returns the exit code.
int RunLoadgen(LoadgenContext* context, loadgen::ExperimentKind kind);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCG_LOADGEN_APP_H_
