#include "client/memcgctl_top_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/memcgctl_output.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

struct Column {
  const char* name;  // of --sort
  const char* head;
  size_t width;
};
constexpr std::array<Column, kTopColumns> kColumns = {{{"usage", "USAGE", 11},
                                                       {"limit", "LIMIT", 11},
                                                       {"anon", "ANON", 11},
                                                       {"file", "FILE", 11},
                                                       {"shmem", "SHMEM", 11},
                                                       {"swap", "SWAP", 11},
                                                       {"faults", "FAULT/s", 9},
                                                       {"major", "MAJ/s", 7},
                                                       {"refaults", "REFLT/s", 9},
                                                       {"oom", "OOM", 5},
                                                       {"procs", "PROCS", 6},
                                                       {"cgroup", "CGROUP", 0}}};

uint64_t ItemOf(const google::protobuf::RepeatedPtrField<v1::StatItem>& items, std::string_view name) {
  for (const v1::StatItem& item : items) {
    if (item.name() == name) return item.value() > 0 ? static_cast<uint64_t>(item.value()) : 0;
  }
  return 0;
}

double Rate(uint64_t before, uint64_t now, double seconds) {
  return now > before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

// What a row is ordered by; names are compared as such.
double Key(const TopRow& row, TopColumn column) {
  switch (column) {
    case TopColumn::kUsage:
      return static_cast<double>(row.usage_bytes);
    case TopColumn::kLimit:
      return static_cast<double>(row.limit_bytes);
    case TopColumn::kAnon:
      return static_cast<double>(row.anon_bytes);
    case TopColumn::kFile:
      return static_cast<double>(row.file_bytes);
    case TopColumn::kShmem:
      return static_cast<double>(row.shmem_bytes);
    case TopColumn::kSwap:
      return static_cast<double>(row.swap_bytes);
    case TopColumn::kFaults:
      return row.faults_a_second;
    case TopColumn::kMajor:
      return row.major_a_second;
    case TopColumn::kRefaults:
      return row.refaults_a_second;
    case TopColumn::kOom:
      return static_cast<double>(row.oom_kills);
    case TopColumn::kProcs:
      return static_cast<double>(row.processes);
    case TopColumn::kCgroup:
      break;
  }
  return 0;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

// Escape sequences, line ends and their kind, of one byte or (U+0080 … U+009F) of two.
std::string WithoutControls(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const bool c1 = byte == 0xc2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xa0;
    text.push_back(byte < ' ' || byte == 0x7f || c1 ? '?' : name[i]);
    i += c1 ? 1 : 0;
  }
  return text;
}

std::string RateText(double rate) {
  if (rate == 0) return "0";
  return rate < 10 ? absl::StrFormat("%.1f", rate) : absl::StrFormat("%.0f", rate);
}

}  // namespace

std::vector<std::string> ColumnNames() {
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.emplace_back(column.name);
  return names;
}

TopColumn ColumnOf(std::string_view name) {
  const auto* const found = std::find_if(kColumns.begin(), kColumns.end(),
                                         [name](const Column& column) { return column.name == name; });
  return static_cast<TopColumn>(found - kColumns.begin());
}

std::string_view ColumnHead(TopColumn column) { return kColumns[static_cast<size_t>(column)].head; }
size_t ColumnWidth(TopColumn column) { return kColumns[static_cast<size_t>(column)].width; }

size_t DepthOf(std::string_view path) {
  return path == "/" ? 0 : static_cast<size_t>(std::count(path.begin(), path.end(), '/'));
}

TopRow RowOf(const v1::Cgroup& cgroup, const v1::ReadCgroupResponse& stat) {
  TopRow row;
  row.path = cgroup.path();
  row.usage_bytes = stat.has_current_bytes() ? stat.current_bytes() : stat.root_usage().anon_and_file_bytes();
  const auto limit = cgroup.knobs().find("memory.max");
  uint64_t bytes = 0;
  if (limit != cgroup.knobs().end() && absl::SimpleAtoi(limit->second, &bytes)) row.limit_bytes = bytes;
  row.anon_bytes = ItemOf(stat.stat(), "anon");
  row.file_bytes = ItemOf(stat.stat(), "file");
  row.shmem_bytes = ItemOf(stat.stat(), "shmem");
  row.swap_bytes = stat.swap_current_bytes();
  row.faults = ItemOf(stat.stat(), "pgfault");
  row.major_faults = ItemOf(stat.stat(), "pgmajfault");
  row.refaults =
      ItemOf(stat.stat(), "workingset_refault_anon") + ItemOf(stat.stat(), "workingset_refault_file");
  row.oom_kills = ItemOf(stat.events(), "oom_kill");
  row.processes = cgroup.processes();
  return row;
}

void SetRates(const TopPicture& before, double seconds, TopPicture* picture) {
  std::map<std::string_view, const TopRow*> rows;
  for (const TopRow& row : before.rows) rows[row.path] = &row;
  picture->events_a_second = Rate(before.node.events(), picture->node.events(), seconds);
  for (TopRow& row : picture->rows) {
    const auto found = rows.find(row.path);
    const TopRow none;
    const TopRow& last = found != rows.end() ? *found->second : none;
    row.faults_a_second = Rate(last.faults, row.faults, seconds);
    row.major_a_second = Rate(last.major_faults, row.major_faults, seconds);
    row.refaults_a_second = Rate(last.refaults, row.refaults, seconds);
  }
}

void Order(TopColumn column, bool descending, bool tree, TopPicture* picture) {
  std::vector<TopRow>& rows = picture->rows;
  const auto before = [column, descending](const TopRow& a, const TopRow& b) {
    const double left = Key(a, column), right = Key(b, column);
    if (column == TopColumn::kCgroup && a.path != b.path)
      return descending ? a.path > b.path : a.path < b.path;
    if (left != right) return descending ? left > right : left < right;
    return a.path < b.path;
  };
  std::sort(rows.begin(), rows.end(), before);
  if (!tree) return;
  // Children in the order just made, below their parents; what has no parent here is at the top.
  std::map<std::string, std::vector<size_t>> children;
  std::map<std::string_view, bool> is_there;
  for (const TopRow& row : rows) is_there[row.path] = true;
  std::vector<size_t> stack;
  for (size_t i = rows.size(); i-- > 0;) {
    const std::string parent = ParentOf(rows[i].path);
    if (rows[i].path != "/" && is_there.contains(parent)) {
      children[parent].push_back(i);  // the last first, as the stack turns them round
    } else {
      stack.push_back(i);
    }
  }
  std::vector<TopRow> ordered;
  ordered.reserve(rows.size());
  while (!stack.empty()) {
    const size_t at = stack.back();
    stack.pop_back();
    const auto below = children.find(rows[at].path);
    if (below != children.end()) stack.insert(stack.end(), below->second.begin(), below->second.end());
    ordered.push_back(rows[at]);
  }
  rows = std::move(ordered);
}

std::string CellText(const TopRow& row, TopColumn column, bool tree) {
  switch (column) {
    case TopColumn::kUsage:
      return HumanBytes(static_cast<int64_t>(row.usage_bytes));
    case TopColumn::kLimit:
      return row.limit_bytes == UINT64_MAX ? "max" : HumanBytes(static_cast<int64_t>(row.limit_bytes));
    case TopColumn::kAnon:
      return HumanBytes(static_cast<int64_t>(row.anon_bytes));
    case TopColumn::kFile:
      return HumanBytes(static_cast<int64_t>(row.file_bytes));
    case TopColumn::kShmem:
      return HumanBytes(static_cast<int64_t>(row.shmem_bytes));
    case TopColumn::kSwap:
      return HumanBytes(static_cast<int64_t>(row.swap_bytes));
    case TopColumn::kFaults:
      return RateText(row.faults_a_second);
    case TopColumn::kMajor:
      return RateText(row.major_a_second);
    case TopColumn::kRefaults:
      return RateText(row.refaults_a_second);
    case TopColumn::kOom:
      return absl::StrCat(row.oom_kills);
    case TopColumn::kProcs:
      return absl::StrCat(row.processes);
    case TopColumn::kCgroup:
      break;
  }
  if (!tree || row.path == "/") return WithoutControls(row.path);
  return WithoutControls(
      absl::StrCat(std::string(2 * (DepthOf(row.path)), ' '), row.path.substr(row.path.rfind('/') + 1)));
}

std::string NodeLine(const TopPicture& picture) {
  const v1::Node& node = picture.node;
  std::string line =
      absl::StrCat("node ", WithoutControls(node.name()), ": ", node.cgroups(), " cgroups, ",
                   node.dying_cgroups(), " dying, ", node.processes(), " processes, ", node.streams(),
                   " streams, ", RateText(picture.events_a_second), " events/s, committed ",
                   HumanBytes(static_cast<int64_t>(node.committed_as_bytes())));
  if (picture.left_out != 0) absl::StrAppend(&line, "; ", picture.left_out, " cgroups are not shown");
  return line;
}

std::string HeadLine() {
  std::string line;
  for (const Column& column : kColumns)
    absl::StrAppend(&line, column.width == 0
                               ? absl::StrCat("  ", column.head)
                               : absl::StrFormat("%*s", static_cast<int>(column.width), column.head));
  return line;
}

std::string RowLine(const TopRow& row, bool tree) {
  std::string line;
  for (size_t i = 0; i < kTopColumns; ++i) {
    const std::string cell = CellText(row, static_cast<TopColumn>(i), tree);
    const auto width = static_cast<int>(kColumns[i].width);
    absl::StrAppend(&line, width == 0 ? absl::StrCat("  ", cell) : absl::StrFormat("%*s", width, cell));
  }
  return line;
}

std::string PictureText(const TopPicture& picture, bool tree) {
  std::string text = absl::StrCat(NodeLine(picture), "\n", HeadLine(), "\n");
  for (const TopRow& row : picture.rows) absl::StrAppend(&text, RowLine(row, tree), "\n");
  return text;
}

std::string PictureJson(const TopPicture& picture) {
  std::string text = absl::StrCat("{\"node\": ", JsonString(picture.node.name()),
                                  ", \"events_a_second\": ", absl::StrFormat("%.1f", picture.events_a_second),
                                  ", \"left_out\": ", picture.left_out, ", \"cgroups\": {");
  for (const TopRow& row : picture.rows) {
    absl::StrAppend(&text, &row == picture.rows.data() ? "" : ", ", JsonString(row.path),
                    ": {\"usage\": ", row.usage_bytes,
                    ", \"limit\": ", row.limit_bytes == UINT64_MAX ? "null" : absl::StrCat(row.limit_bytes),
                    ", \"anon\": ", row.anon_bytes, ", \"file\": ", row.file_bytes,
                    ", \"shmem\": ", row.shmem_bytes, ", \"swap\": ", row.swap_bytes);
    absl::StrAppend(
        &text, absl::StrFormat(", \"faults_a_second\": %.1f, \"major_a_second\": %.1f, "
                               "\"refaults_a_second\": %.1f, \"oom_kills\": %d, \"processes\": %d}",
                               row.faults_a_second, row.major_a_second, row.refaults_a_second, row.oom_kills,
                               row.processes));
  }
  return absl::StrCat(text, "}}\n");
}

}  // namespace memcgd::client
