// memcgctl replay: traces in, memory.stat out.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cgroup_knobs.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_progress.h"
#include "client/memcgctl_spec.h"
#include "client/memcgctl_trace.h"
#include "client/replay.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

// Removing a node after something went wrong shall not keep the user for long.
constexpr std::chrono::milliseconds kCleanupTimeout{2'000};
constexpr size_t kMaxNotables = 10;
constexpr std::chrono::milliseconds kBetweenAttempts{100};

struct ReplayFlags {
  std::vector<std::string> files;
  std::string node;
  std::string stat_at;
  SpecFlags spec;
  std::vector<CgroupKnob> knobs;
  uint32_t root = 0;
  bool strict = false;
  bool verbose = false;
};

std::string RandomName(const char* prefix) {
  std::random_device random;
  return absl::StrFormat("%s-%08x", prefix, random());
}

// Prints the answers as they come.
class AnswerPrinter {
 public:
  AnswerPrinter(Context* context, std::string node, std::vector<StatTime> times)
      : context_(*context), node_(std::move(node)), times_(std::move(times)) {}

  // What stands before the first answer, and behind the last.
  absl::Status Begin() { return Write(context_.json() && !times_.empty() ? "[\n" : ""); }
  absl::Status End(uint64_t high_delay_us) {
    if (!context_.json()) return absl::OkStatus();
    return Write(times_.empty() ? FinalJson(high_delay_us) : "\n]\n");
  }

  absl::Status Print(size_t index, const v1::State& state) {
    if (context_.json() && times_.empty()) {  // the last acknowledgement, and with it the sums, is to come
      final_ = state;
      return absl::OkStatus();
    }
    if (context_.json()) return Write(JsonAt(index, state));
    return Write(absl::StrCat(Heading(index, state), CgroupsTable(state)));
  }

 private:
  absl::Status Write(const std::string& text) { return context_.out->Write(text); }

  std::string FinalJson(uint64_t high_delay_us) const {
    return absl::StrCat("{\"node\": ", JsonString(node_), ", \"committed_as\": ", final_.committed_as_bytes(),
                        ", \"high_delay_us\": ", high_delay_us, ", \"cgroups\": ", CgroupsJson(final_),
                        "}\n");
  }
  std::string JsonAt(size_t index, const v1::State& state) const {
    return absl::StrCat(index == 0 ? "" : ",\n", "{\"time\": ", times_[index].text,
                        ", \"committed_as\": ", state.committed_as_bytes(),
                        ", \"cgroups\": ", CgroupsJson(state), "}");
  }
  std::string Heading(size_t index, const v1::State& state) const {
    return absl::StrCat(
        times_.empty() ? "at the end" : absl::StrCat(index == 0 ? "" : "\n", "at ", times_[index].text),
        ": Committed_AS ", HumanBytes(static_cast<int64_t>(state.committed_as_bytes())), "\n");
  }

  Context& context_;
  const std::string node_;
  const std::vector<StatTime> times_;
  v1::State final_;
};

// --memory-max and its kind: PATH=VALUE, any number of times, each path once.
void AddKnobFlag(CLI::App* app, ReplayFlags* flags, const std::string& flag, const std::string& knob,
                 const std::string& type_name, const std::string& help) {
  const auto read = [flags, flag, knob](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      absl::StatusOr<CgroupKnob> parsed = ParseCgroupKnob(knob, text);
      if (!parsed.ok()) throw CLI::ValidationError(flag, std::string(parsed.status().message()));
      for (const CgroupKnob& known : flags->knobs) {
        if (known.path == parsed->path && known.knob == knob)
          throw CLI::ValidationError(flag, absl::StrCat("two values for ", known.path));
      }
      flags->knobs.push_back(*std::move(parsed));
    }
  };
  app->add_option_function<std::vector<std::string>>(flag, read, help)
      ->type_name(type_name)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

// Standard input and pipes cannot.
bool CanBeReadAgain(const std::vector<std::string>& files) {
  return std::all_of(files.begin(), files.end(), [](const std::string& file) {
    struct stat info {};
    return file != "-" && stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  });
}

// Failures of the way, as balancers and servers that leave give them.
bool MayWorkLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsInternal(status) ||
         absl::IsUnknown(status);
}

// The node of that name, made where it is not there.
absl::StatusOr<v1::Node> FindOrMakeNode(NodeClient* client, const std::string& name, const ReplayFlags& flags,
                                        bool* made) {
  const bool fresh = flags.node.empty();
  if (!fresh) {
    absl::StatusOr<v1::Node> node = client->GetNode(name);
    if (node.ok() && !flags.spec.Given().empty()) {
      PrintWarning(
          absl::StrCat("node ", name, " is there already: ", flags.spec.Given(), " changes nothing"));
    }
    if (node.ok() || node.status().code() != absl::StatusCode::kNotFound) return node;
  }
  *made = true;
  return client->CreateNode(name, flags.spec.Spec(CpusOfTraces(flags.files)));
}

class ReplayCommand {
 public:
  ReplayCommand(Context* context, NodeClient* client, const ReplayFlags& flags)
      : context_(*context),
        client_(*client),
        flags_(flags),
        fresh_(flags.node.empty()),
        node_(fresh_ ? RandomName("replay") : flags.node) {}

  int Run() {
    absl::StatusOr<std::vector<StatTime>> times = std::vector<StatTime>();
    if (!flags_.stat_at.empty()) times = ReadStatTimes(flags_.stat_at);
    if (!times.ok()) return FailInput(times.status());
    absl::Status files = CheckFiles(flags_.files);
    if (!files.ok()) return FailInput(files);
    if (!flags_.stat_at.empty() && times->empty()) return NothingToAsk();
    return WithNode(*std::move(times));
  }

 private:
  int NothingToAsk() {
    PrintWarning(absl::StrCat(flags_.stat_at, " has no times: nothing was replayed"));
    return Finish(&context_, context_.json() ? "[]\n" : "");
  }

  int WithNode(std::vector<StatTime> times) {
    if (fresh_) context_.interrupt->SetLastResort([this] { RemoveNode().IgnoreError(); });
    absl::StatusOr<v1::Node> node = FindOrMakeNode(&client_, node_, flags_, &made_);
    int code = node.ok() ? Feed(*node, std::move(times)) : static_cast<int>(FailWith(node.status()));
    context_.interrupt->SetLastResort(nullptr);
    // Where the node could not even be made there is none; where the server is gone, so is the node.
    if (!fresh_ || !node.ok() || code == kExitUnreachable || code == kExitStateLost) return code;
    const absl::Status removed = RemoveNode();
    if (!removed.ok()) PrintWarning(absl::StrCat("node ", node_, " is still there: ", ErrorLine(removed)));
    return code;
  }

  int Feed(const v1::Node& node, std::vector<StatTime> times) {
    AnswerPrinter printer(&context_, node_, times);
    Progress progress(flags_.files);
    std::vector<std::string> notables;
    ReplayOptions options;
    options.files = flags_.files;
    options.node = node_;
    options.stream_id = RandomName("replay");
    options.root = flags_.root;
    options.cpus = node.spec().cpus();
    options.page_size = node.spec().page_size();
    options.strict = flags_.strict;
    options.times = std::move(times);
    absl::Status knobs = FillKnobs(node, &options.knobs);
    if (!knobs.ok()) return FailWith(knobs);
    options.cancelled = &context_.interrupt->flag();
    options.on_malformed = [&progress](const std::string& text) {
      progress.Clear();
      PrintWarning(text);
    };
    options.on_notable = [&notables](const v1::Notable& notable) {
      if (notables.size() >= kMaxNotables) return;
      notables.push_back(
          absl::StrCat("batch ", notable.sequence(), ", event ", notable.position(), ": ", notable.detail()));
    };
    options.on_state = [&](size_t index, const v1::State& state) {
      progress.Clear();
      options.answered = index + 1;
      return printer.Print(index, state);
    };
    std::unique_ptr<Replay> replay;
    options.on_progress = [&](size_t files_done) {
      progress.Show(files_done, replay->bytes_of_file(), replay->counts());
    };
    absl::Status status = printer.Begin();
    while (status.ok()) {
      replay = std::make_unique<Replay>(client_.server(), options);
      status = replay->Run();
      if (!replay->state_is_gone() || !CanBeReadAgain(flags_.files)) break;
      progress.Clear();
      PrintWarning(absl::StrCat(ErrorLine(status), "; sending it again"));
      status = RestoreNode(node, status);
      options.again = true;
    }
    if (replay == nullptr) return FailWith(status);
    if (status.ok()) status = printer.End(replay->counts().sent.high_delay_us);
    status.ok() ? progress.ShowEnd(replay->counts()) : progress.Clear();
    return Conclude(status, *replay, notables);
  }

  // The node is there again, though perhaps without what was fed: a server that stopped may have left it to
  // another, which does not know it.  `lost` where it had more than was fed here.
  absl::Status RestoreNode(const v1::Node& node, const absl::Status& lost) {
    const auto deadline = std::chrono::steady_clock::now() + client_.server().timeout;
    while (true) {
      absl::Status status = client_.GetNode(node_).status();
      if (status.code() == absl::StatusCode::kNotFound) {
        if (!made_) return lost;
        status = client_.CreateNode(node_, node.spec()).status();
      }
      if (status.ok() || status.code() == absl::StatusCode::kAlreadyExists) return absl::OkStatus();
      const bool over = context_.interrupt->flag() || std::chrono::steady_clock::now() >= deadline;
      if (over || !MayWorkLater(status)) return status;
      std::this_thread::sleep_for(kBetweenAttempts);
    }
  }

  // The knobs, and whether their cgroups are there already.
  absl::Status FillKnobs(const v1::Node& node, std::vector<CgroupKnob>* knobs) {
    *knobs = flags_.knobs;
    if (!knobs->empty() && node.spec().reclaim() != v1::RECLAIM_MODE_MODELLED && !flags_.spec.reclaim_given())
      PrintWarning(absl::StrCat("node ", node_, " is there already and does not reclaim by itself"));
    for (CgroupKnob& knob : *knobs) {
      if (fresh_) continue;
      absl::StatusOr<v1::Cgroup> cgroup = client_.GetCgroup(node_, knob.path);
      if (!cgroup.ok() && cgroup.status().code() != absl::StatusCode::kNotFound) return cgroup.status();
      knob.present = cgroup.ok();
    }
    return absl::OkStatus();
  }

  // Says how it ended.
  int Conclude(const absl::Status& status, const Replay& replay, const std::vector<std::string>& notables) {
    if (context_.out->reader_is_gone()) return kExitBrokenPipe;
    if (context_.interrupt->flag()) {
      PrintError("interrupted");
      return kExitSignal + context_.interrupt->signal();
    }
    PrintCounts(replay.counts());
    if (flags_.verbose) {
      for (const std::string& notable : notables) PrintNote(notable);
    }
    if (status.ok()) return ConcludeKnobs(replay);
    return replay.input_is_bad() ? FailInput(status) : static_cast<int>(FailWith(status));
  }

  // A knob that was never set answers another question than was asked.
  static int ConcludeKnobs(const Replay& replay) {
    const std::vector<CgroupKnobs::Missed> missed = replay.missed_knobs();
    for (const CgroupKnobs::Missed& knob : missed) {
      PrintError(absl::StrCat(
          "cgroup ", knob.path, " never appeared, and its knobs were not set: ",
          knob.nearest.empty() ? "the trace has no cgroups" : absl::StrCat("the nearest is ", knob.nearest)));
    }
    return missed.empty() ? kExitOk : kExitUsage;
  }

  absl::Status RemoveNode() {
    Server server = client_.server();
    server.timeout = std::min(server.timeout, kCleanupTimeout);
    absl::Status status = NodeClient(std::move(server)).DeleteNode(node_);
    return status.code() == absl::StatusCode::kNotFound ? absl::OkStatus() : status;
  }

  Context& context_;
  NodeClient& client_;
  const ReplayFlags& flags_;
  const bool fresh_;  // made here, removed here
  const std::string node_;
  bool made_ = false;  // by this command
};

}  // namespace

void AddReplayCommand(CLI::App* app, Context* context) {
  CLI::App* replay =
      app->add_subcommand("replay", "Feed recorded traces to a node and print what its cgroups hold");
  replay->footer(
      "Without --stat-at: the state at the end of the trace.  Traces are tracefs text, `trace-cmd report` "
      "or\n"
      "`perf script` output, plain, .gz or .zst, told apart by content; several are read in the order "
      "given.");
  auto flags = std::make_shared<ReplayFlags>();
  replay->add_option("file", flags->files, "Traces; - is standard input")->required()->type_name("FILE");
  replay
      ->add_option("--node", flags->node,
                   "The node to feed, made where it is not there, and kept [a new one, removed after]")
      ->type_name("NAME");
  replay
      ->add_option(
          "--stat-at", flags->stat_at,
          "Print the state at each of the times in FILE: seconds of the trace's clock, one a line, ascending")
      ->type_name("FILE");
  flags->spec.AddTo(replay);
  const std::string size = "PATH=SIZE";
  AddKnobFlag(
      replay, flags.get(), "--memory-max", "memory.max", size,
      "memory.max of a cgroup from its creation on; any number of times.  Bytes, max, or a share of the "
      "node's memory: 50%");
  AddKnobFlag(replay, flags.get(), "--memory-high", "memory.high", size, "memory.high, so too");
  AddKnobFlag(replay, flags.get(), "--memory-low", "memory.low", size, "memory.low, so too");
  AddKnobFlag(replay, flags.get(), "--memory-min", "memory.min", size, "memory.min, so too");
  AddKnobFlag(replay, flags.get(), "--swap-max", "memory.swap.max", size,
              "memory.swap.max, so too; a share is of the node's swap");
  AddKnobFlag(replay, flags.get(), "--swappiness", "memory.swappiness", "PATH=N",
              "memory.swappiness, 0 to 200");
  AddKnobFlag(replay, flags.get(), "--oom-group", "memory.oom.group", "PATH=N", "memory.oom.group, 0 or 1");
  replay->add_option("--root", flags->root, "Number of the cgroup hierarchy that counts [the first one seen]")
      ->type_name("N");
  replay->add_flag("--strict", flags->strict, "Stop at the first line that is not understood");
  replay->add_flag("-v,--verbose", flags->verbose,
                   "Name the first events that did not go as the trace shows");
  SetCommand(replay, context, [context, flags](NodeClient* client) {
    // Whoever sets a limit asks what the model does about it.
    if (!flags->knobs.empty() && !flags->spec.reclaim_given()) flags->spec.reclaim = "modelled";
    return ReplayCommand(context, client, *flags).Run();
  });
}

}  // namespace memcgd::client
