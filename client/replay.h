// Replays recorded traces into a node: files → TraceReader → TraceTranslator → BatchBuilder → EventStream, in
// bounded memory whatever the files' size.  Several files are one stream, in the order given.
//
// A state is asked for at each of Options::times (a mark is put before the first record that is later, so
// that where times go back the file's order decides; those after the last record are put at the end) or,
// without any, once at the end.
//
// Thread safety: one thread at a time; callbacks run on it.
#ifndef MEMCGD_CLIENT_REPLAY_H_
#define MEMCGD_CLIENT_REPLAY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch_builder.h"
#include "client/cgroup_knobs.h"
#include "client/event_stream.h"
#include "client/node_client.h"
#include "client/trace_reader.h"
#include "client/trace_translator.h"

namespace memcgd::client {

// A moment of the trace's clock.
struct StatTime {
  std::string text;     // as given: a JSON number
  int64_t time_ns = 0;  // whole nanoseconds at or before it
};

// seconds[.fraction], read digit by digit: no rounding on the way.  The error says what is wrong.
absl::StatusOr<StatTime> ParseStatTime(std::string_view text);
// One time a line, none before the one above it; empty lines and what follows a # are passed over.  Errors
// begin with "NAME:LINE: ".
absl::StatusOr<std::vector<StatTime>> ParseStatTimes(std::string_view name, std::string_view text);
// The same from a file ("-": standard input) of at most 256 MiB.
absl::StatusOr<std::vector<StatTime>> ReadStatTimes(const std::string& path);

// The number of CPUs that the head of the trace tells ("#P:4" in tracefs text, "cpus=4" of trace-cmd), 0
// where it tells none or the file cannot be read twice (standard input, a pipe).
uint32_t CpusOfTrace(const std::string& path);

struct ReplayOptions {
  std::vector<std::string> files;  // "-": standard input
  std::string node;                // exists
  std::string stream_id;           // a new one
  bool again = false;              // the stream may be there, fed by a replay of the same files
  size_t answered = 0;             // then: states that were given already, and are not given again
  uint32_t root = 0;               // number of the cgroup hierarchy; 0: the first one seen
  uint32_t cpus = 0;               // of the node
  uint32_t page_size = 4096;       // of the node, bytes
  bool strict = false;
  std::vector<StatTime> times;
  std::vector<CgroupKnob> knobs = {};
  const std::atomic<bool>* cancelled = nullptr;
  // "FILE:LINE: what is wrong": the first of the lines that are not understood.
  std::function<void(const std::string&)> on_malformed;
  // The first notable outcomes.
  std::function<void(const memcgd::v1::Notable&)> on_notable;
  // The answer for times[index], or the final one.  An error ends the replay with it.
  std::function<absl::Status(size_t index, const memcgd::v1::State&)> on_state;
  // Now and then; the argument is the number of files read to their end.
  std::function<void(size_t files_done)> on_progress;
};

// Sums over all files.
struct ReplayCounts {
  TraceReader::Counts read;
  TraceTranslator::Counts translated;
  EventStream::Counts sent;
};

class Replay {
 public:
  using Sink = std::function<absl::Status(memcgd::v1::Batch)>;

  Replay(Server server, ReplayOptions options);
  // The batches go to `sink`, without sequence numbers, instead of to a stream; nobody answers marks.
  Replay(Sink sink, ReplayOptions options);

  // As EventStream's errors, or what is wrong with a file (input_is_bad()).
  absl::Status Run();

  // True where Run() failed because of a file.
  bool input_is_bad() const { return input_is_bad_; }
  // True where Run() failed because the server has another state than was fed, or none: another Replay of the
  // same options with `again` may go on, where files can be read twice.
  bool state_is_gone() const { return stream_ != nullptr && stream_->state_is_gone(); }
  // At any time.
  ReplayCounts counts() const;
  // Of Options::knobs, those whose cgroup has not appeared.
  std::vector<CgroupKnobs::Missed> missed_knobs() const { return translator_.missed_knobs(); }
  // Bytes of text read from the file that is being read.
  uint64_t bytes_of_file() const { return reader_ != nullptr ? reader_->counts().bytes : 0; }

 private:
  absl::Status RunFile(const std::string& path);
  absl::Status SendWhatIsReady(size_t at_least);
  void MarkTimesBefore(int64_t time_ns);
  bool Cancelled() const { return options_.cancelled != nullptr && *options_.cancelled; }

  const ReplayOptions options_;
  BatchBuilder builder_;
  TraceTranslator translator_;
  std::unique_ptr<EventStream> stream_;  // none where batches go to a sink
  const Sink sink_;
  std::unique_ptr<TraceReader> reader_;  // of the file that is being read
  TraceReader::Counts read_before_;      // of the files before it
  size_t files_done_ = 0;
  size_t next_time_ = 0;  // of options_.times
  int reports_left_;
  bool input_is_bad_ = false;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_REPLAY_H_
