// Ids and units as distinct types, so that a page count cannot pass for a byte count nor a process for a
// file.
//
// Thread safety: plain values.
#ifndef MEMCGD_CORE_UNITS_H_
#define MEMCGD_CORE_UNITS_H_

#include <cstdint>

namespace memcgd::core {

// Ids are indices into a node's tables, never pointers, so that a state can be saved, hashed and cloned.
enum class MemcgId : uint32_t { kRoot = 0, kNone = (1u << 24) - 1 };  // 24 bits of a folio's state
enum class FileId : uint32_t { kNone = 0 };
enum class MmId : uint32_t { kNone = 0 };
enum class ProcessId : uint32_t { kNone = 0 };
// Index of a page descriptor in the folio arena.
enum class FolioId : uint32_t { kNone = 0, kZeroPage = 1 };

template <typename Id>
constexpr uint32_t Raw(Id id) {
  return static_cast<uint32_t>(id);
}

// A page number of an address space (address >> page shift), and an index of a page within a file.
using PageNumber = uint64_t;
using PageIndex = uint64_t;

// A half-open range of page numbers.
struct PageRange {
  PageNumber first = 0;
  PageNumber end = 0;

  uint64_t pages() const { return end - first; }
  bool empty() const { return first >= end; }
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_UNITS_H_
