// Packs events into Batch messages: frequent ones into words, rare ones beside them, names into handles.
//
// A handle is defined by an event of the stream before its first use; the builder remembers which were.
// Batches must be sent in the order in which they were taken.
//
// Times: the batch's base time is that of its first frequent event, in whole microseconds, so that what a
// word says does not depend on where batches are cut.  A frequent event before the base gets the base's time;
// one more than kMaxWordTimeUs after it gets the last time that fits, which full() avoids.  Side events have
// exact times.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_BATCH_BUILDER_H_
#define MEMCGD_CLIENT_BATCH_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client {

// Where an event happened.
struct EventPlace {
  uint32_t cpu = 0;
  uint32_t tid = 0;
  int64_t time_ns = 0;
};

// Kinds of frequent events; docs/protocol.md has the numbers and bits.
enum class WordKind : uint8_t {
  kFault = 1,
  kFileFault = 2,
  kMapPages = 3,
  kFileAdd = 4,
  kFileDelete = 5,
  kFileRead = 6,
  kFileWrite = 7,
  kFileDirty = 8,
  kMmapAnon = 9,
  kMunmap = 10,
  kDontNeed = 11,
  kBrk = 12,
  kAccess = 13,
  kInstruction = 14,
  kReadahead = 15,
};

// What fits the fields of a frequent event.
inline constexpr uint32_t kMaxWordCpu = 1023;
inline constexpr uint32_t kMaxWordTid = (uint32_t{1} << 22) - 1;
inline constexpr uint32_t kMaxWordTimeUs = (uint32_t{1} << 26) - 1;
inline constexpr uint64_t kMaxWordAddress = (uint64_t{1} << 57) - 1;
inline constexpr uint32_t kMaxHandle = (uint32_t{1} << 24) - 1;

class BatchBuilder {
 public:
  BatchBuilder() = default;
  BatchBuilder(const BatchBuilder&) = delete;
  BatchBuilder& operator=(const BatchBuilder&) = delete;

  // Address events: kFault, kBrk, kAccess, kInstruction.  REQUIRES: address ≤ kMaxWordAddress.
  void AddAddress(const EventPlace& place, WordKind kind, uint64_t address, uint32_t error_code);
  // File events; `count` pages (1 …), `order` for kFileAdd and kFileDelete.  What does not fit a frequent
  // event becomes a FileRange.  `file` 0 (the handles are used up): nothing is added.
  void AddFile(const EventPlace& place, WordKind kind, uint32_t file, uint64_t index, uint64_t count,
               uint32_t order);
  // Range events: kMmapAnon, kMunmap, kDontNeed; address and length are multiples of 4096.  What does not fit
  // becomes a Mmap, Munmap or Madvise.
  void AddRange(const EventPlace& place, WordKind kind, uint64_t address, uint64_t length);
  // A folio goes to the cgroup `path`: of the file at `index` or, where `file` is 0, what the thread has
  // mapped at `address`.  Nothing is added where no handle is left for the path.
  void AddMigration(const EventPlace& place, std::string_view path, uint32_t file, uint64_t index,
                    uint64_t address);
  // A side event at this place; the caller fills its oneof.  Valid until the next call.
  memcgd::v1::SideEvent* AddSide(const EventPlace& place);

  // Handles, defined in the batch on first use.  0 where none is left.  Names longer than 255 bytes are cut.
  uint32_t PathHandle(std::string_view path);
  uint32_t NameHandle(std::string_view name);
  // A file that turns out to be (or not to be) shared memory gets a new handle.
  uint32_t FileHandle(uint32_t dev, uint64_t ino, bool shmem);

  // Events in the batch that is being built.
  size_t size() const {
    return static_cast<size_t>(batch_.words_size()) / 2 + static_cast<size_t>(batch_.side_size());
  }
  // True where half of the time that a batch can hold (some 33 s) has gone by: take it.
  bool full() const { return last_word_us_ > kMaxWordTimeUs / 2; }
  // The batch, with that sequence number; a new one begins.
  memcgd::v1::Batch Take(uint64_t sequence);

 private:
  struct File {
    uint32_t handle = 0;
    bool shmem = false;
  };

  void AddWords(const EventPlace& place, WordKind kind, uint64_t body);
  void AddFileRange(const EventPlace& place, WordKind kind, uint32_t file, uint64_t index, uint64_t count,
                    uint32_t order);
  void SetBase(int64_t time_ns);
  uint32_t TimeUs(int64_t time_ns);
  memcgd::v1::SideEvent* AddDefinition();

  memcgd::v1::Batch batch_;  // its side events hold absolute times until Take()
  bool has_base_ = false;
  uint32_t last_word_us_ = 0;  // the largest
  int64_t last_time_ns_ = 0;   // of the last event; definitions take it
  int words_expected_ = 0;     // the last batch's, to make room at once

  absl::flat_hash_map<std::string, uint32_t> paths_, names_;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, File> files_;
  uint32_t last_file_ = 0;  // handles given
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_BATCH_BUILDER_H_
