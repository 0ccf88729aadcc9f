#include "client/replay.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/line_source.h"
#include "client/text_scanner.h"

namespace memcgd::client {
namespace {

// A batch is sent when it holds so many events: the next record may bring several more, and a batch that is
// over the limit would be cut in two, the second tiny.
constexpr size_t kSendAtEvents = 7680;
constexpr uint64_t kRecordsBetweenProgress = 1 << 14;
constexpr int kMaxReported = 10;
constexpr size_t kMaxTimesBytes = size_t{256} << 20;

absl::string_view Piece(std::string_view text) { return {text.data(), text.size()}; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Trimmed(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

// What a message shows of a line that may hold anything.
std::string Shown(std::string_view text) {
  constexpr size_t kShownBytes = 60;
  const bool cut = text.size() > kShownBytes;
  return absl::StrCat("\"", absl::CHexEscape(Piece(text.substr(0, kShownBytes))), cut ? "…\"" : "\"");
}

// Adds the times of a line; the line may be empty.
absl::Status AddTimeOfLine(std::string_view line, std::vector<StatTime>* times) {
  line = Trimmed(line.substr(0, line.find('#')));
  if (line.empty()) return absl::OkStatus();
  absl::StatusOr<StatTime> time = ParseStatTime(line);
  if (!time.ok()) return time.status();
  if (!times->empty() && time->time_ns < times->back().time_ns) {
    return absl::InvalidArgumentError(
        absl::StrCat("time ", time->text, " comes after ", times->back().text, ": times must be ascending"));
  }
  times->push_back(*std::move(time));
  return absl::OkStatus();
}

absl::Status AtLine(std::string_view name, uint64_t line, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(Piece(name), ":", line, ": ", status.message()));
}

// The number after `key` in the line, 0 where there is none.
uint32_t NumberAfter(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return 0;
  uint64_t number = 0;
  TextScanner scanner(line.substr(at + key.size()));
  return scanner.ReadDecimal(&number, 1 << 20) ? static_cast<uint32_t>(number) : 0;
}

void Add(const TraceReader::Counts& counts, TraceReader::Counts* sum) {
  sum->lines += counts.lines;
  sum->bytes += counts.bytes;
  sum->records += counts.records;
  sum->other += counts.other;
  sum->malformed += counts.malformed;
  sum->lost_events += counts.lost_events;
  sum->lost_places += counts.lost_places;
  sum->time_backwards += counts.time_backwards;
  sum->symbolic_addresses += counts.symbolic_addresses;
}

TraceTranslator::Options TranslatorOptions(const ReplayOptions& options) {
  TraceTranslator::Options result;
  result.root = options.root;
  result.page_size = options.page_size;
  result.cpus = options.cpus;
  result.knobs = options.knobs;
  return result;
}

EventStream::Options StreamOptions(Server server, const ReplayOptions& options) {
  EventStream::Options result;
  result.server = std::move(server);
  result.node = options.node;
  result.stream_id = options.stream_id;
  result.again = options.again;
  result.last_answered_mark = options.answered;
  result.cancelled = options.cancelled;
  result.on_notable = options.on_notable;
  // A mark's id is the place of its time, from 1.
  result.on_state = [on_state = options.on_state](const memcgd::v1::State& state) {
    return on_state ? on_state(static_cast<size_t>(state.id() - 1), state) : absl::OkStatus();
  };
  return result;
}

}  // namespace

absl::StatusOr<StatTime> ParseStatTime(std::string_view text) {
  constexpr uint64_t kMaxSeconds = 9'000'000'000;  // within int64_t nanoseconds
  const auto bad = [text](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(text), " is not a time: ", why));
  };
  TextScanner scanner(text);
  uint64_t seconds = 0;
  if (!IsDigit(scanner.Peek())) return bad("seconds are wanted, as 7670.951873");
  if (text.size() > 1 && text[0] == '0' && IsDigit(text[1])) return bad("it begins with a superfluous 0");
  if (!scanner.ReadDecimal(&seconds, kMaxSeconds)) return bad("more than 9000000000 seconds");
  uint64_t nanoseconds = 0;
  if (scanner.Skip('.')) {
    if (!IsDigit(scanner.Peek())) return bad("a digit is wanted after the point");
    // Records have whole nanoseconds: which of them are at or before this time does not depend on further
    // digits.
    for (uint64_t unit = 100'000'000; IsDigit(scanner.Peek()); unit /= 10) {
      nanoseconds += unit * static_cast<uint64_t>(scanner.Peek() - '0');
      scanner.Advance(1);
    }
  }
  if (!scanner.AtEnd()) return bad("seconds are wanted, as 7670.951873");
  return StatTime{std::string(text), static_cast<int64_t>(seconds * 1'000'000'000 + nanoseconds)};
}

absl::StatusOr<std::vector<StatTime>> ParseStatTimes(std::string_view name, std::string_view text) {
  std::vector<StatTime> times;
  for (uint64_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    absl::Status status = AddTimeOfLine(text.substr(0, end), &times);
    if (!status.ok()) return AtLine(name, line, status);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return times;
}

absl::StatusOr<std::vector<StatTime>> ReadStatTimes(const std::string& path) {
  absl::StatusOr<std::unique_ptr<LineSource>> source = LineSource::Open(path);
  if (!source.ok()) return source.status();
  std::vector<StatTime> times;
  std::string_view line;
  while (true) {
    const LineSource::Result result = (*source)->Next(&line);
    if (result == LineSource::Result::kEnd) return times;
    if (result == LineSource::Result::kError) return (*source)->status();
    absl::Status status = result == LineSource::Result::kTooLong
                              ? absl::InvalidArgumentError("the line is too long to be a time")
                              : AddTimeOfLine(line, &times);
    if (status.ok() && (*source)->bytes() > kMaxTimesBytes) {
      status = absl::InvalidArgumentError("the file is too long: at most 256 MiB of times");
    }
    if (!status.ok()) return AtLine((*source)->name(), (*source)->line_number(), status);
  }
}

uint32_t CpusOfTrace(const std::string& path) {
  constexpr int kHeadLines = 16;
  struct stat info {};
  if (path == "-" || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return 0;
  absl::StatusOr<std::unique_ptr<LineSource>> source = LineSource::Open(path);
  if (!source.ok()) return 0;
  std::string_view line;
  for (int i = 0; i < kHeadLines && (*source)->Next(&line) == LineSource::Result::kLine; ++i) {
    const bool comment = line.substr(0, 1) == "#";
    const uint32_t cpus = comment                        ? NumberAfter(line, "#P:")
                          : line.substr(0, 5) == "cpus=" ? NumberAfter(line, "cpus=")
                                                         : 0;
    if (cpus != 0) return cpus;
  }
  return 0;
}

Replay::Replay(Server server, ReplayOptions options)
    : options_(std::move(options)),
      translator_(TranslatorOptions(options_), &builder_),
      stream_(std::make_unique<EventStream>(StreamOptions(std::move(server), options_))),
      sink_([this](memcgd::v1::Batch batch) { return stream_->Send(std::move(batch)); }),
      reports_left_(kMaxReported) {}

Replay::Replay(Sink sink, ReplayOptions options)
    : options_(std::move(options)),
      translator_(TranslatorOptions(options_), &builder_),
      sink_(std::move(sink)),
      reports_left_(kMaxReported) {}

ReplayCounts Replay::counts() const {
  ReplayCounts counts{read_before_, translator_.counts(), {}};
  if (stream_ != nullptr) counts.sent = stream_->counts();
  if (reader_ != nullptr) Add(reader_->counts(), &counts.read);
  return counts;
}

absl::Status Replay::Run() {
  absl::Status status = stream_ != nullptr ? stream_->Open() : absl::OkStatus();
  for (size_t i = 0; status.ok() && i < options_.files.size(); ++i) status = RunFile(options_.files[i]);
  if (!status.ok()) return status;
  if (options_.times.empty()) {
    translator_.Mark(1);
  } else {
    while (next_time_ < options_.times.size()) translator_.Mark(++next_time_);
  }
  translator_.Finish();
  status = SendWhatIsReady(1);
  return status.ok() && stream_ != nullptr ? stream_->Finish() : status;
}

absl::Status Replay::RunFile(const std::string& path) {
  TraceReader::Options options;
  options.strict = options_.strict;
  options.max_reported = reports_left_;
  options.report = [this](const std::string& text) {
    --reports_left_;
    if (options_.on_malformed) options_.on_malformed(text);
  };
  absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(path, std::move(options));
  input_is_bad_ = !reader.ok();
  if (!reader.ok()) return reader.status();
  reader_ = *std::move(reader);
  TraceRecord record;
  for (uint64_t records = 0;; ++records) {
    absl::StatusOr<bool> more = reader_->Next(&record);
    input_is_bad_ = !more.ok();
    if (!more.ok()) return more.status();
    if (!*more) break;
    // What a line about lost events has for a time is no event's.
    if (record.op != TraceOp::kLost) MarkTimesBefore(record.time_ns);
    translator_.Add(record);
    absl::Status status = SendWhatIsReady(kSendAtEvents);
    if (!status.ok()) return status;
    if (records % kRecordsBetweenProgress != 0) continue;
    if (Cancelled()) return absl::CancelledError("interrupted");
    if (options_.on_progress) options_.on_progress(files_done_);
  }
  Add(reader_->counts(), &read_before_);
  reader_.reset();
  ++files_done_;
  if (options_.on_progress) options_.on_progress(files_done_);
  return absl::OkStatus();
}

void Replay::MarkTimesBefore(int64_t time_ns) {
  while (next_time_ < options_.times.size() && options_.times[next_time_].time_ns < time_ns) {
    translator_.Mark(++next_time_);
  }
}

absl::Status Replay::SendWhatIsReady(size_t at_least) {
  if (builder_.size() < at_least) return absl::OkStatus();
  return sink_(builder_.Take(0));  // who takes it numbers it
}

}  // namespace memcgd::client
