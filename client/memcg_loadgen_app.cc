#include "client/memcg_loadgen_app.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/loadgen/event_words.h"
#include "client/loadgen/mechanisms.h"
#include "client/loadgen/pinning.h"
#include "client/memcgctl_command_line.h"

namespace memcgd::client {
namespace {

using loadgen::ExperimentKind;

constexpr char kDescription[] =
    "Loads memcgd with the experiments that made its mechanisms' names, with recorded traces or with a mix "
    "of "
    "events, and measures throughput and latency.";
constexpr char kFooter[] =
    "Environment: MEMCG_LOADGEN_SERVER, MEMCG_LOADGEN_OUTPUT, MEMCG_LOADGEN_CPUS,\n"
    "MEMCG_LOADGEN_TLS_CA, MEMCG_LOADGEN_TLS_CERT, MEMCG_LOADGEN_TLS_KEY, MEMCG_LOADGEN_TOKEN_FILE; a flag "
    "wins over its "
    "variable.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad trace file, 4 server not reached, 5 state lost, 130 "
    "Ctrl-C (what was measured\n"
    "is printed).  More: docs/loadgen.md";

// "4K", "128M", "1G": a multiple of the page size.
bool ReadSize(std::string text, uint64_t* bytes) {
  unsigned shift = 0;
  const std::string suffixes = "KMG";
  if (!text.empty() && suffixes.find(text.back()) != std::string::npos) {
    shift = 10 * (static_cast<unsigned>(suffixes.find(text.back())) + 1);
    text.pop_back();
  }
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, *bytes);
  if (text.empty() || read.ec != std::errc() || read.ptr != end || *bytes >> 32 != 0) return false;
  *bytes <<= shift;
  return *bytes >= loadgen::kPageSize && *bytes % loadgen::kPageSize == 0 &&
         *bytes / loadgen::kPageSize <= loadgen::kMaxRangePages;
}

bool ReadCount(const std::string& text, uint32_t most, uint32_t* count) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, *count);
  return !text.empty() && read.ec == std::errc() && read.ptr == end && *count >= 1 && *count <= most;
}

bool ReadPolls(const std::string& text, double* polls) {
  char* end = nullptr;
  *polls = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && *polls >= 0 && *polls <= 10'000;
}

// A flag whose text is read by `read`, whose error is the flag's.
CLI::Option* AddText(CLI::App* app, const char* names, const char* help, const char* type,
                     std::function<absl::Status(const std::string&)> read) {
  return app
      ->add_option_function<std::string>(
          names, [](const std::string&) {}, help)
      ->type_name(type)
      ->check(
          [read = std::move(read)](const std::string& text) { return std::string(read(text).message()); });
}

// A flag that takes a list of things, comma between them.
template <typename T>
CLI::Option* AddList(CLI::App* app, const char* names, const char* help, const char* wanted,
                     std::function<bool(const std::string&, T*)> read, std::vector<T>* list) {
  return AddText(app, names, help, "LIST", [=](const std::string& text) -> absl::Status {
    std::vector<T> read_so_far;
    for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
      T one{};
      if (!read(item, &one)) {
        return absl::InvalidArgumentError(absl::StrCat("\"", item, "\" is no ", wanted));
      }
      read_so_far.push_back(one);
    }
    *list = read_so_far;
    return absl::OkStatus();
  });
}

CLI::Option* AddCounts(CLI::App* app, const char* names, const char* help, const char* wanted, uint32_t most,
                       std::vector<uint32_t>* list) {
  return AddList<uint32_t>(
      app, names, help, wanted,
      [most](const std::string& text, uint32_t* count) { return ReadCount(text, most, count); }, list);
}

template <typename T, typename Low, typename High>
CLI::Option* AddNumber(CLI::App* app, const char* names, T* number, const char* help, const char* type,
                       Low low, High high) {
  return app->add_option(names, *number, help)
      ->type_name(type)
      ->check(CLI::Range(static_cast<T>(low), static_cast<T>(high)).description(""))
      ->capture_default_str();
}

void AddWhereAndWho(CLI::App* app, LoadgenContext* context) {
  loadgen::TurnOptions& turn = context->turn;
  turn.server = "127.0.0.1:7077";
  app->add_option("--server", turn.server, "Where memcgd listens: HOST:PORT or unix:PATH")
      ->envname("MEMCG_LOADGEN_SERVER")
      ->type_name("ADDR")
      ->capture_default_str();
  AddCredentialOptions(app, "MEMCG_LOADGEN", &turn.credentials);
  app->add_option("-o,--output", context->output, "How to print: table (for people) or json (for programs)")
      ->envname("MEMCG_LOADGEN_OUTPUT")
      ->type_name("table|json")
      ->check(CLI::IsMember({"table", "json"}).description(""))
      ->capture_default_str();
  AddNumber(app, "--timeout", &turn.timeout_seconds, "Most seconds to wait for an answer of the server",
            "SECONDS", 0.1, 86'400);
  AddText(app, "--cpus", "CPUs for the workers, as 0-3,8, one worker to each in turn [all that there are]",
          "LIST",
          [&turn](const std::string& text) {
            absl::StatusOr<std::vector<uint32_t>> cpus = loadgen::ParseCpuList(text);
            if (!cpus.ok()) return cpus.status();
            turn.cpus = *cpus;
            return loadgen::CheckCpus(*cpus);
          })
      ->envname("MEMCG_LOADGEN_CPUS");
  AddCounts(app, "--streams",
            "Streams of each node, one worker each; several numbers are measured one after the other [the "
            "experiment's]",
            "number of streams (1 to 4096)", 4096, &context->settings.streams);
  AddNumber(app, "--nodes", &turn.nodes, "Nodes (modelled machines) that are fed at the same time", "N", 1,
            1000);
  AddText(app, "--mechanism",
          "Older form of a mechanism for all nodes, as stats=walk; may be given several times", "NAME=FORM",
          [context](const std::string& text) {
            auto form = loadgen::ParseForm(text);
            if (form.ok()) context->forms[form->first] = form->second;
            return form.status();
          })
      ->take_all();
}

void AddHow(CLI::App* app, LoadgenContext* context) {
  loadgen::TurnOptions& turn = context->turn;
  AddNumber(app, "--batch", &turn.batch_events, "Events in a batch", "N", 32, 65'536);
  AddNumber(app, "--window", &turn.window, "Closed loop: batches on their way, each worker", "N", 1, 64);
  app->add_option("--rate", turn.rate, "Open loop: events a second of all workers together [closed loop]")
      ->type_name("EVENTS")
      ->check(CLI::Range(1.0, 1e12).description(""));
  AddNumber(app, "--duration", &turn.duration_seconds, "Seconds that are measured, each turn", "SECONDS",
            0.01, 86'400);
  AddNumber(app, "--warmup", &turn.warmup_seconds, "Seconds before them that are not", "SECONDS", 0, 86'400);
  AddNumber(app, "--repeat", &context->repeats, "Turns of each case, of each form where two are compared",
            "N", 1, 1000);
  AddNumber(app, "--seed", &turn.seed, "Of all that is random", "N", 0, UINT64_MAX);
  AddText(app, "--compare",
          "Mechanism whose older and newer form take turns, A B B A …: charge_order, commit_batch, css_refs, "
          "stats "
          "(or stats=rstat), lru_lock; none shows the noise",
          "MECHANISM", [context](const std::string& text) {
            context->compare = text;
            return loadgen::ParseComparison(text).status();
          });
  AddNumber(app, "--server-pid", &turn.server_cpu.pid,
            "memcgd's process on this machine: its CPU time is shown", "PID", 0, 1 << 22);
  app->add_option("--metrics", turn.server_cpu.metrics,
                  "Where memcgd's metrics are: its CPU time is read there (process_cpu_seconds_total)")
      ->type_name("HOST:PORT");
  app->add_option("--plot", context->plot, "Draw throughput and latency into FILE, as SVG")
      ->type_name("FILE");
}

CLI::Option* AddPages(CLI::App* app, LoadgenContext* context, const char* help, uint64_t most) {
  return app->add_option("--pages", context->settings.pages, help)
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, most).description(""));
}

// The flags of one experiment.
void AddOwnFlags(CLI::App* app, LoadgenContext* context, ExperimentKind kind) {
  loadgen::Settings& settings = context->settings;
  switch (kind) {
    case ExperimentKind::kPft:
    case ExperimentKind::kMultiFaultAllSplit:
      AddPages(app, context, "Pages of each thread [65536]", loadgen::kMaxRangePages);
      return;
    case ExperimentKind::kMmap1:
      AddList<uint64_t>(app, "--sizes", "Bytes that are mapped, as 4K,128M,1G [4K to 1G]",
                        "size: bytes are wanted, as 4K, 128M or 1G, whole pages, at most 2G less a page",
                        ReadSize, &settings.sizes_bytes);
      AddCounts(app, "--lifts", "How much larger than RAM/CPUs/256 the commit batch is [1,16,64]",
                "lift (1 to 4096)", 4096, &settings.lifts);
      return;
    case ExperimentKind::kMemoryStat:
      AddCounts(app, "--cgroups", "Idle cgroups [10,1000,15000]", "number of cgroups (1 to 100000)", 100'000,
                &settings.cgroups);
      AddList<double>(app, "--polls", "Reads of memory.stat a second [0,1,10]", "number of reads a second",
                      ReadPolls, &settings.polls);
      AddPages(app, context, "Pages of the file [65536]", uint64_t{1} << 30);
      return;
    case ExperimentKind::kLruFileReadTwice:
      AddCounts(app, "--cgroups", "Cgroups, two readers each [104]", "number of cgroups (1 to 1024)", 1024,
                &settings.cgroups);
      AddPages(app, context, "Pages of each file [4096]", uint64_t{1} << 30);
      return;
    case ExperimentKind::kMix:
      AddText(app, "--weights",
              "How often each is done, as fault=900,mmap=30,munmap=30,fork=1,read=40; what is not named is "
              "not done "
              "[fault=9000,mmap=300,munmap=300,fork=1,read=400]",
              "LIST", [&settings](const std::string& text) {
                absl::StatusOr<loadgen::MixWeights> weights = loadgen::ParseMixWeights(text);
                if (weights.ok()) settings.weights = *weights;
                return weights.status();
              });
      return;
    case ExperimentKind::kReplay:
      app->add_option("file", context->trace, "The trace, as `memcgctl replay` takes it")
          ->required()
          ->type_name("FILE");
      return;
  }
}

}  // namespace

void BuildLoadgenApp(CLI::App* app, LoadgenContext* context) {
  app->name("memcg-loadgen");
  app->description(kDescription);
  app->footer(kFooter);
  app->get_formatter()->column_width(34);
  app->set_help_flag("-h,--help", "Print this help");
  app->set_version_flag("--version", "memcg-loadgen " MEMCGD_VERSION, "Print the version");
  AddWhereAndWho(app, context);
  AddHow(app, context);
  app->require_subcommand(1);
  for (const loadgen::ExperimentInfo& info : loadgen::ExperimentList()) {
    CLI::App* command = app->add_subcommand(std::string(info.name), std::string(info.summary));
    command->fallthrough();
    AddOwnFlags(command, context, info.kind);
    const ExperimentKind kind = info.kind;
    command->callback(
        [context, kind] { context->run = [context, kind] { return RunLoadgen(context, kind); }; });
  }
}

}  // namespace memcgd::client
