// A node with one stream, driven by name: events are collected, and applied when something is read.
#ifndef MEMCGD_TESTS_CORE_NODE_DRIVER_H_
#define MEMCGD_TESTS_CORE_NODE_DRIVER_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/node.h"
#include "tests/core/event_log.h"

namespace memcgd::core {

inline NodeConfig SmallNode(uint32_t cpus = 1) {
  NodeConfig config;
  config.cpus = cpus;
  config.zero_page = false;
  return config;
}

class NodeDriver : public EventLog {
 public:
  explicit NodeDriver(const NodeConfig& config = SmallNode())
      : EventLog(config.page_size == 4096 ? 12 : 16),
        node_(*Node::Create(config)),
        stream_(node_->OpenStream("test")),
        page_size_(config.page_size) {}

  Node& node() { return *node_; }
  EventStream* stream() { return stream_; }
  // What all batches so far came to.
  BatchResult& result() {
    Flush();
    return result_;
  }
  uint64_t outcomes(Outcome outcome) { return result().outcomes[static_cast<size_t>(outcome)]; }

  // A path's handle, defined where it is new.
  uint32_t Path(const std::string& path) {
    auto [found, is_new] = paths_.try_emplace(path, static_cast<uint32_t>(paths_.size()) + 1);
    if (is_new) DefinePath(found->second, path);
    return found->second;
  }
  // A new cgroup; ancestors come with it.
  void Group(const std::string& path) { CgroupCreate(Path(path)); }
  void Remove(const std::string& path) { CgroupRemove(Path(path)); }
  // A process that begins now, in that cgroup.
  void Process(uint32_t tid, const std::string& path) {
    Fork(1, tid);
    Attach(Path(path), tid);
  }
  uint32_t File(uint64_t ino, bool shmem = false) {
    DefineFile(++files_, 0x800001, ino, shmem);
    return files_;
  }
  // Every CPU's batches of folios go to the lists.
  void Drain() {
    uint32_t now = cpu();
    for (uint32_t i = 0; i < node_->Info().config.cpus; ++i) {
      OnCpu(i);
      ReclaimBegin(1);
      ReclaimEnd(1);
    }
    OnCpu(now);
  }

  void Flush(size_t batch = 8192) {
    absl::Status status = ApplySteps(*node_, stream_, steps(), 0, steps().size(), batch, &result_);
    EXPECT_TRUE(status.ok()) << status;
    clear();
  }

  // Of memory.stat (v2) in pages or counts, or a line of v1's by name.
  int64_t Stat(const std::string& path, std::string_view name) {
    return Line(Reading(path, false, false), name);
  }
  int64_t Local(const std::string& path, std::string_view name) {
    return Line(Reading(path, true, false), name);
  }
  int64_t V1(const std::string& path, std::string_view name) {
    return Line(Reading(path, false, true), name);
  }
  int64_t Event(const std::string& path, std::string_view name) {
    return EventOf(Reading(path, false, false), name);
  }
  int64_t LocalEvent(const std::string& path, std::string_view name) {
    return EventOf(Reading(path, true, false), name);
  }
  int64_t CurrentPages(const std::string& path) {
    return static_cast<int64_t>(Reading(path, false, false).current_bytes.value_or(0) / page_size_);
  }
  int64_t PeakPages(const std::string& path) {
    return static_cast<int64_t>(Reading(path, false, false).peak_bytes / page_size_);
  }
  int64_t CommittedPages() {
    Flush();
    return static_cast<int64_t>(node_->Info().committed_as_bytes / page_size_);
  }
  CgroupReading Reading(const std::string& path, bool local, bool v1) {
    Flush();
    EXPECT_EQ(node_->CheckInvariants(), "");
    absl::StatusOr<CgroupReading> reading = node_->ReadCgroup(path, local, v1);
    EXPECT_TRUE(reading.ok()) << reading.status();
    return reading.ok() ? *std::move(reading) : CgroupReading{};
  }

 private:
  int64_t Line(const CgroupReading& reading, std::string_view name) const {
    for (const auto& [line, value] : reading.stat) {
      if (line == name) return InBytes(name) ? value / page_size_ : value;
    }
    ADD_FAILURE() << "no line " << name;
    return -1;
  }
  static int64_t EventOf(const CgroupReading& reading, std::string_view name) {
    for (const auto& [line, value] : reading.events) {
      if (line == name) return value;
    }
    ADD_FAILURE() << "no event " << name;
    return -1;
  }
  static bool InBytes(std::string_view name) {
    if (name.starts_with("total_")) name.remove_prefix(6);
    return !name.starts_with("pg") && !name.starts_with("workingset") && !name.starts_with("thp") &&
           !name.starts_with("sw");
  }

  std::unique_ptr<Node> node_;
  EventStream* const stream_;
  const uint32_t page_size_;
  BatchResult result_;
  std::map<std::string, uint32_t> paths_;
  uint32_t files_ = 0;
};

}  // namespace memcgd::core

#endif  // MEMCGD_TESTS_CORE_NODE_DRIVER_H_
