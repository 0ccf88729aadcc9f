#include "client/linux_numbers.h"
#include "client/record_kind.h"
#include "client/translation.h"

namespace memcgd::client {

void Translation::OnPerfMmap(const TraceRecord& record) {
  Thread& thread = Living(record);
  const uint64_t address = record.args[0], length = WholePages(record.args[1]);
  if (!IsUserRange(address, length)) return;
  const uint32_t file = record.ino != 0 ? files_.Handle(record.op, record.dev, record.ino) : 0;
  if (thread.call.syscall == Syscall::kMmap) {  // its return is yet to come
    thread.call.file = file;
    return;
  }
  // mprotect and mremap report what they change as if it were new.
  if (thread.call.syscall == Syscall::kMprotect || thread.call.syscall == Syscall::kMremap) return;
  const bool anonymous = record.path == "//anon" || record.path == "[heap]" || record.path == "[stack]";
  const uint64_t flags = (record.args[4] != 0 ? kMapShared : kMapPrivate) | (anonymous ? kMapAnonymous : 0);
  Push(record, MmapEvent{.address = address,
                         .length = length,
                         .offset = record.args[2],
                         .prot = static_cast<uint32_t>(record.args[3]),
                         .flags = static_cast<uint32_t>(flags),
                         .file = file,
                         .baseline = true});
}

void Translation::OnPerfComm(const TraceRecord& record, Thread* thread) {
  const uint32_t name = builder_->NameHandle(record.path);
  const bool is_new = thread == nullptr || thread->dead;
  Thread& living = is_new ? BeginBaseline(record, record.tid, record.tgid, record.path) : *thread;
  if (!IsPerfExec(record)) {
    if (!is_new) Push(record, CommEvent{name});
    return;
  }
  if (living.exec.sign == PendingExec::Sign::kKernelFaults) AbandonExec(living);
  if (Entry* entry = window_.Find(living.exec.slot)) {
    entry->body = ExecEvent{name};
    living.exec.sign = PendingExec::Sign::kPerfComm;
  } else {
    BeginExec(living, record, PendingExec::Sign::kPerfComm, ExecEvent{name});
  }
}

}  // namespace memcgd::client
