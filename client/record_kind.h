// Questions about one record: what it may belong to.
//
// Thread safety: pure functions.
#ifndef MEMCGD_CLIENT_RECORD_KIND_H_
#define MEMCGD_CLIENT_RECORD_KIND_H_

#include <cstdint>
#include <string_view>

#include "client/thread_table.h"
#include "client/trace_record.h"

namespace memcgd::client {

bool IsCgroupOp(TraceOp op);
bool IsExit(TraceOp op);
// What happens in the middle of a fault: reading ahead, and making room.
bool IsWithinFault(TraceOp op);
// The kernel writes to a page that is not present: exec does, to the address space that it makes.
bool IsKernelWrite(const TraceRecord& record);
bool IsPerfExec(const TraceRecord& record);
// A line that exec leaves between the end of the old address space and sched_process_exec.
bool IsWithinExec(const TraceRecord& record);
// A line that the run of the new address space's first faults may hold.
bool IsWithinKernelFaults(const TraceRecord& record);
// A line before which a run of file reads may turn out to have been exec's.
bool KeepsReads(const TraceRecord& record);
// Written in an interrupt: what it tells is not the doing of the thread that was interrupted.
bool InInterrupt(const TraceRecord& record);

// A line of kswapd0, kswapd1 … (one a node), which deletes folios from the page cache to reclaim them.
bool IsKswapd(const TraceRecord& record);

bool PopulatesFiles(const Call& call);
// ip=0x7f5c0c384cd8; 0 where it is a symbol or is not an address of user memory.
uint64_t InstructionOf(const TraceRecord& record);
std::string_view BaseName(std::string_view path);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_KIND_H_
