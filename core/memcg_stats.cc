#include "core/memcg_stats.h"

#include <algorithm>

namespace memcgd::core {
namespace {

constexpr StatUnit kPages = StatUnit::kPages, kBytes = StatUnit::kBytes, kCount = StatUnit::kCount,
                   kDerived = StatUnit::kDerived;

struct StatInfo {
  std::string_view name;
  StatUnit unit;
};
constexpr std::array<StatInfo, kStats> kInfo = {{
#define MEMCGD_STAT_INFO(id, name, unit) {name, unit},
    MEMCGD_STATS(MEMCGD_STAT_INFO)
#undef MEMCGD_STAT_INFO
}};

}  // namespace

std::string_view StatName(Stat stat) { return kInfo[static_cast<size_t>(stat)].name; }
StatUnit UnitOf(Stat stat) { return kInfo[static_cast<size_t>(stat)].unit; }

std::array<int64_t, kStats> ShowStats(const std::array<int64_t, kStats>& raw, uint32_t page_size) {
  std::array<int64_t, kStats> shown{};
  for (size_t i = 0; i < kStats; ++i) {
    shown[i] = std::max<int64_t>(raw[i], 0) * (kInfo[i].unit == kPages ? page_size : 1);
  }
  auto at = [&shown](Stat stat) -> int64_t& { return shown[static_cast<size_t>(stat)]; };
  at(Stat::kSlab) = at(Stat::kSlabReclaimable) + at(Stat::kSlabUnreclaimable);
  at(Stat::kKernel) = at(Stat::kKernelStack) + at(Stat::kPagetables) + at(Stat::kSecPagetables) +
                      at(Stat::kPercpu) + at(Stat::kVmalloc) + at(Stat::kSlab);
  at(Stat::kPgscan) = at(Stat::kPgscanKswapd) + at(Stat::kPgscanDirect) + at(Stat::kPgscanKhugepaged) +
                      at(Stat::kPgscanProactive);
  at(Stat::kPgsteal) = at(Stat::kPgstealKswapd) + at(Stat::kPgstealDirect) + at(Stat::kPgstealKhugepaged) +
                       at(Stat::kPgstealProactive);
  return shown;
}

}  // namespace memcgd::core
