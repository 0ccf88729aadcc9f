// memcgctl record: what runs on this machine, as it happens.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/record/job.h"
#include "client/record/live_trace.h"
#include "client/record/memory_cgroup.h"
#include "client/record/trace_file.h"

namespace memcgd::client {
namespace {

using Clock = std::chrono::steady_clock;

// Between two readings of the kernel's buffers.  They are large enough for a hundred times as long.
constexpr std::chrono::milliseconds kPollInterval{50};
// After a signal the command has so long to end while it is still recorded; Interrupt gives us two seconds.
constexpr std::chrono::milliseconds kGrace{1'000};
constexpr std::chrono::milliseconds kFlushInterval{1'000};

struct RecordFlags {
  std::vector<std::string> command;
  std::string file;
  uint64_t buffer_bytes = 32 << 20;
  bool mount = false;
};

class RecordCommand {
 public:
  RecordCommand(Context* context, const RecordFlags& flags) : context_(*context), flags_(flags) {}

  int Run() {
    absl::Status status = Prepare();
    if (status.ok()) status = Begin();
    if (!status.ok()) return FailRecord(status);
    status = job_->Release();
    if (!status.ok()) return FailRecord(status, absl::IsNotFound(status) ? kExitNoCommand : kExitCannotRun);
    status = Record();
    if (status.ok()) status = file_->Finish();
    return Conclude(status);
  }

 private:
  absl::Status Prepare() {
    absl::Status status = CheckTracing(flags_.mount);
    if (!status.ok()) return status;
    if (const int left = RemoveLeftInstances(); left != 0)
      PrintNote(absl::StrCat("removed ", left, " tracing instances of a recording that was killed"));
    const absl::StatusOr<MemoryHierarchy> hierarchy = FindMemoryHierarchy();
    if (hierarchy.ok()) {
      RemoveLeftCgroups(*hierarchy);
      absl::StatusOr<std::unique_ptr<OwnCgroup>> cgroup = OwnCgroup::Create(*hierarchy);
      if (cgroup.ok()) {
        cgroup_ = *std::move(cgroup);
      } else {
        PrintWarning(absl::StrCat("the command runs in no cgroup of its own: ",
                                  std::string(cgroup.status().message())));
      }
    }
    absl::StatusOr<std::unique_ptr<LiveTrace>> trace = LiveTrace::Create(flags_.buffer_bytes);
    if (!trace.ok()) return trace.status();
    trace_ = *std::move(trace);
    absl::StatusOr<std::unique_ptr<TraceFile>> file = TraceFile::Create(flags_.file, trace_->cpus(), "");
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
    return absl::OkStatus();
  }

  absl::Status Begin() {
    absl::StatusOr<std::unique_ptr<Job>> job =
        Job::Fork(flags_.command, cgroup_ != nullptr ? cgroup_->procs_file() : "");
    if (!job.ok()) return job.status();
    job_ = *std::move(job);
    trace_->names()->Add(job_->pid(), job_->pid(), "memcgctl");
    absl::Status status = trace_->Follow({job_->pid()});
    if (status.ok()) status = trace_->Start();
    return status;
  }

  // Until the command has ended, or a signal and its grace have passed.
  absl::Status Record() {
    Clock::time_point end = Clock::time_point::max();
    while (!job_->HasEnded() && Clock::now() < end) {
      std::this_thread::sleep_for(kPollInterval);
      absl::Status status = Poll();
      if (!status.ok()) {
        job_->Signal(SIGTERM);
        return status;
      }
      if (context_.interrupt->flag() && end == Clock::time_point::max()) {
        end = Clock::now() + kGrace;
        job_->Signal(context_.interrupt->signal());
      }
    }
    absl::Status status = trace_->Stop();
    return status.ok() ? Poll() : status;
  }

  absl::Status Poll() {
    absl::Status status = trace_->Poll([this](const TraceRecord& record) { return file_->Add(record); });
    if (status.ok() && Clock::now() >= next_flush_) {
      next_flush_ = Clock::now() + kFlushInterval;
      status = file_->Flush();
    }
    return status;
  }

  static int FailRecord(const absl::Status& status, ExitCode code = kExitFailed) {
    PrintError(std::string(status.message()));
    return code;
  }

  int Conclude(const absl::Status& status) {
    const LiveTrace::Counts counts = trace_->counts();
    PrintNote(absl::StrCat(counts.records, " events in ", file_->bytes_written(), " bytes"));
    if (counts.late != 0) PrintWarning(absl::StrCat(counts.late, " events came too late to be put in order"));
    if (!status.ok()) return FailRecord(status);
    if (context_.interrupt->flag()) {
      PrintError("interrupted");
      return kExitSignal + context_.interrupt->signal();
    }
    if (counts.lost_events != 0) {
      PrintError(absl::StrCat(counts.lost_events,
                              " events were lost: the buffers were full (a larger --buffer holds more)"));
      return kExitLostEvents;
    }
    return job_->exit_code();
  }

  Context& context_;
  const RecordFlags& flags_;
  std::unique_ptr<OwnCgroup> cgroup_;
  std::unique_ptr<LiveTrace> trace_;
  std::unique_ptr<TraceFile> file_;
  std::unique_ptr<Job> job_;
  Clock::time_point next_flush_ = Clock::now() + kFlushInterval;
};

}  // namespace

void AddRecordCommand(CLI::App* app, Context* context) {
  CLI::App* record = app->add_subcommand("record", "Record what runs on this machine, as it happens");
  record->footer("memcgctl record -o job.trace -- make -j4; memcgctl replay job.trace");
  auto flags = std::make_shared<RecordFlags>();
  record->add_option("command", flags->command, "What to run and record, behind a --")
      ->type_name("COMMAND")
      ->required();
  record->add_option("-o,--file", flags->file, "Write to FILE, which replay reads; - is standard output")
      ->type_name("FILE")
      ->required();
  AddBytesOption(record, "--buffer", &flags->buffer_bytes,
                 "Of the kernel's memory, on each CPU, for events not read yet [32M]");
  record->add_flag("--mount-tracefs", flags->mount, "Mount tracefs where it is not mounted");
  record->callback(
      [context, flags] { context->run = [context, flags] { return RecordCommand(context, *flags).Run(); }; });
}

}  // namespace memcgd::client
