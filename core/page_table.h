// Where an address space's pages are: 32-bit entries in order of address.
//
// Kernel counterpart: the page-table walks of mm/memory.c, reduced to the lowest level.
//
// Thread safety: under the Mm's mutex.
#ifndef MEMCGD_CORE_PAGE_TABLE_H_
#define MEMCGD_CORE_PAGE_TABLE_H_

#include <cstdint>

#include "core/sparse_array.h"
#include "core/units.h"

namespace memcgd::core {

// An entry: a folio's index and bits; 0: not present.
using Pte = uint32_t;
inline constexpr Pte kPteFolioMask = (1u << 28) - 1;
inline constexpr Pte kPteSpecial = 1u << 28;  // vvar, vdso: present, no folio
inline constexpr Pte kPteAccessed = 1u << 29;
inline constexpr Pte kPteWritable = 1u << 30;

inline FolioId PteFolio(Pte pte) { return FolioId{pte & kPteFolioMask}; }
inline Pte MakePte(FolioId folio, Pte bits) { return Raw(folio) | bits; }

using PageTable = SparseArray<128, 16>;

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PAGE_TABLE_H_
