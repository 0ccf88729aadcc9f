#include "core/charge.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/stat_reader.h"
#include "core/workings.h"
#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

struct ChargeTest : testing::Test {
  Workings<DefaultForms> machine{SmallNode(2)};
  CpuSlot& cpu0 = *machine.cpus[0];
  CpuSlot& cpu1 = *machine.cpus[1];
  Charges<DefaultForms>& charges = machine.charges;

  Memcg& Group(const std::string& path, Memcg* parent = nullptr) {
    Memcg& memcg = machine.tree.Create(path, parent == nullptr ? machine.tree.root() : *parent);
    machine.AddCpuStats(memcg.id);
    return memcg;
  }
  static int Used(const CpuSlot& slot) {
    int used = 0;
    for (const Stock::Slot& stock : slot.stock.slots) used += stock.memcg != MemcgId::kNone;
    return used;
  }
  static uint32_t Stocked(const CpuSlot& slot, const Memcg& memcg) {
    uint32_t pages = 0;
    for (const Stock::Slot& stock : slot.stock.slots) pages += stock.memcg == memcg.id ? stock.pages : 0;
    return pages;
  }
};

TEST_F(ChargeTest, TheRootIsNeverCharged) {
  charges.ForceCharge(cpu0, MemcgId::kRoot, 10);
  EXPECT_EQ(machine.tree.root().memory.usage_pages(), 0);
}

TEST_F(ChargeTest, TheFirstPageTakes64AndTheNext63AreStock) {
  Memcg& a = Group("/a");
  for (int i = 0; i < 64; ++i) {
    charges.ForceCharge(cpu0, a.id, 1);
    EXPECT_EQ(a.memory.usage_pages(), 64);
  }
  EXPECT_EQ(Stocked(cpu0, a), 0u);
  charges.ForceCharge(cpu0, a.id, 1);
  EXPECT_EQ(a.memory.usage_pages(), 128);
}

TEST_F(ChargeTest, MoreThan64AreChargedExactly) {
  Memcg& a = Group("/a");
  charges.ForceCharge(cpu0, a.id, 65);
  EXPECT_EQ(a.memory.usage_pages(), 65);
  EXPECT_EQ(Stocked(cpu0, a), 0u);
}

// A refill comes when the stock s is less than the request n, and brings 64 - n: never past 63 in all.
TEST_F(ChargeTest, ASlotNeverHoldsMoreThan64) {
  Memcg& a = Group("/a");
  charges.ForceCharge(cpu0, a.id, 20);
  EXPECT_EQ(Stocked(cpu0, a), 44u);
  charges.ForceCharge(cpu0, a.id, 50);  // more than the stock: 64 more, of which 14 stay
  EXPECT_EQ(Stocked(cpu0, a), 58u);
  charges.ForceCharge(cpu0, a.id, 64);  // nothing stays
  EXPECT_EQ(Stocked(cpu0, a), 58u);
  std::mt19937 random(2);
  for (int i = 0; i < 10000; ++i) {
    charges.ForceCharge(cpu0, a.id, 1 + random() % 64);
    ASSERT_LE(Stocked(cpu0, a), 64u);
  }
}

TEST_F(ChargeTest, SevenGroupsHaveStockAndTheEighthEvictsOne) {
  std::vector<Memcg*> groups;
  for (int i = 0; i < 8; ++i) groups.push_back(&Group("/g" + std::to_string(i)));
  for (int i = 0; i < 7; ++i) charges.ForceCharge(cpu0, groups[i]->id, 1);
  EXPECT_EQ(Used(cpu0), 7);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(groups[i]->memory.usage_pages(), 64);
  charges.ForceCharge(cpu0, groups[7]->id, 1);
  EXPECT_EQ(Used(cpu0), 7);
  EXPECT_EQ(Stocked(cpu0, *groups[7]), 63u);
  int evicted = 0;
  for (int i = 0; i < 7; ++i) evicted += groups[i]->memory.usage_pages() == 1;
  EXPECT_EQ(evicted, 1);
}

TEST_F(ChargeTest, StockIsTheCpusOwn) {
  Memcg& a = Group("/a");
  charges.ForceCharge(cpu0, a.id, 1);
  charges.ForceCharge(cpu1, a.id, 1);
  EXPECT_EQ(a.memory.usage_pages(), 128);
}

TEST_F(ChargeTest, UnchargesBypassTheStockAndAreGatheredByGroup) {
  Memcg& a = Group("/a");
  Memcg& b = Group("/b");
  charges.ForceCharge(cpu0, a.id, 64);
  charges.ForceCharge(cpu0, b.id, 64);
  for (int i = 0; i < 10; ++i) charges.Uncharge(cpu0, a.id, 1);
  EXPECT_EQ(a.memory.usage_pages(), 64);
  charges.Uncharge(cpu0, b.id, 1);  // another group ends the run
  EXPECT_EQ(a.memory.usage_pages(), 54);
  EXPECT_EQ(b.memory.usage_pages(), 64);
  charges.FlushUncharge(cpu0);
  EXPECT_EQ(b.memory.usage_pages(), 63);
}

TEST_F(ChargeTest, EveryChargedPageHoldsItsGroup) {
  Memcg& a = Group("/a");
  charges.ForceCharge(cpu0, a.id, 5);
  EXPECT_EQ(a.refs, 64);
  charges.DrainStock(cpu0);
  EXPECT_EQ(a.refs, 5);
  charges.Uncharge(cpu0, a.id, 5);
  charges.FlushUncharge(cpu0);
  EXPECT_EQ(a.refs, 0);
}

// ChargedButUnused stays in 0 … 64 × CPUs for a leaf, in 0 … 7 × 64 × CPUs for its ancestor.
TEST_F(ChargeTest, WhatIsChargedAndNotUsedStaysWithinItsBound) {
  Memcg& top = Group("/top");
  std::vector<Memcg*> leaves;
  for (int i = 0; i < 9; ++i) leaves.push_back(&Group("/top/" + std::to_string(i), &top));
  std::vector<int64_t> used(9);
  int64_t all_used = 0;
  std::mt19937 random(5);
  for (int i = 0; i < 50000; ++i) {
    CpuSlot& slot = random() % 2 == 0 ? cpu0 : cpu1;
    size_t leaf = random() % 9;
    uint32_t pages = 1 + random() % (random() % 8 == 0 ? 200 : 8);
    if (used[leaf] >= pages && random() % 2 == 0) {
      charges.Uncharge(slot, leaves[leaf]->id, pages);
      charges.FlushUncharge(slot);
      used[leaf] -= pages;
      all_used -= pages;
    } else {
      charges.ForceCharge(slot, leaves[leaf]->id, pages);
      used[leaf] += pages;
      all_used += pages;
    }
    int64_t over = leaves[leaf]->memory.usage_pages() - used[leaf];
    ASSERT_GE(over, 0);
    ASSERT_LE(over, 64 * 2);
    ASSERT_GE(top.memory.usage_pages(), all_used);
    ASSERT_LE(top.memory.usage_pages() - all_used, 7 * 64 * 2);
  }
  charges.DrainStock(cpu0);
  charges.DrainStock(cpu1);
  EXPECT_EQ(top.memory.usage_pages(), all_used);
}

// /a (max 100) ← /a/b
TEST_F(ChargeTest, ALimitIsTriedWithTheBatchThenExactlyThenPassedAndCounted) {
  Memcg& a = Group("/a");
  Memcg& b = Group("/a/b", &a);
  a.memory.set_max_pages(100);
  size_t max = static_cast<size_t>(MemcgEvent::kMax);
  charges.ForceCharge(cpu0, b.id, 64);
  charges.ForceCharge(cpu0, b.id, 1);  // 64 would pass the limit, 1 does not
  EXPECT_EQ(a.memory.usage_pages(), 65);
  EXPECT_EQ(a.events[max], 0);
  charges.ForceCharge(cpu0, b.id, 64);  // by force
  EXPECT_EQ(a.memory.usage_pages(), 129);
  EXPECT_EQ(a.events_local[max], 1);
  EXPECT_EQ(b.events_local[max], 0);
  EXPECT_EQ(machine.tree.root().events[max], 1);
}

// Through the node: taking a group offline drains every CPU's stock of every group.
TEST(ChargeNodeTest, ARemovalDrainsAllStocks) {
  NodeDriver d(SmallNode(3));
  d.Group("/a");
  d.Group("/b");
  d.Process(10, "/a");
  for (uint32_t cpu = 0; cpu < 3; ++cpu) d.OnCpu(cpu).Touch(10, 0x1000 + 16 * cpu, 1);
  EXPECT_EQ(d.CurrentPages("/a"), 3 * 64);
  d.Remove("/b");
  EXPECT_EQ(d.CurrentPages("/a"), 3 + 3);  // and three page tables
  EXPECT_EQ(d.PeakPages("/a"), 3 * 64);
}

// ---- statistics

// / ← a ← b
TEST_F(ChargeTest, AStatSpillsPast64ToItsGroupAndAllAncestors) {
  Memcg& a = Group("/a");
  Memcg& b = Group("/a/b", &a);
  size_t i = static_cast<size_t>(Stat::kAnon);
  for (int n = 0; n < 64; ++n) charges.ModStat(cpu0, b.id, Stat::kAnon, 1);
  EXPECT_EQ(b.stats.local[i], 0);
  charges.ModStat(cpu0, b.id, Stat::kAnon, 1);
  EXPECT_EQ(b.stats.local[i], 65);
  EXPECT_EQ(b.stats.recursive[i], 65);
  EXPECT_EQ(a.stats.local[i], 0);
  EXPECT_EQ(a.stats.recursive[i], 65);
  EXPECT_EQ(machine.tree.root().stats.recursive[i], 65);
}

TEST_F(ChargeTest, ReadsAreOffByAtMost64TimesCpus) {
  Memcg& a = Group("/a");
  size_t i = static_cast<size_t>(Stat::kFile);
  int64_t exact = 0;
  std::mt19937 random(9);
  for (int n = 0; n < 20000; ++n) {
    int32_t delta = static_cast<int32_t>(random() % 130) - 60;
    charges.ModStat(random() % 2 == 0 ? cpu0 : cpu1, a.id, Stat::kFile, delta);
    exact += delta;
    ASSERT_LE(std::abs(a.stats.recursive[i] - exact), 64 * 2);
  }
  EXPECT_EQ(ReadExactLocal(machine, a)[i], exact);
  EXPECT_EQ(ReadExact(machine)[MemcgId::kRoot][i], exact);
}

}  // namespace
}  // namespace memcgd::core
