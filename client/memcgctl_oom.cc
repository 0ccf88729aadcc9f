// memcgctl oom list|watch: what the OOM killer saw and did.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

struct OomFlags {
  std::string node;
  uint64_t after = 0;
};

std::string Bytes(uint64_t bytes) { return HumanBytes(static_cast<int64_t>(bytes)); }

// The record as people read it.
std::string RecordText(const v1::OomRecord& record) {
  std::string text = absl::StrFormat("#%d at %d.%06d s: %s met its limit, charging for %s", record.sequence(),
                                     record.time_ns() / 1'000'000'000, record.time_ns() / 1000 % 1'000'000,
                                     record.breached(), record.charged());
  if (record.tid() != 0) absl::StrAppend(&text, " (thread ", record.tid(), ", ", record.comm(), ")");
  absl::StrAppend(&text, record.group() ? "; memory.oom.group: all of a cgroup was killed\n" : "\n");
  Table levels({"  level", "usage", "max", "swap", "swap max"});
  for (const v1::OomLevel& level : record.levels()) {
    levels.AddRow({absl::StrCat("  ", level.path()), Bytes(level.usage_bytes()),
                   level.has_max_bytes() ? Bytes(level.max_bytes()) : "max", Bytes(level.swap_bytes()),
                   level.has_swap_max_bytes() ? Bytes(level.swap_max_bytes()) : "max"});
  }
  text += levels.Text();
  Table victims({"  process", "tgid", "cgroup", "points", "rss", "swap", "page tables", "adj", "killed"});
  for (const v1::OomVictim& victim : record.victims()) {
    victims.AddRow({absl::StrCat("  ", victim.comm().empty() ? "?" : victim.comm()),
                    absl::StrCat(victim.tgid()), victim.cgroup(), absl::StrCat(victim.points()),
                    absl::StrCat(victim.rss_pages()), absl::StrCat(victim.swap_pages()),
                    absl::StrCat(victim.pagetable_pages()), absl::StrCat(victim.oom_score_adj()),
                    victim.killed() ? "killed" : ""});
  }
  text += victims.Text();
  Table consumers({"  holds most", "anon", "file", "shmem", "kernel"});
  for (const v1::OomConsumer& consumer : record.consumers()) {
    consumers.AddRow({absl::StrCat("  ", consumer.path()), Bytes(consumer.anon_bytes()),
                      Bytes(consumer.file_bytes()), Bytes(consumer.shmem_bytes()),
                      Bytes(consumer.kernel_bytes())});
  }
  text += consumers.Text();
  const v1::OomFileLeft& left = record.file_left();
  return absl::StrCat(text, "  file cache left: ", Bytes(left.bytes()), "; of it dirty ",
                      Bytes(left.dirty_bytes()), ", being written ", Bytes(left.writeback_bytes()),
                      ", shmem ", Bytes(left.shmem_bytes()), ", protected ", Bytes(left.protected_bytes()),
                      "; unevictable of any kind ", Bytes(left.unevictable_bytes()), "\n");
}

std::string LevelJson(const v1::OomLevel& level) {
  return absl::StrCat("{\"path\": ", JsonString(level.path()), ", \"usage\": ", level.usage_bytes(),
                      ", \"max\": ", level.has_max_bytes() ? absl::StrCat(level.max_bytes()) : "null",
                      ", \"swap\": ", level.swap_bytes(), ", \"swap_max\": ",
                      level.has_swap_max_bytes() ? absl::StrCat(level.swap_max_bytes()) : "null", "}");
}

std::string VictimJson(const v1::OomVictim& victim) {
  return absl::StrCat("{\"tgid\": ", victim.tgid(), ", \"comm\": ", JsonString(victim.comm()),
                      ", \"cgroup\": ", JsonString(victim.cgroup()), ", \"points\": ", victim.points(),
                      ", \"rss_pages\": ", victim.rss_pages(), ", \"swap_pages\": ", victim.swap_pages(),
                      ", \"pagetable_pages\": ", victim.pagetable_pages(),
                      ", \"oom_score_adj\": ", victim.oom_score_adj(),
                      ", \"killed\": ", victim.killed() ? "true" : "false", "}");
}

std::string ConsumerJson(const v1::OomConsumer& consumer) {
  return absl::StrCat("{\"path\": ", JsonString(consumer.path()), ", \"anon\": ", consumer.anon_bytes(),
                      ", \"file\": ", consumer.file_bytes(), ", \"shmem\": ", consumer.shmem_bytes(),
                      ", \"kernel\": ", consumer.kernel_bytes(), "}");
}

std::string RecordJson(const v1::OomRecord& record) {
  const auto levels = [](std::string* to, const v1::OomLevel& one) { to->append(LevelJson(one)); };
  const auto victims = [](std::string* to, const v1::OomVictim& one) { to->append(VictimJson(one)); };
  const auto consumers = [](std::string* to, const v1::OomConsumer& one) { to->append(ConsumerJson(one)); };
  const v1::OomFileLeft& left = record.file_left();
  return absl::StrCat(
      "{\"sequence\": ", record.sequence(), ", \"time_ns\": ", record.time_ns(),
      ", \"breached\": ", JsonString(record.breached()), ", \"charged\": ", JsonString(record.charged()),
      ", \"tid\": ", record.tid(), ", \"comm\": ", JsonString(record.comm()),
      ", \"group\": ", record.group() ? "true" : "false", ", \"levels\": [",
      absl::StrJoin(record.levels(), ", ", levels), "], \"victims\": [",
      absl::StrJoin(record.victims(), ", ", victims), "], \"consumers\": [",
      absl::StrJoin(record.consumers(), ", ", consumers), "], \"file_left\": {\"bytes\": ", left.bytes(),
      ", \"dirty\": ", left.dirty_bytes(), ", \"writeback\": ", left.writeback_bytes(),
      ", \"shmem\": ", left.shmem_bytes(), ", \"unevictable\": ", left.unevictable_bytes(),
      ", \"protected\": ", left.protected_bytes(), "}}");
}

int ListRecords(NodeClient* client, Context* context, const OomFlags& flags) {
  absl::StatusOr<std::vector<v1::OomRecord>> records = client->ListOomRecords(flags.node, flags.after);
  if (!records.ok()) return FailWith(records.status());
  if (context->json()) {
    const auto json = [](std::string* to, const v1::OomRecord& one) { to->append(RecordJson(one)); };
    return Finish(context, absl::StrCat("[", absl::StrJoin(*records, ",\n ", json), "]\n"));
  }
  const auto text = [](std::string* to, const v1::OomRecord& one) { to->append(RecordText(one)); };
  return Finish(context, records->empty() ? "nothing was killed\n" : absl::StrJoin(*records, "\n", text));
}

// One record after the other; in JSON one a line.
int WatchRecords(NodeClient* client, Context* context, const OomFlags& flags) {
  const auto print = [context](const v1::OomRecord& record) {
    return context->out->Write(absl::StrCat(context->json() ? RecordJson(record) : RecordText(record), "\n"));
  };
  const absl::Status status =
      client->WatchOomRecords(flags.node, flags.after, context->interrupt->flag(), print);
  if (context->out->reader_is_gone()) return kExitBrokenPipe;
  if (context->interrupt->flag()) return kExitSignal + context->interrupt->signal();
  return status.ok() ? kExitOk : FailWith(status);
}

}  // namespace

void AddOomCommands(CLI::App* app, Context* context) {
  CLI::App* oom = app->add_subcommand("oom", "What a node's OOM killer saw and did");
  const auto add = [&](const char* name, const char* help,
                       int (*run)(NodeClient*, Context*, const OomFlags&)) {
    CLI::App* command = oom->add_subcommand(name, help);
    auto flags = std::make_shared<OomFlags>();
    command->add_option("node", flags->node, "The node's name")->required()->type_name("NODE");
    command->add_option("--after", flags->after, "Only records after the one of that number")->type_name("N");
    SetCommand(command, context,
               [context, flags, run](NodeClient* client) { return run(client, context, *flags); });
  };
  add("list", "The records that the node remembers", ListRecords);
  add("watch", "Those, and then each as it comes, until Ctrl-C", WatchRecords);
}

}  // namespace memcgd::client
