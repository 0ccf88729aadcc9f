// Reads a recorded trace, line by line, into TraceRecords: tracefs text, `trace-cmd report` and
// `perf script` output, plain, gzip or zstd, a file or standard input.  The kind and the compression are
// recognised by content.  Memory is bounded whatever the file's size and whatever a line's length.
//
// Formats: docs/formats.md.  A line that is not understood is counted and reported (at most
// Options::max_reported of them by name, then only counted) and reading goes on; with Options::strict it
// ends the reading with an error that names file and line.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_TRACE_READER_H_
#define MEMCGD_CLIENT_TRACE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/trace_record.h"

namespace memcgd::client {

enum class TraceFormat : uint8_t { kUnknown, kTracefs, kTraceCmd, kPerfScript };

std::string_view TraceFormatName(TraceFormat format);

class TraceReader {
 public:
  struct Options {
    bool strict = false;
    int max_reported = 10;
    // Called with "FILE:LINE: what is wrong" for each of the first max_reported malformed lines.
    std::function<void(const std::string&)> report;
  };
  struct Counts {
    uint64_t lines = 0;    // all of them, comments and empty ones too
    uint64_t bytes = 0;    // of text, after decompression
    uint64_t records = 0;  // returned by Next(), kOther ones too
    uint64_t other = 0;    // well-formed lines of events that replay has no use for
    uint64_t malformed = 0;
    uint64_t lost_events = 0;     // events the trace itself says were lost
    uint64_t lost_places = 0;     // places at which it says so (an unknown number counts here only)
    uint64_t time_backwards = 0;  // records with a time before the one before them
    uint64_t symbolic_addresses = 0;
  };

  // `path` "-" is standard input.  An error names the file and what is wrong with it (does not exist, is a
  // directory, is binary, is a damaged .zst …).
  static absl::StatusOr<std::unique_ptr<TraceReader>> Open(const std::string& path, Options options);
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  // True with the next record (kOther lines are skipped, never returned), false at the end of the file.
  // A read error, damaged compression, or (strict) a malformed line is a status that names file and line.
  absl::StatusOr<bool> Next(TraceRecord* record);

  const Counts& counts() const;
  TraceFormat format() const;  // kUnknown until the first line was recognised

 private:
  class Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRACE_READER_H_
