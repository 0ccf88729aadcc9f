// Lines of /sys/kernel/tracing/trace and trace_pipe:
//
//   comm-PID [(TGID)] [cpu] [flags] seconds.fraction: body
//
// TGID is there with the option record-tgid, flags unless irq-info is off.  A command's name may hold blanks,
// dashes, brackets and bytes that are no UTF-8, so it is what is left of the last "-PID [(TGID)] [cpu] …
// seconds.fraction: " that can be the line's own: a name has at most 15 bytes.
//
// Kernel counterpart: print_trace_line() and trace_print_context() in kernel/trace/trace{,_output}.c.
//
// Thread safety: pure functions.
#ifndef MEMCGD_CLIENT_TRACEFS_PARSER_H_
#define MEMCGD_CLIENT_TRACEFS_PARSER_H_

#include <string_view>

#include "client/event_parser.h"
#include "client/trace_record.h"

namespace memcgd::client {

ParsedLine ParseTracefsLine(std::string_view line, TraceRecord* record);

// For trace-cmd, whose event lines differ from tracefs' by blanks only.  Fills comm, tid, tgid, cpu and
// time_ns; false with *why where the line has another form.
bool ParseFtraceHead(std::string_view line, TraceRecord* record, std::string_view* body, const char** why);
ParsedLine ParseFtraceBody(std::string_view body, TraceRecord* record);
// Lines of a kernel or user stack below an event (" => function"; trace-cmd without the blank).
bool IsStackLine(std::string_view line);
// "CPU:0 [LOST 123 EVENTS]", "CPU:0 [123 EVENTS DROPPED]", "CPU:0 [EVENTS DROPPED]".
bool ParseLostLine(std::string_view line, TraceRecord* record);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRACEFS_PARSER_H_
