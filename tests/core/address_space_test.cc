// System calls on an address space, as a node's events tell them.
#include "core/address_space.h"

#include <gtest/gtest.h>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

constexpr uint32_t kRw = kProtRead | kProtWrite;
constexpr uint32_t kAnon = kMapPrivate | kMapAnonymous;

// /a, one process (10)
struct AddressSpaceTest : testing::Test {
  NodeDriver d{SmallNode(2)};
  uint32_t file = 0;
  AddressSpaceTest() {
    d.Group("/a");
    d.Process(10, "/a");
    file = d.File(1);
  }
  int64_t Anon() { return d.Stat("/a", "anon"); }
  int64_t Faults() { return d.Stat("/a", "pgfault"); }
};

// ---- what counts as committed

TEST_F(AddressSpaceTest, PrivateWritableMappingsAreCommitted) {
  d.Mmap(10, 0x1000, 10, kRw, kAnon);
  EXPECT_EQ(d.CommittedPages(), 10);
  d.Mmap(10, 0x2000, 20, kRw, kMapPrivate, file);
  EXPECT_EQ(d.CommittedPages(), 30);
}

TEST_F(AddressSpaceTest, ReadOnlyNoReserveHugetlbAndSharedFileMappingsAreNot) {
  d.Mmap(10, 0x1000, 10, kProtRead, kAnon);
  d.Mmap(10, 0x2000, 10, kRw, kAnon | kMapNoReserve);
  d.Mmap(10, 0x3000, 512, kRw, kAnon | kMapHugetlb);
  d.Mmap(10, 0x4000, 10, kRw, kMapShared, file);
  EXPECT_EQ(d.CommittedPages(), 0);
}

TEST_F(AddressSpaceTest, NeverIgnoresNoReserve) {
  d.Wide(0, wide::SetOvercommit{OvercommitPolicy::kNever, 100, 0});
  d.Mmap(10, 0x1000, 10, kRw, kAnon | kMapNoReserve);
  EXPECT_EQ(d.CommittedPages(), 10);
}

TEST_F(AddressSpaceTest, SharedAnonymousMemoryIsCommittedWholeUntilItsLastMapping) {
  d.Mmap(10, 0x1000, 10, kRw, kMapShared | kMapAnonymous);
  d.Fork(10, 11);
  EXPECT_EQ(d.CommittedPages(), 10);
  d.Munmap(10, 0x1000, 10);
  d.Munmap(11, 0x1000, 4);
  EXPECT_EQ(d.CommittedPages(), 10);
  d.Exit(11);
  EXPECT_EQ(d.CommittedPages(), 0);
}

TEST_F(AddressSpaceTest, MprotectToWritableCommitsAndBackGivesBackOnlyWhatWasNeverFaulted) {
  d.Mmap(10, 0x1000, 10, kProtRead, kAnon);
  d.Mprotect(10, 0x1000, 4, kRw);
  EXPECT_EQ(d.CommittedPages(), 4);
  d.Mprotect(10, 0x1000, 4, kProtRead);
  EXPECT_EQ(d.CommittedPages(), 0);
  d.Mprotect(10, 0x1000, 4, kRw);
  d.Write(10, 0x1001);
  d.Mprotect(10, 0x1000, 4, kProtRead);
  EXPECT_EQ(d.CommittedPages(), 4);
}

TEST_F(AddressSpaceTest, ForkCommitsEveryAccountedAreaAgain) {
  d.Mmap(10, 0x1000, 10, kRw, kAnon);
  d.Mmap(10, 0x2000, 10, kProtRead, kAnon);
  d.Fork(10, 11);
  EXPECT_EQ(d.CommittedPages(), 20);
  d.Exit(11);
  EXPECT_EQ(d.CommittedPages(), 10);
}

TEST_F(AddressSpaceTest, ARefusedMappingIsNotThere) {
  d.Mmap(10, 0x1000, 10, kRw, kAnon);
  d.Mmap(10, 0x100000, uint64_t{1} << 30, kRw, kAnon);  // 4 TiB under GUESS
  EXPECT_EQ(d.outcomes(Outcome::kEnomem), 1u);
  EXPECT_EQ(d.CommittedPages(), 10);
}

// ---- mmap and munmap

TEST_F(AddressSpaceTest, AMappingReplacesWhatItOverlaps) {
  d.Touch(10, 0x1000, 20);
  d.Mmap(10, 0x1005, 5, kRw, kAnon | kMapFixed);
  EXPECT_EQ(Anon(), 15);
  EXPECT_EQ(d.CommittedPages(), 20);
}

TEST_F(AddressSpaceTest, PartOfAnAreaCanBeUnmapped) {
  d.Touch(10, 0x1000, 20);
  d.Munmap(10, 0x1005, 5);
  EXPECT_EQ(Anon(), 15);
  EXPECT_EQ(d.CommittedPages(), 15);
  d.Munmap(10, 0x0, 0x7ffff);
  EXPECT_EQ(Anon(), 0);
  EXPECT_EQ(d.CommittedPages(), 0);
}

TEST_F(AddressSpaceTest, PopulateFaultsEveryPageInAndCountsIt) {
  d.Mmap(10, 0x1000, 20, kRw, kAnon | kMapPopulate);
  EXPECT_EQ(Anon(), 20);
  EXPECT_EQ(Faults(), 20);
  d.Madvise(10, 0x1000, 20, kMadvPopulateWrite);  // all there
  EXPECT_EQ(Faults(), 20);
}

TEST_F(AddressSpaceTest, PopulateForWritingCopiesWhatForkShares) {
  d.Touch(10, 0x1000, 5);
  d.Fork(10, 11);
  d.Madvise(11, 0x1000, 5, kMadvPopulateRead);
  EXPECT_EQ(Faults(), 5);
  d.Madvise(11, 0x1000, 5, kMadvPopulateWrite);
  EXPECT_EQ(Faults(), 10);
  EXPECT_EQ(Anon(), 10);
}

// ---- brk

TEST_F(AddressSpaceTest, TheFirstBreakOnlyTellsWhereTheHeapIs) {
  d.Brk(10, 0x5000);
  EXPECT_EQ(d.CommittedPages(), 0);
  d.Brk(10, 0x5010);
  EXPECT_EQ(d.CommittedPages(), 16);
  for (uint64_t i = 0; i < 16; ++i) d.Write(10, 0x5000 + i);
  d.Brk(10, 0x5004);
  EXPECT_EQ(d.CommittedPages(), 4);
  EXPECT_EQ(Anon(), 4);
}

// ---- mremap

TEST_F(AddressSpaceTest, AMoveTakesPagesAndCommitmentAlong) {
  d.Touch(10, 0x11f0, 40);  // over two leaves of the page table, to three others
  d.Mremap(10, 0x11f0, 40, 0x91e0, 40);
  EXPECT_EQ(Anon(), 40);
  EXPECT_EQ(d.CommittedPages(), 40);
  d.Munmap(10, 0x11f0, 40);
  EXPECT_EQ(Anon(), 40);
  d.Munmap(10, 0x91e0, 40);
  EXPECT_EQ(Anon(), 0);
  EXPECT_EQ(d.CommittedPages(), 0);
}

TEST_F(AddressSpaceTest, MovesIntoManyNewLeavesLoseNoPage) {
  d.Touch(10, 0x10000, 3000);
  for (uint64_t round = 1; round <= 8; ++round)
    d.Mremap(10, 0x10000 * round, 3000, 0x10000 * (round + 1), 3000);
  EXPECT_EQ(Anon(), 3000);
  d.Munmap(10, 0x90000, 3000);
  EXPECT_EQ(Anon(), 0);
}

TEST_F(AddressSpaceTest, GrowingAndShrinkingInPlaceCommitTheDifference) {
  d.Touch(10, 0x1000, 10);
  d.Mremap(10, 0x1000, 10, 0x1000, 30);
  EXPECT_EQ(d.CommittedPages(), 30);
  EXPECT_EQ(Anon(), 10);
  d.Mremap(10, 0x1000, 30, 0x1000, 4);
  EXPECT_EQ(d.CommittedPages(), 4);
  EXPECT_EQ(Anon(), 4);
}

TEST_F(AddressSpaceTest, DontUnmapLeavesTheOldAreaWithoutItsPages) {
  d.Touch(10, 0x1000, 10);
  d.Mremap(10, 0x1000, 10, 0x2000, 10, kMremapDontUnmap);
  EXPECT_EQ(Anon(), 10);
  EXPECT_EQ(d.CommittedPages(), 20);
  d.Write(10, 0x1000);
  EXPECT_EQ(Anon(), 11);
}

TEST_F(AddressSpaceTest, DontUnmapInPlaceOrOverSeveralAreasLosesNoCommitment) {
  d.Touch(10, 0x1000, 10);
  d.Mremap(10, 0x1000, 10, 0x1000, 10, kMremapDontUnmap);
  EXPECT_EQ(d.CommittedPages(), 10);
  d.Mmap(10, 0x100a, 10, kProtRead, kAnon);
  d.Mmap(10, 0x1014, 10, kRw, kAnon);
  d.Mremap(10, 0x1000, 40, 0x3000, 40);  // the last ten are a hole
  EXPECT_EQ(d.node().CheckInvariants(), "");
  d.Munmap(10, 0x0, 0x7ffff);
  EXPECT_EQ(d.CommittedPages(), 0);
}

TEST_F(AddressSpaceTest, AMoveOntoItselfOrOfNothingIsRefused) {
  d.MmapAnon(10, 0x1000, 10);
  d.Mremap(10, 0x1000, 10, 0x1005, 10);
  d.Mremap(10, 0x5000, 10, 0x6000, 10);
  EXPECT_EQ(d.outcomes(Outcome::kInvalid), 1u);
  EXPECT_EQ(d.outcomes(Outcome::kNoArea), 1u);
  EXPECT_EQ(d.CommittedPages(), 10);
}

// ---- madvise

TEST_F(AddressSpaceTest, DontNeedDropsPagesAndKeepsTheArea) {
  d.Touch(10, 0x1000, 10);
  d.DontNeed(10, 0x1000, 4);
  EXPECT_EQ(Anon(), 6);
  EXPECT_EQ(d.CommittedPages(), 10);
  d.Write(10, 0x1000);
  EXPECT_EQ(Anon(), 7);
}

TEST_F(AddressSpaceTest, RemoveTakesTheObjectsPages) {
  d.Mmap(10, 0x1000, 10, kRw, kMapShared | kMapAnonymous | kMapPopulate);
  d.Fork(10, 11);
  d.Madvise(11, 0x1002, 3, kMadvRemove);
  EXPECT_EQ(d.Stat("/a", "shmem"), 7);
  EXPECT_EQ(d.Stat("/a", "file_mapped"), 7);
}

// ---- fork, exec, vfork, exit

TEST_F(AddressSpaceTest, ForkSharesPagesUntilSomeoneWrites) {
  d.Touch(10, 0x1000, 10);
  d.Fork(10, 11);
  d.Group("/b");
  d.Attach(d.Path("/b"), 11);
  EXPECT_EQ(Anon(), 10);
  d.WriteProtected(11, 0x1000);
  EXPECT_EQ(d.Stat("/b", "anon"), 1);
  EXPECT_EQ(Anon(), 10);
  d.WriteProtected(10, 0x1000);  // the last mapping: used on
  EXPECT_EQ(Anon(), 10);
  d.Exit(11);
  EXPECT_EQ(d.Stat("/b", "anon"), 0);
  EXPECT_EQ(Anon(), 10);
}

TEST_F(AddressSpaceTest, ThePagesOfAForkOutliveTheParent) {
  d.Touch(10, 0x1000, 10);
  d.Fork(10, 11);
  d.Exit(10);
  EXPECT_EQ(Anon(), 10);
  d.Exit(11);
  EXPECT_EQ(Anon(), 0);
}

TEST_F(AddressSpaceTest, AVforkedChildUsesItsParentsSpaceUntilItExecs) {
  d.Touch(10, 0x1000, 10);
  d.Vfork(10, 11);
  d.Write(11, 0x2000);
  EXPECT_EQ(Anon(), 11);
  d.Exec(11, 3);
  EXPECT_EQ(Anon(), 14);
  d.Exit(11);
  EXPECT_EQ(Anon(), 11);
  d.Exit(10);
  EXPECT_EQ(Anon(), 0);
}

TEST_F(AddressSpaceTest, ExecLeavesNothingButItsArguments) {
  d.Touch(10, 0x1000, 10);
  d.Exec(10, 2);
  EXPECT_EQ(Anon(), 2);
  EXPECT_EQ(d.CommittedPages(), 0);
  EXPECT_EQ(Faults(), 12);
}

TEST_F(AddressSpaceTest, AProcessEndsWithItsLastThread) {
  d.Touch(10, 0x1000, 10);
  d.CloneThread(10, 11);
  d.ExitThread(10);
  EXPECT_EQ(Anon(), 10);
  d.Write(11, 0x1000);
  d.ExitThread(11);
  EXPECT_EQ(Anon(), 0);
}

TEST_F(AddressSpaceTest, TheSpaceOfADeadGroupStaysUntilItIsTornDown) {
  d.Touch(10, 0x1000, 10);
  d.Wide(10, wide::Exit{true});
  EXPECT_EQ(Anon(), 10);
  d.Wide(10, wide::ExitMmap{});
  EXPECT_EQ(Anon(), 0);
  d.Wide(10, wide::ExitMmap{});
  EXPECT_EQ(d.outcomes(Outcome::kUnknownThread), 2u);  // the init of the test, and this one
}

TEST_F(AddressSpaceTest, AnIdUsedAgainEndsItsLastUser) {
  d.Touch(10, 0x1000, 10);
  d.Fork(1, 10);
  EXPECT_EQ(Anon(), 0);
}

// An attached process takes along what it will fault, not what it has.
TEST_F(AddressSpaceTest, AttachMovesTheFuture) {
  d.Touch(10, 0x1000, 10);
  d.Group("/b");
  d.Attach(d.Path("/b"), 10);
  d.Touch(10, 0x2000, 5);
  EXPECT_EQ(Anon(), 10);
  EXPECT_EQ(d.Stat("/b", "anon"), 5);
}

// A length of 0 asks for a second view of shared memory; it cannot be where the first one is.
TEST_F(AddressSpaceTest, MremapOfNothingInPlaceIsRefused) {
  d.Mmap(10, 0x1000, 8, kProtRead | kProtWrite, kMapShared | kMapAnonymous);
  d.Write(10, 0x1000);
  d.Mremap(10, 0x1000, 0, 0x1000, 8, 0);
  EXPECT_EQ(d.outcomes(Outcome::kInvalid), 1u);
  d.Mmap(10, 0x2000, 8, kProtRead | kProtWrite, kMapShared | kMapAnonymous);
  d.Munmap(10, 0x1000, 8);
  EXPECT_EQ(d.Stat("/a", "shmem"), 0);
}

TEST_F(AddressSpaceTest, MadviseFreeAgainAndAgainHoldsAPageOnce) {
  NodeDriver many(SmallNode(600));
  many.Fork(1, 10);
  many.Touch(10, 0x1000, 4);
  many.Drain();
  for (uint32_t cpu = 0; cpu < 600; ++cpu) {
    many.OnCpu(cpu);
    for (int i = 0; i < 7; ++i) many.Madvise(10, 0x1000, 4, kMadvFree);
  }
  many.Flush();
  EXPECT_EQ(many.node().CheckInvariants(), "");
  many.Munmap(10, 0x1000, 4);
  many.Drain();
  EXPECT_EQ(many.Stat("/", "anon"), 0);
  EXPECT_EQ(many.Stat("/", "inactive_anon"), 0);
  EXPECT_EQ(many.node().Info().resident_pages, 0u);
}

}  // namespace
}  // namespace memcgd::core
