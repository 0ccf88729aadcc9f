// Exact reads of the statistics.  They change nothing: what CPUs have pending is added up, not spilled, so
// that a read leaves no trace in what comes after it.
//
// Kernel counterpart: memory_stat_format(), memcg1_stat_format() in mm/memcontrol*.c.
//
// Thread safety: at a cut.
#ifndef MEMCGD_CORE_STAT_READER_H_
#define MEMCGD_CORE_STAT_READER_H_

#include <array>
#include <vector>

#include "core/machine.h"

namespace memcgd::core {

// By MemcgId, recursive; freed ids hold zeros.
std::vector<std::array<int64_t, kStats>> ReadExact(Machine& machine);
// The cgroup's own.
std::array<int64_t, kStats> ReadExactLocal(Machine& machine, const Memcg& memcg);
// What memory.current, memory.stat and memory.events of a cgroup say.
CgroupReading ReadReading(Machine& machine, const Memcg& memcg, bool local, bool v1, bool fast);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_STAT_READER_H_
