#include "client/memcgctl_interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "client/memcgctl_exit.h"

namespace memcgd::client {
namespace {

// A command that looks at the flag ends within a tenth of a second, removal of its node included.
constexpr time_t kGraceSeconds = 2;
// timeout(1) signals its command and then the group that it is in: two so close together are one.
constexpr std::chrono::milliseconds kOneSignal(200);
constexpr int kDoneSignal = SIGUSR1;  // from the destructor

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, kDoneSignal}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t signals = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // threads started from here on inherit it
  watcher_ = std::thread([this] { Watch(); });
}

Interrupt::~Interrupt() {
  done_ = true;
  pthread_kill(watcher_.native_handle(), kDoneSignal);
  watcher_.join();
}

void Interrupt::SetLastResort(std::function<void()> last_resort) {
  std::lock_guard<std::mutex> lock(mu_);
  last_resort_ = std::move(last_resort);
}

void Interrupt::Watch() {
  const sigset_t signals = WatchedSignals();
  std::chrono::steady_clock::time_point first;
  while (!done_) {
    const timespec grace = {kGraceSeconds, 0};
    const int signal = flag_ ? sigtimedwait(&signals, nullptr, &grace) : sigwaitinfo(&signals, nullptr);
    if (done_) return;
    if (signal == kDoneSignal || (signal < 0 && !flag_)) continue;
    if (signal > 0 && !flag_.exchange(true)) {
      signal_ = signal;
      first = std::chrono::steady_clock::now();
      continue;
    }
    if (signal > 0 && std::chrono::steady_clock::now() - first < kOneSignal) continue;
    if (signal < 0) {
      std::lock_guard<std::mutex> lock(mu_);
      if (last_resort_) last_resort_();
    }
    EndProcess();
  }
}

// Without destructors: another thread is in the middle of something.
void Interrupt::EndProcess() { _exit(kExitSignal + signal_); }

}  // namespace memcgd::client
