// Lines of `trace-cmd report`:
//
//   comm-PID [cpu] [flags] seconds.fraction: event:   body
//
// which differ from tracefs' by blanks, by the form of system calls (sys_enter_mmap: addr: 0x…), and by what
// stands around them: "cpus=2", "version = 6", "CPU 0 is empty", "CPU:0 [12 EVENTS DROPPED]".
//
// Counterpart: trace_show_data() in trace-cmd's tracecmd/trace-read.c.
//
// Thread safety: pure functions.
#ifndef MEMCGD_CLIENT_TRACE_CMD_PARSER_H_
#define MEMCGD_CLIENT_TRACE_CMD_PARSER_H_

#include <string_view>

#include "client/event_parser.h"
#include "client/trace_record.h"

namespace memcgd::client {

ParsedLine ParseTraceCmdLine(std::string_view line, TraceRecord* record);

// For telling trace-cmd from tracefs where no header says: trace-cmd pads names to 20 columns and has its own
// form of system calls.  `body` as ParseFtraceHead() gives it.
bool IsTraceCmdBody(std::string_view body);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRACE_CMD_PARSER_H_
