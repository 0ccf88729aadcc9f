#include <algorithm>
#include <optional>
#include <utility>

#include "client/record_kind.h"
#include "client/translation.h"

namespace memcgd::client {

FileEvent Translation::PagesOf(const TraceRecord& record, WordKind kind, uint32_t file) const {
  const uint64_t first = PageOf(record.first_byte);
  const uint64_t last = kind == WordKind::kFileFault ? first : std::max(first, PageOf(record.last_byte));
  return {.kind = kind, .order = 0, .file = file, .index = first, .count = last - first + 1};
}

FileEvent Translation::FolioOf(const TraceRecord& record, WordKind kind, uint32_t file) const {
  const uint8_t order = std::min<uint8_t>(record.order, 32);
  return {.kind = kind,
          .order = order,
          .file = file,
          .index = PageOf(record.first_byte),
          .count = uint64_t{1} << order};
}

void Translation::OnFileUse(const TraceRecord& record) {
  Thread& thread = Known(record);
  const uint32_t file = files_.Handle(record.op, record.dev, record.ino);
  if (record.op == TraceOp::kWriteBegin) {
    thread.readahead.Write(file);
    Push(record, PagesOf(record, WordKind::kFileWrite, file));
    return;
  }
  CountRead(thread, record);
  if (record.op == TraceOp::kFilemapGetPages) {
    Push(record, PagesOf(record, WordKind::kFileRead, file));
    return;
  }
  const FileEvent folio = FolioOf(record, WordKind::kFileAdd, file);
  thread.readahead.Add(file, folio.index, folio.count);
  Push(record, folio);
}

void Translation::OnFileDelete(const TraceRecord& record, const Thread* thread) {
  const FileEvent folio =
      FolioOf(record, WordKind::kFileDelete, files_.Handle(record.op, record.dev, record.ino));
  // A process may have such a name, but then it did something else before.
  if (IsKswapd(record) && (thread == nullptr || thread->reclaims_node)) {
    BeginNodeReclaim(record, folio.count);
  }
  Push(record, folio);
}

void Translation::BeginNodeReclaim(const TraceRecord& record, uint64_t pages) {
  Thread& thread = Known(record);
  thread.reclaims_node = true;
  if (!thread.reclaiming) Push(record, ReclaimBeginEvent{});
  thread.reclaiming = true;
  thread.reclaimed_pages += pages;
}

void Translation::EndNodeReclaim(Thread& thread, const TraceRecord& record) {
  thread.reclaiming = false;
  Push(record, ReclaimEndEvent{std::exchange(thread.reclaimed_pages, 0)});
}

void Translation::OnFileDirty(const TraceRecord& record, Thread* thread) {
  const uint32_t file = files_.DirtyHandle(record.dev, record.ino);
  if (thread != nullptr) thread->readahead.Dirty();
  Push(record, FileEvent{WordKind::kFileDirty, 0, file, record.page_index, 1});
}

void Translation::UnderstandReadahead(Thread& thread, const TraceRecord& record) {
  if (IsWithinFault(record.op) && record.op != TraceOp::kFilemapFault &&
      record.op != TraceOp::kFilemapMapPages) {
    return;
  }
  const uint64_t window = options_.readahead_pages;
  std::optional<ReadaheadRun::Mark> mark;
  if (record.op == TraceOp::kFilemapGetPages) {
    const uint32_t file = files_.Handle(record.op, record.dev, record.ino);
    mark = thread.readahead.AfterRead(file, PageOf(record.first_byte), PageOf(record.last_byte), window);
  } else {
    mark = thread.readahead.AtEnd(window);
  }
  thread.readahead.Forget();
  if (mark.has_value()) Push(record, FileEvent{WordKind::kReadahead, 0, mark->file, mark->index, 1});
}

}  // namespace memcgd::client
