// Giving up: the OOM killer.
//
// Kernel counterpart: mm/oom_kill.c (select_bad_process(), oom_badness(), oom_kill_process()) and
// mem_cgroup_oom() of mm/memcontrol.c.
//
// Differs: it stands at a cut, and its victim's memory is free when it returns: exit and reaper take no time.
//
// Thread safety: at a cut, by whoever holds it alone.
#ifndef MEMCGD_CORE_OOM_H_
#define MEMCGD_CORE_OOM_H_

#include <cstdint>

#include "core/accounts.h"
#include "core/process.h"

namespace memcgd::core {

// oom_badness(): pages used, and the share of all pages that oom_score_adj (−1000 … 1000) adds.
int64_t OomPoints(int64_t rss_pages, int64_t swap_pages, int64_t pagetable_pages, int32_t oom_score_adj,
                  int64_t total_pages);

template <class Forms>
class OomKiller {
 public:
  OomKiller(Accounts<Forms>& machine, Processes<Forms>& processes) : m_(machine), processes_(processes) {}

  // A charge of `charged` met the limit of `at`, and reclaim found nothing: kills whoever has the most points
  // below `at`, or the whole of a cgroup with memory.oom.group.  `tid`: whose event it was, 0 for none. False
  // where nobody can be killed.
  bool Kill(CpuSlot& slot, Memcg& at, Memcg& charged, uint32_t tid);

 private:
  struct Candidate {
    Process* process = nullptr;
    OomRecord::Victim seen;
  };
  std::vector<Candidate> Candidates(const Memcg& at) const;
  void CountPages(const Process& process, OomRecord::Victim& seen) const;
  void KillProcess(CpuSlot& slot, Process& process);
  OomRecord Explain(const Memcg& at, const Memcg& charged, uint32_t tid, int64_t time_ns) const;

  Accounts<Forms>& m_;
  Processes<Forms>& processes_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_OOM_H_
