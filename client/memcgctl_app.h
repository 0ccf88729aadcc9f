// The tree of subcommands: flags into plain structs, each command a function that runs after all was read.
#ifndef MEMCGD_CLIENT_MEMCGCTL_APP_H_
#define MEMCGD_CLIENT_MEMCGCTL_APP_H_

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/memcgctl_interrupt.h"
#include "client/memcgctl_output.h"
#include "client/node_client.h"

namespace memcgd::client {

// What every command needs.
struct Context {
  explicit Context(Output* out_stream, Interrupt* interrupt_watch)
      : out(out_stream), interrupt(interrupt_watch) {}

  bool json() const { return output == "json"; }
  // The server that the flags name.
  absl::StatusOr<Server> Connect() const;

  Output* const out;
  Interrupt* const interrupt;

  // The global flags.
  std::string server = "127.0.0.1:7077";
  Credentials credentials;
  std::string output = "table";
  double timeout_seconds = 30;

  // The command that was asked for; returns the exit code.
  std::function<int()> run;
};

// Fills `app`, whose options point into `context` and into what the commands keep.
void BuildApp(CLI::App* app, Context* context);

// Each adds its subcommands.
void AddReplayCommand(CLI::App* app, Context* context);
void AddWhatIfCommand(CLI::App* app, Context* context);
void AddAdviseCommand(CLI::App* app, Context* context);
void AddRecordCommand(CLI::App* app, Context* context);
void AddTopCommand(CLI::App* app, Context* context);
void AddNodeCommands(CLI::App* app, Context* context);
void AddCgroupCommands(CLI::App* app, Context* context);
void AddOomCommands(CLI::App* app, Context* context);

// A number of bytes (amount.h).  Reads the option's text into *bytes.
CLI::Option* AddBytesOption(CLI::App* app, const std::string& name, uint64_t* bytes, const std::string& help);

// --node of the commands that need one.
CLI::Option* AddNodeOption(CLI::App* app, std::string* node);

// When `app` is the command that was asked for: connects to the server and runs `command`, which returns the
// exit code.
void SetCommand(CLI::App* app, Context* context, std::function<int(NodeClient*)> command);

// Writes text and returns the exit code of a command that has nothing left to do.
int Finish(Context* context, const std::string& text);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_APP_H_
