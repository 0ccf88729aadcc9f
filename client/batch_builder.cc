#include "client/batch_builder.h"

#include <algorithm>

namespace memcgd::client {
namespace {

using memcgd::v1::FileRange;
using memcgd::v1::SideEvent;

constexpr size_t kMaxNameBytes = 255;
constexpr uint64_t kPageShift = 12;  // of range events, whatever the node's page size
constexpr uint64_t kMaxPageNumber = (uint64_t{1} << 45) - 1;
constexpr uint64_t kMaxRangePages = (uint64_t{1} << 19) - 1;
constexpr uint64_t kMaxIndex = 0xffffffff;
constexpr uint64_t kMaxExtra = 0xff;
constexpr uint32_t kProtReadWrite = 3;
constexpr uint32_t kMapPrivateAnonymous = 0x22;
constexpr uint32_t kMadvDontNeed = 4;

FileRange::Op RangeOp(WordKind kind) {
  switch (kind) {
    case WordKind::kFileAdd:
      return FileRange::OP_ADD;
    case WordKind::kFileDelete:
      return FileRange::OP_DELETE;
    case WordKind::kFileFault:
      return FileRange::OP_FAULT;
    case WordKind::kMapPages:
      return FileRange::OP_MAP_PAGES;
    case WordKind::kFileRead:
      return FileRange::OP_READ;
    case WordKind::kFileWrite:
      return FileRange::OP_WRITE;
    case WordKind::kFileDirty:
      return FileRange::OP_DIRTY;
    default:
      return FileRange::OP_UNSPECIFIED;
  }
}

// The eight bits beside the index: the folio's order, or pages − 1.
uint64_t Extra(WordKind kind, uint64_t count, uint32_t order) {
  switch (kind) {
    case WordKind::kFileAdd:
    case WordKind::kFileDelete:
      return order;
    case WordKind::kMapPages:
    case WordKind::kFileRead:
    case WordKind::kFileWrite:
      return count - 1;
    default:
      return 0;
  }
}

// The text's handle, the next one where it has none yet; 0, and not new, where no handle is left.
uint32_t HandleOf(std::string_view text, absl::flat_hash_map<std::string, uint32_t>* handles, bool* is_new) {
  const auto at = handles->find(std::string(text));
  if (at != handles->end()) return at->second;
  if (handles->size() == kMaxHandle) return 0;
  *is_new = true;
  return handles->emplace(text, static_cast<uint32_t>(handles->size() + 1)).first->second;
}

}  // namespace

void BatchBuilder::AddAddress(const EventPlace& place, WordKind kind, uint64_t address, uint32_t error_code) {
  AddWords(place, kind, (address & kMaxWordAddress) | uint64_t{error_code} << 57);
}

void BatchBuilder::AddFile(const EventPlace& place, WordKind kind, uint32_t file, uint64_t index,
                           uint64_t count, uint32_t order) {
  if (file == 0) return;
  const uint64_t extra = Extra(kind, count, order);
  if (index <= kMaxIndex && extra <= kMaxExtra) {
    AddWords(place, kind, file | index << 24 | extra << 56);
  } else {
    AddFileRange(place, kind, file, index, count, order);
  }
}

void BatchBuilder::AddFileRange(const EventPlace& place, WordKind kind, uint32_t file, uint64_t index,
                                uint64_t count, uint32_t order) {
  const FileRange::Op op = RangeOp(kind);
  // A mark of readahead that needs the wide form lies past 16 TiB of a file: it is a mark the less.
  if (op == FileRange::OP_UNSPECIFIED) return;
  FileRange* range = AddSide(place)->mutable_file_range();
  range->set_op(op);
  range->set_file(file);
  range->set_index(index);
  range->set_count(count);
  range->set_order(order);
}

void BatchBuilder::AddRange(const EventPlace& place, WordKind kind, uint64_t address, uint64_t length) {
  const uint64_t page = address >> kPageShift;
  const uint64_t pages = length >> kPageShift;
  if (page <= kMaxPageNumber && pages <= kMaxRangePages) {
    AddWords(place, kind, page | pages << 45);
    return;
  }
  SideEvent* side = AddSide(place);
  if (kind == WordKind::kMmapAnon) {
    side->mutable_mmap()->set_address(address);
    side->mutable_mmap()->set_length(length);
    side->mutable_mmap()->set_prot(kProtReadWrite);
    side->mutable_mmap()->set_flags(kMapPrivateAnonymous);
  } else if (kind == WordKind::kMunmap) {
    side->mutable_munmap()->set_address(address);
    side->mutable_munmap()->set_length(length);
  } else {
    side->mutable_madvise()->set_address(address);
    side->mutable_madvise()->set_length(length);
    side->mutable_madvise()->set_advice(kMadvDontNeed);
  }
}

void BatchBuilder::AddMigration(const EventPlace& place, std::string_view path, uint32_t file, uint64_t index,
                                uint64_t address) {
  const uint32_t handle = PathHandle(path);
  if (handle == 0) return;
  memcgd::v1::MigrateFolio* migrate = AddSide(place)->mutable_migrate_folio();
  migrate->set_path(handle);
  migrate->set_file(file);
  migrate->set_index(file != 0 ? index : 0);
  migrate->set_address(file != 0 ? 0 : address);
}

SideEvent* BatchBuilder::AddSide(const EventPlace& place) {
  last_time_ns_ = place.time_ns;
  SideEvent* side = batch_.add_side();
  side->set_position(static_cast<uint32_t>(batch_.words_size() / 2));
  side->set_cpu(place.cpu);
  side->set_tid(place.tid);
  side->set_time_offset_ns(place.time_ns);
  return side;
}

SideEvent* BatchBuilder::AddDefinition() { return AddSide({.cpu = 0, .tid = 0, .time_ns = last_time_ns_}); }

uint32_t BatchBuilder::PathHandle(std::string_view path) {
  bool is_new = false;
  const uint32_t handle = HandleOf(path, &paths_, &is_new);
  if (!is_new) return handle;
  auto* define = AddDefinition()->mutable_define_path();
  define->set_handle(handle);
  define->set_path(std::string(path));
  return handle;
}

uint32_t BatchBuilder::NameHandle(std::string_view name) {
  name = name.substr(0, kMaxNameBytes);
  bool is_new = false;
  const uint32_t handle = HandleOf(name, &names_, &is_new);
  if (!is_new) return handle;
  auto* define = AddDefinition()->mutable_define_name();
  define->set_handle(handle);
  define->set_name(std::string(name));
  return handle;
}

uint32_t BatchBuilder::FileHandle(uint32_t dev, uint64_t ino, bool shmem) {
  File& file = files_[{dev, ino}];
  if (file.handle != 0 && file.shmem == shmem) return file.handle;
  if (last_file_ == kMaxHandle) return file.handle;
  file = {.handle = ++last_file_, .shmem = shmem};
  auto* define = AddDefinition()->mutable_define_file();
  define->set_handle(file.handle);
  define->set_dev(dev);
  define->set_ino(ino);
  define->set_shmem(shmem);
  return file.handle;
}

memcgd::v1::Batch BatchBuilder::Take(uint64_t sequence) {
  if (!has_base_ && batch_.side_size() > 0) SetBase(batch_.side(batch_.side_size() - 1).time_offset_ns());
  for (SideEvent& side : *batch_.mutable_side()) {
    side.set_time_offset_ns(side.time_offset_ns() - batch_.base_time_ns());
  }
  batch_.set_sequence(sequence);
  words_expected_ = batch_.words_size();
  has_base_ = false;
  last_word_us_ = 0;
  return std::exchange(batch_, {});
}

void BatchBuilder::AddWords(const EventPlace& place, WordKind kind, uint64_t body) {
  if (!has_base_) {
    SetBase(place.time_ns);
    batch_.mutable_words()->Reserve(words_expected_);
  }
  last_time_ns_ = place.time_ns;
  const uint64_t head = static_cast<uint64_t>(kind) | uint64_t{place.cpu & kMaxWordCpu} << 6 |
                        uint64_t{place.tid & kMaxWordTid} << 16 | uint64_t{TimeUs(place.time_ns)} << 38;
  auto* words = batch_.mutable_words();
  words->Add(head);
  words->Add(body);
}

void BatchBuilder::SetBase(int64_t time_ns) {
  has_base_ = true;
  batch_.set_base_time_ns(time_ns - time_ns % 1000);
}

uint32_t BatchBuilder::TimeUs(int64_t time_ns) {
  const int64_t offset_us = (time_ns - batch_.base_time_ns()) / 1000;
  const auto time_us = static_cast<uint32_t>(std::clamp<int64_t>(offset_us, 0, kMaxWordTimeUs));
  last_word_us_ = std::max(last_word_us_, time_us);
  return time_us;
}

}  // namespace memcgd::client
