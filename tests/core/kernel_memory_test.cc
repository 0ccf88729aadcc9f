// Page tables and kernel stacks, with numbers worked out from the kernel's rules.  A page number / 512 is its
// PTE table, / 512² its PMD, / 512³ its PUD.
#include "core/kernel_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

constexpr uint64_t kTable = 512, kGib = 512 * 512, kPud = 512 * 512 * 512;
constexpr uint64_t kBase = kGib;  // first page of a table on every level but the highest

// A process in /a; its PGD and stack are its parent's in the root, which is charged nothing.
class KernelMemoryTest : public testing::Test {
 protected:
  KernelMemoryTest() {
    d.Group("/a");
    d.Process(10, "/a");
  }
  int64_t Tables(const std::string& path = "/a") { return d.Stat(path, "pagetables"); }
  int64_t Stacks(const std::string& path = "/a") { return d.Stat(path, "kernel_stack"); }

  NodeDriver d;
};

// __handle_mm_fault(): p4d, pud, pmd, pte, each where it is missing
TEST_F(KernelMemoryTest, AFaultMakesTheTablesThatItLacks) {
  EXPECT_EQ(Tables(), 0);
  d.Write(10, kBase);
  EXPECT_EQ(Tables(), 3);
  d.Write(10, kBase + kTable - 1);
  EXPECT_EQ(Tables(), 3);
  d.Write(10, kBase + kTable);
  EXPECT_EQ(Tables(), 4);
  d.Read(10, kBase + kGib);
  EXPECT_EQ(Tables(), 6);
  d.Write(10, kBase + kPud);
  EXPECT_EQ(Tables(), 9);
  EXPECT_EQ(d.Stat("/a", "kernel"), 9);
  EXPECT_EQ(d.Stat("/", "pagetables"), 9);
}

// free_pgtables(): floor and ceiling are the ends of the neighbours, whether these were touched or not
TEST_F(KernelMemoryTest, ATableIsFreedWithTheLastAreaOfItsSpan) {
  d.Touch(10, kBase, 10);
  d.MmapAnon(10, kBase + 100, 1);
  d.MmapAnon(10, kBase + kTable + 5, 1);
  d.MmapAnon(10, kBase + kGib, 1);
  EXPECT_EQ(Tables(), 3);
  d.Munmap(10, kBase, 10);
  EXPECT_EQ(Tables(), 3);
  d.Munmap(10, kBase + 100, 1);  // no area in the 2 MiB, but one in the 1 GiB
  EXPECT_EQ(Tables(), 2);
  d.Munmap(10, kBase + kTable + 5, 1);  // one in the 512 GiB
  EXPECT_EQ(Tables(), 1);
  d.Munmap(10, kBase + kGib, 1);
  EXPECT_EQ(Tables(), 0);
}

TEST_F(KernelMemoryTest, ATableWithAnEntryIsOfAnAreaThatNobodyTold) {
  d.Touch(10, kBase, 1);
  d.Write(10, kBase + 7);  // in no area
  d.Munmap(10, kBase, 1);
  EXPECT_EQ(Tables(), 3);
  d.Munmap(10, kBase, kTable);
  EXPECT_EQ(Tables(), 0);
}

// try_to_free_pte(): the zapped part of a table must be all of it, and one area's
TEST_F(KernelMemoryTest, DontNeedFreesTablesThatItEmptiesWhole) {
  d.Touch(10, kBase, 2 * kTable);
  EXPECT_EQ(Tables(), 4);
  d.DontNeed(10, kBase, kTable - 1);
  d.DontNeed(10, kBase + kTable - 1, kTable);
  EXPECT_EQ(Tables(), 4);
  d.DontNeed(10, kBase, kTable);
  EXPECT_EQ(Tables(), 3);
  d.Mprotect(10, kBase + kTable, 100, kProtRead);  // two areas now
  d.DontNeed(10, kBase + kTable, kTable);
  EXPECT_EQ(Tables(), 3);
  d.Munmap(10, kBase, 2 * kTable);
  EXPECT_EQ(Tables(), 0);
}

// copy_page_range(): of what vma_needs_copy(), tables without entries too; and a PGD of two pages
TEST_F(KernelMemoryTest, AForkCopiesTheTablesOfAreasWithPagesOfTheirOwn) {
  uint32_t file = d.File(1);
  d.FileAdd(10, file, 0);
  d.Mmap(10, kBase + kGib, 1, kProtRead, kMapPrivate, file);
  d.MapPages(10, file, 0, 1);
  d.Read(10, kBase + kGib);        // PUD, PMD, PTE
  d.Touch(10, kBase, 2 * kTable);  // PMD and two PTE
  d.Madvise(10, kBase, 10, kMadvDontNeed);
  EXPECT_EQ(Tables(), 6);
  d.Fork(10, 11);
  EXPECT_EQ(Tables(), 6 + 2 + 4);
  EXPECT_EQ(Stacks(), 4);
  d.Exit(11);
  EXPECT_EQ(Tables(), 6);
  EXPECT_EQ(Stacks(), 0);
}

// bprm_mm_init(), setup_arg_pages(): PGD and the tables of STACK_TOP; the stack takes them to its place
TEST_F(KernelMemoryTest, AnExecMakesAPgdAndTheTablesOfItsStack) {
  d.Touch(10, kBase, 1);
  d.Wide(10, wide::ExecArguments{1});
  EXPECT_EQ(Tables(), 3 + 2 + 3);
  d.Wide(10, wide::Exec{0});
  EXPECT_EQ(Tables(), 5);
  uint64_t stack = (uint64_t{0x7ffd10000000} >> 12) + 100;
  d.Write(10, stack);
  EXPECT_EQ(Tables(), 5);
  d.Write(10, stack - kTable);  // it grows
  EXPECT_EQ(Tables(), 6);
  d.Exit(10);
  EXPECT_EQ(Tables(), 0);
}

TEST_F(KernelMemoryTest, AForkAfterExecCopiesAStackThatNobodySaw) {
  d.Exec(10);
  d.Fork(10, 11);
  EXPECT_EQ(Tables(), 5 + 5);
  d.Write(11, (uint64_t{0x7ffe00000000} >> 12));
  EXPECT_EQ(Tables(), 5 + 5);
}

// move_page_tables()
TEST_F(KernelMemoryTest, AMoveMakesTablesThereAndFreesThoseHere) {
  d.Touch(10, kBase, 20);
  d.Mremap(10, kBase, 20, kBase + kGib + kTable - 10, 20);  // across the end of a table
  EXPECT_EQ(Tables(), 1 + 1 + 2);
  d.Mremap(10, kBase + kGib + kTable - 10, 20, kBase + 5, 20, kMremapDontUnmap);
  EXPECT_EQ(Tables(), 1 + 2 + 3);
  d.Touch(10, kBase + kTable, kTable);
  EXPECT_EQ(Tables(), 7);
  // move_normal_pmd(): a whole one goes with its table
  d.Mremap(10, kBase + kTable, kTable, kBase + 2 * kTable, kTable, kMremapDontUnmap);
  EXPECT_EQ(Tables(), 7);
}

// account_kernel_stack(): who forks pays, until the thread is gone
TEST_F(KernelMemoryTest, AThreadsStackIsItsParentsToPay) {
  d.Group("/b");
  d.CloneThread(10, 12);
  d.CloneThread(10, 13);
  EXPECT_EQ(Stacks(), 8);
  d.Attach(d.Path("/b"), 10);
  d.CloneThread(12, 14);
  EXPECT_EQ(Stacks("/a"), 8);
  EXPECT_EQ(Stacks("/b"), 4);
  d.ExitThread(12);
  EXPECT_EQ(Stacks("/a"), 4);
  d.Exit(10);  // with the threads whose own ends were lost
  EXPECT_EQ(Stacks("/a"), 0);
  EXPECT_EQ(Stacks("/b"), 0);
}

TEST_F(KernelMemoryTest, TablesStayWhereTheyWereChargedAndHoldADyingCgroup) {
  d.Group("/b");
  d.Touch(10, kBase, 1);
  d.Attach(d.Path("/b"), 10);
  EXPECT_EQ(Tables("/a"), 3);
  EXPECT_EQ(Tables("/b"), 0);
  d.DontNeed(10, kBase, 1);  // its page goes, its table stays
  d.Remove("/a");
  d.Drain();
  d.Flush();
  EXPECT_EQ(d.node().Info().dying_cgroups, 1u);
  d.Exit(10);
  d.Flush();
  EXPECT_EQ(d.node().Info().dying_cgroups, 0u);
}

// Of an address space from before the stream only an area that the stream made has tables that are new.
TEST_F(KernelMemoryTest, TablesFromBeforeTheStreamAreNobodys) {
  d.Attach(d.Path("/a"), 20);  // a thread that nobody saw begin
  d.Write(20, kBase);
  EXPECT_EQ(Tables(), 0);
  d.Touch(20, kBase + kGib, 1);
  EXPECT_EQ(Tables(), 1);
  EXPECT_EQ(Stacks(), 0);
  d.Fork(20, 21);  // its copies are new
  EXPECT_EQ(Tables(), 1 + 2 + 5);
}

TEST_F(KernelMemoryTest, ABaselineProcessHasAPgdAndAStack) {
  d.Wide(30, wide::BaselineProcess{30, d.Path("/a"), 0});
  EXPECT_EQ(Tables(), 2);
  EXPECT_EQ(Stacks(), 4);
  d.Write(30, kBase);
  EXPECT_EQ(Tables(), 5);
  d.Exit(30);
  EXPECT_EQ(Tables(), 0);
  EXPECT_EQ(Stacks(), 0);
}

// A limit of two pages: PUD and PMD fit, the PTE table is refused, and with it the fault.
TEST(KernelMemoryLimitTest, ARefusedTableRefusesItsFault) {
  NodeConfig config = SmallNode();
  config.reclaim = Reclaim::kNone;
  NodeDriver d(config);
  d.Group("/a");
  d.SetKnob(d.Path("/a"), "memory.max", "8192");
  d.Process(10, "/a");
  d.Touch(10, kBase, 3);
  EXPECT_EQ(d.outcomes(Outcome::kLimit), 3u);
  EXPECT_EQ(d.Stat("/a", "pagetables"), 2);
  EXPECT_EQ(d.Stat("/a", "anon"), 0);
  EXPECT_EQ(d.CurrentPages("/a"), 2);
  d.Munmap(10, kBase, 3);
  EXPECT_EQ(d.CurrentPages("/a"), 0);
  d.SetKnob(d.Path("/a"), "memory.max", "12288");
  d.CloneThread(10, 11);  // a stack of four pages
  EXPECT_EQ(d.outcomes(Outcome::kLimit), 4u);
  EXPECT_EQ(d.CurrentPages("/a"), 0);
}

TEST(KernelMemoryLimitTest, ASavedStateKeepsEmptyTablesAndWhoPays) {
  NodeDriver d;
  d.Group("/a");
  d.Process(10, "/a");
  d.Exec(10);
  d.Touch(10, kBase, 600);
  d.DontNeed(10, kBase + 512, 88);  // the second table has no entry now
  d.CloneThread(10, 11);
  EXPECT_EQ(d.Stat("/a", "pagetables"), 2 + 3 + 4);
  std::string saved = d.node().Save();
  absl::StatusOr<std::unique_ptr<Node>> loaded = Node::Load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->CheckInvariants(), "");
  EXPECT_EQ((*loaded)->StateHash(), d.node().StateHash());
}

}  // namespace
}  // namespace memcgd::core
