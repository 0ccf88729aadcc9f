// memcgctl record: what runs on this machine, as it happens.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_output.h"
#include "client/record/feed.h"
#include "client/record/job.h"
#include "client/record/live_trace.h"
#include "client/record/machine.h"
#include "client/record/memory_cgroup.h"
#include "client/record/proc_file.h"
#include "client/record/running.h"
#include "client/record/trace_file.h"
#include "client/record/verifier.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using Clock = std::chrono::steady_clock;

// Between two readings of the kernel's buffers, which hold a hundred times as much.
constexpr std::chrono::milliseconds kPollInterval{50};
// After a signal the command has so long to end while it is still recorded; Interrupt gives us two seconds.
constexpr std::chrono::milliseconds kGrace{1'000};
constexpr std::chrono::milliseconds kFlushInterval{1'000};
constexpr std::chrono::milliseconds kVerifyInterval{1'000};
// The kernel writes down what waits on its CPUs every two seconds.
constexpr std::chrono::milliseconds kKernelSettles{2'500};
// A thread that did nothing for so long after a fault has handled it.
constexpr int64_t kSettleNs = 1'000'000'000;

struct RecordFlags {
  std::vector<std::string> command;
  std::string cgroup;
  int32_t pid = 0;
  std::string file;
  std::string node;
  bool verify = false;
  double seconds = 0;  // 0: to the end
  uint64_t buffer_bytes = 32 << 20;
  uint64_t backlog_bytes = 64 << 20;
  bool mount = false;

  bool streams() const { return file.empty() || !node.empty() || verify; }
};

// "anon 58.7 MiB off by 0, file 9.9 MiB off by 0 pages; off too: pgfault +1"
std::string Describe(const std::vector<StatDifference>& all) {
  std::string text, others;
  for (const StatDifference& one : all) {
    const bool bytes = StatIsBytes(one.name);
    const int64_t off = (one.model - one.kernel) / (bytes ? 4096 : 1);
    if (one.name == "anon" || one.name == "file") {
      absl::StrAppend(&text, text.empty() ? "" : ", ", one.name, " ", HumanBytes(one.kernel), " off by ",
                      absl::StrFormat("%+d", off));
    } else if (off != 0) {
      absl::StrAppend(&others, others.empty() ? "" : ", ", one.name, absl::StrFormat(" %+d", off));
    }
  }
  return absl::StrCat(text, " pages", others.empty() ? "" : absl::StrCat("; off too: ", others));
}

bool IsExact(const std::vector<StatDifference>& all) {
  return std::all_of(all.begin(), all.end(), [](const StatDifference& one) {
    return (one.name != "anon" && one.name != "file") || one.model == one.kernel;
  });
}

class RecordCommand {
 public:
  RecordCommand(Context* context, const RecordFlags& flags) : context_(*context), flags_(flags) {}

  int Run() {
    absl::Status status = Prepare();
    if (status.ok() && flags_.streams()) status = ConnectFeed();
    if (status.ok()) status = Begin();
    if (!status.ok()) return Fail(status);
    if (job_ != nullptr) {
      status = job_->Release();
      if (!status.ok()) return Fail(status, absl::IsNotFound(status) ? kExitNoCommand : kExitCannotRun);
    }
    begin_ns_ = TraceClockNs();
    status = Record();
    if (!status.ok() && job_ != nullptr) job_->Signal(SIGTERM);
    if (status.ok()) status = FinishAll();
    return Conclude(status);
  }

 private:
  // ---- before the first event ----

  absl::Status Prepare() {
    absl::Status status = CheckTracing(flags_.mount);
    if (!status.ok()) return status;
    if (const int left = RemoveLeftInstances(); left != 0)
      PrintNote(absl::StrCat("removed ", left, " tracing instances of a recording that was killed"));
    const absl::StatusOr<MemoryHierarchy> hierarchy = FindMemoryHierarchy();
    if (!hierarchy.ok() && (flags_.verify || flags_.command.empty())) return hierarchy.status();
    if (hierarchy.ok()) hierarchy_ = *hierarchy;
    if (hierarchy.ok()) RemoveLeftCgroups(hierarchy_);
    status = ChooseCgroup();
    if (!status.ok()) return status;
    absl::StatusOr<std::unique_ptr<LiveTrace>> trace = LiveTrace::Create(flags_.buffer_bytes);
    if (!trace.ok()) return trace.status();
    trace_ = *std::move(trace);
    if (flags_.file.empty()) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<TraceFile>> file = TraceFile::Create(flags_.file, trace_->cpus(), "");
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
    return absl::OkStatus();
  }

  // The cgroup that is recorded, or that what is recorded is in.
  absl::Status ChooseCgroup() {
    if (!flags_.cgroup.empty()) {
      cgroup_ = flags_.cgroup;
      return ReadKernelStat(hierarchy_, cgroup_).empty()
                 ? absl::NotFoundError(absl::StrCat("no cgroup ", cgroup_, " in ", hierarchy_.mount_point))
                 : absl::OkStatus();
    }
    if (flags_.command.empty()) {
      const absl::StatusOr<std::string> cgroup = CgroupOf(hierarchy_, flags_.pid);
      if (cgroup.ok()) cgroup_ = *cgroup;
      return cgroup.status();
    }
    if (hierarchy_.mount_point.empty()) {
      PrintWarning("the command runs in no cgroup of its own: no memory controller is mounted");
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<OwnCgroup>> cgroup = OwnCgroup::Create(hierarchy_);
    if (!cgroup.ok() && flags_.verify) return cgroup.status();
    if (cgroup.ok()) {
      own_cgroup_ = *std::move(cgroup);
      cgroup_ = own_cgroup_->path();
    } else {
      PrintWarning(
          absl::StrCat("the command runs in no cgroup of its own: ", std::string(cgroup.status().message())));
    }
    return absl::OkStatus();
  }

  absl::Status ConnectFeed() {
    absl::StatusOr<Server> server = context_.Connect();
    if (!server.ok()) return server.status();
    node_ = flags_.node.empty() ? RandomName() : flags_.node;
    NodeClient client(*server);
    absl::StatusOr<v1::Node> node = flags_.node.empty() ? absl::NotFoundError("") : client.GetNode(node_);
    if (absl::IsNotFound(node.status())) node = client.CreateNode(node_, ThisMachine());
    if (!node.ok()) return node.status();
    if (flags_.verify) {
      verifier_ = std::make_unique<Verifier>(
          hierarchy_, cgroup_, [this](int64_t time_ns, const std::vector<StatDifference>& all) {
            PrintNote(absl::StrFormat("verify at %.1f s: %s", static_cast<double>(time_ns - begin_ns_) / 1e9,
                                      Describe(all)));
            last_is_exact_ = IsExact(all);
            ++comparisons_;
          });
    }
    Feed::Options options;
    options.server = *std::move(server);
    options.node = node_;
    options.stream_id = RandomName();
    options.translator.root = hierarchy_.number;
    options.translator.page_size = node->spec().page_size();
    options.translator.cpus = node->spec().cpus();
    options.backlog_events = std::max<uint64_t>(flags_.backlog_bytes / 16, 1);
    if (verifier_ != nullptr) options.on_state = [this](const v1::State& state) { verifier_->Answer(state); };
    feed_ = std::make_unique<Feed>(std::move(options));
    PrintNote(absl::StrCat("node ", node_, cgroup_.empty() ? "" : ", cgroup ", cgroup_));
    return absl::OkStatus();
  }

  static std::string RandomName() {
    std::random_device random;
    return absl::StrFormat("record-%08x", random());
  }

  absl::Status Begin() { return flags_.command.empty() ? Attach() : ForkJob(); }

  absl::Status ForkJob() {
    absl::StatusOr<std::unique_ptr<Job>> job =
        Job::Fork(flags_.command, own_cgroup_ != nullptr ? own_cgroup_->procs_file() : "");
    if (!job.ok()) return job.status();
    job_ = *std::move(job);
    trace_->names()->Add(job_->pid(), job_->pid(), "memcgctl");
    absl::Status status = trace_->Follow({job_->pid()});
    return status.ok() ? trace_->Start() : status;
  }

  // First the events, then what was there: nothing falls between.
  absl::Status Attach() {
    std::vector<int32_t> processes = Processes();
    if (processes.empty()) return absl::NotFoundError("there is no process to follow");
    absl::Status status = trace_->Follow(ThreadsOf(processes));
    if (status.ok()) status = trace_->Start();
    // Those that were forked before their parent was followed.
    std::vector<int32_t> now = Processes();
    while (status.ok() && now != processes) {
      processes = std::move(now);
      status = trace_->Follow(ThreadsOf(processes));
      now = Processes();
    }
    if (!status.ok()) return status;
    if (feed_ != nullptr) SendBaseline(hierarchy_, processes, feed_.get());
    if (file_ != nullptr)
      PrintWarning("a file holds no baseline: to replay, what was there before is pages that nobody saw");
    return absl::OkStatus();
  }

  std::vector<int32_t> Processes() const {
    return flags_.cgroup.empty() ? ProcessesBelow(flags_.pid) : ProcessesIn(hierarchy_, flags_.cgroup);
  }

  // ---- while it runs ----

  absl::Status Record() {
    Clock::time_point end =
        flags_.seconds == 0 ? Clock::time_point::max()
                            : Clock::now() + std::chrono::milliseconds(std::llround(flags_.seconds * 1000));
    bool signalled = false;
    while (Clock::now() < end && !HasEnded()) {
      absl::Status status = Step();
      if (!status.ok()) return status;
      if (context_.interrupt->flag() && !signalled) {
        signalled = true;
        end = Clock::now() + (job_ != nullptr ? kGrace : std::chrono::milliseconds(0));
        if (job_ != nullptr) job_->Signal(context_.interrupt->signal());
      }
    }
    // For the last comparison, once the kernel has written down what it counted.
    end = Clock::now() + kKernelSettles;
    while (verifier_ != nullptr && !context_.interrupt->flag() && Clock::now() < end) {
      absl::Status status = Step();
      if (!status.ok()) return status;
    }
    if (verifier_ != nullptr) verifier_->Sample(TraceClockNs());
    absl::Status status = trace_->Stop();
    return status.ok() ? Poll() : status;
  }

  bool HasEnded() {
    if (job_ != nullptr) return job_->HasEnded();
    return flags_.cgroup.empty() ? StartTimeOf(flags_.pid) == 0 : ReadKernelStat(hierarchy_, cgroup_).empty();
  }

  absl::Status Step() {
    std::this_thread::sleep_for(kPollInterval);
    if (verifier_ != nullptr && Clock::now() >= next_sample_) {
      next_sample_ = Clock::now() + kVerifyInterval;
      verifier_->Sample(TraceClockNs());
    }
    absl::Status status = Poll();
    if (status.ok() && feed_ != nullptr) status = feed_->status();
    return status;
  }

  absl::Status Poll() {
    absl::Status status = trace_->Poll([this](const TraceRecord& record) {
      if (feed_ != nullptr) {
        MarkBefore(record.time_ns);
        feed_->Add(record);
      }
      return file_ != nullptr ? file_->Add(record) : absl::OkStatus();
    });
    if (status.ok() && feed_ != nullptr) {
      MarkBefore(trace_->horizon_ns());
      feed_->Settle(std::min(trace_->horizon_ns(), TraceClockNs()) - kSettleNs);
      feed_->Send();
    }
    if (status.ok() && file_ != nullptr && Clock::now() >= next_flush_) {
      next_flush_ = Clock::now() + kFlushInterval;
      status = file_->Flush();
    }
    return status;
  }

  void MarkBefore(int64_t time_ns) {
    while (verifier_ != nullptr) {
      const uint64_t id = verifier_->TakeDue(time_ns);
      if (id == 0) return;
      feed_->Mark(id);
    }
  }

  // ---- the end ----

  absl::Status FinishAll() {
    absl::Status status = file_ != nullptr ? file_->Finish() : absl::OkStatus();
    if (feed_ == nullptr) return status;
    const std::chrono::milliseconds patience =
        context_.interrupt->flag() ? std::chrono::milliseconds(500)
                                   : std::chrono::milliseconds(std::llround(context_.timeout_seconds * 1000));
    status.Update(feed_->Finish(patience));
    return status;
  }

  int Fail(const absl::Status& status, ExitCode code = kExitFailed) {
    const bool of_server = flags_.streams() && ExitCodeOf(status) >= kExitUnreachable;
    PrintError(of_server ? ErrorLine(status) : std::string(status.message()));
    return of_server ? ExitCodeOf(status) : code;
  }

  int Conclude(const absl::Status& status) {
    const LiveTrace::Counts counts = trace_->counts();
    Feed::Counts fed;
    if (feed_ != nullptr) fed = feed_->counts();
    if (file_ != nullptr)
      PrintNote(absl::StrCat(counts.records, " events in ", file_->bytes_written(), " bytes"));
    if (feed_ != nullptr)
      PrintNote(
          absl::StrCat(counts.records, " events of the kernel, ", fed.sent.events, " sent to node ", node_));
    if (fed.sent.reconnects != 0)
      PrintNote(absl::StrCat("the connection was made again ", fed.sent.reconnects, " times"));
    if (counts.late != 0) PrintWarning(absl::StrCat(counts.late, " events came too late to be put in order"));
    if (!status.ok()) return Fail(status);
    if (context_.interrupt->flag()) {
      PrintError("interrupted");
      return kExitSignal + context_.interrupt->signal();
    }
    if (counts.lost_events != 0) {
      PrintError(absl::StrCat(counts.lost_events,
                              " events were lost: the buffers were full (a larger --buffer holds more)"));
      return kExitLostEvents;
    }
    if (fed.dropped_records != 0) {
      PrintError(
          absl::StrCat(fed.dropped_records,
                       " events were dropped, as the server took none (a larger --backlog holds more)"));
      return kExitLostEvents;
    }
    if (job_ != nullptr && verifier_ != nullptr && !last_is_exact_) {
      PrintError(comparisons_ == 0 ? "nothing was compared" : "the last comparison is off in anon or file");
      return kExitFailed;
    }
    return job_ != nullptr && job_->HasEnded() ? job_->exit_code() : kExitOk;
  }

  Context& context_;
  const RecordFlags& flags_;
  MemoryHierarchy hierarchy_;
  std::string cgroup_;  // empty: none
  std::unique_ptr<OwnCgroup> own_cgroup_;
  std::unique_ptr<LiveTrace> trace_;
  std::unique_ptr<TraceFile> file_;     // none without -o
  std::unique_ptr<Verifier> verifier_;  // none without --verify
  std::unique_ptr<Feed> feed_;          // none where nothing is streamed
  std::string node_;
  std::unique_ptr<Job> job_;  // none where something runs already
  std::atomic<int64_t> begin_ns_{0};
  std::atomic<bool> last_is_exact_{false};
  std::atomic<int> comparisons_{0};
  Clock::time_point next_flush_ = Clock::now() + kFlushInterval;
  Clock::time_point next_sample_ = Clock::now() + kVerifyInterval;
};

}  // namespace

void AddRecordCommand(CLI::App* app, Context* context) {
  CLI::App* record = app->add_subcommand("record", "Record what runs on this machine, as it happens");
  record->footer(
      "memcgctl record -o job.trace -- make -j4; memcgctl replay job.trace\n"
      "Without -o the events go to --server as they happen.");
  auto flags = std::make_shared<RecordFlags>();
  CLI::Option* command = record->add_option("command", flags->command, "What to run and record, behind a --")
                             ->type_name("COMMAND");
  CLI::Option* cgroup = record
                            ->add_option("--cgroup", flags->cgroup,
                                         "Record what runs already in this memory cgroup and below it")
                            ->type_name("PATH");
  CLI::Option* pid = record->add_option("-p,--pid", flags->pid, "Record this process and its descendants")
                         ->type_name("PID")
                         ->check(CLI::PositiveNumber.description(""));
  record
      ->add_option("-o,--file", flags->file,
                   "Write to FILE, which replay reads; - is standard output.  Streams only with --node or "
                   "--verify then")
      ->type_name("FILE");
  record
      ->add_option("--node", flags->node,
                   "The node to feed, made where it is not there [a new one]; it is kept")
      ->type_name("NAME");
  record->add_flag("--verify", flags->verify,
                   "Compare the node with this kernel's memory.stat each second, and at the end");
  record->add_option("--for", flags->seconds, "Stop after so long [at the end of what is recorded]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 1e9).description(""));
  AddBytesOption(record, "--buffer", &flags->buffer_bytes,
                 "Of the kernel's memory, on each CPU, for events not read yet [32M]");
  AddBytesOption(record, "--backlog", &flags->backlog_bytes,
                 "For events that wait for the server; what does not fit is dropped and counted [64M]");
  record->add_flag("--mount-tracefs", flags->mount, "Mount tracefs where it is not mounted");
  record->callback([context, flags, command, cgroup, pid] {
    if (command->count() != 0 ? cgroup->count() + pid->count() != 0 : cgroup->count() + pid->count() != 1)
      throw CLI::ValidationError("record", "give one of -- COMMAND, --cgroup and -p");
    context->run = [context, flags] { return RecordCommand(context, *flags).Run(); };
  });
}

}  // namespace memcgd::client
