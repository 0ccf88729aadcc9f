// The tree of cgroups.
//
// Thread safety: everything that changes it stands at a cut; Get() and Find() by any batch.
#ifndef MEMCGD_CORE_MEMCG_TREE_H_
#define MEMCGD_CORE_MEMCG_TREE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/mechanisms.h"
#include "core/memcg.h"

namespace memcgd::core {

class MemcgTree {
 public:
  // lru_lock: whose lock guards the lists of its cgroups.
  explicit MemcgTree(LruLock lru_lock);

  Memcg& Get(MemcgId id) { return *memcgs_[Raw(id)]; }
  const Memcg& Get(MemcgId id) const { return *memcgs_[Raw(id)]; }
  Memcg& root() { return *memcgs_[0]; }
  const Memcg& root() const { return *memcgs_[0]; }
  // The online cgroup of that path, or null.
  Memcg* Find(std::string_view path);

  // The parent is online and the path is free.
  Memcg& Create(std::string_view path, Memcg& parent);
  // Takes an online cgroup without children out of the tree; its id stays until Free().
  void TakeOffline(Memcg& memcg);
  // An offline cgroup with no references and no children, dying ones included.  The id is not used again.
  void Free(MemcgId id);
  // For loading a saved state: that very id.
  Memcg& Restore(MemcgId id, Memcg* parent, std::string path, bool online);
  // The same for ids that were freed: ids below `end` are not given again.
  void RestoreEnd(size_t end) { memcgs_.resize(end); }

  // flush_memcg_stats_dwork(): every 2 s of the model's time, what reclaim and refaults see of each cgroup
  // becomes what is.  The first is due half a period after StartFlushes(): no event tells where in the
  // kernel's period that was.
  void StartFlushes(int64_t now_ns) {
    int64_t never = 0;
    next_flush_ns.compare_exchange_strong(never, now_ns + kFlushPeriodNs / 2, std::memory_order_relaxed);
  }
  void FlushPeriodically(int64_t now_ns) {
    if (now_ns >= next_flush_ns.load(std::memory_order_relaxed)) FlushIfDue(now_ns);
  }
  void Flush();

  static constexpr int64_t kFlushPeriodNs = int64_t{2'000'000'000};
  std::atomic<int64_t> next_flush_ns{0};  // 0: not started

  // Online cgroups by path: "/" first, then in the order of std::string.
  const std::map<std::string, Memcg*, std::less<>>& online() const { return online_; }
  // Every cgroup that is there, dying ones too, in order of id; freed ids are null.
  const std::vector<std::unique_ptr<Memcg>>& all() const { return memcgs_; }
  // How many those are; by anyone.
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  // Ids of offline cgroups that are not freed yet, the highest first: children before their parents.
  const std::set<uint32_t, std::greater<>>& dying() const { return dying_; }

 private:
  void FlushIfDue(int64_t now_ns);
  SpinLock* SharedLruLock() { return lru_lock_ == LruLock::kPerNode ? &node_lru_lock_ : nullptr; }

  SpinLock node_lru_lock_;
  const LruLock lru_lock_;
  std::vector<std::unique_ptr<Memcg>> memcgs_;
  std::atomic<uint64_t> count_{1};
  std::map<std::string, Memcg*, std::less<>> online_;
  std::set<uint32_t, std::greater<>> dying_;
};

// "/a/b" → "/a"; "/a" → "/".
std::string_view ParentPath(std::string_view path);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MEMCG_TREE_H_
