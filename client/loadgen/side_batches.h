// Side events for set-up and tear-down, cut into batches.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_LOADGEN_SIDE_BATCHES_H_
#define MEMCGD_CLIENT_LOADGEN_SIDE_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client::loadgen {

class SideBatches {
 public:
  SideBatches(size_t batch_events, int64_t time_ns) : batch_events_(batch_events), time_ns_(time_ns) {}

  // The caller fills its oneof.
  memcgd::v1::SideEvent* Add(uint32_t cpu, uint32_t tid) {
    if (batches_.empty() || static_cast<size_t>(batches_.back().side_size()) >= batch_events_) {
      batches_.emplace_back().set_base_time_ns(time_ns_);
    }
    memcgd::v1::SideEvent* side = batches_.back().add_side();
    side->set_cpu(cpu);
    side->set_tid(tid);
    return side;
  }
  void DefinePath(uint32_t handle, const std::string& path) {
    memcgd::v1::DefinePath* define = Add(0, 0)->mutable_define_path();
    define->set_handle(handle);
    define->set_path(path);
  }
  void CreateCgroup(uint32_t handle) { Add(0, 0)->mutable_cgroup_create()->set_path(handle); }
  void RemoveCgroup(uint32_t handle) { Add(0, 0)->mutable_cgroup_remove()->set_path(handle); }
  void DefineFile(uint32_t handle, uint64_t ino) {
    memcgd::v1::DefineFile* define = Add(0, 0)->mutable_define_file();
    define->set_handle(handle);
    define->set_dev(8 << 20 | 1);
    define->set_ino(ino);
  }
  // A thread of process `tgid`, in that cgroup.
  void MakeThread(uint32_t tid, uint32_t tgid, uint32_t cgroup) {
    memcgd::v1::BaselineProcess* process = Add(0, tid)->mutable_baseline_process();
    process->set_tgid(tgid);
    process->set_cgroup(cgroup);
  }
  void EndThread(uint32_t tid) { Add(0, tid)->mutable_exit(); }
  // The last thread of its process.
  void EndProcess(uint32_t tid) {
    Add(0, tid)->mutable_exit()->set_group_dead(true);
    Add(0, tid)->mutable_exit_mmap();
  }

  std::vector<memcgd::v1::Batch> Take() { return std::move(batches_); }

 private:
  const size_t batch_events_;
  const int64_t time_ns_;
  std::vector<memcgd::v1::Batch> batches_;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_SIDE_BATCHES_H_
