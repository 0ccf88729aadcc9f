// The file that a recording is written to: tracefs text, compressed with zstd.  `memcgctl replay` reads it,
// and so does whoever reads tracefs text (`zstd -dc FILE`).
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_RECORD_TRACE_FILE_H_
#define MEMCGD_CLIENT_RECORD_TRACE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/trace_record.h"

struct ZSTD_CCtx_s;

namespace memcgd::client {

class TraceFile {
 public:
  // Makes or empties the file; "-" is standard output.  `head`: comment lines, each with its "# " and its
  // end.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(const std::string& path, uint32_t cpus,
                                                           const std::string& head);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  absl::Status Add(const TraceRecord& record);
  // What was added until now can be read, should this process be killed.
  absl::Status Flush();
  // The file is complete; nothing may be added any more.
  absl::Status Finish();

  uint64_t bytes_written() const { return bytes_written_; }

 private:
  enum class Step { kGoOn, kFlush, kEnd };

  TraceFile(std::string path, int fd);
  absl::Status Compress(Step step);
  absl::Status Write(std::string_view data);

  const std::string path_;
  const int fd_;
  ZSTD_CCtx_s* const compressor_;
  std::string text_;  // not compressed yet
  std::vector<char> compressed_;
  uint64_t bytes_written_ = 0;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_TRACE_FILE_H_
