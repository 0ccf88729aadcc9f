// A few threads of ours that run what may wait: gRPC 1.51 has as many callback threads as cores, and a
// reaction that waits for a node's cut would hold up every other call.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_WORKER_POOL_H_
#define MEMCGD_SERVER_WORKER_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace memcgd::server {

class WorkerPool {
 public:
  explicit WorkerPool(size_t threads);
  // Runs what was scheduled, then joins.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void Schedule(std::function<void()> task);
  // Waits until nothing is scheduled and nothing runs, or until `deadline`.
  void WaitUntilIdle(std::chrono::steady_clock::time_point deadline);

 private:
  void Run();

  // std::mutex for std::condition_variable; it guards tasks_, running_ and stopping_.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> tasks_;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_WORKER_POOL_H_
