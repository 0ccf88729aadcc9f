#include "core/memcg_tree.h"

namespace memcgd::core {

std::string_view ParentPath(std::string_view path) {
  size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

MemcgTree::MemcgTree(LruLock lru_lock) : lru_lock_(lru_lock) {
  memcgs_.push_back(std::make_unique<Memcg>(MemcgId::kRoot, nullptr, "/", SharedLruLock()));
  online_["/"] = memcgs_[0].get();
}

Memcg* MemcgTree::Find(std::string_view path) {
  auto found = online_.find(path);
  return found == online_.end() ? nullptr : found->second;
}

Memcg& MemcgTree::Create(std::string_view path, Memcg& parent) {
  return Restore(MemcgId{static_cast<uint32_t>(memcgs_.size())}, &parent, std::string(path), true);
}

Memcg& MemcgTree::Restore(MemcgId id, Memcg* parent, std::string path, bool online) {
  if (memcgs_.size() <= Raw(id)) memcgs_.resize(Raw(id) + 1);
  MEMCG_CHECK(memcgs_[Raw(id)] == nullptr);
  memcgs_[Raw(id)] = std::make_unique<Memcg>(id, parent, std::move(path), SharedLruLock());
  Memcg& memcg = *memcgs_[Raw(id)];
  count_.fetch_add(1, std::memory_order_relaxed);
  memcg.online = online;
  for (Memcg* level = parent; level != nullptr; level = level->parent) ++level->descendants;
  parent->subgroups.push_back(&memcg);
  if (!online) {
    dying_.insert(Raw(id));
    ++parent->dying_children;
    return memcg;
  }
  bool is_new = online_.emplace(memcg.path, &memcg).second;
  MEMCG_CHECK(is_new);
  ++parent->children;
  return memcg;
}

// One stream does it; another that comes meanwhile sees some of it, as on a kernel.
void MemcgTree::FlushIfDue(int64_t now_ns) {
  int64_t due = next_flush_ns.load(std::memory_order_relaxed);
  if (due == 0 || now_ns < due) return;
  int64_t next = now_ns - (now_ns - due) % kFlushPeriodNs + kFlushPeriodNs;
  if (next_flush_ns.compare_exchange_strong(due, next, std::memory_order_relaxed)) Flush();
}

void MemcgTree::Flush() {
  for (const std::unique_ptr<Memcg>& memcg : memcgs_) {
    if (memcg == nullptr) continue;
    for (size_t list = 0; list < kLruLists; ++list) {
      memcg->flushed.lru_pages[list].store(memcg->lru_pages[list].load(std::memory_order_relaxed),
                                           std::memory_order_relaxed);
    }
    for (size_t file = 0; file < 2; ++file) {
      memcg->flushed.activations[file].store(memcg->activations[file].load(std::memory_order_relaxed),
                                             std::memory_order_relaxed);
    }
  }
}

void MemcgTree::TakeOffline(Memcg& memcg) {
  MEMCG_CHECK(memcg.online && memcg.children == 0 && memcg.parent != nullptr);
  memcg.online = false;
  --memcg.parent->children;
  ++memcg.parent->dying_children;
  online_.erase(memcg.path);
  dying_.insert(Raw(memcg.id));
}

void MemcgTree::Free(MemcgId id) {
  Memcg& memcg = Get(id);
  MEMCG_CHECK(!memcg.online && memcg.children == 0 && memcg.dying_children == 0);
  MEMCG_CHECK(memcg.refs.load(std::memory_order_relaxed) == 0 && memcg.processes == 0 && memcg.spaces == 0);
  --memcg.parent->dying_children;
  std::erase(memcg.parent->subgroups, &memcg);
  for (Memcg* level = memcg.parent; level != nullptr; level = level->parent) --level->descendants;
  memcgs_[Raw(id)] = nullptr;
  count_.fetch_sub(1, std::memory_order_relaxed);
  dying_.erase(Raw(id));
}

}  // namespace memcgd::core
