#include "client/record/thread_names.h"

#include <algorithm>
#include <cstddef>

#include "client/linux_numbers.h"
#include "client/record/proc_file.h"

namespace memcgd::client {
namespace {

constexpr size_t kDeadRemembered = 4096;

void SetName(std::string_view name, ThreadNames::Thread* thread) {
  thread->comm.fill('\0');
  std::copy_n(name.begin(), std::min(name.size(), thread->comm.size() - 1), thread->comm.begin());
}

}  // namespace

const ThreadNames::Thread& ThreadNames::Find(int32_t tid) {
  const auto found = threads_.find(tid);
  if (found != threads_.end()) return found->second;
  const ProcessStatus status = ReadProcessStatus(tid);
  Add(tid, status.tgid, status.name);
  return threads_[tid];
}

void ThreadNames::Add(int32_t tid, int32_t tgid, std::string_view comm) {
  Thread thread;
  thread.tgid = tgid;
  SetName(comm, &thread);
  threads_[tid] = thread;
}

void ThreadNames::NewTask(int32_t parent, int32_t child, std::string_view comm, uint64_t clone_flags) {
  Add(child, (clone_flags & kCloneThread) != 0 ? Find(parent).tgid : child, comm);
}

void ThreadNames::Rename(int32_t tid, std::string_view comm) {
  Find(tid);
  SetName(comm, &threads_[tid]);
}

void ThreadNames::Exec(int32_t tid, int32_t old_tid) {
  if (tid == old_tid) return;
  Thread thread = Find(old_tid);
  thread.dead = false;
  threads_[tid] = thread;
  Exit(old_tid);
}

void ThreadNames::Exit(int32_t tid) {
  Thread& thread = threads_[tid];
  if (thread.dead) return;
  thread.dead = true;
  dead_.push_back(tid);
  if (dead_.size() <= kDeadRemembered) return;
  const auto oldest = threads_.find(dead_.front());
  if (oldest != threads_.end() && oldest->second.dead) threads_.erase(oldest);
  dead_.pop_front();
}

}  // namespace memcgd::client
