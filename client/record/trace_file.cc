#include "client/record/trace_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "client/tracefs_writer.h"

namespace memcgd::client {
namespace {

constexpr size_t kCompressAtBytes = 256 << 10;
// The fastest that still halves what the next one leaves: a trace is made of few words.
constexpr int kLevel = 1;

}  // namespace

TraceFile::TraceFile(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), compressor_(ZSTD_createCCtx()), compressed_(ZSTD_CStreamOutSize()) {
  ZSTD_CCtx_setParameter(compressor_, ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(compressor_, ZSTD_c_checksumFlag, 1);
}

TraceFile::~TraceFile() {
  ZSTD_freeCCtx(compressor_);
  if (fd_ != STDOUT_FILENO) close(fd_);
}

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path, uint32_t cpus,
                                                             const std::string& head) {
  const int fd =
      path == "-" ? STDOUT_FILENO : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  std::unique_ptr<TraceFile> file(new TraceFile(path, fd));
  file->text_ =
      absl::StrCat("# tracer: nop\n#\n# entries-in-buffer/entries-written: 0/0   #P:", cpus, "\n#\n", head);
  absl::Status status = file->Flush();
  if (!status.ok()) return status;
  return file;
}

absl::Status TraceFile::Add(const TraceRecord& record) {
  AppendTracefsLine(record, &text_);
  return text_.size() < kCompressAtBytes ? absl::OkStatus() : Compress(Step::kGoOn);
}

absl::Status TraceFile::Flush() { return Compress(Step::kFlush); }
absl::Status TraceFile::Finish() { return Compress(Step::kEnd); }

absl::Status TraceFile::Compress(Step step) {
  const ZSTD_EndDirective directive = step == Step::kGoOn    ? ZSTD_e_continue
                                      : step == Step::kFlush ? ZSTD_e_flush
                                                             : ZSTD_e_end;
  ZSTD_inBuffer in{text_.data(), text_.size(), 0};
  for (size_t left = 1; step == Step::kGoOn ? in.pos < in.size : left != 0;) {
    ZSTD_outBuffer out{compressed_.data(), compressed_.size(), 0};
    left = ZSTD_compressStream2(compressor_, &out, &in, directive);
    if (ZSTD_isError(left) != 0)
      return absl::InternalError(absl::StrCat(path_, ": ", ZSTD_getErrorName(left)));
    absl::Status status = Write({compressed_.data(), out.pos});
    if (!status.ok()) return status;
  }
  text_.clear();
  return absl::OkStatus();
}

absl::Status TraceFile::Write(std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, path_);
    data.remove_prefix(static_cast<size_t>(written));
    bytes_written_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace memcgd::client
