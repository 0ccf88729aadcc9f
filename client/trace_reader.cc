#include "client/trace_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/event_parser.h"
#include "client/line_source.h"
#include "client/perf_script_parser.h"
#include "client/trace_cmd_parser.h"
#include "client/tracefs_parser.h"

namespace memcgd::client {
namespace {

using Kind = ParsedLine::Kind;

// A file is given up as no trace when none of so many lines was recognised: any trace's header is shorter.
constexpr uint64_t kMaxLinesUnrecognised = 200;
constexpr size_t kBinaryCheckBytes = 4096;
constexpr size_t kMaxQuotedBytes = 60;

// What is quoted of a line.  absl::string_view is a type of its own where absl was built for C++14.
absl::string_view Quoted(std::string_view line) {
  return absl::string_view(line.data(), std::min(line.size(), kMaxQuotedBytes));
}

bool HasNul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

// The format that has lines such as this; kUnknown where any has (comments) or none.  A perf line is asked
// for first: its PID stands between blanks, which no line of the other two has, whereas perf's ":-1 -1 [000]
// …" has a dash before a number.
TraceFormat FormatOf(std::string_view line) {
  TraceRecord record;
  if (ParsePerfScriptLine(line, &record).recognised) return TraceFormat::kPerfScript;
  if (ParseTracefsLine(line, &record).recognised) {
    const char* why = nullptr;
    std::string_view body;
    if (ParseFtraceHead(line, &record, &body, &why)) {
      return IsTraceCmdBody(body) ? TraceFormat::kTraceCmd : TraceFormat::kTracefs;
    }
    return line.ends_with("EVENTS DROPPED]") ? TraceFormat::kTraceCmd : TraceFormat::kTracefs;
  }
  if (ParseTraceCmdLine(line, &record).recognised) return TraceFormat::kTraceCmd;
  return TraceFormat::kUnknown;
}

}  // namespace

std::string_view TraceFormatName(TraceFormat format) {
  switch (format) {
    case TraceFormat::kTracefs:
      return "tracefs";
    case TraceFormat::kTraceCmd:
      return "trace-cmd report";
    case TraceFormat::kPerfScript:
      return "perf script";
    case TraceFormat::kUnknown:
      break;
  }
  return "unknown";
}

class TraceReader::Impl {
 public:
  Impl(std::unique_ptr<LineSource> source, Options options)
      : source_(std::move(source)), options_(std::move(options)) {}

  absl::Status CheckIsText() {
    if (!HasNul(source_->PeekText().substr(0, kBinaryCheckBytes))) return absl::OkStatus();
    return NotATrace("it holds NUL bytes, so it is no text");
  }

  absl::StatusOr<bool> Next(TraceRecord* record) {
    if (!status_.ok()) return status_;
    std::string_view line;
    for (;;) {
      const LineSource::Result result = source_->Next(&line);
      if (result == LineSource::Result::kEnd || result == LineSource::Result::kError) return Finish();
      ++counts_.lines;
      counts_.bytes = source_->bytes();
      *record = TraceRecord();
      const ParsedLine parsed = result == LineSource::Result::kTooLong
                                    ? Malformed("a line of more than 65536 bytes")
                                    : Parse(line, record);
      if (parsed.has_time) CountTime(record->time_ns);
      if (parsed.kind == Kind::kRecord) {
        CountRecord(parsed, record);
        return true;
      }
      if (parsed.kind == Kind::kOther) {
        ++counts_.records;
        ++counts_.other;
      } else if (parsed.kind == Kind::kMalformed) {
        TakeMalformed(parsed.why, line);
      }
      if (!status_.ok()) return status_;
    }
  }

  const Counts& counts() const { return counts_; }
  TraceFormat format() const { return format_; }

 private:
  ParsedLine Parse(std::string_view line, TraceRecord* record) {
    // Windows tools put a byte-order mark before UTF-8.
    if (counts_.lines == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    if (format_ == TraceFormat::kUnknown) format_ = FormatOf(line);
    switch (format_) {
      case TraceFormat::kPerfScript:
        return ParsePerfScriptLine(line, record);
      case TraceFormat::kTraceCmd:
        return ParseTraceCmdLine(line, record);
      // What is wrong with a line of no format is said in tracefs' terms.
      case TraceFormat::kTracefs:
      case TraceFormat::kUnknown:
        break;
    }
    return ParseTracefsLine(line, record);
  }

  void CountTime(int64_t time_ns) {
    if (time_ns < last_time_ns_) ++counts_.time_backwards;
    last_time_ns_ = time_ns;
  }

  void CountRecord(const ParsedLine& parsed, TraceRecord* record) {
    ++counts_.records;
    if (!record->has_address) ++counts_.symbolic_addresses;
    if (record->op == TraceOp::kLost) {
      ++counts_.lost_places;
      counts_.lost_events +=
          std::min(record->lost_events, std::numeric_limits<uint64_t>::max() - counts_.lost_events);
      // A line that says so without a time of its own stands between two that have one.
      if (!parsed.has_time && last_time_ns_ != kNoTime) record->time_ns = last_time_ns_;
    }
  }

  void TakeMalformed(const char* why, std::string_view line) {
    ++counts_.malformed;
    const std::string text = Describe(why, line);
    if (options_.report && counts_.malformed <= static_cast<uint64_t>(std::max(0, options_.max_reported))) {
      options_.report(text);
    }
    if (options_.strict) {
      status_ = absl::InvalidArgumentError(text);
      return;
    }
    if (format_ != TraceFormat::kUnknown) return;
    if (first_unrecognised_.empty()) first_unrecognised_ = text;
    if (HasNul(line)) {
      status_ = NotATrace("it holds NUL bytes, so it is no text");
    } else if (counts_.lines >= kMaxLinesUnrecognised) {
      status_ = NothingRecognised();
    }
  }

  absl::StatusOr<bool> Finish() {
    if (!source_->status().ok()) {
      status_ = source_->status();
    } else if (format_ == TraceFormat::kUnknown && counts_.malformed != 0) {
      status_ = NothingRecognised();
    }
    if (!status_.ok()) return status_;
    return false;
  }

  std::string Describe(const char* why, std::string_view line) const {
    std::string text = absl::StrCat(source_->name(), ":", source_->line_number(), ": ", why);
    if (source_->last_line_is_unended()) absl::StrAppend(&text, " (the file ends within this line)");
    if (line.empty()) return text;
    const bool is_cut = line.size() > kMaxQuotedBytes;
    absl::StrAppend(&text, ": \"", absl::CHexEscape(Quoted(line)), is_cut ? "…\"" : "\"");
    return text;
  }

  absl::Status NotATrace(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(source_->name(), ": is not a trace: ", why));
  }

  absl::Status NothingRecognised() const {
    return NotATrace(
        absl::StrCat("none of its first ", counts_.lines,
                     " lines is of tracefs, trace-cmd report or perf script; the first that is not: ",
                     first_unrecognised_));
  }

  static constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

  const std::unique_ptr<LineSource> source_;
  const Options options_;
  TraceFormat format_ = TraceFormat::kUnknown;
  Counts counts_;
  int64_t last_time_ns_ = kNoTime;
  std::string first_unrecognised_;
  absl::Status status_;  // what ended the reading
};

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path, Options options) {
  absl::StatusOr<std::unique_ptr<LineSource>> source = LineSource::Open(path);
  if (!source.ok()) return source.status();
  auto impl = std::make_unique<Impl>(*std::move(source), std::move(options));
  if (absl::Status status = impl->CheckIsText(); !status.ok()) return status;
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(impl)));
}

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;

absl::StatusOr<bool> TraceReader::Next(TraceRecord* record) { return impl_->Next(record); }
const TraceReader::Counts& TraceReader::counts() const { return impl_->counts(); }
TraceFormat TraceReader::format() const { return impl_->format(); }

}  // namespace memcgd::client
