// The way back of tracefs_parser.h: a record as the line that the parser makes it of again, time to the
// nanosecond.  What no record holds (a fork's child_comm, an exit's prio) is written as the parser needs it.
//
// Thread safety: pure functions.
#ifndef MEMCGD_CLIENT_TRACEFS_WRITER_H_
#define MEMCGD_CLIENT_TRACEFS_WRITER_H_

#include <string>

#include "client/trace_record.h"

namespace memcgd::client {

// Appends the line with its end.  Nothing is appended for records that only perf has.  Control characters of
// names, which would end the line, become '?'.
void AppendTracefsLine(const TraceRecord& record, std::string* text);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRACEFS_WRITER_H_
