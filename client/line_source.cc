#include "client/line_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace memcgd::client {
namespace {

constexpr size_t kCompressedBytes = 128 << 10;  // read at a time

// A file descriptor, with a look ahead at its first bytes.
class FileStream : public ByteStream {
 public:
  FileStream(int fd, bool owned) : fd_(fd), owned_(owned) {}
  ~FileStream() override {
    if (owned_) close(fd_);
  }

  // The first bytes, at most 16 of them; fewer only where the file has fewer.  REQUIRES: before Read().
  absl::StatusOr<std::string_view> Peek() {
    while (head_size_ < head_.size()) {
      absl::StatusOr<size_t> got = ReadFile(head_.data() + head_size_, head_.size() - head_size_);
      if (!got.ok()) return got.status();
      if (*got == 0) break;
      head_size_ += *got;
    }
    return std::string_view(head_.data(), head_size_);
  }

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (head_taken_ == head_size_) return ReadFile(to, size);
    const size_t count = std::min(size, head_size_ - head_taken_);
    std::memcpy(to, head_.data() + head_taken_, count);
    head_taken_ += count;
    if (count == size) return count;
    // More behind the head, so that the first piece of a text is enough to judge it by.  An error comes
    // again.
    absl::StatusOr<size_t> more = ReadFile(to + count, size - count);
    return count + (more.ok() ? *more : 0);
  }

 private:
  absl::StatusOr<size_t> ReadFile(char* to, size_t size) {
    for (;;) {
      const ssize_t got = read(fd_, to, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return absl::ErrnoToStatus(errno, "cannot be read");
    }
  }

  const int fd_;
  const bool owned_;
  std::array<char, 16> head_{};
  size_t head_size_ = 0;
  size_t head_taken_ = 0;
};

// What gzip and zstd share: compressed bytes come in by the bufferful, and an error waits until what was
// decompressed before it has been handed out.
class DecompressedStream : public ByteStream {
 public:
  explicit DecompressedStream(std::unique_ptr<FileStream> file)
      : file_(std::move(file)), input_(new char[kCompressedBytes]) {}

 protected:
  // False at the end of the file, and with *status set on an error.
  bool FillInput(absl::Status* status) {
    absl::StatusOr<size_t> got = file_->Read(input_.get(), kCompressedBytes);
    if (!got.ok()) *status = got.status();
    input_at_ = 0;
    input_size_ = got.ok() ? *got : 0;
    return input_size_ != 0;
  }
  bool InputIsUsedUp() const { return input_at_ == input_size_; }

  std::unique_ptr<FileStream> file_;
  std::unique_ptr<char[]> input_;
  size_t input_at_ = 0;
  size_t input_size_ = 0;
};

class ZstdStream : public DecompressedStream {
 public:
  explicit ZstdStream(std::unique_ptr<FileStream> file)
      : DecompressedStream(std::move(file)), context_(ZSTD_createDStream()) {}
  ~ZstdStream() override { ZSTD_freeDStream(context_); }

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (context_ == nullptr) return absl::ResourceExhaustedError("no memory to decompress zstd");
    ZSTD_outBuffer output = {to, size, 0};
    while (output.pos == 0) {
      // With output pending inside the context no input is needed, so the end is known only by asking it
      // first.
      absl::Status status;
      if (InputIsUsedUp() && !output_was_full_ && !FillInput(&status)) {
        if (!status.ok()) return status;
        if (frame_is_open_) return absl::DataLossError("the zstd file ends too early (cut short?)");
        return 0;
      }
      ZSTD_inBuffer input = {input_.get(), input_size_, input_at_};
      const size_t result = ZSTD_decompressStream(context_, &output, &input);
      if (ZSTD_isError(result)) {
        return absl::DataLossError(absl::StrCat("the zstd file is damaged: ", ZSTD_getErrorName(result)));
      }
      input_at_ = input.pos;
      frame_is_open_ = result != 0;
      output_was_full_ = output.pos == output.size && result != 0;
    }
    return output.pos;
  }

 private:
  ZSTD_DStream* const context_;
  bool frame_is_open_ = false;
  bool output_was_full_ = false;
};

class GzipStream : public DecompressedStream {
 public:
  explicit GzipStream(std::unique_ptr<FileStream> file) : DecompressedStream(std::move(file)) {
    constexpr int kGzipOnly = 16;
    ready_ = inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK;
  }
  ~GzipStream() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (!ready_) return absl::ResourceExhaustedError("no memory to decompress gzip");
    if (!pending_error_.ok()) return pending_error_;
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size) {
      absl::Status status;
      if (InputIsUsedUp() && !FillInput(&status)) {
        if (!status.ok()) return status;
        if (member_is_open_) return absl::DataLossError("the gzip file ends too early (cut short?)");
        return 0;
      }
      if (!member_is_open_ && !OpenMember()) continue;
      const int result = Inflate();
      if (result == Z_STREAM_END) {
        member_is_open_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        pending_error_ = absl::DataLossError(
            absl::StrCat("the gzip file is damaged: ", stream_.msg != nullptr ? stream_.msg : "bad data"));
        if (stream_.avail_out == size) return pending_error_;
      }
    }
    return size - stream_.avail_out;
  }

 private:
  // A gzip file is one member or more, one behind the other, then perhaps zero bytes of padding (tapes).
  // False where the input was padding only.
  bool OpenMember() {
    while (any_member_ && !InputIsUsedUp() && input_[input_at_] == '\0') ++input_at_;
    if (InputIsUsedUp()) return false;
    if (any_member_) inflateReset(&stream_);
    any_member_ = member_is_open_ = true;
    return true;
  }

  int Inflate() {
    stream_.next_in = reinterpret_cast<Bytef*>(input_.get() + input_at_);
    stream_.avail_in = static_cast<uInt>(input_size_ - input_at_);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    input_at_ = input_size_ - stream_.avail_in;
    return result;
  }

  z_stream stream_{};
  bool ready_ = false;
  bool member_is_open_ = false;
  bool any_member_ = false;
  absl::Status pending_error_;
};

// Files people hand in by mistake, and what to do about each.
const char* WhatElseItIs(std::string_view head) {
  if (head.starts_with("PERFILE2"))
    return "it is perf's data file: run `perf script -i FILE` and pass its output";
  if (head.starts_with("\x17\x08\x44"
                       "tracing")) {
    return "it is trace-cmd's data file: run `trace-cmd report FILE` and pass its output";
  }
  if (head.starts_with("\xfd"
                       "7zXZ"))
    return "it is compressed with xz: decompress it first";
  if (head.starts_with("BZh")) return "it is compressed with bzip2: decompress it first";
  if (head.starts_with("\x04\x22\x4d\x18")) return "it is compressed with lz4: decompress it first";
  if (head.starts_with("PK\x03\x04")) return "it is a zip archive: unpack it first";
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
    return "it is UTF-16 text: convert it to UTF-8";
  if (head.starts_with("\x7f"
                       "ELF"))
    return "it is a program";
  return nullptr;
}

absl::StatusOr<std::unique_ptr<FileStream>> OpenFile(const std::string& path) {
  if (path == "-") return std::make_unique<FileStream>(STDIN_FILENO, /*owned=*/false);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot be opened");
  auto file = std::make_unique<FileStream>(fd, /*owned=*/true);
  struct stat info {};
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("is a directory");
  return file;
}

// The text of the file, whatever it is compressed with.
absl::StatusOr<std::unique_ptr<ByteStream>> OpenText(const std::string& path) {
  absl::StatusOr<std::unique_ptr<FileStream>> file = OpenFile(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::string_view> head = (*file)->Peek();
  if (!head.ok()) return head.status();
  if (head->starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<ZstdStream>(*std::move(file));
  if (head->starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(*std::move(file));
  if (const char* what = WhatElseItIs(*head)) {
    return absl::InvalidArgumentError(absl::StrCat("is not a trace: ", what));
  }
  return *std::move(file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineSource>> LineSource::Open(const std::string& path) {
  const std::string name = path == "-" ? "standard input" : path;
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = OpenText(path);
  if (!stream.ok()) {
    return absl::Status(stream.status().code(), absl::StrCat(name, ": ", stream.status().message()));
  }
  return std::make_unique<LineSource>(name, *std::move(stream));
}

LineSource::LineSource(std::string name, std::unique_ptr<ByteStream> stream)
    : name_(std::move(name)),
      stream_(std::move(stream)),
      buffer_(new char[kBufferBytes]),
      begin_(buffer_.get()),
      end_(buffer_.get()) {}

std::string_view LineSource::PeekText() {
  if (begin_ == end_) Refill();
  return std::string_view(begin_, static_cast<size_t>(end_ - begin_));
}

// Moves what is left to the buffer's front and reads behind it.  False at the end of the stream.
// REQUIRES: there is room, which an overlong line would take and so is never kept.
bool LineSource::Refill() {
  if (at_end_) return false;
  const auto kept = static_cast<size_t>(end_ - begin_);
  std::memmove(buffer_.get(), begin_, kept);
  absl::StatusOr<size_t> got = stream_->Read(buffer_.get() + kept, kBufferBytes - kept);
  begin_ = buffer_.get();
  end_ = begin_ + kept + (got.ok() ? *got : 0);
  if (!got.ok()) stream_status_ = got.status();
  at_end_ = !got.ok() || *got == 0;
  return !at_end_;
}

LineSource::Result LineSource::NextAfterRefill(std::string_view* line) {
  *line = std::string_view();
  for (;;) {
    const auto searched = static_cast<size_t>(end_ - begin_);
    // One more than the limit: a carriage return may still turn out to be part of the line's end.
    if (searched > kMaxLineBytes + 1) return PassOverLongLine(line);
    if (!Refill()) return TakeUnendedLine(line);
    if (const char* newline = FindNewline(begin_ + searched, end_)) return TakeLine(newline, line);
  }
}

LineSource::Result LineSource::TakeUnendedLine(std::string_view* line) {
  if (!stream_status_.ok()) {
    // What is left is part of a line that cannot be had: half a line is not handed out as a whole one.
    status_ = absl::Status(stream_status_.code(),
                           absl::StrCat(name_, ":", line_number_ + 1, ": ", stream_status_.message()));
    return Result::kError;
  }
  if (begin_ == end_) return Result::kEnd;
  std::string_view text(begin_, static_cast<size_t>(end_ - begin_));
  bytes_ += text.size();
  begin_ = end_;
  ++line_number_;
  unended_ = true;
  if (text.back() == '\r') text.remove_suffix(1);
  if (text.size() > kMaxLineBytes) return Result::kTooLong;
  *line = text;
  return Result::kLine;
}

LineSource::Result LineSource::PassOverLongLine(std::string_view* line) {
  const char* newline = nullptr;
  while (newline == nullptr) {
    bytes_ += static_cast<uint64_t>(end_ - begin_);
    begin_ = end_;
    if (!Refill()) {
      if (!stream_status_.ok()) return TakeUnendedLine(line);
      unended_ = true;
      ++line_number_;
      return Result::kTooLong;
    }
    newline = FindNewline(begin_, end_);
  }
  TakeLine(newline, line);
  *line = std::string_view();
  return Result::kTooLong;
}

}  // namespace memcgd::client
