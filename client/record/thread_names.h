// Group and name of each thread of a live trace, as record-tgid and tracefs' column of names have them in
// text: raw events carry a thread's number and no more.
//
// Traced threads are known exactly, from task_newtask and task_rename; of others (kernel threads that let go
// of pages) /proc is asked once.  Of the dead the last few thousand are kept, as exit_mmap may follow an
// exit.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_THREAD_NAMES_H_
#define MEMCGD_CLIENT_RECORD_THREAD_NAMES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace memcgd::client {

class ThreadNames {
 public:
  struct Thread {
    int32_t tgid = -1;  // -1: not known
    std::array<char, 16> comm{};
    bool dead = false;

    std::string_view name() const { return comm.data(); }
  };

  // The reference holds until the next call.
  const Thread& Find(int32_t tid);
  void Add(int32_t tid, int32_t tgid, std::string_view comm);
  void NewTask(int32_t parent, int32_t child, std::string_view comm, uint64_t clone_flags);
  void Rename(int32_t tid, std::string_view comm);
  // The thread took its group leader's number.
  void Exec(int32_t tid, int32_t old_tid);
  void Exit(int32_t tid);

 private:
  absl::flat_hash_map<int32_t, Thread> threads_;
  std::deque<int32_t> dead_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_THREAD_NAMES_H_
