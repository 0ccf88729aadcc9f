#include "core/sparse_array.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace memcgd::core {
namespace {

std::vector<PageNumber> Walk(SparseArray<8, 4>& array, PageRange range) {
  std::vector<PageNumber> pages;
  array.ForEach(range, [&](PageNumber page, uint32_t&) { pages.push_back(page); });
  return pages;
}

TEST(SparseArrayTest, WhatWasNotPutInIsNotThere) {
  SparseArray<8, 4> array;
  EXPECT_EQ(array.Find(5), nullptr);
  array.Ensure(5) = 9;
  EXPECT_EQ(*array.Find(5), 9u);
  EXPECT_EQ(*array.Find(6), 0u);
  EXPECT_EQ(array.Find(512), nullptr);
}

TEST(SparseArrayTest, AWalkMeetsPresentEntriesOfTheRangeInOrder) {
  SparseArray<8, 4> array;
  for (PageNumber page : {3, 511, 512, 1500, 4000}) array.Ensure(page) = 1;
  EXPECT_EQ(Walk(array, {0, 5000}), (std::vector<PageNumber>{3, 511, 512, 1500, 4000}));
  EXPECT_EQ(Walk(array, {4, 1500}), (std::vector<PageNumber>{511, 512}));
  EXPECT_EQ(Walk(array, {512, 513}), (std::vector<PageNumber>{512}));
  EXPECT_TRUE(Walk(array, {513, 513}).empty());
}

TEST(SparseArrayTest, OnlyLeavesWhollyInTheRangeAreFreed) {
  SparseArray<8, 4> array;
  for (PageNumber page : {0, 600, 1100}) array.Ensure(page) = 1;
  array.FreeLeaves({1, 1200});
  EXPECT_EQ(array.Find(600), nullptr);
  EXPECT_NE(array.Find(0), nullptr);
  EXPECT_NE(array.Find(1100), nullptr);
  array.FreeLeaves({0, ~uint64_t{0}});
  EXPECT_EQ(array.Find(0), nullptr);  // not even the leaf looked up last
}

TEST(SparseArrayTest, ALeafBearsALabelUntilItIsFreed) {
  SparseArray<8, 4, uint32_t> array;
  array.Ensure(600, 7) = 1;
  array.Ensure(601, 8) = 1;  // the leaf is there
  array.Ensure(1100, 9);
  std::map<PageNumber, uint32_t> labels, gone;
  array.ForEachLeaf({0, 5000}, [&labels](PageNumber base, uint32_t label) { labels[base] = label; });
  EXPECT_EQ(labels, (std::map<PageNumber, uint32_t>{{512, 7}, {1024, 9}}));
  EXPECT_FALSE(array.IsEmptyLeaf(600));
  EXPECT_TRUE(array.IsEmptyLeaf(1100));
  EXPECT_FALSE(array.IsEmptyLeaf(0));  // there is none
  array.FreeLeaves({512, 1100}, [&gone](PageNumber base, uint32_t label) { gone[base] = label; });
  EXPECT_EQ(gone, (std::map<PageNumber, uint32_t>{{512, 7}}));
}

// More directories than those met last have room for at first; and the copy had its own, met last too.
TEST(SparseArrayTest, ACopyHasTheSameAndItsOwn) {
  constexpr PageNumber kDirectory = 8 * 512;
  SparseArray<8, 4> array, copy;
  for (PageNumber page = 3; page < 40 * kDirectory; page += kDirectory) array.Ensure(page) = 1;
  copy.Ensure(7) = 2;
  copy.Ensure(50 * kDirectory) = 2;
  copy = array;
  EXPECT_EQ(Walk(copy, {0, ~uint64_t{0}}), Walk(array, {0, ~uint64_t{0}}));
  EXPECT_EQ(copy.Find(50 * kDirectory), nullptr);
  EXPECT_EQ(*copy.Find(7), 0u);
  copy.Ensure(3) = 9;
  EXPECT_EQ(*array.Find(3), 1u);
  array.FreeLeaves({0, ~uint64_t{0}});
  for (PageNumber page = 3 + kDirectory; page < 40 * kDirectory; page += kDirectory)
    EXPECT_EQ(*copy.Find(page), 1u);
}

TEST(SparseArrayTest, AWalkOverMuchTellsWhatComesSoon) {
  SparseArray<8, 4> array;
  for (PageNumber page = 0; page < 100; ++page) array.Ensure(page) = static_cast<uint32_t>(page) + 1;
  for (PageNumber leaf = 10; leaf < 90; ++leaf) array.Ensure(leaf * 512);
  std::vector<uint32_t> seen, soon;
  array.ForEach(
      {0, 100}, [&](PageNumber, uint32_t& entry) { seen.push_back(entry); },
      [&](uint32_t entry) { soon.push_back(entry); });
  EXPECT_EQ(seen.size(), 100u);
  ASSERT_EQ(soon.size(), 92u);
  EXPECT_EQ(soon.front(), 9u);
}

TEST(SparseArrayTest, ItIsAMap) {
  SparseArray<8, 4> array;
  std::map<PageNumber, uint32_t> model;
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    PageNumber page = random() % 20 * 500 + random() % 40;
    uint32_t value = static_cast<uint32_t>(random() % 3);
    array.Ensure(page) = value;
    model[page] = value;
    PageNumber probe = random() % 10000;
    uint32_t* found = array.Find(probe);
    auto expected = model.find(probe);
    ASSERT_EQ(found == nullptr ? 0 : *found, expected == model.end() ? 0 : expected->second);
  }
}

}  // namespace
}  // namespace memcgd::core
