// The branches of a fault's way.
#include "core/fault.h"

#include <gtest/gtest.h>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

constexpr uint32_t kRw = kProtRead | kProtWrite;

// /a, one process (10) that begins with an exec: all its areas are known
struct FaultTest : testing::Test {
  explicit FaultTest(bool zero_page = false) : d(Config(zero_page)) {
    d.Group("/a");
    d.Process(10, "/a");
    d.Exec(10, 1);  // 1 anonymous page, 1 fault
    file = d.File(1);
    d.Flush();
  }
  static NodeConfig Config(bool zero_page) {
    NodeConfig config = SmallNode();
    config.zero_page = zero_page;
    return config;
  }
  void Expect(int64_t anon, int64_t faults) {
    EXPECT_EQ(d.Stat("/a", "anon"), anon + 1);
    EXPECT_EQ(d.Stat("/a", "pgfault"), faults + 1);
  }
  NodeDriver d;
  uint32_t file = 0;
};
struct ZeroPageFaultTest : FaultTest {
  ZeroPageFaultTest() : FaultTest(true) {}
};

TEST_F(FaultTest, TheFirstTouchMakesAPage) {
  d.MmapAnon(10, 0x1000, 4);
  d.Write(10, 0x1000);
  d.Write(10, 0x1000);  // spurious: counted, nothing made
  Expect(1, 2);
}

TEST_F(FaultTest, WithoutAZeroPageAReadMakesOneToo) {
  d.MmapAnon(10, 0x1000, 4);
  d.Read(10, 0x1000);
  Expect(1, 1);
}

TEST_F(ZeroPageFaultTest, AReadMapsTheZeroPageAndAWriteThenCopiesIt) {
  d.MmapAnon(10, 0x1000, 4);
  d.Read(10, 0x1000);
  Expect(0, 1);
  d.WriteProtected(10, 0x1000);
  Expect(1, 2);
}

TEST_F(FaultTest, AWriteToAPrivateFilePageCopiesIt) {
  d.Mmap(10, 0x1000, 4, kRw, kMapPrivate, file);
  d.FileAdd(0, file, 0);
  d.FileFault(10, file, 0);
  d.Read(10, 0x1000);
  EXPECT_EQ(d.Stat("/", "file_mapped"), 1);
  d.WriteProtected(10, 0x1000);
  EXPECT_EQ(d.Stat("/", "file_mapped"), 0);
  d.FileFault(10, file, 1);
  d.Write(10, 0x1001);  // at once
  Expect(2, 3);
}

TEST_F(FaultTest, AWriteToASharedFilePageMapsIt) {
  d.Mmap(10, 0x1000, 4, kRw, kMapShared, file);
  d.FileAdd(10, file, 0);
  d.FileFault(10, file, 0);
  d.Write(10, 0x1000);
  d.WriteProtected(10, 0x1000);
  Expect(0, 2);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 1);
}

TEST_F(FaultTest, AMissIsMajorAndItsFaultIsCountedOnceOnTheRetry) {
  d.Mmap(10, 0x1000, 4, kProtRead, kMapShared, file);
  d.FileDelete(0, file, 0);  // known to be absent
  d.FileFault(10, file, 0);
  d.FileAdd(10, file, 0);
  d.Read(10, 0x1000);  // gave the lock up: not counted
  d.FileFault(10, file, 0);
  d.Read(10, 0x1000);
  Expect(0, 1);
  EXPECT_EQ(d.Stat("/a", "pgmajfault"), 1);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 1);
}

TEST_F(FaultTest, APageNeverSeenIsAMissOnlyWhenTheFaultBringsItIn) {
  d.Mmap(10, 0x1000, 4, kProtRead, kMapShared, file);
  d.FileFault(10, file, 0);
  d.Read(10, 0x1000);  // it was there before the stream
  EXPECT_EQ(d.Stat("/a", "pgmajfault"), 0);
  d.FileFault(10, file, 1);
  d.FileAdd(10, file, 0, 1);
  d.FileFault(10, file, 1);
  d.Read(10, 0x1001);
  EXPECT_EQ(d.Stat("/a", "pgmajfault"), 1);
  Expect(0, 2);
}

TEST_F(FaultTest, PagesMappedAroundStayWithinTheArea) {
  for (uint32_t i = 0; i < 32; ++i) d.FileAdd(10, file, i);
  d.Mmap(10, 0x1000, 4, kProtRead, kMapShared, file, 10);
  d.MapPages(10, file, 0, 32);
  d.Read(10, 0x1001);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 4);
  Expect(0, 1);
}

TEST_F(FaultTest, SharedAnonymousMemoryIsOneObjectForParentAndChild) {
  d.Mmap(10, 0x1000, 4, kRw, kMapShared | kMapAnonymous);
  d.Fork(10, 11);
  d.Write(10, 0x1000);
  d.Read(11, 0x1000);
  d.Write(11, 0x1001);
  EXPECT_EQ(d.Stat("/a", "shmem"), 2);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 2);
}

// A tmpfs file that mmap could not name: its pages are the file's once a fault names it.
TEST_F(FaultTest, ANameForATmpfsAreaComesLateAndLosesNoPage) {
  uint32_t tmpfs = d.File(9, true);
  d.Mmap(10, 0x1000, 8, kRw, kMapShared, 0);
  d.Write(10, 0x1000);
  d.Write(10, 0x1001);
  EXPECT_EQ(d.Stat("/a", "shmem"), 2);
  d.FileAdd(10, tmpfs, 1);
  d.FileAdd(10, tmpfs, 2);
  d.FileFault(10, tmpfs, 2);
  d.Write(10, 0x1002);
  EXPECT_EQ(d.node().CheckInvariants(), "");
  for (uint32_t i = 0; i < 8; ++i) d.FileDelete(10, tmpfs, i);
  d.Munmap(10, 0x1000, 8);
  EXPECT_EQ(d.Stat("/a", "shmem"), 0);
}

TEST_F(FaultTest, NorWhenTheNameIsThatOfARegularFile) {
  d.Mmap(10, 0x1000, 8, kRw, kMapShared, 0);
  d.Write(10, 0x1000);
  d.FileAdd(10, file, 1);
  d.FileFault(10, file, 1);
  d.Write(10, 0x1001);
  d.FileDelete(10, file, 0);
  d.FileDelete(10, file, 1);
  d.Munmap(10, 0x1000, 8);
  EXPECT_EQ(d.Stat("/a", "shmem"), 0);
  EXPECT_EQ(d.Stat("/a", "file"), 0);
}

TEST_F(FaultTest, AFetchThatNoFileBacksIsTheVdso) {
  d.Fault(10, 0x7fff0, kFaultUser | kFaultFetch);
  Expect(0, 1);
}

TEST_F(FaultTest, AFaultWhereNothingIsKnownIsAnonymous) {
  d.Write(10, 0x4444);
  Expect(1, 1);
}

TEST_F(FaultTest, AProtectionFaultOnAPageNobodySawIsACopy) {
  d.WriteProtected(10, 0x4444);
  Expect(1, 1);
  EXPECT_EQ(d.outcomes(Outcome::kUnseenPage), 0u);  // exec mapped things that no event told of
  d.WriteProtected(77, 0x4444);
  EXPECT_EQ(d.outcomes(Outcome::kUnseenPage), 1u);     // a process from before the stream: worth a word
  d.Fault(10, 0x4445, kFaultUser | kFaultProtection);  // a read: nothing is made
  Expect(1, 2);
}

// The stack after exec: an argument page has no address until a child writes to it.
TEST_F(FaultTest, AForksWriteToTheStackFindsAnArgumentPage) {
  d.Fault(10, 0x7f0000000, kFaultUser | kFaultFetch);  // the program's entry
  d.Fork(10, 11);
  d.WriteProtected(11, 0x7f0000000 + 20000);
  EXPECT_EQ(d.Stat("/a", "anon"), 2);  // copied
  d.WriteProtected(10, 0x7f0000000 + 20000);
  EXPECT_EQ(d.Stat("/a", "anon"), 2);  // the last one's own
}

TEST_F(FaultTest, AFaultOfAnUnknownThreadIsTheRootsAndSaidSo) {
  uint64_t before = d.outcomes(Outcome::kUnknownThread);
  d.Write(77, 0x1000);
  EXPECT_EQ(d.outcomes(Outcome::kUnknownThread), before + 1);
  EXPECT_EQ(d.Local("/", "anon"), 1);
}

TEST_F(FaultTest, PopulateStopsAtTheNodesRam) {
  NodeConfig config = SmallNode();
  config.memory_bytes = 1000 * 4096;
  config.overcommit = OvercommitPolicy::kAlways;
  NodeDriver small(config);
  small.Mmap(10, 0x1000, uint64_t{1} << 40, kRw, kMapPrivate | kMapAnonymous | kMapPopulate);
  EXPECT_EQ(small.Stat("/", "anon"), 1000);
  EXPECT_EQ(small.outcomes(Outcome::kEnomem), 1u);
}

// The shortest way of a first touch comes to what the long one does: with one event a batch nothing takes it.
TEST_F(FaultTest, FaultsOfEveryCodeComeToTheSameHoweverTheyAreCut) {
  std::vector<uint64_t> hashes;
  for (size_t batch : {size_t{1}, size_t{8192}}) {
    NodeDriver one(SmallNode());
    one.Fork(1, 10);
    for (uint32_t code = 0; code < 64; ++code) {
      one.Fault(10, 0x7f0000000 + code, code);
      one.Fault(10, 0x7f0000000 + code, code ^ kFaultWrite);
    }
    one.Fork(10, 11);
    for (uint32_t code = 0; code < 64; ++code) one.Fault(11, 0x7f0000000 + 20000 + code, code);
    one.Flush(batch);
    EXPECT_EQ(one.node().CheckInvariants(), "");
    hashes.push_back(one.node().StateHash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace memcgd::core
