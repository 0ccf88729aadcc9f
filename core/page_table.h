// Where an address space's pages are: 32-bit entries in order of address, and the tables that hold them.
//
// Kernel counterpart: the page-table walks of mm/memory.c, __pte_alloc(), __pmd_alloc(), __pud_alloc() and
// free_pgtables().  Entries are kept of the lowest level only; of the tables above it, whom each is charged
// to.  The levels are those of x86-64: a table of 512 entries each, the fifth folded; PGD is in Mm.
//
// Thread safety: under the Mm's mutex.
#ifndef MEMCGD_CORE_PAGE_TABLE_H_
#define MEMCGD_CORE_PAGE_TABLE_H_

#include <array>
#include <cstdint>

#include "absl/container/btree_map.h"
#include "core/check.h"
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

enum class TableLevel : uint8_t { kPte, kPmd, kPud };
inline constexpr size_t kTableLevels = 3;

class PageTable {
 public:
  // The pages that one table maps: 2 MiB, 1 GiB, 512 GiB.
  static constexpr uint64_t PagesOf(TableLevel level) { return uint64_t{512} << (9 * Raw(level)); }

  // Whether it has no table, and so no entry.
  bool empty() const { return upper_.empty(); }
  // The entry, or null where it has no table.
  Pte* Find(PageNumber page) { return entries_.Find(page); }
  // The entries of the page's table of the lowest level, of its first page first; null where it has none.
  Pte* FindLeaf(PageNumber page) { return entries_.FindLeaf(page); }
  void Prefetch(PageNumber page) const { entries_.Prefetch(page); }
  // Calls fn(page, entry&) for each present entry, in order.
  template <typename... Fns>
  void ForEach(PageRange range, Fns... fns) {
    entries_.ForEach(range, fns...);
  }

  // Makes the tables that the page lacks, from the top down to the level.  Each is asked for first, by
  // charge(level): whom it is charged to, or kNone; it is then not made, and what is above it stays.  False
  // where it was not made.
  template <typename Charge>
  bool Make(PageNumber page, TableLevel down_to, Charge charge) {
    for (TableLevel level : {TableLevel::kPud, TableLevel::kPmd, TableLevel::kPte}) {
      if (Raw(level) < Raw(down_to)) break;
      if (Exists(page, level)) continue;
      MemcgId memcg = charge(level);
      if (memcg == MemcgId::kNone) return false;
      Restore(page, level, memcg);
    }
    return true;
  }
  // Calls fn(level, range of the table, whom it is charged to), for each table that has a page of the range.
  template <typename Fn>
  void ForEachTable(PageRange range, Fn fn) {
    for (TableLevel level : {TableLevel::kPud, TableLevel::kPmd}) {
      for (auto it = FirstUpper(range, level); it != EndUpper(range, level); ++it)
        fn(level, SpanOf(it->first.number * PagesOf(level), level), it->second.memcg);
    }
    entries_.ForEachLeaf(range, [&](PageNumber base, MemcgId memcg) {
      fn(TableLevel::kPte, SpanOf(base, TableLevel::kPte), memcg);
    });
  }
  // free_pgtables(): after areas in the range went, and their entries, every table that has a page of the
  // range and that no area needs: kept(pages that a table maps) says whether one does.  A table that has an
  // entry is of an area that no event told.  Calls gone(whom the table was charged to) for each.
  template <typename Kept, typename Gone>
  void FreeTables(PageRange range, Kept kept, Gone gone) {
    FreeWhole(range, gone);
    if (range.empty()) return;
    for (PageNumber edge : {range.first, range.end - 1}) {
      if (!entries_.IsEmptyLeaf(edge)) continue;
      PageRange span = SpanOf(edge, TableLevel::kPte);
      if (!kept(span)) FreeWhole(span, gone);
    }
    for (TableLevel level : {TableLevel::kPmd, TableLevel::kPud}) {
      for (auto it = FirstUpper(range, level); it != EndUpper(range, level);) {
        PageNumber base = it->first.number * PagesOf(level);
        if (it->second.children > 0 || kept(SpanOf(base, level))) {
          ++it;
          continue;
        }
        gone(it->second.memcg);
        it = upper_.erase(it);
        if (level == TableLevel::kPmd) --Upper(base, TableLevel::kPud).children;
      }
    }
  }
  // The tables of the lowest level that lie wholly in the range; their entries are 0.
  template <typename Gone>
  void FreeWhole(PageRange range, Gone gone) {
    entries_.FreeLeaves(range, [&](PageNumber base, MemcgId memcg) {
      gone(memcg);
      --Upper(base, TableLevel::kPmd).children;
    });
  }

  bool Exists(PageNumber page, TableLevel level) {
    if (level == TableLevel::kPte) return entries_.Find(page) != nullptr;
    return upper_.contains(Key{level, page / PagesOf(level)});
  }
  // A table that was charged already; the one above it exists.
  void Restore(PageNumber page, TableLevel level, MemcgId memcg) {
    if (level == TableLevel::kPte) {
      entries_.Ensure(page, memcg);
    } else {
      upper_[Key{level, page / PagesOf(level)}].memcg = memcg;
    }
    if (level != TableLevel::kPud) ++Upper(page, TableLevel{static_cast<uint8_t>(Raw(level) + 1)}).children;
  }

 private:
  struct Key {
    TableLevel level;
    uint64_t number;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct UpperTable {
    MemcgId memcg = MemcgId::kRoot;
    uint32_t children = 0;
  };
  using UpperTables = absl::btree_map<Key, UpperTable>;

  static constexpr uint8_t Raw(TableLevel level) { return static_cast<uint8_t>(level); }
  static PageRange SpanOf(PageNumber page, TableLevel level) {
    PageNumber base = page / PagesOf(level) * PagesOf(level);
    return {base, base + PagesOf(level)};
  }
  UpperTables::iterator FirstUpper(PageRange range, TableLevel level) {
    return upper_.lower_bound(Key{level, range.first / PagesOf(level)});
  }
  UpperTables::iterator EndUpper(PageRange range, TableLevel level) {
    return range.empty() ? FirstUpper(range, level)
                         : upper_.upper_bound(Key{level, (range.end - 1) / PagesOf(level)});
  }
  UpperTable& Upper(PageNumber page, TableLevel level) {
    auto found = upper_.find(Key{level, page / PagesOf(level)});
    MEMCG_CHECK(found != upper_.end());
    return found->second;
  }

  SparseArray<128, 16, MemcgId> entries_;
  UpperTables upper_;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_PAGE_TABLE_H_
