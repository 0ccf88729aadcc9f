// memcgctl top: the cgroups of a node as they are now, and again each second.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_spec.h"
#include "client/memcgctl_top_screen.h"
#include "client/memcgctl_top_table.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using Clock = std::chrono::steady_clock;

// Cgroups that are read: each is a call.  Those nearest to the root come first.
constexpr size_t kMaxCgroups = 1000;
// Whoever presses q shall not wait for a server that is silent.
constexpr std::chrono::milliseconds kMostForAnAnswer{2'000};

struct TopFlags {
  std::string node;
  std::string path = "/";
  std::string sort = "usage";
  double every_seconds = 1;
  uint64_t count = 0;
  bool once = false;
  bool batch = false;
  bool flat = false;
};

// Reads a node again and again.
class NodeReader {
 public:
  NodeReader(NodeClient* client, const TopFlags& flags) : client_(*client), flags_(flags) {}

  absl::StatusOr<TopPicture> Read() {
    absl::StatusOr<v1::Node> node = client_.GetNode(flags_.node);
    if (!node.ok()) return node.status();
    absl::StatusOr<std::vector<v1::Cgroup>> cgroups = client_.ListCgroups(flags_.node, flags_.path);
    if (!cgroups.ok()) return cgroups.status();
    TopPicture picture;
    picture.node = *std::move(node);
    picture.left_out = KeepNearest(&*cgroups);
    for (const v1::Cgroup& cgroup : *cgroups) {
      absl::StatusOr<v1::ReadCgroupResponse> stat =
          client_.ReadCgroup(flags_.node, cgroup.path(), false, v1::NAME_STYLE_V2, true);
      if (absl::IsNotFound(stat.status())) continue;  // removed meanwhile
      if (!stat.ok()) return stat.status();
      picture.rows.push_back(RowOf(cgroup, *stat));
    }
    const Clock::time_point now = Clock::now();
    if (has_last_) SetRates(last_, std::chrono::duration<double>(now - read_).count(), &picture);
    last_ = picture;
    has_last_ = true;
    read_ = now;
    return picture;
  }

 private:
  // Returns how many were left out.
  static size_t KeepNearest(std::vector<v1::Cgroup>* cgroups) {
    if (cgroups->size() <= kMaxCgroups) return 0;
    std::stable_sort(cgroups->begin(), cgroups->end(), [](const v1::Cgroup& a, const v1::Cgroup& b) {
      return DepthOf(a.path()) < DepthOf(b.path());
    });
    const size_t left_out = cgroups->size() - kMaxCgroups;
    cgroups->resize(kMaxCgroups);
    return left_out;
  }

  NodeClient& client_;
  const TopFlags& flags_;
  TopPicture last_;
  bool has_last_ = false;
  Clock::time_point read_;
};

class TopCommand {
 public:
  TopCommand(Context* context, NodeClient* client, const TopFlags& flags)
      : context_(*context), flags_(flags), client_(ShortOf(client->server())), reader_(&client_, flags_) {}

  int Run() {
    const bool prints = flags_.once || flags_.batch || context_.json();
    if (!prints) {
      const absl::Status terminal = CheckTerminal();
      if (!terminal.ok()) return FailUsage(terminal);
    }
    absl::StatusOr<TopPicture> first = reader_.Read();
    if (!first.ok()) return FailWith(first.status());
    return prints ? Print() : Show(*std::move(first));
  }

 private:
  static Server ShortOf(Server server) {
    server.timeout = std::min(server.timeout, kMostForAnAnswer);
    return server;
  }

  Clock::duration every() const {
    return std::chrono::milliseconds(std::llround(flags_.every_seconds * 1000));
  }

  // False where a signal came first.
  bool Sleep(Clock::time_point until) const {
    while (!context_.interrupt->flag() && Clock::now() < until)
      std::this_thread::sleep_for(
          std::min<Clock::duration>(until - Clock::now(), std::chrono::milliseconds(50)));
    return !context_.interrupt->flag();
  }

  // The first picture was read already: rates need one before, with --once too.
  int Print() {
    const uint64_t count = flags_.once ? 1 : flags_.count;
    for (uint64_t printed = 0; count == 0 || printed < count; ++printed) {
      if (!Sleep(Clock::now() + every())) break;
      absl::StatusOr<TopPicture> next = reader_.Read();
      if (!next.ok()) return FailWith(next.status());
      Order(ColumnOf(flags_.sort), flags_.sort != "cgroup", !flags_.flat, &*next);
      const absl::Status status = context_.out->Write(
          context_.json() ? PictureJson(*next)
                          : absl::StrCat(printed == 0 ? "" : "\n", PictureText(*next, !flags_.flat)));
      if (!status.ok()) return context_.out->reader_is_gone() ? kExitBrokenPipe : FailWith(status);
    }
    return context_.interrupt->flag() ? kExitSignal + context_.interrupt->signal() : kExitOk;
  }

  int Show(TopPicture first) {
    TopScreen screen(flags_.sort, !flags_.flat);
    context_.interrupt->SetLastResort([] { TopScreen::RestoreTerminal(); });
    screen.SetPicture(std::move(first));
    std::atomic<bool> done{false};
    std::thread reading([&] {
      while (!done) {
        const Clock::time_point next = Clock::now() + every();
        while (!done && Clock::now() < next) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (done) return;
        absl::StatusOr<TopPicture> picture = reader_.Read();
        // The server may come back: the last picture stays, and what is wrong is said.
        picture.ok() ? screen.SetPicture(*std::move(picture)) : screen.SetError(ErrorLine(picture.status()));
      }
    });
    screen.Run(context_.interrupt->flag());
    done = true;
    reading.join();
    context_.interrupt->SetLastResort(nullptr);
    return context_.interrupt->flag() ? kExitSignal + context_.interrupt->signal() : kExitOk;
  }

  Context& context_;
  const TopFlags& flags_;
  NodeClient client_;
  NodeReader reader_;
};

}  // namespace

void AddTopCommand(CLI::App* app, Context* context) {
  CLI::App* top = app->add_subcommand("top", "Show what the cgroups of a node hold, as it changes");
  top->footer(
      "Keys: < > choose the column to sort by, r reverses, t tree or list, arrows and PgUp, PgDn scroll, q "
      "quits.");
  auto flags = std::make_shared<TopFlags>();
  AddNodeOption(top, &flags->node);
  top->add_option("path", flags->path, "Only this cgroup and those below it")->type_name("PATH");
  AddChoice(top, "--sort", &flags->sort, ColumnNames(), "The column to sort by")->capture_default_str();
  top->add_option("--every", flags->every_seconds, "Read again after so long")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.05, 86400.0).description(""))
      ->capture_default_str();
  top->add_flag("--flat", flags->flat, "A list of all cgroups in order, in place of the tree");
  top->add_flag("--batch", flags->batch, "Print one table after the other, for scripts");
  top->add_option("--count", flags->count, "With --batch: stop after so many tables")->type_name("N");
  top->add_flag("--once", flags->once, "Print one table");
  SetCommand(top, context,
             [context, flags](NodeClient* client) { return TopCommand(context, client, *flags).Run(); });
}

}  // namespace memcgd::client
