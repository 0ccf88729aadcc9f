// Lines of `perf script`:
//
//   comm PID[/TID] [[cpu]] seconds.fraction: [period] [system:]event: body
//   comm PID[/TID] [[cpu]] seconds.fraction: PERF_RECORD_…
//
// One number is the thread; two are process and thread (-F pid,tid).  The cpu is there when it was recorded.
// A command's name may hold blanks, so it is what is left of the last PID that fits within a name's length.
//
// Counterpart: tools/perf/builtin-script.c, and the fprintf functions of tools/perf/util/event.c.
//
// Thread safety: pure functions.
#ifndef MEMCGD_CLIENT_PERF_SCRIPT_PARSER_H_
#define MEMCGD_CLIENT_PERF_SCRIPT_PARSER_H_

#include <string_view>

#include "client/event_parser.h"
#include "client/trace_record.h"

namespace memcgd::client {

ParsedLine ParsePerfScriptLine(std::string_view line, TraceRecord* record);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_PERF_SCRIPT_PARSER_H_
