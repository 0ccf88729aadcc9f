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
