#include "client/memcgctl_progress.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_output.h"
#include "client/standard_error.h"

namespace memcgd::client {
namespace {

constexpr std::chrono::milliseconds kBetweenLines{200};

void Draw(const std::string& text) {
  // Carriage return, and erase to the end of the line.
  WriteStandardError(absl::StrCat("\r\x1b[K", text));
}

// The file's name, short enough that the line fits a terminal.
std::string LastPart(const std::string& path) {
  constexpr size_t kMaxBytes = 30;
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.size() <= kMaxBytes ? name : absl::StrCat("…", name.substr(name.size() - kMaxBytes));
}

}  // namespace

uint64_t TextBytes(const std::string& path) {
  struct stat info {};
  if (path == "-" || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return 0;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return 0;
  std::array<unsigned char, 18> head{};  // ZSTD_FRAMEHEADERSIZE_MAX
  const size_t size = std::fread(head.data(), 1, head.size(), file);
  std::fclose(file);
  if (size >= 2 && head[0] == 0x1f && head[1] == 0x8b)
    return 0;  // gzip tells its size modulo 4 GiB, at the end
  const bool zstd = size >= 4 && head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd;
  if (!zstd) return static_cast<uint64_t>(info.st_size);
  const unsigned long long text = ZSTD_getFrameContentSize(head.data(), size);
  return text == ZSTD_CONTENTSIZE_UNKNOWN || text == ZSTD_CONTENTSIZE_ERROR ? 0 : text;
}

Progress::Progress(std::vector<std::string> files)
    : files_(std::move(files)),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_(start_ + kBetweenLines) {}

void Progress::Show(size_t files_done, uint64_t bytes_of_file, const ReplayCounts& counts) {
  if (!terminal_ || files_done >= files_.size() || Clock::now() < next_) return;
  next_ = Clock::now() + kBetweenLines;
  if (file_ != files_done) {
    file_ = files_done;
    bytes_of_file_ = TextBytes(files_[file_]);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line =
      absl::StrCat(LastPart(files_[file_]), ": ", HumanBytes(static_cast<int64_t>(bytes_of_file)));
  if (bytes_of_file_ >= bytes_of_file && bytes_of_file_ != 0) {
    absl::StrAppend(&line, " (", bytes_of_file * 100 / bytes_of_file_, " %)");
  }
  absl::StrAppendFormat(&line, ", %d events, %.0f a second", counts.sent.events,
                        static_cast<double>(counts.sent.events) / (seconds > 0 ? seconds : 1));
  Draw(line);
  shown_ = true;
}

void Progress::ShowEnd(const ReplayCounts& counts) {
  Clear();
  if (!terminal_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  PrintNote(absl::StrFormat("%d events in %.1f s", counts.sent.events, seconds));
}

void Progress::Clear() {
  if (std::exchange(shown_, false)) Draw("");
}

}  // namespace memcgd::client
