// The lines of a text file: plain, gzip or zstd (recognised by content), a file, a pipe or standard input.
//
// Invariants:
//   1. Memory is one buffer of kBufferBytes, and what the decompressor needs, whatever the file's size and
//      whatever a line's length: a line of more than kMaxLineBytes is passed over and said to be too long.
//   2. Every whole line before an error is handed out before the error is.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_LINE_SOURCE_H_
#define MEMCGD_CLIENT_LINE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::client {

// Bytes in order; what a LineSource reads from.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Up to `size` bytes, 0 only at the end.  REQUIRES: size > 0.
  virtual absl::StatusOr<size_t> Read(char* to, size_t size) = 0;
};

class LineSource {
 public:
  static constexpr size_t kMaxLineBytes = 64 << 10;  // without the line's end
  static constexpr size_t kBufferBytes = 256 << 10;

  enum class Result : uint8_t {
    kLine,
    kTooLong,  // the line has more than kMaxLineBytes; *line is empty
    kEnd,
    kError,  // status() says what; it stays so
  };

  // `path` "-" is standard input.  An error names the file.
  static absl::StatusOr<std::unique_ptr<LineSource>> Open(const std::string& path);
  // Lines of any stream; `name` is for messages.
  LineSource(std::string name, std::unique_ptr<ByteStream> stream);

  LineSource(const LineSource&) = delete;
  LineSource& operator=(const LineSource&) = delete;

  // The next line without its end ("\n" or "\r\n"), valid until the next call.
  Result Next(std::string_view* line) {
    const char* newline = FindNewline(begin_, end_);
    if (newline == nullptr) return NextAfterRefill(line);
    return TakeLine(newline, line);
  }

  // The first bytes of the text, as many as there are without waiting for more than one read: to tell a text
  // from a binary file before its first line.  REQUIRES: before the first Next().
  std::string_view PeekText();

  const absl::Status& status() const { return status_; }
  const std::string& name() const { return name_; }
  uint64_t line_number() const { return line_number_; }   // of the line Next() gave last, from 1
  uint64_t bytes() const { return bytes_; }               // of text, ends of lines too, up to there
  bool last_line_is_unended() const { return unended_; }  // the line Next() gave last had no newline

 private:
  static const char* FindNewline(const char* begin, const char* end) {
    return begin == end
               ? nullptr
               : static_cast<const char*>(std::memchr(begin, '\n', static_cast<size_t>(end - begin)));
  }

  Result TakeLine(const char* newline, std::string_view* line) {
    const char* end = newline;
    if (end != begin_ && end[-1] == '\r') --end;
    *line = std::string_view(begin_, static_cast<size_t>(end - begin_));
    bytes_ += static_cast<uint64_t>(newline + 1 - begin_);
    begin_ = newline + 1;
    ++line_number_;
    if (line->size() <= kMaxLineBytes) return Result::kLine;
    *line = std::string_view();
    return Result::kTooLong;
  }

  Result NextAfterRefill(std::string_view* line);
  Result TakeUnendedLine(std::string_view* line);
  Result PassOverLongLine(std::string_view* line);
  bool Refill();

  const std::string name_;
  const std::unique_ptr<ByteStream> stream_;
  const std::unique_ptr<char[]> buffer_;
  const char* begin_;  // the text not yet handed out is [begin_, end_)
  const char* end_;
  bool at_end_ = false;  // the stream has no more bytes, or failed
  bool unended_ = false;
  uint64_t line_number_ = 0;
  uint64_t bytes_ = 0;
  absl::Status stream_status_;  // what ended the stream
  absl::Status status_;         // the same, once the caller has been told
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_LINE_SOURCE_H_
