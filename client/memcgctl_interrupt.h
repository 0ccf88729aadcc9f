// Ctrl-C and SIGTERM: the command is told and ends by itself; where it does not soon (it waits for standard
// input, say), what must not be left undone is done in its place.
//
// The signals are blocked everywhere and waited for by one thread, so that what is done about them may be
// anything, a call to the server too.
//
// Thread safety: all of it.
#ifndef MEMCGD_CLIENT_MEMCGCTL_INTERRUPT_H_
#define MEMCGD_CLIENT_MEMCGCTL_INTERRUPT_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace memcgd::client {

class Interrupt {
 public:
  // REQUIRES: no other thread was started yet; there is one Interrupt in a process.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // True from the first signal on.
  const std::atomic<bool>& flag() const { return flag_; }
  // The signal, 0 where there was none.
  int signal() const { return signal_; }

  // What to do before the process is ended in the command's place.  A second signal ends it at once, without,
  // but for one that comes with the first.
  void SetLastResort(std::function<void()> last_resort);

 private:
  void Watch();
  [[noreturn]] void EndProcess();

  std::atomic<bool> flag_{false};
  std::atomic<bool> done_{false};
  std::atomic<int> signal_{0};
  std::mutex mu_;
  std::function<void()> last_resort_;  // guarded by mu_
  std::thread watcher_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_INTERRUPT_H_
