// How far a replay is, on one line of a terminal's standard error; nothing where that is no terminal.
#ifndef MEMCGD_CLIENT_MEMCGCTL_PROGRESS_H_
#define MEMCGD_CLIENT_MEMCGCTL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "client/replay.h"

namespace memcgd::client {

// Bytes of text in a trace file, decompressed; 0 where that is not known without reading it.
uint64_t TextBytes(const std::string& path);

class Progress {
 public:
  explicit Progress(std::vector<std::string> files);

  // Draws the line anew, a few times a second at most.
  void Show(size_t files_done, uint64_t bytes_of_file, const ReplayCounts& counts);
  // Instead of it, how much there was and how long it took.
  void ShowEnd(const ReplayCounts& counts);
  // Takes it away, so that something else can be printed.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;

  const std::vector<std::string> files_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point next_;
  bool shown_ = false;
  size_t file_ = SIZE_MAX;  // whose size is known
  uint64_t bytes_of_file_ = 0;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_PROGRESS_H_
