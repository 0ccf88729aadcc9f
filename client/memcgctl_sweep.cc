#include "client/memcgctl_sweep.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_progress.h"
#include "client/memcgctl_trace.h"
#include "client/replay.h"
#include "client/standard_error.h"

namespace memcgd::client {

namespace v1 = memcgd::v1;

void SweepFlags::AddTo(CLI::App* app) {
  app->add_option("file", files, "Traces; - is standard input")->required()->type_name("FILE");
  app->add_option("--node", node, "Begin with a fork of this node [a new node]")->type_name("NAME");
  spec.AddTo(app);
  app->add_option("--root", root, "Number of the cgroup hierarchy that counts [the first one seen]")
      ->type_name("N");
  app->add_option("-j,--jobs", jobs, "Most points that run at a time [as many as the server has CPUs]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  app->add_flag("--strict", strict, "Stop at the first line that is not understood");
}

std::optional<int> TraceSweep::Load(const std::function<void(const v1::Batch&)>& see) {
  absl::Status status = CheckFiles(flags_.files);
  if (!status.ok()) return FailInput(status);
  v1::SweepStart start;
  start.set_parallelism(flags_.jobs);
  v1::NodeSpec spec = flags_.spec.Spec(CpusOfTraces(flags_.files));
  if (flags_.node.empty()) {
    *start.mutable_spec() = spec;
  } else {
    if (!flags_.spec.Given().empty() && flags_.spec.Given() != "--reclaim") {
      PrintWarning(absl::StrCat("node ", flags_.node, " is forked as it is: of ", flags_.spec.Given(),
                                " only --reclaim changes anything"));
    }
    absl::StatusOr<v1::Node> node = NodeClient(server_).GetNode(flags_.node);
    if (!node.ok()) return Fail(node.status());
    spec = node->spec();
    start.set_node(flags_.node);
  }
  SweepClient::Options options;
  options.server = server_;
  options.cancelled = &context_.interrupt->flag();
  const bool terminal = isatty(STDERR_FILENO) == 1;
  options.on_progress = [terminal](const v1::SweepProgress& progress) {
    if (!terminal) return;
    const uint64_t total = progress.events_total() == 0 ? 1 : progress.events_total();
    WriteStandardError(absl::StrFormat("\r\x1b[K%d points done, %d %% of all events", progress.points_done(),
                                       progress.events_done() * 100 / total));
  };
  client_ = std::make_unique<SweepClient>(std::move(options), start);

  Progress progress(flags_.files);
  ReplayOptions reading;
  reading.files = flags_.files;
  reading.root = flags_.root;
  reading.cpus = spec.cpus();
  if (spec.page_size() != 0) reading.page_size = spec.page_size();
  reading.strict = flags_.strict;
  reading.cancelled = &context_.interrupt->flag();
  reading.on_malformed = [&progress](const std::string& text) {
    progress.Clear();
    PrintWarning(text);
  };
  Replay* running = nullptr;
  reading.on_progress = [&](size_t files_done) {
    progress.Show(files_done, running->bytes_of_file(), running->counts());
  };
  Replay replay(
      [&](v1::Batch batch) {
        see(batch);
        return client_->Send(std::move(batch));
      },
      std::move(reading));
  running = &replay;
  status = replay.Run();
  progress.Clear();
  if (!status.ok()) return replay.input_is_bad() ? FailInput(status) : Fail(status);
  PrintCounts(replay.counts());
  return std::nullopt;
}

v1::Point TraceSweep::Base() const {
  v1::Point point;
  if (!flags_.node.empty()) point.add_changes()->set_reclaim(flags_.spec.Spec(0).reclaim());
  return point;
}

std::optional<int> TraceSweep::Run(const v1::SweepPoints& points, std::vector<v1::PointResult>* results) {
  absl::StatusOr<std::vector<v1::PointResult>> run = client_->Run(points);
  if (isatty(STDERR_FILENO) == 1) WriteStandardError("\r\x1b[K");
  if (!run.ok()) return Fail(run.status());
  *results = *std::move(run);
  return std::nullopt;
}

int TraceSweep::Fail(const absl::Status& status) const {
  if (!context_.interrupt->flag()) return FailWith(status);
  PrintError("interrupted");
  return kExitSignal + context_.interrupt->signal();
}

void AddKnob(const std::string& path, const std::string& knob, const std::string& value, v1::Point* point) {
  v1::KnobChange* change = point->add_changes()->mutable_knob();
  change->set_path(path);
  change->set_knob(knob);
  change->set_value(value);
}

}  // namespace memcgd::client
