// What memcgctl top shows: a row a cgroup, rates between two readings, order, and the text of it.
//
// Thread safety: plain values and free functions.
#ifndef MEMCGD_CLIENT_MEMCGCTL_TOP_TABLE_H_
#define MEMCGD_CLIENT_MEMCGCTL_TOP_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memcgd/v1/cgroup.pb.h"
#include "memcgd/v1/node.pb.h"

namespace memcgd::client {

// In the order in which they stand; the cgroup's name is the last.
enum class TopColumn : uint8_t {
  kUsage,
  kLimit,
  kAnon,
  kFile,
  kShmem,
  kSwap,
  kFaults,
  kMajor,
  kRefaults,
  kOom,
  kProcs,
  kCgroup
};
inline constexpr size_t kTopColumns = static_cast<size_t>(TopColumn::kCgroup) + 1;

// Names of --sort.
std::vector<std::string> ColumnNames();
// REQUIRES: one of them.
TopColumn ColumnOf(std::string_view name);
std::string_view ColumnHead(TopColumn column);
// Characters that the column takes, 0: the rest of the line.
size_t ColumnWidth(TopColumn column);

struct TopRow {
  std::string path;
  uint64_t usage_bytes = 0;
  uint64_t limit_bytes = UINT64_MAX;  // memory.max; UINT64_MAX: none
  uint64_t anon_bytes = 0, file_bytes = 0, shmem_bytes = 0, swap_bytes = 0;
  uint64_t faults = 0, major_faults = 0, refaults = 0, oom_kills = 0;  // since the node was made
  double faults_a_second = 0, major_a_second = 0, refaults_a_second = 0;
  uint64_t processes = 0;  // in the cgroup itself
};

struct TopPicture {
  memcgd::v1::Node node;
  double events_a_second = 0;
  size_t left_out = 0;  // cgroups that were not read
  std::vector<TopRow> rows;
};

size_t DepthOf(std::string_view path);
TopRow RowOf(const memcgd::v1::Cgroup& cgroup, const memcgd::v1::ReadCgroupResponse& stat);
void SetRates(const TopPicture& before, double seconds, TopPicture* picture);
// As a tree, parents before their children and siblings in order; or all in order.
void Order(TopColumn column, bool descending, bool tree, TopPicture* picture);

// A cell as it stands in its column, without padding.  The name: indented in a tree, without what would steer
// a terminal.
std::string CellText(const TopRow& row, TopColumn column, bool tree);
// The line about the node.
std::string NodeLine(const TopPicture& picture);
std::string HeadLine();
std::string RowLine(const TopRow& row, bool tree);

// NodeLine(), HeadLine() and the rows.
std::string PictureText(const TopPicture& picture, bool tree);
// {"node", "events_a_second", "cgroups": {PATH: {…}}}, one line.
std::string PictureJson(const TopPicture& picture);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_TOP_TABLE_H_
