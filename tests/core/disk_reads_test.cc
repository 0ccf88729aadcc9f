// What reclaim may not take, sees late or has lost: pages on their way from the disk, statistics as of the
// last flush, shadows that were shrunk.  Each name is the rule; docs/reclaim.md has its source.
#include "core/disk_reads.h"

#include <gtest/gtest.h>

#include <string>

#include "core/page_counter.h"
#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

constexpr uint32_t kMiB = 256;  // pages
constexpr uint64_t kBase = 0x10000;
constexpr uint32_t kSecondUs = 1'000'000;

// A modelled node with one CPU whose disk reads a page of 4 KiB in 4 microseconds.
NodeConfig Modelled() {
  NodeConfig config = SmallNode();
  config.reclaim = Reclaim::kModelled;
  config.read_bytes_per_second = 1'024'000'000;
  return config;
}

std::string Mib(int64_t pages) { return std::to_string(pages * 4096); }

class DiskReadsTest : public testing::Test {
 protected:
  bool Reads(PageIndex index, int64_t now_ns) {
    Locked lock(file_.mutex);
    return reads_.Reads(file_, index, now_ns);
  }
  void Begin(PageIndex first, PageIndex end, int64_t now_ns) {
    Locked lock(file_.mutex);
    reads_.Begin(file_, {first, end}, now_ns);
  }
  void End(PageIndex first, PageIndex last) {
    Locked lock(file_.mutex);
    DiskReads::End(file_, first, last);
  }

  File file_;
  DiskReads reads_{4096, 1'024'000'000};  // 4000 ns a page
};

TEST_F(DiskReadsTest, ARequestIsDoneAllAtOnceWhenTheDiskIs) {
  Begin(0, 10, 1000);
  Begin(10, 20, 2000);  // the same request goes on: 80,000 ns from 1000 on
  EXPECT_TRUE(Reads(0, 80'999));
  EXPECT_TRUE(Reads(19, 80'999));
  EXPECT_FALSE(Reads(20, 80'999));
  EXPECT_FALSE(Reads(0, 81'000));
  EXPECT_FALSE(Reads(19, 81'000));
}

TEST_F(DiskReadsTest, RequestsAreReadOneAfterTheOther) {
  Begin(0, 10, 0);
  Begin(50, 60, 0);
  EXPECT_FALSE(Reads(5, 40'000));
  EXPECT_TRUE(Reads(55, 79'999));
  EXPECT_FALSE(Reads(55, 80'000));
}

TEST_F(DiskReadsTest, WhatATaskGoesOnWithIsThereAndWhatCameBeforeIt) {
  Begin(0, 10, 0);
  End(4, 4);
  EXPECT_FALSE(Reads(0, 1));
  EXPECT_FALSE(Reads(4, 1));
  EXPECT_TRUE(Reads(5, 1));
  End(0, 100);
  EXPECT_FALSE(Reads(9, 1));
}

TEST_F(DiskReadsTest, WhoWaitsHasAllThatWasAskedFor) {
  Begin(0, 10, 0);
  EXPECT_TRUE(reads_.ReadsAny(file_, 1));
  reads_.Await();
  EXPECT_FALSE(reads_.ReadsAny(file_, 1));
  EXPECT_FALSE(Reads(9, 1));
  Begin(10, 20, 1);  // later ones are on their way again
  EXPECT_TRUE(Reads(15, 1));
}

TEST_F(DiskReadsTest, NothingIsOnItsWayFromTheFastestDisk) {
  DiskReads fastest(65536, uint64_t{1} << 52);
  Locked lock(file_.mutex);
  fastest.Begin(file_, {0, 1 << 20}, 7);
  EXPECT_FALSE(fastest.ReadsAny(file_, 7));
}

// Readahead that fills a cgroup with pages on their way finds no room for more, quietly; a fault waits.
TEST(ReadaheadTest, FindsNoRoomAmongPagesOnTheirWayAndAFaultDoes) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < 8 * kMiB; ++page) d.FileAdd(10, file, page);
  EXPECT_EQ(d.Stat("/a", "pgsteal_direct"), 0);
  EXPECT_GT(d.Stat("/a", "pgscan_direct"), 4 * kMiB) << "it looked at all of them";
  EXPECT_GT(d.outcomes(Outcome::kLimit), 0u);
  EXPECT_EQ(d.Event("/a", "oom"), 0);
  d.Touch(10, kBase, 1);
  EXPECT_EQ(d.Stat("/a", "anon"), 1);
  EXPECT_GE(d.Stat("/a", "pgsteal_direct"), 32);
  EXPECT_EQ(d.Event("/a", "oom"), 0);
}

TEST(ReadaheadTest, FindsRoomOnceTheReaderOrTheDiskHasGoneOn) {
  for (bool reader : {false, true}) {
    NodeDriver d(Modelled());
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
    d.Process(10, "/a");
    uint32_t file = d.File(7);
    for (uint32_t page = 0; page < 8 * kMiB; page += 64) {
      d.FileAdd(10, file, page, 6);
      if (reader) {
        d.FileRead(10, file, page, 64);
      } else {
        d.Wait(64 * 4);
      }
    }
    EXPECT_EQ(d.outcomes(Outcome::kLimit), 0u) << reader;
    EXPECT_GE(d.Stat("/a", "pgsteal_direct"), 4 * kMiB - 64) << reader;
  }
}

// ---- statistics as of the last flush

// 2 MiB of a file are made active and 2 MiB more are read: not before the first flush does reclaim see that
// inactive pages are the fewer.
TEST(LateStatisticsTest, ActivePagesAreLeftAloneUntilTheFirstFlush) {
  for (bool flushed : {false, true}) {
    NodeDriver d(Modelled());
    d.Group("/a");
    d.SetKnob(d.Path("/a"), "memory.max", Mib(4 * kMiB));
    d.Process(10, "/a");
    uint32_t used = d.File(7), streamed = d.File(8);
    for (uint32_t page = 0; page < 3 * kMiB; ++page) {
      d.FileAdd(10, used, page);
      d.FileRead(10, used, page);
    }
    for (uint32_t page = 0; page < 3 * kMiB; ++page) d.FileRead(10, used, page);
    d.Drain();
    ASSERT_GT(d.Stat("/a", "active_file"), 2 * kMiB);
    d.Wait(flushed ? kSecondUs : kSecondUs / 2);
    for (uint32_t page = 0; page < 2 * kMiB; ++page) {
      d.FileAdd(10, streamed, page);
      d.FileRead(10, streamed, page);
    }
    if (flushed) {
      EXPECT_GT(d.Stat("/a", "pgdeactivate"), 0);
    } else {
      EXPECT_EQ(d.Stat("/a", "pgdeactivate"), 0);
    }
  }
}

// ---- what the trace tells of files

// Reclaim there and here differ; when the trace's kernel unlinks the file's last page, none stays here.
TEST(TruncationTest, TheRestOfAFileGoesWithItsLastPage) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  for (uint32_t page = 0; page < 8; ++page) d.FileAdd(10, file, page);
  d.ReclaimBegin(10);
  for (uint32_t page = 0; page < 6; ++page) d.FileDelete(10, file, page);
  d.ReclaimEnd(10);
  EXPECT_EQ(d.Stat("/a", "file"), 8);
  d.FileDelete(10, file, 6);
  EXPECT_EQ(d.Stat("/a", "file"), 7) << "the page after it is still there";
  d.FileDelete(10, file, 7);
  EXPECT_EQ(d.Stat("/a", "file"), 0);
}

// A fault on a page of which the stream never told is one on somebody else's.
TEST(FileFaultTest, APageFromBeforeTheStreamIsNotCharged) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  d.Mmap(10, kBase, 8, kProtRead, kMapPrivate, file);
  d.FileFault(10, file, 3);
  d.Read(10, kBase + 3);
  EXPECT_EQ(d.Stat("/a", "file"), 0);
  d.FileFault(10, file, 4);
  d.FileAdd(10, file, 4);  // read for this fault
  d.Read(10, kBase + 4);
  EXPECT_EQ(d.Stat("/a", "file"), 1);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 1);
}

// After MADV_RANDOM that a page was used says nothing: it goes on reclaim's first look, not on its second.
TEST(RecencyTest, PagesOfAreasReadAtRandomGoAtOnce) {
  for (uint32_t advice : {kMadvNormal, kMadvRandom, kMadvSequential}) {
    NodeDriver d(Modelled());
    d.Group("/a");
    d.Process(10, "/a");
    uint32_t file = d.File(7);
    d.Mmap(10, kBase, 64, kProtRead, kMapShared, file);
    d.Madvise(10, kBase, 64, advice);
    for (uint32_t page = 0; page < 64; ++page) {
      d.FileAdd(10, file, page);
      d.FileFault(10, file, page);
      d.Read(10, kBase + page);
    }
    d.Drain();
    d.Flush();
    uint64_t reclaimed = 0;
    EXPECT_TRUE(d.node().Reclaim("/a", "128K", &reclaimed).ok());
    int64_t scanned = d.Stat("/a", "pgscan_proactive"), stolen = d.Stat("/a", "pgsteal_proactive");
    EXPECT_GE(stolen, 32);
    if (advice == kMadvNormal) {
      EXPECT_GT(scanned, stolen);
    } else {
      EXPECT_EQ(scanned, stolen);
    }
  }
}

// A large folio that one area maps with all of its entries was used once, not sixteen times.
TEST(RecencyTest, EntriesOfOneAreaCountOnce) {
  NodeDriver d(Modelled());
  d.Group("/a");
  d.Process(10, "/a");
  uint32_t file = d.File(7);
  d.Mmap(10, kBase, 64, kProtRead, kMapShared, file);
  for (uint32_t page = 0; page < 64; page += 16) {
    d.FileAdd(10, file, page, 4);
    d.FileFault(10, file, page);
    d.Read(10, kBase + page);
  }
  d.Drain();
  d.Flush();
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 64);
  EXPECT_TRUE(d.node().Reclaim("/a", "64K").ok());
  EXPECT_EQ(d.Stat("/a", "pgactivate"), 0);
}

}  // namespace
}  // namespace memcgd::core
