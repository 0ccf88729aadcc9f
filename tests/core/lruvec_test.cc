#include "core/lruvec.h"

#include <gtest/gtest.h>

#include <vector>

namespace memcgd::core {
namespace {

std::vector<FolioId> Order(FolioArena& arena, Lruvec& lruvec, LruList which) {
  std::vector<FolioId> ids;
  Locked lock(lruvec.lock);
  for (FolioId id = lruvec.lists[static_cast<size_t>(which)].head; id != FolioId::kNone;
       id = arena.Get(id).next) {
    ids.push_back(id);
  }
  return ids;
}

TEST(LruvecTest, FlagsNameTheList) {
  EXPECT_EQ(LruListOf(0), LruList::kInactiveFile);
  EXPECT_EQ(LruListOf(kFolioActive), LruList::kActiveFile);
  EXPECT_EQ(LruListOf(kFolioSwapBacked), LruList::kInactiveAnon);
  EXPECT_EQ(LruListOf(kFolioSwapBacked | kFolioActive), LruList::kActiveAnon);
  EXPECT_EQ(LruListOf(kFolioUnevictable | kFolioSwapBacked | kFolioActive), LruList::kUnevictable);
  // MADV_FREE: anonymous, but no longer backed by swap.
  EXPECT_EQ(LruListOf(kFolioAnon), LruList::kInactiveFile);
}

TEST(LruvecTest, TheNewestStandsInFrontAndAnyCanLeave) {
  FolioArena arena;
  FolioCache cache;
  Lruvec lruvec{nullptr};
  FolioId a = arena.Allocate(cache, MemcgId::kRoot, 0), b = arena.Allocate(cache, MemcgId::kRoot, 2),
          c = arena.Allocate(cache, MemcgId::kRoot, 0);
  LruList list = LruList::kInactiveFile;
  {
    Locked lock(lruvec.lock);
    for (FolioId id : {a, b, c}) lruvec.PushFront(arena, list, id, arena.Get(id));
    EXPECT_EQ(lruvec.lists[static_cast<size_t>(list)].pages, 6);
  }
  EXPECT_EQ(Order(arena, lruvec, list), (std::vector<FolioId>{c, b, a}));
  {
    Locked lock(lruvec.lock);
    lruvec.Unlink(arena, list, b, arena.Get(b));
  }
  EXPECT_EQ(Order(arena, lruvec, list), (std::vector<FolioId>{c, a}));
  {
    Locked lock(lruvec.lock);
    lruvec.Unlink(arena, list, c, arena.Get(c));
    lruvec.Unlink(arena, list, a, arena.Get(a));
    EXPECT_EQ(lruvec.lists[static_cast<size_t>(list)].pages, 0);
    EXPECT_EQ(lruvec.lists[static_cast<size_t>(list)].tail, FolioId::kNone);
  }
}

}  // namespace
}  // namespace memcgd::core
