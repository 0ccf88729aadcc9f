#include "core/vma_set.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace memcgd::core {
namespace {

Vma Area(PageNumber first, PageNumber end, PageIndex file_index = 0) {
  Vma vma;
  vma.range = {first, end};
  vma.flags = kMapPrivate;
  vma.file_index = file_index;
  return vma;
}

TEST(VmaSetTest, FindHitsTheAreaAndNotItsEnd) {
  VmaSet set;
  ASSERT_TRUE(set.Insert(Area(10, 20)));
  EXPECT_EQ(set.Find(9), nullptr);
  EXPECT_NE(set.Find(10), nullptr);
  EXPECT_NE(set.Find(19), nullptr);
  EXPECT_EQ(set.Find(20), nullptr);
}

TEST(VmaSetTest, ASplitKeepsWhatTheFileShows) {
  VmaSet set;
  Vma vma = Area(10, 30, 100);
  vma.accounted = vma.locked = vma.has_anon_vma = true;
  ASSERT_TRUE(set.Insert(vma));
  set.SplitAt({15, 20});
  ASSERT_EQ(set.size(), 3u);
  for (PageNumber page = 10; page < 30; ++page) {
    EXPECT_EQ(set.Find(page)->IndexOf(page), 90 + page);
    EXPECT_TRUE(set.Find(page)->accounted && set.Find(page)->locked && set.Find(page)->has_anon_vma);
  }
}

TEST(VmaSetTest, ASplitAtAnEdgeOrAHoleChangesNothing) {
  VmaSet set;
  ASSERT_TRUE(set.Insert(Area(10, 20)));
  set.SplitAt({10, 20});
  set.SplitAt({20, 40});
  set.SplitAt({0, 10});
  EXPECT_EQ(set.size(), 1u);
}

TEST(VmaSetTest, OnlyAreasWithinTheRangeAreRemoved) {
  VmaSet set;
  ASSERT_TRUE(set.Insert(Area(10, 30)));
  ASSERT_TRUE(set.Insert(Area(30, 40)));
  set.Find(35);
  std::vector<PageNumber> removed;
  set.Remove({20, 35}, [&](const Vma& vma) { removed.push_back(vma.range.first); });
  EXPECT_EQ(removed, (std::vector<PageNumber>{20, 30}));
  EXPECT_NE(set.Find(19), nullptr);
  EXPECT_EQ(set.Find(20), nullptr);
  EXPECT_EQ(set.Find(34), nullptr);
  EXPECT_NE(set.Find(35), nullptr);
}

TEST(VmaSetTest, WhatOverlapsOrIsEmptyIsNotInserted) {
  VmaSet set;
  ASSERT_TRUE(set.Insert(Area(10, 20)));
  for (PageRange range : {PageRange{10, 20}, {5, 11}, {19, 25}, {12, 15}, {5, 30}, {30, 30}, {40, 35}}) {
    EXPECT_FALSE(set.Insert(Area(range.first, range.end)));
  }
  EXPECT_TRUE(set.Insert(Area(20, 30)));
  EXPECT_TRUE(set.Insert(Area(5, 10)));
  EXPECT_EQ(set.size(), 3u);
}

// Enough areas for several blocks, page by page against a map.
TEST(VmaSetTest, ItIsAMapOfPages) {
  VmaSet set;
  std::map<PageNumber, PageIndex> model;
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    PageNumber first = random() % 4096;
    PageRange range{first, first + 1 + random() % (random() % 50 == 0 ? 1024 : 4)};
    uint64_t gone = 0;
    set.Remove(range, [&](const Vma& vma) { gone += vma.range.pages(); });
    auto begin = model.lower_bound(range.first), end = model.lower_bound(range.end);
    ASSERT_EQ(gone, static_cast<uint64_t>(std::distance(begin, end)));
    model.erase(begin, end);
    if (range.pages() > 4) continue;
    ASSERT_TRUE(set.Insert(Area(range.first, range.end, static_cast<PageIndex>(i) << 20)));
    for (PageNumber page = range.first; page < range.end; ++page) {
      model[page] = (static_cast<PageIndex>(i) << 20) + page - range.first;
    }
    for (int probe = 0; probe < 8; ++probe) {
      PageNumber page = random() % 5200;
      const Vma* vma = set.Find(page);
      auto expected = model.find(page);
      ASSERT_EQ(vma != nullptr, expected != model.end());
      if (vma != nullptr) {
        ASSERT_EQ(vma->IndexOf(page), expected->second);
      }
    }
  }
  uint64_t areas = 0;
  PageNumber last_end = 0;
  set.ForEach([&](const Vma& vma) {
    EXPECT_GE(vma.range.first, last_end);
    last_end = vma.range.end;
    ++areas;
  });
  EXPECT_EQ(areas, set.size());
  EXPECT_GT(areas, 256u);
}

}  // namespace
}  // namespace memcgd::core
