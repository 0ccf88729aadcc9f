// Handles of files, and which of them are shared memory.
//
// Memory: grows with the number of distinct files (one number a file, beside the builder's handle).
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_FILE_TABLE_H_
#define MEMCGD_CLIENT_FILE_TABLE_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "client/batch_builder.h"
#include "client/trace_record.h"

namespace memcgd::client {

class FileTable {
 public:
  explicit FileTable(BatchBuilder* builder) : builder_(builder) {}

  uint32_t Handle(TraceOp op, uint32_t dev, uint64_t ino) {
    if (IsVirtual(dev) && ShowsRegularFile(op)) LearnRegular(dev);
    if (dev == last_dev_ && ino == last_ino_) return last_handle_;
    last_dev_ = dev;
    last_ino_ = ino;
    last_handle_ = builder_->FileHandle(dev, ino, IsSharedMemory(dev));
    dev_of_ino_[ino] = dev;
    return last_handle_;
  }

  // writeback_dirty_folio names the disk, not the file system: another number where the file system is on a
  // partition, or where the file is the disk itself.  The inode's number tells which file it was.
  uint32_t DirtyHandle(uint32_t disk, uint64_t ino) {
    if (ino == last_ino_) return last_handle_;
    const auto at = dev_of_ino_.find(ino);
    return Handle(TraceOp::kDirtyFolio, at == dev_of_ino_.end() ? disk : at->second, ino);
  }

  // As far as the trace has shown.
  bool IsSharedMemory(uint32_t dev) const { return IsVirtual(dev) && !regular_.contains(dev); }

 private:
  // Devices without a disk have major number 0: tmpfs and the kernel's own shared memory, but btrfs or
  // overlayfs as well.
  static bool IsVirtual(uint32_t dev) { return dev >> 20 == 0; }
  // Pages of shared memory come to be in shmem_fault() and shmem_get_folio(), which leave none of these
  // lines.
  static bool ShowsRegularFile(TraceOp op) {
    return op == TraceOp::kFilemapAdd || op == TraceOp::kFilemapFault || op == TraceOp::kFilemapGetPages ||
           op == TraceOp::kWriteBegin;
  }
  void LearnRegular(uint32_t dev) {
    if (regular_.insert(dev).second && dev == last_dev_) last_ino_ = kNoIno;
  }

  static constexpr uint64_t kNoIno = ~uint64_t{0};

  BatchBuilder* const builder_;
  uint32_t last_dev_ = 0;
  uint64_t last_ino_ = kNoIno;
  uint32_t last_handle_ = 0;
  absl::flat_hash_set<uint32_t> regular_;  // virtual devices that hold files
  absl::flat_hash_map<uint64_t, uint32_t> dev_of_ino_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_FILE_TABLE_H_
