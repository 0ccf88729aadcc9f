#include "core/file.h"

#include "core/check.h"

namespace memcgd::core {

FileTable::FileTable() : chunks_(new std::atomic<File*>[kMaxFiles / kChunk]()) {
  chunks_[0].store(new File[kChunk], std::memory_order_relaxed);
}

FileTable::~FileTable() {
  for (uint32_t i = 0; i < kMaxFiles / kChunk; ++i) delete[] chunks_[i].load(std::memory_order_relaxed);
}

FileId FileTable::Open(uint32_t dev, uint64_t ino, bool shmem) {
  Locked lock(mutex_);
  auto [found, is_new] = by_inode_.try_emplace({dev, ino}, FileId::kNone);
  if (is_new) {
    found->second = Append(dev, ino, shmem);
    devices_.insert(dev);
    return found->second;
  }
  // What a device with major number 0 holds shows late: a file that nothing is known of yet may change its
  // kind.
  File& file = Get(found->second);
  Locked file_lock(file.mutex);
  if (file.cached_pages == 0) file.shmem.store(shmem, std::memory_order_relaxed);
  return found->second;
}

bool FileTable::IsBlockDevice(const File& file) {
  if (file.dev >> 20 != 0) return false;
  Locked lock(mutex_);
  return file.ino <= UINT32_MAX && devices_.contains(static_cast<uint32_t>(file.ino));
}

FileId FileTable::CreateAnonymous() {
  Locked lock(mutex_);
  if (!free_anonymous_.empty()) {
    FileId id = free_anonymous_.back();
    free_anonymous_.pop_back();
    return id;
  }
  return Append(kAnonymousDev, size(), true);
}

void FileTable::FreeAnonymous(FileId id) {
  Locked lock(mutex_);
  free_anonymous_.push_back(id);
}

File& FileTable::Restore(uint32_t dev, uint64_t ino, bool shmem) {
  Locked lock(mutex_);
  FileId id = Append(dev, ino, shmem);
  if (dev != kAnonymousDev) {
    by_inode_[{dev, ino}] = id;
    devices_.insert(dev);
  }
  return Get(id);
}

FileId FileTable::Append(uint32_t dev, uint64_t ino, bool shmem) {
  uint32_t id = size_.load(std::memory_order_relaxed);
  MEMCG_CHECK(id < kMaxFiles);
  std::atomic<File*>& chunk = chunks_[id / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new File[kChunk], std::memory_order_release);  // pairs with Get()
  }
  File& file = chunk.load(std::memory_order_relaxed)[id % kChunk];
  file.id = FileId{id};
  file.dev = dev;
  file.ino = ino;
  file.shmem.store(shmem, std::memory_order_relaxed);
  size_.store(id + 1, std::memory_order_release);
  return FileId{id};
}

}  // namespace memcgd::core
