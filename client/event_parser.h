// The body of one event: what follows the name.  It is the same text in tracefs, `trace-cmd report` and
// `perf script` output, as all three print it by the event's own format (print fmt); only system calls have a
// form of their own in tracefs.
//
// Kernel counterpart: the TP_printk()s of
// include/trace/events/{exceptions,filemap,sched,cgroup,writeback,ext4, oom,vmscan,mmap}.h, and
// print_syscall_enter() and print_syscall_exit() in kernel/trace/trace_syscalls.c.
//
// Unknown fields behind the known ones are passed over, as kernels append fields; a known one that is missing
// makes the line malformed.
//
// Thread safety: pure functions.
#ifndef MEMCGD_CLIENT_EVENT_PARSER_H_
#define MEMCGD_CLIENT_EVENT_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "client/trace_record.h"

namespace memcgd::client {

// What a line turned out to be.
struct ParsedLine {
  enum class Kind : uint8_t {
    kRecord,     // the record is filled
    kOther,      // a well-formed line of an event that replay has no use for
    kNothing,    // a comment, a header, a line of a stack: no event
    kMalformed,  // `why` says what is wrong
  };
  Kind kind = Kind::kNothing;
  // The line has the shape of the format, whether or not its body is right: what formats are told apart by.
  bool recognised = false;
  bool has_time = false;      // record->time_ns is the line's
  const char* why = nullptr;  // a string literal
};

// A system call that replay has a use for.
struct SyscallEntry {
  std::string_view name;
  Syscall syscall = Syscall::kNone;
  uint8_t args = 0;  // of those that it takes, the first so many are read
};
std::span<const SyscallEntry> Syscalls();

inline ParsedLine Malformed(const char* why) { return {ParsedLine::Kind::kMalformed, false, false, why}; }
inline ParsedLine Parsed(ParsedLine::Kind kind) { return {kind, false, false, nullptr}; }

// How much of the front of `text` can be an event's name, or a function's ("__schedule.isra.0").
size_t EventNameLength(std::string_view text);

// `name` without its system ("page_fault_user", "sys_enter_mmap"), `values` what follows "name:" and its
// blanks.  Fills the fields of *record that the event has; op last.
ParsedLine ParseEvent(std::string_view name, std::string_view values, TraceRecord* record);

// tracefs' own forms of system calls: `name` as in "sys_mmap", `args` what follows the '(' and `result` what
// follows the "->".
ParsedLine ParseTracefsSyscallEnter(std::string_view name, std::string_view args, TraceRecord* record);
ParsedLine ParseTracefsSyscallExit(std::string_view name, std::string_view result, TraceRecord* record);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_EVENT_PARSER_H_
