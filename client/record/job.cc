#include "client/record/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace memcgd::client {
namespace {

enum class Step : int { kCgroup, kExec };

struct Failure {
  Step step;
  int error;
};

// Runs in the child, beside threads that were not forked: system calls and nothing else.
[[noreturn]] void RunChild(int go, int failure, int procs, char* const* arguments) {
  char byte = 0;
  if (read(go, &byte, 1) != 1) _exit(1);  // the recorder gave up
  Failure failed{Step::kCgroup, 0};
  if (procs < 0 || write(procs, "0", 1) == 1) {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execvp(arguments[0], arguments);
    failed.step = Step::kExec;
  }
  failed.error = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &failed, sizeof failed);
  _exit(1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> Job::Fork(const std::vector<std::string>& command,
                                               const std::string& procs_file) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int procs = procs_file.empty() ? -1 : open(procs_file.c_str(), O_WRONLY | O_CLOEXEC);
  if (!procs_file.empty() && procs < 0) return absl::ErrnoToStatus(errno, procs_file);
  std::array<int, 2> go{}, failure{};
  if (pipe2(go.data(), O_CLOEXEC) != 0 || pipe2(failure.data(), O_CLOEXEC) != 0)
    return absl::ErrnoToStatus(errno, "pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    RunChild(go[0], failure[1], procs, arguments.data());
  }
  const int error = errno;
  close(go[0]);
  close(failure[1]);
  if (procs >= 0) close(procs);
  if (pid < 0) {
    close(go[1]);
    close(failure[0]);
    return absl::ErrnoToStatus(error, "fork");
  }
  return std::unique_ptr<Job>(new Job(command.front(), pid, go[1], failure[0]));
}

Job::~Job() {
  if (go_ >= 0) close(go_);  // a child that waits ends
  if (!released_) waitpid(pid_, nullptr, 0);
  close(failure_);
}

absl::Status Job::Release() {
  const ssize_t written = write(go_, "x", 1);
  close(go_);
  go_ = -1;
  released_ = true;
  Failure failure{};
  ssize_t got = 0;
  while ((got = read(failure_, &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  if (written == 1 && got == 0) return absl::OkStatus();  // closed by exec
  released_ = false;                                      // it ends by itself
  if (got != sizeof failure) return absl::InternalError("the command's process was ended before it began");
  return absl::ErrnoToStatus(failure.error, failure.step == Step::kExec
                                                ? absl::StrCat("cannot run ", program_)
                                                : "entering the cgroup");
}

void Job::Signal(int signal) {
  if (!ended_) kill(pid_, signal);
}

bool Job::HasEnded() {
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    ended_ = true;
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return ended_;
}

}  // namespace memcgd::client
