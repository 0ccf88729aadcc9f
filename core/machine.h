// The parts of a node, in reading order: its state, whatever forms work on it (accounts.h, workings.h).
//
// Thread safety: each part's own.
#ifndef MEMCGD_CORE_MACHINE_H_
#define MEMCGD_CORE_MACHINE_H_

#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "core/commit_account.h"
#include "core/cpu_slot.h"
#include "core/file.h"
#include "core/folio.h"
#include "core/memcg_tree.h"
#include "core/node.h"
#include "core/process_table.h"

namespace memcgd::core {

struct Machine {
  explicit Machine(const NodeConfig& node_config);
  virtual ~Machine() = default;

  // Makes room for a new cgroup's statistics on every CPU.  At a cut.
  void AddCpuStats(MemcgId memcg);
  // Pages in use, by any cgroup or none; exact at a cut.
  uint64_t ResidentPages() const;

  NodeConfig config;  // overcommit fields change at a cut
  uint32_t page_shift = 12;
  MemcgTree tree{config.mechanisms.lru_lock};
  FolioArena arena;
  FileTable files;
  CommitAccount commit;
  std::vector<std::unique_ptr<CpuSlot>> cpus;
  IndexedTable<Mm> mms;  // growth and users under the process table's mutex
  ProcessTable table;
  std::atomic<int64_t> time_ns{0};  // the largest event time seen
  // rstat: flushes, by readers at a cut or beside batches.
  Mutex rstat_lock;
  int64_t last_flush_ns ABSL_GUARDED_BY(rstat_lock) = 0;
  uint64_t flushes ABSL_GUARDED_BY(rstat_lock) = 0;
  std::set<MemcgId> unflushed ABSL_GUARDED_BY(rstat_lock);  // those whose from_children hold something
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MACHINE_H_
