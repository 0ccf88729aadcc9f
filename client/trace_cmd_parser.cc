#include "client/trace_cmd_parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "client/text_scanner.h"
#include "client/tracefs_parser.h"

namespace memcgd::client {
namespace {

using Kind = ParsedLine::Kind;

// Lines around the events that say nothing a replay needs.
bool IsHeaderLine(std::string_view line) {
  TextScanner text(line);
  uint64_t number = 0;
  if (text.Skip("cpus=")) return text.ReadDecimal(&number) && text.AtEnd();
  if (text.Skip("version = ")) return text.ReadDecimal(&number);
  if (text.Skip("CPU:")) return text.ReadDecimal(&number) && text.Skip(" [SUBBUFFER START]");
  if (!text.Skip("CPU")) return false;
  text.Skip(' ');
  return text.ReadDecimal(&number) && (text.Skip(" is empty") || text.Skip(" data recorded at offset="));
}

}  // namespace

bool IsTraceCmdBody(std::string_view body) {
  const size_t colon = body.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = body.substr(0, colon);
  return body.substr(colon + 1).starts_with("  ") || name.starts_with("sys_enter_") ||
         (name.starts_with("sys_exit_") && name.find('(') == std::string_view::npos);
}

ParsedLine ParseTraceCmdLine(std::string_view line, TraceRecord* record) {
  if (line.empty() || line[0] == '#') return Parsed(Kind::kNothing);
  const char* why = "no line of a trace: there is no comm-PID [cpu] time: before an event";
  std::string_view body;
  if (ParseFtraceHead(line, record, &body, &why)) {
    body.remove_prefix(std::min(body.find_first_not_of(' '), body.size()));
    ParsedLine parsed = ParseFtraceBody(body, record);
    parsed.recognised = parsed.has_time = true;
    return parsed;
  }
  ParsedLine parsed = Malformed(why);
  if (ParseLostLine(line, record)) {
    parsed = Parsed(Kind::kRecord);
    parsed.recognised = true;
  } else if (IsHeaderLine(line)) {
    parsed = Parsed(Kind::kNothing);
    parsed.recognised = true;
  } else if (IsStackLine(line) || line.find_first_not_of(" \t") == std::string_view::npos) {
    parsed = Parsed(Kind::kNothing);
  }
  return parsed;
}

}  // namespace memcgd::client
