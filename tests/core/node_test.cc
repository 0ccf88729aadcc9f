// The unary calls of a node, and that their errors name what they are about.
#include "core/node.h"

#include <gtest/gtest.h>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

bool Is(const absl::Status& status, absl::StatusCode code, const std::string& names) {
  return status.code() == code && std::string(status.message()).find(names) != std::string::npos;
}

TEST(NodeTest, AConfigOutOfRangeIsRefusedByName) {
  auto refused = [](auto change, const char* field) {
    NodeConfig config;
    change(config);
    return Is(Node::Create(config).status(), absl::StatusCode::kInvalidArgument, field);
  };
  EXPECT_TRUE(refused([](NodeConfig& c) { c.cpus = 0; }, "cpus 0"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.cpus = 1025; }, "cpus 1025"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.page_size = 2048; }, "page_size 2048"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.page_size = 5000; }, "page_size 5000"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.page_size = 131072; }, "page_size 131072"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.memory_bytes = 0; }, "memory_bytes 0"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.memory_bytes = ~uint64_t{0}; }, "memory_bytes"));
  EXPECT_TRUE(refused([](NodeConfig& c) { c.swap_bytes = ~uint64_t{0}; }, "swap_bytes"));
  NodeConfig largest;
  largest.cpus = 1024;
  EXPECT_TRUE(Node::Create(largest).ok());
}

TEST(NodeTest, ErrorsOfCgroupCallsNameThePath) {
  NodeDriver d;
  Node& node = d.node();
  EXPECT_TRUE(Is(node.CreateCgroup("/a/b"), absl::StatusCode::kNotFound, "/a/b"));
  ASSERT_TRUE(node.CreateCgroup("/a").ok());
  ASSERT_TRUE(node.CreateCgroup("/a/b").ok());
  EXPECT_TRUE(Is(node.CreateCgroup("/a"), absl::StatusCode::kAlreadyExists, "/a"));
  EXPECT_TRUE(Is(node.CreateCgroup("/"), absl::StatusCode::kAlreadyExists, "/"));
  EXPECT_TRUE(Is(node.CreateCgroup("/a/../b"), absl::StatusCode::kInvalidArgument, "/a/../b"));
  EXPECT_TRUE(Is(node.RemoveCgroup("/a"), absl::StatusCode::kFailedPrecondition, "/a"));
  EXPECT_TRUE(Is(node.RemoveCgroup("/x"), absl::StatusCode::kNotFound, "/x"));
  EXPECT_TRUE(Is(node.RemoveCgroup("/"), absl::StatusCode::kFailedPrecondition, "root"));
  EXPECT_TRUE(Is(node.GetCgroup("/x").status(), absl::StatusCode::kNotFound, "/x"));
  EXPECT_TRUE(Is(node.ReadCgroup("/x", false, false).status(), absl::StatusCode::kNotFound, "/x"));
  EXPECT_TRUE(Is(node.ListCgroups("/x", "", 5).status(), absl::StatusCode::kNotFound, "/x"));
  EXPECT_TRUE(Is(node.SetKnobs("/x", {}), absl::StatusCode::kNotFound, "/x"));
  EXPECT_TRUE(
      Is(node.SetKnobs("/", {{"memory.max", "1"}}), absl::StatusCode::kFailedPrecondition, "memory.max"));
  EXPECT_TRUE(Is(node.GetCgroup("x").status(), absl::StatusCode::kInvalidArgument, "x"));
}

TEST(NodeTest, AGroupWithProcessesIsNotRemovedByACallButByAnEvent) {
  NodeDriver d;
  d.Group("/a");
  d.Process(10, "/a");
  d.Flush();
  EXPECT_TRUE(Is(d.node().RemoveCgroup("/a"), absl::StatusCode::kFailedPrecondition, "/a"));
  d.Remove("/a");
  d.Flush();
  EXPECT_EQ(d.node().Info().dying_cgroups, 1u);
  d.Write(10, 0x1000);  // its process goes on, charged to it
  EXPECT_EQ(d.Stat("/", "anon"), 1);
  d.Exit(10);
  d.Drain();
  d.Group("/b");
  d.Remove("/b");  // drains the stocks
  d.Flush();
  EXPECT_EQ(d.node().Info().dying_cgroups, 0u);
}

TEST(NodeTest, AllKnobsOrNone) {
  NodeDriver d;
  ASSERT_TRUE(d.node().CreateCgroup("/a").ok());
  EXPECT_FALSE(d.node().SetKnobs("/a", {{"memory.high", "1G"}, {"memory.max", "none"}}).ok());
  EXPECT_EQ(d.node().GetCgroup("/a")->knobs.at("memory.high"), "max");
  EXPECT_TRUE(d.node().SetKnobs("/a", {{"memory.high", "1G"}, {"memory.max", "2G"}}).ok());
  EXPECT_EQ(d.node().GetCgroup("/a")->knobs.at("memory.high"), "1073741824");
}

TEST(NodeTest, AListGoesOnWhereTheLastOneEnded) {
  NodeDriver d;
  for (const char* path : {"/a", "/a/b", "/a-b", "/a/c", "/d"}) ASSERT_TRUE(d.node().CreateCgroup(path).ok());
  std::string seen, after;
  for (;;) {
    absl::StatusOr<std::vector<CgroupInfo>> page = d.node().ListCgroups("/", after, 2);
    ASSERT_TRUE(page.ok());
    if (page->empty()) break;
    for (const CgroupInfo& info : *page) seen += info.path + " ";
    after = page->back().path;
  }
  EXPECT_EQ(seen, "/ /a /a-b /a/b /a/c /d ");
  seen.clear();
  absl::StatusOr<std::vector<CgroupInfo>> below = d.node().ListCgroups("/a", "", 100);
  ASSERT_TRUE(below.ok());
  for (const CgroupInfo& info : *below) seen += info.path + " ";
  EXPECT_EQ(seen, "/a /a/b /a/c ");
}

TEST(NodeTest, AGroupsInfoCountsProcessesChildrenAndTheDying) {
  NodeDriver d;
  d.Group("/a/b");
  d.Group("/a/c");
  d.Process(10, "/a/b");
  d.FileAdd(10, d.File(1), 0);
  d.Attach(d.Path("/a"), 10);
  d.Remove("/a/b");
  d.Flush();
  CgroupInfo info = *d.node().GetCgroup("/a");
  EXPECT_EQ(info.processes, 1u);
  EXPECT_EQ(info.children, 1u);
  EXPECT_EQ(info.dying_descendants, 1u);
}

TEST(NodeTest, AStreamIsFoundAgainByName) {
  NodeDriver d;
  EXPECT_EQ(d.node().OpenStream("x"), d.node().OpenStream("x"));
  EXPECT_NE(d.node().OpenStream("x"), d.node().OpenStream("y"));
  EXPECT_EQ(d.node().Info().streams, 3u);
}

// Handles are each stream's own: 1 is /a here and /b there.
TEST(NodeTest, StreamsDoNotShareHandles) {
  NodeDriver d;
  d.Group("/a");
  d.Flush();
  EventLog log;
  log.DefinePath(1, "/b");
  log.CgroupCreate(1);
  BatchResult result;
  ASSERT_TRUE(
      ApplySteps(d.node(), d.node().OpenStream("other"), log.steps(), 0, log.steps().size(), 10, &result)
          .ok());
  EXPECT_TRUE(d.node().GetCgroup("/a").ok());
  EXPECT_TRUE(d.node().GetCgroup("/b").ok());
}

// ---- processes

TEST(ProcessTest, ABaselineThreadJoinsItsProcess) {
  NodeDriver d;
  d.Group("/a");
  d.Wide(10, wide::BaselineProcess{10, d.Path("/a"), 0});
  d.Wide(11, wide::BaselineProcess{10, 0, 0});
  d.Write(11, 0x1000);
  EXPECT_EQ(d.Stat("/a", "anon"), 1);
  EXPECT_EQ(d.node().Info().processes, 1u);
}

// The owner of a space is gone, its table entry used again: the newcomer's moves are not the space's.
TEST(ProcessTest, ASpaceThatOutlivesItsOwnerIsNotMovedByANewcomer) {
  NodeDriver d;
  d.Group("/a");
  d.Group("/b");
  d.Process(10, "/a");
  d.Vfork(10, 11);
  d.Exit(10);
  d.Vfork(11, 12);  // takes 10's entry
  d.Attach(d.Path("/b"), 12);
  d.Write(11, 0x1000);
  EXPECT_EQ(d.Stat("/a", "anon"), 1);
}

}  // namespace
}  // namespace memcgd::core
