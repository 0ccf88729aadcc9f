#include "core/memcg_tree.h"

#include <gtest/gtest.h>

namespace memcgd::core {
namespace {

// /
// └─ a
//    ├─ b
//    └─ c
struct Tree : MemcgTree {
  Tree() : MemcgTree(LruLock::kPerMemcg) {}
  Memcg& a = Create("/a", root());
  Memcg& b = Create("/a/b", a);
  Memcg& c = Create("/a/c", a);
};

TEST(MemcgTreeTest, ParentPathIsAllButTheLastPart) {
  EXPECT_EQ(ParentPath("/a"), "/");
  EXPECT_EQ(ParentPath("/a/b"), "/a");
}

TEST(MemcgTreeTest, OnlineGroupsAreFoundByPathAndListedInOrder) {
  Tree t;
  EXPECT_EQ(t.Find("/a/b"), &t.b);
  EXPECT_EQ(t.Find("/a/d"), nullptr);
  EXPECT_EQ(t.a.children, 2u);
  std::string paths;
  for (const auto& [path, memcg] : t.online()) paths += path + " ";
  EXPECT_EQ(paths, "/ /a /a/b /a/c ");
}

TEST(MemcgTreeTest, ADyingGroupGivesItsNameFreeAndKeepsItsId) {
  Tree t;
  MemcgId id = t.b.id;
  t.TakeOffline(t.b);
  EXPECT_EQ(t.Find("/a/b"), nullptr);
  EXPECT_EQ(t.a.children, 1u);
  EXPECT_EQ(t.a.dying_children, 1u);
  EXPECT_EQ(t.dying().size(), 1u);
  Memcg& again = t.Create("/a/b", t.a);
  EXPECT_NE(again.id, id);
  EXPECT_FALSE(t.Get(id).online);
}

TEST(MemcgTreeTest, AFreedGroupIsGone) {
  Tree t;
  MemcgId id = t.b.id;
  t.TakeOffline(t.b);
  t.Free(id);
  EXPECT_EQ(t.all()[Raw(id)], nullptr);
  EXPECT_EQ(t.a.dying_children, 0u);
  EXPECT_EQ(t.dying().size(), 0u);
}

TEST(MemcgTreeTest, ChargesGoUpThroughCounters) {
  Tree t;
  t.b.memory.Charge(5);
  t.c.memory.Charge(7);
  EXPECT_EQ(t.a.memory.usage_pages(), 12);
  EXPECT_EQ(t.root().memory.usage_pages(), 12);
}

TEST(MemcgTreeTest, AnEventCountsHereAndAtEveryAncestor) {
  Tree t;
  t.b.CountEvent(MemcgEvent::kMax);
  size_t max = static_cast<size_t>(MemcgEvent::kMax);
  EXPECT_EQ(t.b.events_local[max], 1);
  EXPECT_EQ(t.a.events_local[max], 0);
  EXPECT_EQ(t.a.events[max], 1);
  EXPECT_EQ(t.root().events[max], 1);
  EXPECT_EQ(t.c.events[max], 0);
}

TEST(MemcgTreeDeathTest, AGroupWithReferencesOrChildrenIsNotFreed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Tree t;
  EXPECT_DEATH(t.TakeOffline(t.a), "broken invariant");
  t.b.refs = 1;
  t.TakeOffline(t.b);
  EXPECT_DEATH(t.Free(t.b.id), "broken invariant");
}

}  // namespace
}  // namespace memcgd::core
