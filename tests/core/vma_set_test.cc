#include "core/vma_set.h"

#include <gtest/gtest.h>

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
  set.Insert(Area(10, 20));
  EXPECT_EQ(set.Find(9), nullptr);
  EXPECT_NE(set.Find(10), nullptr);
  EXPECT_NE(set.Find(19), nullptr);
  EXPECT_EQ(set.Find(20), nullptr);
}

TEST(VmaSetTest, ASplitKeepsWhatTheFileShows) {
  VmaSet set;
  Vma vma = Area(10, 30, 100);
  vma.accounted = vma.locked = vma.has_anon_vma = true;
  set.Insert(vma);
  set.SplitAt({15, 20});
  ASSERT_EQ(set.areas().size(), 3u);
  for (PageNumber page = 10; page < 30; ++page) {
    EXPECT_EQ(set.Find(page)->IndexOf(page), 90 + page);
    EXPECT_TRUE(set.Find(page)->accounted && set.Find(page)->locked && set.Find(page)->has_anon_vma);
  }
}

TEST(VmaSetTest, ASplitAtAnEdgeOrAHoleChangesNothing) {
  VmaSet set;
  set.Insert(Area(10, 20));
  set.SplitAt({10, 20});
  set.SplitAt({20, 40});
  set.SplitAt({0, 10});
  EXPECT_EQ(set.areas().size(), 1u);
}

TEST(VmaSetTest, OnlyAreasWithinTheRangeAreErased) {
  VmaSet set;
  set.Insert(Area(10, 30));
  set.Insert(Area(30, 40));
  set.Find(35);
  set.SplitAt({20, 35});
  set.EraseWithin({20, 35});
  EXPECT_NE(set.Find(19), nullptr);
  EXPECT_EQ(set.Find(20), nullptr);
  EXPECT_EQ(set.Find(34), nullptr);
  EXPECT_NE(set.Find(35), nullptr);
}

}  // namespace
}  // namespace memcgd::core
