#include "core/commit_account.h"

#include <gtest/gtest.h>

namespace memcgd::core {
namespace {

constexpr int64_t kGiB = int64_t{1} << 18;  // pages
constexpr int64_t kAdminReserve = (int64_t{8} << 20) / 4096;
constexpr int64_t kUserReserve = (int64_t{128} << 20) / 4096;

CommitAccount Account(OvercommitPolicy mode, uint32_t cpus = 1, int64_t ram = kGiB, int64_t swap = 0,
                      uint32_t ratio = 50, uint64_t kbytes = 0) {
  return CommitAccount(cpus, ram, swap, 4096, CommitBatch::kByPolicy, {mode, ratio, kbytes});
}

TEST(CommitAccountTest, TheBatchOf128GibOn64CpusIs2048UnderNeverAnd131072Else) {
  EXPECT_EQ(Account(OvercommitPolicy::kNever, 64, 128 * kGiB).batch_pages(), 2048);
  EXPECT_EQ(Account(OvercommitPolicy::kGuess, 64, 128 * kGiB).batch_pages(), 131072);
  EXPECT_EQ(Account(OvercommitPolicy::kAlways, 64, 128 * kGiB).batch_pages(), 131072);
}

TEST(CommitAccountTest, TheOlderFormHasTheSmallBatchUnderEveryPolicy) {
  for (OvercommitPolicy mode :
       {OvercommitPolicy::kGuess, OvercommitPolicy::kAlways, OvercommitPolicy::kNever}) {
    CommitAccount account(64, 128 * kGiB, 0, 4096, CommitBatch::kSmall, {mode, 50, 0});
    EXPECT_EQ(account.batch_pages(), 2048);
  }
}

TEST(CommitAccountTest, TheBatchIsAtLeast32AndTwiceTheCpus) {
  EXPECT_EQ(Account(OvercommitPolicy::kNever, 2, 1000).batch_pages(), 32);
  EXPECT_EQ(Account(OvercommitPolicy::kNever, 64, 1000).batch_pages(), 128);
}

TEST(CommitAccountTest, An128MibMappingSpillsEachTimeUnderNeverOnly) {
  CommitAccount never = Account(OvercommitPolicy::kNever, 64, 128 * kGiB);
  CommitAccount guess = Account(OvercommitPolicy::kGuess, 64, 128 * kGiB);
  ASSERT_TRUE(never.TryCommit(5, 32768, 0));
  ASSERT_TRUE(guess.TryCommit(5, 32768, 0));
  EXPECT_EQ(never.FastReadPages(), 32768);
  EXPECT_EQ(guess.FastReadPages(), 0);
  EXPECT_EQ(guess.CommittedAsPages(), 32768);
}

TEST(CommitAccountTest, AlwaysRefusesNothing) {
  CommitAccount account = Account(OvercommitPolicy::kAlways);
  EXPECT_TRUE(account.TryCommit(0, 1000 * kGiB, 0));
  EXPECT_EQ(account.CommittedAsPages(), 1000 * kGiB);
}

TEST(CommitAccountTest, GuessRefusesOnlyMoreThanRamAndSwapAtOnce) {
  CommitAccount account = Account(OvercommitPolicy::kGuess, 1, kGiB, kGiB / 2);
  EXPECT_TRUE(account.TryCommit(0, kGiB + kGiB / 2, 0));
  EXPECT_TRUE(account.TryCommit(0, kGiB + kGiB / 2, 0));
  EXPECT_FALSE(account.TryCommit(0, kGiB + kGiB / 2 + 1, 0));
  EXPECT_EQ(account.CommittedAsPages(), 3 * kGiB);
}

TEST(CommitAccountTest, NeverRefusesAtTheLimitLessTheReserves) {
  CommitAccount account = Account(OvercommitPolicy::kNever, 1, kGiB, 0, 100);
  int64_t most = kGiB - kAdminReserve - 1;  // strictly less than
  EXPECT_FALSE(account.TryCommit(0, most + 1, 0));
  EXPECT_EQ(account.CommittedAsPages(), 0);
  EXPECT_TRUE(account.TryCommit(0, most, 0));
  EXPECT_FALSE(account.TryCommit(0, 1024, 0));
  EXPECT_EQ(account.CommittedAsPages(), most);
}

TEST(CommitAccountTest, TheUserReserveIsA32ndOfTheProcessAndAtMost128Mib) {
  CommitAccount account = Account(OvercommitPolicy::kNever, 1, kGiB, 0, 100);
  EXPECT_FALSE(account.TryCommit(0, kGiB - kAdminReserve - 1, 32));
  EXPECT_TRUE(account.TryCommit(0, kGiB - kAdminReserve - 2, 32));
  account.Uncommit(0, kGiB - kAdminReserve - 2);
  EXPECT_FALSE(account.TryCommit(0, kGiB - kAdminReserve - kUserReserve, 1000 * kGiB));
  EXPECT_TRUE(account.TryCommit(0, kGiB - kAdminReserve - kUserReserve - 1, 1000 * kGiB));
}

TEST(CommitAccountTest, NeverTestsTheFastReadAndSoMayBeWrongByLessThanBatchTimesCpus) {
  CommitAccount account = Account(OvercommitPolicy::kNever, 4, 4 * kGiB, 0, 10);
  int64_t batch = account.batch_pages();
  while (account.TryCommit(0, batch, 0)) {
  }
  for (uint32_t cpu = 0; cpu < 4; ++cpu) {
    EXPECT_EQ(account.FastReadPages() < account.LimitPages() - kAdminReserve,
              account.TryCommit(cpu, batch - 1, 0));
  }
  EXPECT_LT(account.CommittedAsPages(), account.LimitPages() - kAdminReserve + batch * 4);
}

TEST(CommitAccountTest, KbytesTakeTheRatiosPlaceAndSwapIsAdded) {
  EXPECT_EQ(Account(OvercommitPolicy::kNever, 1, kGiB, 500, 50).LimitPages(), kGiB / 2 + 500);
  EXPECT_EQ(Account(OvercommitPolicy::kNever, 1, kGiB, 500, 50, 4000).LimitPages(), 1000 + 500);
}

TEST(CommitAccountTest, GoingToNeverSyncsEveryCpuUnderTheNewBatch) {
  CommitAccount account = Account(OvercommitPolicy::kGuess, 4, 4 * kGiB);
  for (uint32_t cpu = 0; cpu < 4; ++cpu) ASSERT_TRUE(account.TryCommit(cpu, 1000, 0));
  ASSERT_EQ(account.FastReadPages(), 0);
  account.SetPolicy({OvercommitPolicy::kNever, 100, 0});
  EXPECT_EQ(account.FastReadPages(), 4000);
  EXPECT_EQ(account.batch_pages(), kGiB / 256);
  account.SetPolicy({OvercommitPolicy::kAlways, 100, 0});
  EXPECT_EQ(account.batch_pages(), kGiB / 4);
  EXPECT_EQ(account.CommittedAsPages(), 4000);
}

TEST(CommitAccountTest, CommittedAsIsNeverBelow0) {
  CommitAccount account = Account(OvercommitPolicy::kGuess, 2);
  account.Uncommit(0, 100);
  EXPECT_EQ(account.CommittedAsPages(), 0);
}

TEST(CommitAccountTest, ALimitPastEveryMachineIsNoNegativeOne) {
  CommitAccount account =
      Account(OvercommitPolicy::kNever, 1, int64_t{1} << 40, int64_t{1} << 40, UINT32_MAX);
  EXPECT_GT(account.LimitPages(), int64_t{1} << 41);
  EXPECT_GT(account.LimitPages() * 65536, 0);
  EXPECT_TRUE(account.TryCommit(0, 100, 0));
}

}  // namespace
}  // namespace memcgd::core
