// A command that is started to be recorded: forked, held until whoever records is ready, then in its cgroup
// and on its way.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_JOB_H_
#define MEMCGD_CLIENT_RECORD_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::client {

class Job {
 public:
  // `procs_file`: cgroup.procs of where it is to run; empty: where it is.
  // REQUIRES: the command has at least one word.
  static absl::StatusOr<std::unique_ptr<Job>> Fork(const std::vector<std::string>& command,
                                                   const std::string& procs_file);
  // A job that was never released is killed; one that runs goes on.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int32_t pid() const { return pid_; }
  // Returns when the program is on its way, or why it is not (NOT_FOUND: there is no such program).
  absl::Status Release();
  void Signal(int signal);
  // True once it has ended; does not wait.
  bool HasEnded();
  // Its exit status, or 128 and the signal that ended it.  REQUIRES: HasEnded().
  int exit_code() const { return exit_code_; }

 private:
  Job(std::string program, int32_t pid, int go, int failure)
      : program_(std::move(program)), pid_(pid), go_(go), failure_(failure) {}

  const std::string program_;
  const int32_t pid_;
  int go_;             // a pipe: a byte lets it go on
  const int failure_;  // a pipe: errno and what failed; closed by exec
  bool released_ = false;
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_JOB_H_
