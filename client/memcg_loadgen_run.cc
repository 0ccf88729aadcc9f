// From flags to results: which turns there are, in which order, how far they are, and how it ends.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/loadgen/pinning.h"
#include "client/loadgen/plot.h"
#include "client/loadgen/replay_copies.h"
#include "client/loadgen/summary.h"
#include "client/memcg_loadgen_app.h"
#include "client/memcg_loadgen_output.h"
#include "client/memcgctl_exit.h"
#include "client/standard_error.h"

namespace memcgd::client {
namespace {

using loadgen::CaseResult;
using loadgen::ExperimentKind;
using loadgen::FormResult;
using loadgen::TurnResult;

// The line on a terminal's standard error; nothing where it is none.
class ProgressLine {
 public:
  ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}
  void set_what(std::string what) { what_ = std::move(what); }

  void Show(const loadgen::TurnOptions& options, double seconds, uint64_t events) {
    if (!terminal_) return;
    const double since_begin = seconds + options.warmup_seconds;
    const std::string at =
        seconds < 0 ? "warming up" : absl::StrFormat("%.1f of %g s", seconds, options.duration_seconds);
    WriteStandardError(
        absl::StrFormat("\r\x1b[K%s: %s, %.2f M events/s", what_, at,
                        since_begin > 0 ? static_cast<double>(events) / since_begin / 1e6 : 0.0));
  }
  void Clear() const {
    if (terminal_) WriteStandardError("\r\x1b[K");
  }

 private:
  const bool terminal_;
  std::string what_;
};

void PrintLoadgenError(const std::string& text) { WriteErrorLine("memcg-loadgen: ", text); }

class Runner {
 public:
  Runner(LoadgenContext* context, ExperimentKind kind) : context_(*context) {
    run_.experiment = loadgen::InfoOf(kind);
  }

  int Run() {
    PrepareOptions();
    absl::Status status = Connectable();
    if (!status.ok()) return Usage(status);
    if (!context_.trace.empty()) {
      status = ReadTrace();
      if (!status.ok()) return BadInput(status);
    }
    if (!context_.compare.empty()) {
      comparison_ = *loadgen::ParseComparison(context_.compare);
      run_.compared = comparison_.mechanism;
    }
    return Conclude(MeasureAll());
  }

 private:
  static int Usage(const absl::Status& status) {
    PrintLoadgenError(std::string(status.message()));
    return kExitUsage;
  }
  static int BadInput(const absl::Status& status) {
    PrintLoadgenError(std::string(status.message()));
    return kExitBadInput;
  }

  void PrepareOptions() {
    loadgen::TurnOptions& turn = context_.turn;
    if (turn.cpus.empty()) turn.cpus = loadgen::UsableCpus();
    context_.settings.cpus = static_cast<uint32_t>(turn.cpus.size());
    turn.cancelled = &context_.interrupt->flag();
    turn.set_last_resort = [this](std::function<void()> last_resort) {
      context_.interrupt->SetLastResort(std::move(last_resort));
    };
    turn.on_progress = [this](double seconds, uint64_t events) {
      progress_.Show(run_.options, seconds, events);
    };
    run_.options = turn;
    run_.forms = context_.forms;
    run_.repeats = context_.repeats;
  }

  // What can be said before anything is measured.
  absl::Status Connectable() const {
    absl::Status status = ConnectTo(run_.options.server, std::chrono::seconds(1),
                                    /*own_connection=*/false, run_.options.credentials)
                              .status();
    if (!status.ok() || !run_.options.server_cpu.known()) return status;
    return loadgen::ServerCpuSeconds(run_.options.server_cpu).status();
  }

  absl::Status ReadTrace() {
    absl::StatusOr<loadgen::Recording> recording =
        loadgen::ReadRecording(context_.trace, run_.options.batch_events);
    if (!recording.ok()) return recording.status();
    context_.settings.recording = std::make_shared<const loadgen::Recording>(*std::move(recording));
    return absl::OkStatus();
  }

  absl::Status MeasureAll() {
    std::vector<loadgen::Case> cases =
        loadgen::CasesOf(run_.experiment.kind, context_.settings, run_.compared, run_.forms);
    for (size_t i = 0; i < cases.size(); ++i) {
      run_.results.push_back({cases[i], {}});
      absl::Status status = MeasureCase(absl::StrCat(i + 1, "/", cases.size()), &run_.results.back());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status MeasureCase(const std::string& place, CaseResult* result) {
    const bool compared = !run_.compared.empty();
    result->forms.push_back({compared ? comparison_.older : "", {}});
    if (compared) result->forms.push_back({comparison_.newer, {}});
    std::vector<bool> order(run_.repeats, false);
    if (compared) order = loadgen::TurnOrder(run_.repeats);
    for (size_t turn = 0; turn < order.size(); ++turn) {
      FormResult& form = result->forms[order[turn] ? 1 : 0];
      progress_.set_what(absl::StrCat(std::string(run_.experiment.name), " ", place, " ",
                                      result->measured.label, form.form.empty() ? "" : " ", form.form,
                                      ", turn ", turn + 1, "/", order.size()));
      loadgen::Forms forms = run_.forms;
      if (compared) forms[comparison_.mechanism] = form.form;
      TurnResult one = loadgen::RunTurn(run_.options, result->measured, forms);
      const absl::Status status = one.status;
      const bool worth_it = status.ok() || (absl::IsCancelled(status) && one.events > 0);
      if (worth_it) form.turns.push_back(std::move(one));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  int Conclude(const absl::Status& status) {
    progress_.Clear();
    run_.interrupted = context_.interrupt->flag();
    const bool any = !run_.results.empty() && !run_.results.front().forms.empty() &&
                     !run_.results.front().forms.front().turns.empty();
    absl::Status written;
    if (any || status.ok() || run_.interrupted) {
      written = context_.out->Write(context_.output == "json" ? LoadgenJson(run_) : LoadgenText(run_));
    }
    if (written.ok() && any && !context_.plot.empty()) written = WritePlot();
    if (context_.out->reader_is_gone()) return kExitBrokenPipe;
    if (run_.interrupted) {
      PrintLoadgenError("interrupted");
      return kExitSignal + context_.interrupt->signal();
    }
    for (const absl::Status& one : {status, written}) {
      if (one.ok()) continue;
      PrintLoadgenError(absl::StrCat(absl::StatusCodeToString(one.code()), ": ", one.message()));
      return ExitCodeOf(one);
    }
    return kExitOk;
  }

  absl::Status WritePlot() const {
    std::ofstream file(context_.plot);
    file << loadgen::PlotSvg(run_.experiment, run_.results);
    file.close();
    if (file.good()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("cannot write ", context_.plot));
  }

  LoadgenContext& context_;
  LoadgenRun run_;
  loadgen::Comparison comparison_;
  ProgressLine progress_;
};

}  // namespace

int RunLoadgen(LoadgenContext* context, ExperimentKind kind) { return Runner(context, kind).Run(); }

}  // namespace memcgd::client
