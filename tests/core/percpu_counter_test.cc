#include "core/percpu_counter.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace memcgd::core {
namespace {

TEST(PercpuCounterTest, TheFastReadIsOffByLessThanBatchTimesCpus) {
  std::mt19937_64 random(7);
  for (uint32_t cpus : {1u, 2u, 7u, 64u}) {
    for (int64_t batch : {32, 100, 2048}) {
      PercpuCounter counter(cpus);
      counter.set_batch(batch);
      int64_t exact = 0;
      for (int i = 0; i < 20000; ++i) {
        int64_t amount = static_cast<int64_t>(random() % 200) - 90;
        counter.Add(static_cast<uint32_t>(random() % cpus), amount);
        exact += amount;
        ASSERT_LT(std::abs(counter.Read() - exact), batch * cpus);
      }
      EXPECT_EQ(counter.Sum(), exact);
    }
  }
}

TEST(PercpuCounterTest, ASlotSpillsAtTheBatchItself) {
  PercpuCounter counter(2);
  counter.set_batch(100);
  counter.Add(1, 99);
  EXPECT_EQ(counter.Read(), 0);
  counter.Add(1, 1);
  EXPECT_EQ(counter.Read(), 100);
  counter.Add(0, -100);
  EXPECT_EQ(counter.Read(), 0);
}

TEST(PercpuCounterTest, SyncMakesTheFastReadExact) {
  PercpuCounter counter(3);
  counter.set_batch(1000);
  for (uint32_t cpu = 0; cpu < 3; ++cpu) counter.Add(cpu, 10 + cpu);
  EXPECT_EQ(counter.Read(), 0);
  counter.Sync();
  EXPECT_EQ(counter.Read(), 33);
  EXPECT_EQ(counter.Sum(), 33);
}

}  // namespace
}  // namespace memcgd::core
