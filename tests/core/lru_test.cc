// The lists as a node's events move them.
#include "core/lru.h"

#include <gtest/gtest.h>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

constexpr int kBatch = FolioBatch::kSize;
static_assert(kBatch == 31);

// /a, one process
struct LruTest : testing::Test {
  NodeDriver d{SmallNode(2)};
  uint32_t file = 0;
  LruTest() {
    d.Group("/a");
    d.Process(10, "/a");
    file = d.File(1);
  }
  void ExpectFile(int inactive, int active) {
    EXPECT_EQ(d.Stat("/a", "inactive_file"), inactive);
    EXPECT_EQ(d.Stat("/a", "active_file"), active);
  }
};

TEST_F(LruTest, ThirtyFoliosWaitAndThe31stBringsAllToTheList) {
  for (int i = 0; i < kBatch - 1; ++i) d.FileAdd(10, file, i);
  ExpectFile(0, 0);
  EXPECT_EQ(d.Stat("/a", "file"), kBatch - 1);
  d.FileAdd(10, file, kBatch - 1);
  ExpectFile(kBatch, 0);
}

TEST_F(LruTest, ALargeFolioGoesAtOnceAndTakesTheOthersAlong) {
  d.FileAdd(10, file, 0);
  d.FileAdd(10, file, 8, 3);
  ExpectFile(9, 0);
}

TEST_F(LruTest, EachCpuHasABatchOfItsOwn) {
  for (int i = 0; i < kBatch - 1; ++i) {
    d.OnCpu(0).FileAdd(10, file, i);
    d.OnCpu(1).FileAdd(10, file, 100 + i);
  }
  ExpectFile(0, 0);
  d.Drain();
  ExpectFile(2 * (kBatch - 1), 0);
}

TEST_F(LruTest, TwoReadsActivateAndCountPgactivate) {
  d.FileAdd(10, file, 0);
  d.Drain();
  d.FileRead(10, file, 0);
  d.Drain();
  ExpectFile(1, 0);
  d.FileAdd(10, file, 5);  // a read elsewhere in between, else it is the same read going on
  d.FileRead(10, file, 5);
  d.FileRead(10, file, 0);
  d.Drain();
  EXPECT_EQ(d.Stat("/a", "active_file"), 1);
  EXPECT_EQ(d.Stat("/a", "pgactivate"), 1);
}

TEST_F(LruTest, ActivatedInTheBatchItIsAddedActiveWithoutPgactivate) {
  d.FileAdd(10, file, 0);
  d.FileAdd(10, file, 5);
  for (uint32_t index : {0u, 5u, 0u}) d.FileRead(10, file, index);
  d.Drain();
  ExpectFile(1, 1);
  EXPECT_EQ(d.Stat("/a", "pgactivate"), 0);
}

TEST_F(LruTest, AnonymousPagesBeginOnTheInactiveAnonList) {
  d.Touch(10, 0x1000, kBatch);
  EXPECT_EQ(d.Stat("/a", "inactive_anon"), kBatch);
  EXPECT_EQ(d.Stat("/a", "active_anon"), 0);
}

TEST_F(LruTest, TmpfsPagesLieOnTheAnonLists) {
  uint32_t tmpfs = d.File(2, true);
  d.FileAdd(10, tmpfs, 0, 2);
  EXPECT_EQ(d.Stat("/a", "inactive_anon"), 4);
  EXPECT_EQ(d.Stat("/a", "inactive_file"), 0);
}

TEST_F(LruTest, LazyFreeMovesAnonymousPagesToTheInactiveFileList) {
  d.Touch(10, 0x1000, 8);
  d.Drain();
  d.Madvise(10, 0x1000, 8, kMadvFree);
  d.Drain();
  ExpectFile(8, 0);
  EXPECT_EQ(d.Stat("/a", "anon"), 8);
  EXPECT_EQ(d.Stat("/a", "inactive_anon"), 0);
  EXPECT_EQ(d.Stat("/a", "pglazyfree"), 8);
  d.Madvise(10, 0x1000, 8, kMadvFree);  // once
  d.Drain();
  EXPECT_EQ(d.Stat("/a", "pglazyfree"), 8);
}

TEST_F(LruTest, SharedPagesAreNotLazilyFreed) {
  d.Touch(10, 0x1000, 4);
  d.Fork(10, 11);
  d.Drain();
  d.Madvise(10, 0x1000, 4, kMadvFree);
  d.Drain();
  EXPECT_EQ(d.Stat("/a", "inactive_anon"), 4);
}

TEST_F(LruTest, LockedPagesAreUnevictableUntilUnlocked) {
  d.Touch(10, 0x1000, 40);
  d.Mlock(10, 0x1000, 40);
  EXPECT_EQ(d.Stat("/a", "unevictable"), 40);
  EXPECT_EQ(d.Stat("/a", "inactive_anon"), 0);
  d.Munlock(10, 0x1000, 10);
  EXPECT_EQ(d.Stat("/a", "unevictable"), 30);
  EXPECT_EQ(d.Stat("/a", "inactive_anon"), 10);
}

TEST_F(LruTest, PagesFaultedInALockedAreaAreUnevictableFromTheStart) {
  d.Mmap(10, 0x1000, kBatch, kProtRead | kProtWrite, kMapPrivate | kMapAnonymous);
  d.Mlock(10, 0x1000, kBatch, true);
  EXPECT_EQ(d.Stat("/a", "pgfault"), 0);
  for (int i = 0; i < kBatch; ++i) d.Write(10, 0x1000 + i);
  EXPECT_EQ(d.Stat("/a", "unevictable"), kBatch);
}

TEST_F(LruTest, ADeadFolioIsOnNoListThoughAnEntryHoldsIt) {
  for (uint32_t order : {0u, 3u}) {
    d.FileAdd(10, file, 0, order);
    d.Drain();
    d.Mmap(10, 0x1000, 8, kProtRead, kMapShared, file);
    d.FileFault(10, file, 0);
    d.Read(10, 0x1000);
    EXPECT_EQ(d.Stat("/a", "file_mapped"), 1 << order);
    d.FileDelete(0, file, 0, order);
    ExpectFile(0, 0);
    EXPECT_EQ(d.Stat("/a", "file_mapped"), 0);
    EXPECT_EQ(d.node().Info().resident_pages, 1u << order);  // the tombstone
    d.Munmap(10, 0x1000, 8);
    d.Flush();
    EXPECT_EQ(d.node().Info().resident_pages, 0u);
  }
}

TEST_F(LruTest, AFolioDeletedInTheBatchNeverReachesAList) {
  d.FileAdd(10, file, 0);
  d.OnCpu(1).FileDelete(0, file, 0);
  d.Drain();
  ExpectFile(0, 0);
  EXPECT_EQ(d.node().Info().resident_pages, 0u);
}

// What is made active before it is added is on the active list, at the batch's last place too.
TEST_F(LruTest, BornActiveAtTheBatchsEnd) {
  d.Wide(0, wide::BaselineCached{file, 0, kBatch + 2, d.Path("/a"), true, false});
  d.Drain();
  ExpectFile(0, kBatch + 2);
  d.Exec(10, 40);
  d.Drain();
  EXPECT_EQ(d.Stat("/a", "active_anon"), 40);
}

}  // namespace
}  // namespace memcgd::core
