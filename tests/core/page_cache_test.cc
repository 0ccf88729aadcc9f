// Files' pages through a node: added, deleted, seen again, mapped.
#include "core/page_cache.h"

#include <gtest/gtest.h>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

// /a one process (10), /b another (11)
struct PageCacheTest : testing::Test {
  NodeDriver d{SmallNode(2)};
  uint32_t file = 0;
  PageCacheTest() {
    d.Group("/a");
    d.Group("/b");
    d.Process(10, "/a");
    d.Process(11, "/b");
    file = d.File(1);
  }
  void MapAll(uint32_t tid, uint64_t pages) {
    d.Mmap(tid, 0x1000, pages, kProtRead, kMapShared, file);
    d.MapPages(tid, file, 0, static_cast<uint32_t>(pages));
    d.Read(tid, 0x1000);
  }
};

TEST_F(PageCacheTest, AnAddedFolioIsItsTasksAndADeletedOneIsNobodys) {
  d.FileAdd(10, file, 0, 4);
  EXPECT_EQ(d.Stat("/a", "file"), 16);
  EXPECT_EQ(d.V1("/a", "pgpgin"), 16);
  d.FileDelete(11, file, 3, 0);  // any page of it
  EXPECT_EQ(d.Stat("/a", "file"), 0);
  EXPECT_EQ(d.V1("/a", "pgpgout"), 16);
  EXPECT_EQ(d.V1("/b", "pgpgout"), 0);
}

TEST_F(PageCacheTest, AKernelThreadChargesTheRoot) {
  d.FileAdd(0, file, 0);
  d.FileAdd(4000, file, 1);  // never seen
  EXPECT_EQ(d.Local("/", "file"), 2);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 0u);
}

TEST_F(PageCacheTest, APageAddedTwiceReplacesWhatTheTraceLost) {
  d.FileAdd(10, file, 0, 2);
  d.FileAdd(11, file, 1);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 1u);
  EXPECT_EQ(d.Stat("/a", "file"), 0);
  EXPECT_EQ(d.Stat("/b", "file"), 1);
}

TEST_F(PageCacheTest, DeletingWhatWasNeverSeenIsNoMismatchButDeletingTwiceIs) {
  d.FileDelete(10, file, 7);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 0u);
  d.FileDelete(10, file, 7);
  EXPECT_EQ(d.outcomes(Outcome::kCacheMismatch), 1u);
}

TEST_F(PageCacheTest, ALargeDeletionOverSmallFoliosLosesNone) {
  for (uint32_t index : {9u, 12u}) d.FileAdd(10, file, index);
  d.FileDelete(10, file, 8, 3);
  EXPECT_EQ(d.Stat("/a", "file"), 0);
  EXPECT_EQ(d.node().Info().resident_pages, 0u);
}

TEST_F(PageCacheTest, ADirtyFolioIsDirtyOnceAndCleanWhenGone) {
  d.FileAdd(10, file, 0, 2);
  d.FileDirty(11, file, 0);
  d.FileDirty(11, file, 3);
  d.FileDirty(11, file, 50);  // not cached: from before the stream
  EXPECT_EQ(d.Stat("/a", "file_dirty"), 4);
  d.FileDelete(10, file, 0, 2);
  EXPECT_EQ(d.Stat("/a", "file_dirty"), 0);
}

TEST_F(PageCacheTest, AMappedPageCountsOnceHoweverManyMapIt) {
  for (uint32_t i = 0; i < 8; ++i) d.FileAdd(10, file, i);
  MapAll(10, 8);
  MapAll(11, 8);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 8);
  d.Munmap(10, 0x1000, 8);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 8);
  d.Munmap(11, 0x1000, 3);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 5);
}

TEST_F(PageCacheTest, PartOfALargeFolioCanBeMapped) {
  d.FileAdd(10, file, 0, 3);
  d.Mmap(10, 0x1000, 3, kProtRead, kMapShared, file, 2);
  d.FileFault(10, file, 3);
  d.Read(10, 0x1001);  // the whole folio, as far as the area shows it
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 3);
  d.Munmap(10, 0x1001, 1);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 2);
}

TEST_F(PageCacheTest, WhatIsMarkedForReadaheadIsNotMappedAround) {
  for (uint32_t i = 0; i < 8; ++i) d.FileAdd(10, file, i);
  d.Readahead(10, file, 5);
  MapAll(10, 8);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 7);
}

TEST_F(PageCacheTest, ATombstoneIsFaultedAnew) {
  d.FileAdd(10, file, 0);
  MapAll(10, 1);
  d.FileDelete(0, file, 0);
  d.FileAdd(11, file, 0);
  d.FileFault(10, file, 0);
  d.Read(10, 0x1000);
  EXPECT_EQ(d.Stat("/b", "file_mapped"), 1);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 0);
  EXPECT_EQ(d.node().Info().resident_pages, 1u);
}

// ---- refaults

TEST_F(PageCacheTest, AnEvictedPageThatComesBackIsARefaultAndADeletedOneIsNot) {
  d.FileAdd(10, file, 0);
  d.FileAdd(10, file, 1);
  d.ReclaimBegin(10);
  d.FileDelete(10, file, 0);
  d.ReclaimEnd(10);
  d.FileDelete(10, file, 1);
  d.FileAdd(10, file, 0);
  d.FileAdd(10, file, 1);
  EXPECT_EQ(d.Stat("/a", "workingset_refault_file"), 1);
}

TEST_F(PageCacheTest, ARefaultWithinTheActiveListIsActivated) {
  // So many that most are spilled: a refault is judged by the fast read, which may be 64 × CPUs pages short.
  d.Wide(0, wide::BaselineCached{file, 100, 310, d.Path("/a"), true, false});
  d.FileAdd(10, file, 0);
  d.Drain();
  d.ReclaimBegin(10);
  d.FileDelete(10, file, 0);
  d.ReclaimEnd(10);
  d.FileAdd(10, file, 0);
  d.Drain();
  EXPECT_EQ(d.Stat("/a", "workingset_activate_file"), 1);
  EXPECT_EQ(d.Stat("/a", "active_file"), 311);
}

// Judged at the evicting cgroup, counted at the owner.
TEST_F(PageCacheTest, ARefaultCountsAtWhoBringsThePageBack) {
  d.FileAdd(10, file, 0);
  d.ReclaimBegin(10);
  d.FileDelete(10, file, 0);
  d.ReclaimEnd(10);
  d.FileAdd(11, file, 0);
  EXPECT_EQ(d.Stat("/b", "workingset_refault_file"), 1);
  EXPECT_EQ(d.Stat("/a", "workingset_refault_file"), 0);
}

TEST_F(PageCacheTest, ARefaultWhoseEvictorIsGoneIsNeverRecent) {
  d.Wide(0, wide::BaselineCached{file, 100, 310, d.Path("/b"), true, false});
  d.FileAdd(10, file, 0);
  d.ReclaimBegin(10);
  d.FileDelete(10, file, 0);
  d.ReclaimEnd(10);
  d.Exit(10);
  d.Remove("/a");
  d.FileAdd(11, file, 0);
  EXPECT_EQ(d.Stat("/b", "workingset_refault_file"), 1);
  EXPECT_EQ(d.Stat("/b", "workingset_activate_file"), 0);
}

TEST(FileTableTest, ADeviceAndInodeAreOneFile) {
  FileTable files;
  FileId a = files.Open(1, 2, false);
  EXPECT_EQ(files.Open(1, 2, false), a);
  EXPECT_NE(files.Open(1, 3, false), a);
  EXPECT_NE(files.Open(2, 2, false), a);
  for (uint64_t ino = 0; ino < 1000; ++ino) files.Open(9, ino, false);
  EXPECT_EQ(files.Get(a).ino, 2u);
}

TEST(FileTableTest, AKindMayChangeWhileNothingIsKnown) {
  FileTable files;
  FileId a = files.Open(1, 2, false);
  files.Open(1, 2, true);
  EXPECT_TRUE(files.Get(a).shmem);
}

// An index that a folio cannot hold: refused, and nothing of it is kept.
TEST_F(PageCacheTest, PagesPastTheLastIndexAreRefused) {
  uint32_t tmpfs = d.File(2, true);
  for (uint64_t first : {uint64_t{1} << 33, (uint64_t{1} << 32) - 2}) {
    d.Mmap(10, 0x1000, 8, kProtRead | kProtWrite, kMapShared, tmpfs, first);
    for (uint64_t page = 0; page < 8; ++page) d.Write(10, 0x1000 + page);
    d.Madvise(10, 0x1000, 8, kMadvRemove);
    d.Munmap(10, 0x1000, 8);
  }
  EXPECT_EQ(d.outcomes(Outcome::kLimit), 8u + 6u);
  EXPECT_EQ(d.Stat("/a", "shmem"), 0);
}

// Two CPUs: a large folio goes while it is mapped; its tails' mappings end afterwards.
TEST_F(PageCacheTest, ALargeFoliosTailsMayBeUnmappedAfterItIsGone) {
  d.FileAdd(10, file, 0, 3);
  MapAll(10, 8);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 8);
  d.OnCpu(1).FileDelete(11, file, 0, 3);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 0);
  d.OnCpu(0).Munmap(10, 0x1000, 8);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 0);
  EXPECT_EQ(d.node().Info().resident_pages, 0u);
}

}  // namespace
}  // namespace memcgd::core
