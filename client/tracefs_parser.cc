#include "client/tracefs_parser.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "client/text_scanner.h"

namespace memcgd::client {
namespace {

using Kind = ParsedLine::Kind;

constexpr size_t kCommWidth = 16;     // the kernel's column: names are right-aligned in it
constexpr size_t kMaxCommBytes = 15;  // TASK_COMM_LEN without its NUL
constexpr uint64_t kMaxCpu = std::numeric_limits<uint32_t>::max();

struct Head {
  int32_t tid = 0;
  int32_t tgid = -1;
  uint32_t cpu = 0;
  TraceFlags flags;
  int64_t time_ns = 0;
};

// "(   3913)", or "(-------)" where the kernel does not know.
bool SkipThreadGroup(TextScanner* text, int32_t* tgid) {
  if (!text->Skip('(')) return true;
  text->SkipBlanks();
  if (text->Peek() == '-') {
    while (text->Skip('-')) {
    }
  } else if (!text->ReadPid(tgid)) {
    return false;
  }
  return text->Skip(')');
}

TraceContext ContextOf(char column) {
  switch (column) {
    case 's':
      return TraceContext::kSoftirq;
    case 'h':
    case 'H':  // in a softirq
      return TraceContext::kHardirq;
    case 'z':
    case 'Z':  // in a hardirq
      return TraceContext::kNmi;
    default:
      return TraceContext::kTask;
  }
}

// '.' for none, else a hexadecimal digit.
uint8_t DepthOf(char column) {
  if (column >= '0' && column <= '9') return static_cast<uint8_t>(column - '0');
  if (column >= 'a' && column <= 'f') return static_cast<uint8_t>(column - 'a' + 10);
  return 0;
}

// Older kernels have fewer columns.
TraceFlags FlagsOf(std::string_view columns) {
  constexpr size_t kColumns = 5;
  std::array<char, kColumns> column{'.', '.', '.', '.', '.'};
  std::copy_n(columns.begin(), std::min(columns.size(), kColumns), column.begin());
  TraceFlags flags;
  flags.irqs_off = column[0] == 'd' || column[0] == 'D';
  flags.bh_off = column[0] == 'b' || column[0] == 'D';
  flags.need_resched = column[1] != '.';
  flags.context = ContextOf(column[2]);
  flags.preempt_depth = DepthOf(column[3]);
  flags.migrate_disable = DepthOf(column[4]);
  return flags;
}

// The flags' column begins with a letter or a dot, a time with a digit.
bool ReadFlags(TextScanner* text, TraceFlags* flags) {
  constexpr size_t kMaxFlags = 12;
  const char first = text->Peek();
  if (first >= '0' && first <= '9') return true;
  const char* start = text->at();
  while (!text->AtEnd() && text->Peek() != ' ') text->Advance(1);
  const auto length = static_cast<size_t>(text->at() - start);
  if (length == 0 || length > kMaxFlags) return false;
  *flags = FlagsOf({start, length});
  text->SkipBlanks();
  return true;
}

// What follows a name and its dash, down to the blank before the body.
bool ParseAfterDash(TextScanner text, Head* head, std::string_view* body, const char** why) {
  if (!text.ReadPid(&head->tid) || head->tid < 0) return false;
  text.SkipBlanks();
  if (!SkipThreadGroup(&text, &head->tgid)) return false;
  text.SkipBlanks();
  uint64_t cpu = 0;
  if (!text.Skip('[') || !text.ReadDecimal(&cpu, kMaxCpu) || !text.Skip(']')) return false;
  head->cpu = static_cast<uint32_t>(cpu);
  text.SkipBlanks();
  if (!ReadFlags(&text, &head->flags)) return false;
  const TextScanner time = text;
  if (!text.ReadTime(&head->time_ns)) {
    TextScanner ticks = time;
    uint64_t count = 0;
    if (ticks.ReadDecimal(&count) && ticks.Skip(':')) {
      *why = "the time is not in seconds: record with the trace_clock mono, boot, local or global";
    }
    return false;
  }
  if (!text.Skip(": ")) return false;
  *body = text.rest();
  return true;
}

std::string_view WithoutLeadingBlanks(std::string_view text) {
  const size_t start = text.find_first_not_of(' ');
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

void FillHead(const Head& head, std::string_view comm, TraceRecord* record) {
  record->tid = head.tid;
  record->tgid = head.tgid;
  record->cpu = head.cpu;
  record->flags = head.flags;
  record->time_ns = head.time_ns;
  record->comm = WithoutLeadingBlanks(comm);
}

// A line whose column of names was lost (blanks stripped by a mail or an editor): the last dash that fits,
// among those a name can end at.
bool ParseShiftedHead(std::string_view line, TraceRecord* record, std::string_view* body, const char** why) {
  const size_t start = std::min(line.find_first_not_of(' '), line.size());
  const size_t limit = std::min(line.size(), start + kMaxCommBytes + 1);
  bool found = false;
  for (size_t i = start; i < limit; ++i) {
    if (line[i] != '-') continue;
    Head head;
    if (!ParseAfterDash(TextScanner(line.substr(i + 1)), &head, body, why)) continue;
    FillHead(head, line.substr(0, i), record);
    found = true;
  }
  return found;
}

// "# entries-in-buffer/entries-written: 14724/15000   #P:2": the ring buffer kept fewer than were written.
ParsedLine ParseComment(std::string_view line, TraceRecord* record) {
  ParsedLine parsed = Parsed(Kind::kNothing);
  TextScanner text(line);
  if (text.Skip("# entries-in-buffer/entries-written: ")) {
    uint64_t kept = 0, written = 0;
    parsed.recognised = true;
    if (text.ReadDecimal(&kept) && text.Skip('/') && text.ReadDecimal(&written) && written > kept) {
      record->op = TraceOp::kLost;
      record->lost_events = written - kept;
      parsed.kind = Kind::kRecord;
    }
  } else if (text.Skip("# tracer: ")) {
    parsed.recognised = true;
  }
  return parsed;
}

}  // namespace

bool ParseFtraceHead(std::string_view line, TraceRecord* record, std::string_view* body, const char** why) {
  if (line.size() > kCommWidth && line[kCommWidth] == '-' && line[0] == ' ') {
    Head head;
    if (ParseAfterDash(TextScanner(line.substr(kCommWidth + 1)), &head, body, why)) {
      FillHead(head, line.substr(0, kCommWidth), record);
      return true;
    }
  }
  return ParseShiftedHead(line, record, body, why);
}

ParsedLine ParseFtraceBody(std::string_view body, TraceRecord* record) {
  const size_t length = EventNameLength(body);
  const std::string_view name = body.substr(0, length);
  const std::string_view after = body.substr(length);
  if (!name.empty() && after.starts_with(":")) {
    TextScanner values(after.substr(1));
    values.SkipBlanks();
    // trace-cmd says so where it cannot follow an event's format, and then prints the fields by their names.
    if (values.Skip("[FAILED TO PARSE]")) values.SkipBlanks();
    return ParseEvent(name, values.rest(), record);
  }
  if (after.starts_with("(")) return ParseTracefsSyscallEnter(name, after.substr(1), record);
  if (after.starts_with(" -> ")) return ParseTracefsSyscallExit(name, after.substr(4), record);
  const bool is_function = !name.empty() && after.find(" <-") != std::string_view::npos;
  if (is_function || body.starts_with("<stack trace>") || body.starts_with("<user stack trace>")) {
    return Parsed(Kind::kOther);
  }
  return Malformed("a body that is no event's");
}

bool IsStackLine(std::string_view line) { return WithoutLeadingBlanks(line).starts_with("=> "); }

bool ParseLostLine(std::string_view line, TraceRecord* record) {
  TextScanner text(line);
  uint64_t cpu = 0;
  if (!text.Skip("CPU:") || !text.ReadDecimal(&cpu, kMaxCpu) || !text.Skip(" [")) return false;
  uint64_t lost = 0;  // what it stays where the number is not known
  if (text.Skip("LOST ")) {
    if (!text.Skip("EVENTS]") && !(text.ReadDecimal(&lost) && text.Skip(" EVENTS]"))) return false;
  } else if (!text.Skip("EVENTS DROPPED]") && !(text.ReadDecimal(&lost) && text.Skip(" EVENTS DROPPED]"))) {
    return false;
  }
  record->op = TraceOp::kLost;
  record->cpu = static_cast<uint32_t>(cpu);
  record->lost_events = lost;
  return true;
}

ParsedLine ParseTracefsLine(std::string_view line, TraceRecord* record) {
  if (line.empty()) return Parsed(Kind::kNothing);
  if (line[0] == '#') return ParseComment(line, record);
  const char* why = "no line of a trace: there is no comm-PID [cpu] time: before an event";
  std::string_view body;
  if (ParseFtraceHead(line, record, &body, &why)) {
    ParsedLine parsed = ParseFtraceBody(body, record);
    parsed.recognised = parsed.has_time = true;
    return parsed;
  }
  ParsedLine parsed = Malformed(why);
  if (ParseLostLine(line, record)) {
    parsed = Parsed(Kind::kRecord);
    parsed.recognised = true;
  } else if (IsStackLine(line) || line.find_first_not_of(" \t") == std::string_view::npos) {
    parsed = Parsed(Kind::kNothing);
  }
  return parsed;
}

}  // namespace memcgd::client
