#include "server/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "server/limits.h"
#include "server/text.h"

namespace memcgd::server {

absl::StatusOr<std::string> ReadRegularFile(std::string_view what, const std::string& file) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(Cat(what, " ", file, ": ", why));
  };
  // Without O_NONBLOCK a FIFO would hold the start of the server for ever.
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refuse(std::strerror(errno));
  struct stat status = {};
  std::string text;
  ssize_t got = -1;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<uint64_t>(status.st_size) <= kMaxConfigFileBytes) {
    text.resize(status.st_size);
    got = read(fd, text.data(), text.size());
  }
  const int error = errno;
  close(fd);
  if (S_ISDIR(status.st_mode)) return refuse("is a directory");
  if (!S_ISREG(status.st_mode)) return refuse("is not a regular file");
  if (static_cast<uint64_t>(status.st_size) > kMaxConfigFileBytes) return refuse("is larger than 1 MiB");
  if (got < 0) return refuse(std::strerror(error));
  text.resize(got);
  return text;
}

}  // namespace memcgd::server
