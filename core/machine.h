// The parts of a node, in reading order, as its mechanisms see them.
//
// Thread safety: each part's own.
#ifndef MEMCGD_CORE_MACHINE_H_
#define MEMCGD_CORE_MACHINE_H_

#include <atomic>
#include <memory>
#include <vector>

#include "core/charge.h"
#include "core/commit_account.h"
#include "core/cpu_slot.h"
#include "core/folio.h"
#include "core/lru.h"
#include "core/memcg_tree.h"
#include "core/mm.h"
#include "core/node.h"
#include "core/page_cache.h"

namespace memcgd::core {

struct Machine {
  explicit Machine(const NodeConfig& node_config);

  // Makes room for a new cgroup's statistics on every CPU.  At a cut.
  void AddCpuStats(MemcgId memcg);
  // Pages in use, by any cgroup or none.  At a cut.
  uint64_t ResidentPages() const;

  NodeConfig config;  // overcommit fields change at a cut
  uint32_t page_shift = 12;
  MemcgTree tree;
  FolioArena arena;
  Charges charges{tree};
  Lru lru{tree, arena, charges};
  FileTable files;
  PageCache cache{tree, arena, charges, lru};
  CommitAccount commit;
  std::vector<std::unique_ptr<CpuSlot>> cpus;
  IndexedTable<Mm> mms;             // growth and users under Processes' mutex
  std::atomic<int64_t> time_ns{0};  // the largest event time seen
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MACHINE_H_
