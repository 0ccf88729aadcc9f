// Annotated locks, and the one list of the order in which they are taken.
//
// Lock order (an earlier one is never taken while a later one is held):
//   Node::cut_           shared by batches, exclusive at a cut
//   CpuSlot::lock        held from a batch's first event of the CPU; further ones are tried (run_locks.h)
//   ProcessTable::mutex  threads, processes and their address spaces' users
//   Mm::mutex            one address space; further ones are tried; in fork the child's is not reachable yet
//   File::mutex          of an anonymous object
//   FileTable::mutex_    files by inode
//   File::mutex          of a named file: its page cache
//   WritebackQueue::mutex  the queue of dirty pages
//   Machine::folio_locks  pages in swap, pages that begin and end to be written
//   SwapSpace::mutex_    which page is where in swap
//   Lruvec::lock         one cgroup's lists
//   FolioArena::mutex_   the arena's growth and its shared free lists
//   Machine::rstat_lock  flushes of statistics; by readers, who hold the cut only
//   CpuSlot::touched_lock  the CPU's list of cgroups that a reader has to look at
//   PercpuCounter::lock_ the shared count of Committed_AS
//
// absl::Mutex would make false races under ThreadSanitizer (Debian's library is not instrumented), hence
// std::mutex with annotations.
#ifndef MEMCGD_CORE_MUTEX_H_
#define MEMCGD_CORE_MUTEX_H_

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace memcgd::core {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  // Tells the analysis what it cannot see: that this is the lock which the caller holds under another name.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mutex_;
};

class ABSL_LOCKABLE SharedMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  void LockShared() ABSL_SHARED_LOCK_FUNCTION() { mutex_.lock_shared(); }
  void UnlockShared() ABSL_UNLOCK_FUNCTION() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// For sections of some tens of instructions.  Yields where the holder does not run, as there may be more
// threads than cores.
class ABSL_LOCKABLE SpinLock {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire); ++spins) {  // pairs with Unlock()
      while (locked_.load(std::memory_order_relaxed)) {
        if (++spins > 100) std::this_thread::yield();
      }
    }
  }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return !locked_.exchange(true, std::memory_order_acquire);
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { locked_.store(false, std::memory_order_release); }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::atomic<bool> locked_{false};
};

template <typename Lockable>
class ABSL_SCOPED_LOCKABLE Locked {
 public:
  explicit Locked(Lockable& lock) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock) : lock_(lock) { lock_.Lock(); }
  ~Locked() ABSL_UNLOCK_FUNCTION() { lock_.Unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lockable& lock_;
};
template <typename Lockable>
Locked(Lockable&) -> Locked<Lockable>;

class ABSL_SCOPED_LOCKABLE SharedLocked {
 public:
  explicit SharedLocked(SharedMutex& lock) ABSL_SHARED_LOCK_FUNCTION(lock) : lock_(lock) {
    lock_.LockShared();
  }
  ~SharedLocked() ABSL_UNLOCK_FUNCTION() { lock_.UnlockShared(); }
  SharedLocked(const SharedLocked&) = delete;
  SharedLocked& operator=(const SharedLocked&) = delete;

 private:
  SharedMutex& lock_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_MUTEX_H_
