// What memcgctl prints: standard output with its errors remembered, tables for people, JSON for programs and
// the kernel's own text.
//
// Amounts of memory are bytes in JSON and in the kernel's text; tables show them in KiB, MiB, … of 1024.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_MEMCGCTL_OUTPUT_H_
#define MEMCGD_CLIENT_MEMCGCTL_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "memcgd/v1/cgroup.pb.h"
#include "memcgd/v1/ingest.pb.h"
#include "memcgd/v1/node.pb.h"

namespace memcgd::client {

// A file descriptor, written to at once: whoever reads sees each answer as it comes.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // An error names what failed; after one, nothing is written any more.
  absl::Status Write(std::string_view text);
  const absl::Status& status() const { return status_; }
  // True once the reader of a pipe has gone: an end, not a failure.
  bool reader_is_gone() const { return reader_is_gone_; }

 private:
  const int fd_;
  absl::Status status_;
  bool reader_is_gone_ = false;
};

// Columns of text: the first is set left, all others (numbers) right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  // REQUIRES: as many cells as the head has.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "0", "512 B", "12.3 MiB".
std::string HumanBytes(int64_t bytes);
// "0", "12 µs", "1.5 ms", "2.0 s".
std::string HumanTime(uint64_t us);
// A string of JSON with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);
// True where memory.stat of cgroup v2 gives it in bytes.
bool StatIsBytes(std::string_view name);

// {"/": {"anon": 0, …}, …}
std::string CgroupsJson(const memcgd::v1::State& state);
// The columns that most people want, one row a cgroup.
std::string CgroupsTable(const memcgd::v1::State& state);

// "name value\n" for each line, as the kernel's file has it.
std::string KernelText(const google::protobuf::RepeatedPtrField<memcgd::v1::StatItem>& lines);
// The same for people, and for programs: {"name": value, …}.
std::string ItemsTable(const google::protobuf::RepeatedPtrField<memcgd::v1::StatItem>& lines, bool bytes_too);
std::string ItemsJson(const google::protobuf::RepeatedPtrField<memcgd::v1::StatItem>& lines);

std::string NodeJson(const memcgd::v1::Node& node);
std::string NodesTable(const std::vector<memcgd::v1::Node>& nodes);
std::string NodeTable(const memcgd::v1::Node& node);

std::string CgroupJson(const memcgd::v1::Cgroup& cgroup);
std::string CgroupListTable(const std::vector<memcgd::v1::Cgroup>& cgroups);
std::string CgroupTable(const memcgd::v1::Cgroup& cgroup);
// The cgroups as a drawing.  REQUIRES: a parent comes before its children.
std::string CgroupTree(const std::vector<memcgd::v1::Cgroup>& cgroups);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_OUTPUT_H_
