#include "core/folio.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace memcgd::core {
namespace {

constexpr MemcgId kOwner{3};

TEST(FolioTest, ANewFolioHasOneReferenceAndNothingElse) {
  FolioArena arena;
  FolioCache cache;
  Folio& folio = arena.Get(arena.Allocate(cache, kOwner, 0));
  EXPECT_EQ(Folio::RefsOf(folio.state), 1u);
  EXPECT_EQ(folio.mapcount(), 0u);
  EXPECT_FALSE(folio.dead());
  EXPECT_FALSE(folio.lru());
  EXPECT_EQ(folio.memcg(), kOwner);
  EXPECT_EQ(folio.pages(), 1u);
}

TEST(FolioTest, TailsKnowTheirHead) {
  FolioArena arena;
  FolioCache cache;
  for (uint32_t order = 1; order <= FolioArena::kMaxOrder; ++order) {
    FolioId head = arena.Allocate(cache, kOwner, order);
    EXPECT_EQ(arena.Get(head).order(), order);
    EXPECT_EQ(arena.HeadOf(head), head);
    for (uint32_t i = 1; i < 1u << order; ++i) {
      ASSERT_TRUE(arena.Get(FolioId{Raw(head) + i}).Has(kFolioTail));
      ASSERT_EQ(arena.HeadOf(FolioId{Raw(head) + i}), head);
    }
  }
}

TEST(FolioTest, LiveFoliosDoNotOverlap) {
  FolioArena arena;
  FolioCache cache;
  std::set<uint32_t> pages;
  for (int i = 0; i < 500; ++i) {
    uint32_t order = static_cast<uint32_t>(i * 7) % 5;
    uint32_t first = Raw(arena.Allocate(cache, kOwner, order));
    EXPECT_GT(first, Raw(FolioId::kZeroPage));
    for (uint32_t page = first; page < first + (1u << order); ++page) ASSERT_TRUE(pages.insert(page).second);
  }
}

TEST(FolioTest, DescriptorsAreUsedAgain) {
  FolioArena arena;
  FolioCache cache;
  for (uint32_t order : {0u, 3u, 10u}) {
    std::vector<FolioId> folios;
    for (int i = 0; i < 300; ++i) folios.push_back(arena.Allocate(cache, kOwner, order));
    for (FolioId folio : folios) arena.Free(cache, folio);
    uint32_t end = arena.end();
    for (int i = 0; i < 300; ++i) arena.Allocate(cache, kOwner, order);
    EXPECT_EQ(arena.end(), end) << "order " << order;
  }
}

TEST(FolioTest, WhatOneCpuFreesServesAnother) {
  FolioArena arena;
  FolioCache one, other;
  std::vector<FolioId> folios;
  for (int i = 0; i < 10000; ++i) folios.push_back(arena.Allocate(one, kOwner, 0));
  for (FolioId folio : folios) arena.Free(one, folio);
  uint32_t end = arena.end();
  for (int i = 0; i < 9000; ++i) arena.Allocate(other, kOwner, 0);
  EXPECT_LE(arena.end(), end + 2048);
}

TEST(FolioTest, AReusedDescriptorIsAsNew) {
  FolioArena arena;
  FolioCache cache;
  for (uint32_t order : {0u, 2u}) {
    FolioId id = arena.Allocate(cache, kOwner, order);
    arena.Get(id).Set(kFolioActive | kFolioDirty);
    arena.Get(id).state = Folio::StateOf(MemcgId{7}, Folio::kDead);
    arena.Free(cache, id);
    EXPECT_EQ(arena.Get(id).memcg(), MemcgId::kNone);
    ASSERT_EQ(arena.Allocate(cache, kOwner, order), id);
    EXPECT_FALSE(arena.Get(id).Has(kFolioActive | kFolioDirty));
    EXPECT_EQ(arena.Get(id).memcg(), kOwner);
    EXPECT_FALSE(arena.Get(id).dead());
    EXPECT_EQ(arena.Get(id).order(), order);
  }
}

TEST(FolioTest, OneOfManyIsolatesAFolio) {
  FolioArena arena;
  FolioCache cache;
  Folio& folio = arena.Get(arena.Allocate(cache, kOwner, 0));
  folio.SetLru();
  std::atomic<int> winners{0};
  std::vector<std::thread> crew;
  for (int i = 0; i < 4; ++i)
    crew.emplace_back([&] { winners += folio.TestAndClearLru() != MemcgId::kNone; });
  for (std::thread& thread : crew) thread.join();
  EXPECT_EQ(winners, 1);
}

// One word holds the cgroup, the bits and both counts: none runs into another.
TEST(FolioTest, CountsBitsAndCgroupKeepApart) {
  uint64_t state = Folio::StateOf(MemcgId{0x123456}, Folio::kMaxMappings);
  state |= Folio::kLru;
  EXPECT_EQ(Folio::MapcountOf(state), Folio::kMaxMappings);
  EXPECT_EQ(Folio::RefsOf(state), 0u);
  state += 3 * Folio::kOneRef;
  EXPECT_EQ(Folio::RefsOf(state), 3u);
  EXPECT_EQ(Folio::MapcountOf(state), Folio::kMaxMappings);
  EXPECT_EQ(Folio::MemcgOf(state), MemcgId{0x123456});
  EXPECT_EQ(Folio::MemcgOf(state | Folio::kMemcg), MemcgId::kNone);
  EXPECT_TRUE((state & Folio::kLru) != 0 && (state & Folio::kDead) == 0);
}

}  // namespace
}  // namespace memcgd::core
