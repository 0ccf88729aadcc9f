#include "client/perf_script_parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "client/text_scanner.h"

namespace memcgd::client {
namespace {

using Kind = ParsedLine::Kind;

constexpr size_t kMaxCommBytes = 15;  // TASK_COMM_LEN without its NUL

struct Head {
  int32_t tid = 0;
  int32_t tgid = -1;
  uint32_t cpu = 0;
  int64_t time_ns = 0;
};

// What follows a name: blanks, PID[/TID], [cpu], the time and its colon.
bool ParseAfterComm(TextScanner text, Head* head, std::string_view* body) {
  text.SkipBlanks();
  if (!text.ReadPid(&head->tid)) return false;
  if (text.Skip('/')) {
    head->tgid = head->tid;
    if (!text.ReadPid(&head->tid)) return false;
  }
  if (text.Peek() != ' ') return false;
  text.SkipBlanks();
  if (text.Skip('[')) {
    uint64_t cpu = 0;
    if (!text.ReadDecimal(&cpu, std::numeric_limits<uint32_t>::max()) || !text.Skip("] ")) return false;
    head->cpu = static_cast<uint32_t>(cpu);
    text.SkipBlanks();
  }
  if (!text.ReadTime(&head->time_ns) || !text.Skip(": ")) return false;
  text.SkipBlanks();
  *body = text.rest();
  return true;
}

std::string_view WithoutBlanks(std::string_view text) {
  const size_t start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(' ') + 1 - start);
}

bool ParseHead(std::string_view line, TraceRecord* record, std::string_view* body) {
  const size_t start = std::min(line.find_first_not_of(' '), line.size());
  const size_t limit = std::min(line.size(), start + kMaxCommBytes + 1);
  bool found = false;
  // An empty name is possible: then the PID is the first word.
  for (size_t i = start == 0 ? 0 : start - 1; i < limit; ++i) {
    if (line[i] != ' ') continue;
    Head head;
    if (!ParseAfterComm(TextScanner(line.substr(i)), &head, body)) continue;
    record->comm = WithoutBlanks(line.substr(0, i));
    record->tid = head.tid;
    record->tgid = head.tgid;
    record->cpu = head.cpu;
    record->time_ns = head.time_ns;
    found = true;
  }
  return found;
}

// ---- PERF_RECORD_… ----

bool ReadPair(TextScanner* text, char between, int32_t* first, int32_t* second) {
  return text->ReadPid(first) && text->Skip(between) && text->ReadPid(second);
}

constexpr uint64_t kProtRead = 1, kProtWrite = 2, kProtExec = 4;  // PROT_*

// "r-xp", the last letter 's' where the mapping is shared; "x" or "r" alone in the older MMAP record.
bool ReadProtection(TextScanner* text, TraceRecord* record) {
  const std::string_view letters = text->rest().substr(0, text->rest().find(' '));
  uint64_t prot = 0;
  for (const char c : letters) {
    if (c == 'r') prot |= kProtRead;
    if (c == 'w') prot |= kProtWrite;
    if (c == 'x') prot |= kProtExec;
    if (std::string_view("rwxps-").find(c) == std::string_view::npos) return false;
  }
  // MMAP says executable or not and nothing else: executable mappings are readable as well.
  if (letters.size() == 1) prot |= kProtRead;
  record->args[3] = prot;
  record->args[4] = letters.ends_with("s") ? 1 : 0;
  text->Advance(letters.size());
  return letters.size() == 1 || letters.size() == 4;
}

// What stands between the file offset and the ']': nothing (MMAP), "fe:00 10987144 2243016597" with the
// device in hex and the inode in decimal, or a build id in its place.
bool ReadMappedFile(TextScanner* text, TraceRecord* record) {
  if (text->Skip(']')) return true;
  if (!text->Skip(' ')) return false;
  TextScanner device = *text;
  uint64_t major = 0, minor = 0;
  if (device.ReadHex(&major) && major <= 0xfff && device.Skip(':') && device.ReadHex(&minor) &&
      minor <= 0xfffff && device.Skip(' ') && device.ReadDecimal(&record->ino) && device.AtValueEnd()) {
    record->dev = MakeDev(static_cast<uint32_t>(major), static_cast<uint32_t>(minor));
  }
  return text->SkipPast(']');
}

// " 24104/24104: [0x55f0ce686000(0x1000) @ 0x1000 fe:00 10987144 2243016597]: r-xp /opt/oom"
ParsedLine ParseMmap(TextScanner text, TraceRecord* record) {
  int32_t pid = 0, tid = 0;
  if (!text.Skip(' ') || !ReadPair(&text, '/', &pid, &tid) || !text.Skip(": [") ||
      !text.ReadHex(&record->args[0]) || !text.Skip('(') || !text.ReadHex(&record->args[1]) ||
      !text.Skip(") @ ") || !text.ReadHex(&record->args[2])) {
    return Malformed("a PERF_RECORD_MMAP without PID/TID: [ADDRESS(LENGTH) @ OFFSET …]");
  }
  if (!ReadMappedFile(&text, record) || !text.Skip(": ") || !ReadProtection(&text, record) ||
      !text.Skip(' ')) {
    return Malformed("a PERF_RECORD_MMAP without ]: PROTECTION FILE");
  }
  record->tgid = pid;
  record->tid = tid;
  record->path = text.rest();
  record->op = TraceOp::kPerfMmap;
  return Parsed(Kind::kRecord);
}

// ": make:10/11" or " exec: make:10/11"; the name may hold colons.
ParsedLine ParseComm(TextScanner text, TraceRecord* record) {
  record->group_dead = text.Skip(" exec") ? 1 : 0;
  const size_t colon = text.rest().rfind(':');
  if (!text.Skip(": ") || colon == std::string_view::npos || colon < 2) {
    return Malformed("a PERF_RECORD_COMM without NAME:PID/TID");
  }
  record->path = text.rest().substr(0, colon - 2);
  text.Advance(colon - 1);
  int32_t pid = 0, tid = 0;
  if (!ReadPair(&text, '/', &pid, &tid) || !text.AtValueEnd()) {
    return Malformed("a PERF_RECORD_COMM without NAME:PID/TID");
  }
  record->tgid = pid;
  record->tid = tid;
  record->op = TraceOp::kPerfComm;
  return Parsed(Kind::kRecord);
}

// "(PID:TID):(PPID:PTID)" of FORK and EXIT.
ParsedLine ParseTask(TraceOp op, TextScanner text, TraceRecord* record) {
  int32_t parent_pid = 0, parent_tid = 0;
  if (!text.Skip('(') || !ReadPair(&text, ':', &record->child_tgid, &record->child_pid) ||
      !text.Skip("):(") || !ReadPair(&text, ':', &parent_pid, &parent_tid) || !text.Skip(')')) {
    return Malformed("a PERF_RECORD_FORK or EXIT without (PID:TID):(PPID:PTID)");
  }
  // A fork is its parent's doing; an exit is reported by the thread itself.
  record->tgid = op == TraceOp::kFork ? parent_pid : record->child_tgid;
  record->tid = op == TraceOp::kFork ? parent_tid : record->child_pid;
  record->op = op;
  return Parsed(Kind::kRecord);
}

ParsedLine ParseLost(TextScanner text, TraceRecord* record) {
  if (!text.Skip(" lost ") || !text.ReadDecimal(&record->lost_events) || !text.AtValueEnd()) {
    return Malformed("a PERF_RECORD_LOST without its number");
  }
  record->op = TraceOp::kLost;
  return Parsed(Kind::kRecord);
}

// `body` begins with PERF_RECORD_.
ParsedLine ParsePerfRecord(std::string_view body, TraceRecord* record) {
  body.remove_prefix(std::string_view("PERF_RECORD_").size());
  const std::string_view name = body.substr(0, EventNameLength(body));
  const TextScanner rest(body.substr(name.size()));
  if (name == "MMAP2" || name == "MMAP") return ParseMmap(rest, record);
  if (name == "COMM") return ParseComm(rest, record);
  if (name == "FORK") return ParseTask(TraceOp::kFork, rest, record);
  if (name == "EXIT") return ParseTask(TraceOp::kPerfExit, rest, record);
  if (name == "LOST" || name == "LOST_SAMPLES") return ParseLost(rest, record);
  return name.empty() ? Malformed("a PERF_RECORD_ without its name") : Parsed(Kind::kOther);
}

// ---- events ----

// Events are recorded with a period now and then: a number before the name.
std::string_view WithoutPeriod(std::string_view body) {
  TextScanner text(body);
  uint64_t period = 0;
  if (!text.ReadDecimal(&period) || text.Peek() != ' ') return body;
  text.SkipBlanks();
  return text.rest();
}

// "[system:]event[:modifiers]: values"
ParsedLine ParseBody(std::string_view body, TraceRecord* record) {
  if (body.starts_with("PERF_RECORD_")) return ParsePerfRecord(body, record);
  body = WithoutPeriod(body);
  std::string_view name;
  for (int part = 0; part < 3; ++part) {
    const size_t length = EventNameLength(body);
    if (length == 0 || length >= body.size() || body[length] != ':') break;
    // system:event:modifiers: the name is the second of three, and of two.
    if (part < 2) name = body.substr(0, length);
    body.remove_prefix(length + 1);
    if (body.empty() || body[0] == ' ') {
      TextScanner values(body);
      values.SkipBlanks();
      return ParseEvent(name, values.rest(), record);
    }
  }
  return Malformed("a body that is no event's");
}

// ---- lines without a head ----

// perf's own warning, where its output and errors went to one file: "Processed 100 events and lost 2 chunks!"
bool IsLostWarning(std::string_view line) {
  return line.starts_with("Processed ") && line.find(" lost ") != std::string_view::npos;
}

// "\t    7f1dde25ce22 mmap64+0x22 (libc.so)": a call chain below its event.
bool IsCallChainLine(std::string_view line) {
  TextScanner text(line);
  uint64_t address = 0;
  if (text.Peek() != '\t') return false;
  text.SkipBlanks();
  return text.ReadHex(&address) && text.AtValueEnd();
}

bool IsIgnoredLine(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos || line == "Check IO/CPU overload!" ||
         IsCallChainLine(line);
}

}  // namespace

ParsedLine ParsePerfScriptLine(std::string_view line, TraceRecord* record) {
  if (line.empty() || line[0] == '#') return Parsed(Kind::kNothing);
  std::string_view body;
  if (ParseHead(line, record, &body)) {
    ParsedLine parsed = ParseBody(body, record);
    parsed.recognised = parsed.has_time = true;
    return parsed;
  }
  if (IsIgnoredLine(line)) return Parsed(Kind::kNothing);
  ParsedLine parsed;
  if (IsLostWarning(line)) {
    record->op = TraceOp::kLost;  // chunks are of any number of events
    parsed = Parsed(Kind::kRecord);
  } else if (const std::string_view text = WithoutBlanks(line); text.starts_with("PERF_RECORD_")) {
    parsed = ParsePerfRecord(text, record);
  } else {
    return Malformed("no line of a trace: there is no comm PID [cpu] time: before an event");
  }
  parsed.recognised = true;
  return parsed;
}

}  // namespace memcgd::client
