#include "client/memcgctl_output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using Items = google::protobuf::RepeatedPtrField<v1::StatItem>;

// What memory.stat counts; all else is bytes.  Told by how the names begin, as their families grow with
// kernel versions.
constexpr std::array<std::string_view, 10> kCountPrefixes = {
    "pg", "psw", "workingset_", "thp_", "zswpin", "zswpout", "zswpwb", "swpin_", "swpout_", "numa_"};
constexpr std::array<std::string_view, 9> kColumns = {"anon",        "file",       "shmem",
                                                      "file_mapped", "file_dirty", "unevictable",
                                                      "pgfault",     "pgmajfault", "workingset_refault_file"};

// Columns that a terminal draws, for the names people give: each character counts as one.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string StatText(std::string_view name, int64_t value) {
  return StatIsBytes(name) ? HumanBytes(value) : absl::StrCat(value);
}

// The part of a path behind its last slash.
std::string_view LastPart(std::string_view path) { return path.substr(path.rfind('/') + 1); }
std::string_view ParentOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? std::string_view("/") : path.substr(0, slash);
}

void AppendKey(std::string_view key, std::string* to) {
  to->append(to->back() == '{' ? "" : ", ").append(JsonString(key)).append(": ");
}
void AppendNumber(std::string_view key, uint64_t value, std::string* to) {
  AppendKey(key, to);
  absl::StrAppend(to, value);
}

const char* OvercommitName(v1::OvercommitPolicy policy) {
  switch (policy) {
    case v1::OVERCOMMIT_POLICY_ALWAYS:
      return "always";
    case v1::OVERCOMMIT_POLICY_NEVER:
      return "never";
    default:
      return "guess";
  }
}

// "CHARGE_ORDER_CHARGE_FIRST" → "charge_first".
std::string FormName(const std::string& value, std::string_view prefix) {
  return absl::AsciiStrToLower(value.substr(std::min(prefix.size(), value.size())));
}

// Names and values of a node's mechanisms, by the flags that choose them.
std::vector<std::pair<const char*, std::string>> Forms(const v1::Mechanisms& forms) {
  return {
      {"charge_order", FormName(v1::ChargeOrder_Name(forms.charge_order()), "CHARGE_ORDER_")},
      {"commit_batch", FormName(v1::CommitBatch_Name(forms.commit_batch()), "COMMIT_BATCH_")},
      {"css_refs", FormName(v1::CssRefs_Name(forms.css_refs()), "CSS_REFS_")},
      {"stats", FormName(v1::StatsForm_Name(forms.stats()), "STATS_FORM_")},
      {"lru_lock", FormName(v1::LruLock_Name(forms.lru_lock()), "LRU_LOCK_")},
  };
}

// Names and values of what the mechanisms counted, as the message has them.
std::vector<std::pair<std::string, uint64_t>> Counters(const v1::MechanismCounters& counters) {
  std::vector<std::pair<std::string, uint64_t>> list;
  const auto* descriptor = v1::MechanismCounters::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    list.emplace_back(descriptor->field(i)->name(),
                      counters.GetReflection()->GetUInt64(counters, descriptor->field(i)));
  }
  return list;
}

}  // namespace

absl::Status Output::Write(std::string_view text) {
  while (status_.ok() && !text.empty()) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      reader_is_gone_ = errno == EPIPE;
      status_ = absl::Status(absl::StatusCode::kFailedPrecondition,
                             absl::StrCat("cannot write to standard output: ", std::strerror(errno)));
    }
  }
  return status_;
}

std::string Table::Text() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      if (i == 0) {
        text += row[i] + (row.size() == 1 ? "" : padding);
      } else {
        absl::StrAppend(&text, "  ", padding, row[i]);
      }
    }
    text += '\n';
  }
  return text;
}

std::string HumanBytes(int64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes == 0) return "0";
  if (bytes > -1024 && bytes < 1024) return absl::StrCat(bytes, " B");
  double amount = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would round to 1024.0 of the smaller unit.
  while ((amount >= 1023.95 || amount <= -1023.95) && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", amount, kUnits[unit]);
}

std::string HumanTime(uint64_t us) {
  if (us < 1000) return absl::StrCat(us, us == 0 ? "" : " µs");
  return us < 1'000'000 ? absl::StrFormat("%.1f ms", static_cast<double>(us) / 1e3)
                        : absl::StrFormat("%.1f s", static_cast<double>(us) / 1e6);
}

std::string JsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool StatIsBytes(std::string_view name) {
  constexpr std::string_view kTotal = "total_";  // v1's recursive lines
  if (name.substr(0, kTotal.size()) == kTotal) name.remove_prefix(kTotal.size());
  return std::none_of(kCountPrefixes.begin(), kCountPrefixes.end(),
                      [name](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; });
}

std::string CgroupsJson(const v1::State& state) {
  std::vector<std::string> keys;  // with what stands before and behind
  for (const std::string& name : state.stat_names()) {
    keys.push_back(absl::StrCat(keys.empty() ? "" : ", ", JsonString(name), ": "));
  }
  std::string json = "{";
  for (const v1::CgroupState& cgroup : state.cgroups()) {
    AppendKey(cgroup.path(), &json);
    json += '{';
    const int stats = std::min(cgroup.stat_size(), state.stat_names_size());
    for (int i = 0; i < stats; ++i) absl::StrAppend(&json, keys[static_cast<size_t>(i)], cgroup.stat(i));
    json += '}';
  }
  return json + "}";
}

std::string CgroupsTable(const v1::State& state) {
  std::vector<std::string> head = {"cgroup"};
  std::vector<int> columns;
  for (std::string_view name : kColumns) {
    const auto& names = state.stat_names();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) continue;
    columns.push_back(static_cast<int>(found - names.begin()));
    head.emplace_back(name == "workingset_refault_file" ? "refault_file" : name);
  }
  Table table(std::move(head));
  for (const v1::CgroupState& cgroup : state.cgroups()) {
    std::vector<std::string> row = {cgroup.path()};
    for (int column : columns) {
      row.push_back(column < cgroup.stat_size() ? StatText(state.stat_names(column), cgroup.stat(column))
                                                : "");
    }
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string KernelText(const Items& lines) {
  std::string text;
  for (const v1::StatItem& line : lines) absl::StrAppend(&text, line.name(), " ", line.value(), "\n");
  return text;
}

std::string ItemsTable(const Items& lines, bool bytes_too) {
  Table table({"name", "value"});
  for (const v1::StatItem& line : lines) {
    table.AddRow({line.name(), bytes_too ? StatText(line.name(), line.value()) : absl::StrCat(line.value())});
  }
  return table.Text();
}

std::string ItemsJson(const Items& lines) {
  std::string json = "{";
  for (const v1::StatItem& line : lines) {
    AppendKey(line.name(), &json);
    absl::StrAppend(&json, line.value());
  }
  return json + "}";
}

std::string NodeJson(const v1::Node& node) {
  const v1::NodeSpec& spec = node.spec();
  std::string json = "{";
  AppendKey("name", &json);
  json += JsonString(node.name());
  AppendNumber("cpus", spec.cpus(), &json);
  AppendNumber("memory_bytes", spec.memory_bytes(), &json);
  AppendNumber("swap_bytes", spec.swap_bytes(), &json);
  AppendNumber("page_size", spec.page_size(), &json);
  AppendKey("zero_page", &json);
  json += spec.no_zero_page() ? "false" : "true";
  AppendKey("overcommit", &json);
  json += JsonString(OvercommitName(spec.overcommit()));
  AppendNumber("overcommit_ratio", spec.overcommit_ratio(), &json);
  AppendNumber("overcommit_kbytes", spec.overcommit_kbytes(), &json);
  AppendNumber("writeback_bytes_per_second", spec.writeback_bytes_per_second(), &json);
  AppendNumber("read_bytes_per_second", spec.read_bytes_per_second(), &json);
  AppendKey("incarnation", &json);
  // 64 bits of a hash do not fit the doubles that many readers of JSON have.
  json += absl::StrFormat("\"%016x\"", node.incarnation());
  AppendNumber("streams", node.streams(), &json);
  AppendNumber("events", node.events(), &json);
  AppendNumber("cgroups", node.cgroups(), &json);
  AppendNumber("dying_cgroups", node.dying_cgroups(), &json);
  AppendNumber("processes", node.processes(), &json);
  AppendNumber("resident_pages", node.resident_pages(), &json);
  AppendNumber("committed_as_bytes", node.committed_as_bytes(), &json);
  AppendNumber("commit_limit_bytes", node.commit_limit_bytes(), &json);
  AppendKey("state_hash", &json);
  json += absl::StrFormat("\"%016x\"", node.state_hash());
  AppendKey("reclaim", &json);
  json += JsonString(FormName(v1::ReclaimMode_Name(spec.reclaim()), "RECLAIM_MODE_"));
  AppendKey("mechanisms", &json);
  json += '{';
  for (const auto& [name, form] : Forms(spec.mechanisms())) {
    AppendKey(name, &json);
    json += JsonString(form);
  }
  json += '}';
  AppendKey("mechanism_counters", &json);
  json += '{';
  for (const auto& [name, count] : Counters(node.mechanism_counters())) AppendNumber(name, count, &json);
  return json + "}}";
}

std::string NodesTable(const std::vector<v1::Node>& nodes) {
  Table table(
      {"node", "cpus", "memory", "swap", "resident", "committed_as", "cgroups", "processes", "events"});
  for (const v1::Node& node : nodes) {
    const auto resident = static_cast<int64_t>(node.resident_pages() * node.spec().page_size());
    table.AddRow({node.name(), absl::StrCat(node.spec().cpus()),
                  HumanBytes(static_cast<int64_t>(node.spec().memory_bytes())),
                  HumanBytes(static_cast<int64_t>(node.spec().swap_bytes())), HumanBytes(resident),
                  HumanBytes(static_cast<int64_t>(node.committed_as_bytes())), absl::StrCat(node.cgroups()),
                  absl::StrCat(node.processes()), absl::StrCat(node.events())});
  }
  return table.Text();
}

std::string NodeTable(const v1::Node& node) {
  const auto bytes = [](uint64_t amount) { return HumanBytes(static_cast<int64_t>(amount)); };
  const v1::NodeSpec& spec = node.spec();
  Table table({"node", node.name()});
  table.AddRow({"cpus", absl::StrCat(spec.cpus())});
  table.AddRow({"memory", bytes(spec.memory_bytes())});
  table.AddRow({"swap", bytes(spec.swap_bytes())});
  table.AddRow({"page size", bytes(spec.page_size())});
  table.AddRow({"zero page", spec.no_zero_page() ? "no" : "yes"});
  table.AddRow({"overcommit", OvercommitName(spec.overcommit())});
  table.AddRow({"reclaim", FormName(v1::ReclaimMode_Name(spec.reclaim()), "RECLAIM_MODE_")});
  table.AddRow({"writeback a second", bytes(spec.writeback_bytes_per_second())});
  table.AddRow({"reads a second", bytes(spec.read_bytes_per_second())});
  for (auto& [name, form] : Forms(spec.mechanisms())) {
    table.AddRow({absl::StrReplaceAll(name, {{"_", " "}}), std::move(form)});
  }
  table.AddRow({"resident", bytes(node.resident_pages() * spec.page_size())});
  table.AddRow({"committed_as", bytes(node.committed_as_bytes())});
  table.AddRow({"commit limit", bytes(node.commit_limit_bytes())});
  table.AddRow({"cgroups", absl::StrCat(node.cgroups())});
  table.AddRow({"dying cgroups", absl::StrCat(node.dying_cgroups())});
  table.AddRow({"processes", absl::StrCat(node.processes())});
  table.AddRow({"streams", absl::StrCat(node.streams())});
  table.AddRow({"events", absl::StrCat(node.events())});
  table.AddRow({"incarnation", absl::StrFormat("%016x", node.incarnation())});
  table.AddRow({"state hash", absl::StrFormat("%016x", node.state_hash())});
  for (const auto& [name, count] : Counters(node.mechanism_counters())) {
    table.AddRow({absl::StrReplaceAll(name, {{"_", " "}}), absl::StrCat(count)});
  }
  return table.Text();
}

std::string CgroupJson(const v1::Cgroup& cgroup) {
  std::string json = "{";
  AppendKey("path", &json);
  json += JsonString(cgroup.path());
  AppendNumber("id", cgroup.id(), &json);
  AppendNumber("processes", cgroup.processes(), &json);
  AppendNumber("children", cgroup.children(), &json);
  AppendNumber("dying_descendants", cgroup.dying_descendants(), &json);
  AppendKey("knobs", &json);
  json += '{';
  for (const auto& [name, value] :
       std::map<std::string, std::string>(cgroup.knobs().begin(), cgroup.knobs().end())) {
    AppendKey(name, &json);
    json += JsonString(value);
  }
  return json + "}}";
}

std::string CgroupListTable(const std::vector<v1::Cgroup>& cgroups) {
  Table table({"cgroup", "processes", "children", "dying"});
  for (const v1::Cgroup& cgroup : cgroups) {
    table.AddRow({cgroup.path(), absl::StrCat(cgroup.processes()), absl::StrCat(cgroup.children()),
                  absl::StrCat(cgroup.dying_descendants())});
  }
  return table.Text();
}

std::string CgroupTable(const v1::Cgroup& cgroup) {
  Table table({"cgroup", cgroup.path()});
  table.AddRow({"processes", absl::StrCat(cgroup.processes())});
  table.AddRow({"children", absl::StrCat(cgroup.children())});
  table.AddRow({"dying descendants", absl::StrCat(cgroup.dying_descendants())});
  for (const auto& [name, value] :
       std::map<std::string, std::string>(cgroup.knobs().begin(), cgroup.knobs().end())) {
    table.AddRow({name, value});
  }
  return table.Text();
}

namespace {

using ByParent = std::map<std::string_view, std::vector<const v1::Cgroup*>>;

std::string TreeLine(const v1::Cgroup& cgroup, std::string_view name) {
  std::vector<std::string> notes;
  if (cgroup.processes() != 0) notes.push_back(absl::StrCat(cgroup.processes(), " processes"));
  if (cgroup.dying_descendants() != 0)
    notes.push_back(absl::StrCat(cgroup.dying_descendants(), " dying below"));
  return absl::StrCat(std::string(name),
                      notes.empty() ? "" : absl::StrCat("  (", absl::StrJoin(notes, ", "), ")"), "\n");
}

// A path has at most 4096 bytes: the recursion is at most 2048 deep.
void AppendChildren(const ByParent& by_parent, std::string_view parent, const std::string& indent,
                    std::string* text) {
  const auto found = by_parent.find(parent);
  if (found == by_parent.end()) return;
  for (const v1::Cgroup* child : found->second) {
    const bool last = child == found->second.back();
    absl::StrAppend(text, indent, last ? "└─ " : "├─ ", TreeLine(*child, LastPart(child->path())));
    AppendChildren(by_parent, child->path(), indent + (last ? "   " : "│  "), text);
  }
}

}  // namespace

std::string CgroupTree(const std::vector<v1::Cgroup>& cgroups) {
  if (cgroups.empty()) return "";
  ByParent by_parent;
  for (size_t i = 1; i < cgroups.size(); ++i) by_parent[ParentOf(cgroups[i].path())].push_back(&cgroups[i]);
  std::string text = TreeLine(cgroups.front(), cgroups.front().path());
  AppendChildren(by_parent, cgroups.front().path(), "", &text);
  return text;
}

}  // namespace memcgd::client
