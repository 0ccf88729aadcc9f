// Reads of the statistics, in the form that the node has (memcg_stats.h).
//
// Exact reads stand at a cut.  With spilled statistics they change nothing: what CPUs have pending is added
// up, not spilled, so that a read leaves no trace in what comes after it.  Fast reads run beside batches and
// see what a kernel's reader would.
//
// Kernel counterpart: memory_stat_format(), memcg1_stat_format(), mem_cgroup_flush_stats() in
// mm/memcontrol*.c.
//
// Thread safety: at a cut, or shared with batches where fast.
#ifndef MEMCGD_CORE_STAT_READER_H_
#define MEMCGD_CORE_STAT_READER_H_

#include <array>
#include <map>

#include "absl/functional/function_ref.h"
#include "core/cgroup_sample.h"
#include "core/machine.h"

namespace memcgd::core {

// Of every cgroup that is there, recursive.
std::map<MemcgId, std::array<int64_t, kStats>> ReadExact(Machine& machine);
// The cgroup's own.
std::array<int64_t, kStats> ReadExactLocal(Machine& machine, const Memcg& memcg);
// At a cut: the cgroup is about to be freed.  What it has counted stays in its ancestors, but where readers
// walk.
void EndStats(Machine& machine, const Memcg& memcg);
// At a cut: rstat's running sums go where they belong, so that what is saved does not depend on when readers
// came.
void FlushForSave(Machine& machine);
// Flushes of rstat so far.
uint64_t StatFlushes(Machine& machine);
// What memory.current, memory.stat and memory.events of a cgroup say.
CgroupReading ReadReading(Machine& machine, const Memcg& memcg, bool local, bool v1, bool fast);

// Shows every cgroup that is online, by fast reads; those of walked statistics in one pass over all.
void SampleAll(Machine& machine, absl::FunctionRef<void(const CgroupSample&)> show);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_STAT_READER_H_
