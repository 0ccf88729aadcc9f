#include "core/snapshot.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

// Something of everything: dying groups, tombstones, shadows, stock, batches, hints, arguments of an exec
// under way.
void Fill(NodeDriver& d) {
  for (const char* path : {"/a/b", "/c", "/dies"}) d.Group(path);
  d.SetKnob(d.Path("/a"), "memory.max", "1G");
  d.SetKnob(d.Path("/a"), "memory.oom.group", "1");
  d.Process(10, "/a/b");
  d.Process(11, "/dies");
  uint32_t file = d.File(1), tmpfs = d.File(2, true);
  d.Wide(0, wide::DefineName{1, "with \xff bytes"});
  d.OnCpu(0).Touch(10, 0x1000, 77);
  d.OnCpu(1).Touch(11, 0x2000, 13);
  d.Fork(10, 12);
  d.CloneThread(10, 13);
  d.Vfork(10, 14);
  d.Wide(12, wide::ExecArguments{3});
  for (uint32_t i = 0; i < 40; ++i) d.FileAdd(11, file, 4 * i, i % 3);
  d.Mmap(10, 0x8000, 64, kProtRead, kMapShared, file);
  d.MapPages(10, file, 0, 64);
  d.Read(10, 0x8003);
  d.FileDelete(0, file, 8, 2);
  d.ReclaimBegin(10);
  d.FileDelete(10, file, 16, 1);
  d.Mmap(10, 0x9000, 9, kProtRead | kProtWrite, kMapShared | kMapAnonymous | kMapPopulate);
  d.Mmap(10, 0x9100, 9, kProtRead | kProtWrite, kMapShared, tmpfs);
  d.Write(10, 0x9101);
  d.Mlock(10, 0x1000, 10);
  d.FileRead(13, file, 0, 9);
  d.FileFault(13, file, 30);
  d.Wide(11, wide::Comm{1});
  d.Exit(11);
  d.Remove("/dies");
  d.Wide(0, wide::SetOvercommit{OvercommitPolicy::kAlways, 0, 12345});
  d.Flush();
}

// What goes on after it.
EventLog More() {
  EventLog log;
  log.OnCpu(1).Read(13, 0x8010);
  log.Exec(12, 1);
  for (uint32_t i = 0; i < 100; ++i) log.Write(10, 0x1000 + i);
  log.FileAdd(13, 1, 16, 1);
  log.FileRead(13, 1, 0, 9);
  log.OnCpu(0).Exit(10);
  log.CgroupRemove(1);
  log.Mark(9);
  return log;
}

TEST(SnapshotTest, SaveLoadSaveGivesTheSameBytes) {
  for (uint32_t page_size : {4096u, 65536u}) {
    NodeConfig config = SmallNode(2);
    config.page_size = page_size;
    NodeDriver d(config);
    Fill(d);
    std::string saved = d.node().Save();
    absl::StatusOr<std::unique_ptr<Node>> loaded = Node::Load(saved);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE((*loaded)->Save() == saved);
    EXPECT_EQ((*loaded)->StateHash(), d.node().StateHash());
    EXPECT_EQ((*loaded)->CheckInvariants(), "");
  }
}

TEST(SnapshotTest, AnEmptyNodeCanBeSaved) {
  NodeDriver d;
  ASSERT_TRUE(Node::Load(d.node().Save()).ok());
}

TEST(SnapshotTest, ALoadedNodeGoesOnAsTheSavedOneWould) {
  NodeDriver d(SmallNode(2));
  Fill(d);
  std::unique_ptr<Node> loaded = *Node::Load(d.node().Save());
  EventLog more = More();
  BatchResult here, there;
  ASSERT_TRUE(ApplySteps(d.node(), d.stream(), more.steps(), 0, more.steps().size(), 8192, &here).ok());
  ASSERT_TRUE(
      ApplySteps(*loaded, loaded->OpenStream("test"), more.steps(), 0, more.steps().size(), 8192, &there)
          .ok());
  EXPECT_EQ(here.outcomes, there.outcomes);
  ASSERT_EQ(there.marks.size(), 1u);
  ASSERT_EQ(here.marks[0].cgroups.size(), there.marks[0].cgroups.size());
  for (size_t i = 0; i < here.marks[0].cgroups.size(); ++i) {
    EXPECT_EQ(here.marks[0].cgroups[i].stat, there.marks[0].cgroups[i].stat) << here.marks[0].cgroups[i].path;
  }
  EXPECT_TRUE(d.node().Save() == loaded->Save());
  EXPECT_EQ(loaded->CheckInvariants(), "");
}

// Random events of processes 10, 12 and 13 on memory and on file 1, which Fill() left.
EventLog RandomEvents(uint32_t seed) {
  EventLog log;
  std::minstd_rand random(seed);
  for (int i = 0; i < 3000; ++i) {
    const uint32_t tid = std::array{10u, 12u, 13u}[random() % 3], place = random() % 600;
    log.OnCpu(random() % 2);
    switch (random() % 9) {
      case 0:
        log.FileAdd(tid, 1, place);
        break;
      case 1:
        log.FileDelete(random() % 2 * tid, 1, place);
        break;
      case 2:
        log.FileRead(tid, 1, place, 1 + random() % 8);
        break;
      case 3:
        log.Munmap(tid, 0x1000 + place, 1 + random() % 16);
        break;
      case 4:
        log.FileDirty(tid, 1, place);
        break;
      case 5:
        log.Fork(tid, 100 + static_cast<uint32_t>(i));
        if (random() % 2 == 0) log.Exit(100 + static_cast<uint32_t>(i));
        break;
      default:
        log.Write(tid, 0x1000 + place);
    }
  }
  return log;
}

void Apply(Node& node, const EventLog& log) {
  BatchResult result;
  const absl::Status status =
      ApplySteps(node, node.OpenStream("test"), log.steps(), 0, log.steps().size(), 500, &result);
  ASSERT_TRUE(status.ok()) << status;
}

class ForkTest : public testing::TestWithParam<Mechanisms> {};

TEST_P(ForkTest, AForkHasTheStateAndBothGoOnAlike) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    NodeConfig config = SmallNode(2);
    config.mechanisms = GetParam();
    NodeDriver d(config);
    Fill(d);
    Apply(d.node(), RandomEvents(seed));
    std::unique_ptr<Node> fork = d.node().Fork();
    EXPECT_EQ(fork->StateHash(), d.node().StateHash());
    EXPECT_EQ(fork->CheckInvariants(), "");
    Apply(d.node(), RandomEvents(seed + 100));
    Apply(*fork, RandomEvents(seed + 100));
    EXPECT_EQ(fork->StateHash(), d.node().StateHash());
    Apply(d.node(), More());
    Apply(*fork, More());
    EXPECT_EQ(fork->StateHash(), d.node().StateHash());
    EXPECT_EQ(fork->CheckInvariants(), "");
  }
}

TEST_P(ForkTest, WhatOneDoesTheOtherDoesNotSee) {
  NodeConfig config = SmallNode(2);
  config.mechanisms = GetParam();
  NodeDriver d(config);
  Fill(d);
  std::unique_ptr<Node> fork = d.node().Fork();
  const uint64_t before = d.node().StateHash();
  Apply(*fork, RandomEvents(1));
  ASSERT_TRUE(fork->SetKnobs("/a", {{"memory.max", "64M"}}).ok());
  EXPECT_NE(fork->StateHash(), before);
  EXPECT_EQ(d.node().StateHash(), before);
  std::unique_ptr<Node> second = fork->Fork();
  const uint64_t after = fork->StateHash();
  Apply(d.node(), RandomEvents(2));
  fork.reset();  // a fork outlives what it came from
  EXPECT_EQ(second->StateHash(), after);
  EXPECT_EQ(second->CheckInvariants(), "");
}

INSTANTIATE_TEST_SUITE_P(Forms, ForkTest,
                         testing::Values(Mechanisms{}, Mechanisms{.stats = StatsForm::kRstat},
                                         Mechanisms{.css_refs = CssRefs::kPerPage,
                                                    .stats = StatsForm::kWalk,
                                                    .lru_lock = LruLock::kPerNode}));

TEST(ForkedNodeTest, ItsReclaimMayBeAnother) {
  NodeDriver d(SmallNode(2));
  Fill(d);
  EXPECT_EQ(d.node().Fork(Reclaim::kNone)->Info().config.reclaim, Reclaim::kNone);
  EXPECT_EQ(d.node().Fork()->Info().config.reclaim, Reclaim::kRecorded);
}

TEST(SnapshotTest, KnobsGroupsAndHandlesSurvive) {
  NodeDriver d(SmallNode(2));
  Fill(d);
  std::unique_ptr<Node> loaded = *Node::Load(d.node().Save());
  absl::StatusOr<CgroupInfo> info = loaded->GetCgroup("/a");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->knobs.at("memory.max"), "1073741824");
  EXPECT_EQ(loaded->Info().dying_cgroups, d.node().Info().dying_cgroups);
  EXPECT_EQ(loaded->Info().config.overcommit_kbytes, 12345u);
}

TEST(SnapshotTest, EveryTruncationIsRefused) {
  NodeDriver d(SmallNode(2));
  Fill(d);
  std::string saved = d.node().Save();
  for (size_t size = 0; size < saved.size(); size += 1 + saved.size() / 400) {
    EXPECT_FALSE(Node::Load(std::string_view(saved).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(Node::Load(saved + "x").ok());
}

TEST(SnapshotTest, EveryDamagedByteIsRefused) {
  NodeDriver d(SmallNode(2));
  Fill(d);
  std::string saved = d.node().Save();
  for (size_t at = 0; at < saved.size(); at += 1 + saved.size() / 400) {
    std::string damaged = saved;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    EXPECT_FALSE(Node::Load(damaged).ok()) << at;
  }
}

// Damage that the checksum was made to fit.
TEST(SnapshotTest, WhatAForgerChangesIsRefusedOrAStateThatHolds) {
  NodeDriver d(SmallNode(2));
  Fill(d);
  const std::string saved = d.node().Save();
  constexpr size_t kHead = 13;  // magic and version
  std::mt19937_64 random(7);
  size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string forged = saved;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = kHead + random() % (forged.size() - kHead - 8);
      forged[at] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    }
    const uint64_t checksum = HashBytes(std::string_view(forged).substr(kHead, forged.size() - kHead - 8));
    std::memcpy(forged.data() + forged.size() - 8, &checksum, 8);
    absl::StatusOr<std::unique_ptr<Node>> node = Node::Load(forged);
    refused += node.ok() ? 0 : 1;
    EXPECT_TRUE(!node.ok() || (*node)->CheckInvariants().empty()) << i;
  }
  EXPECT_GT(refused, 1500u);
}

TEST(SnapshotTest, WhatIsNoSnapshotIsInvalidAndACutOneIsLost) {
  EXPECT_EQ(Node::Load("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Node::Load("a text that is no snapshot at all").status().code(),
            absl::StatusCode::kInvalidArgument);
  NodeDriver d;
  std::string saved = d.node().Save();
  EXPECT_EQ(Node::Load(saved.substr(0, saved.size() - 1)).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SnapshotTest, HashesTellStatesApart) {
  NodeDriver one(SmallNode(2)), other(SmallNode(2));
  Fill(one);
  Fill(other);
  EXPECT_EQ(one.node().StateHash(), other.node().StateHash());
  other.Write(10, 0x1000 + 100);
  other.Flush();
  EXPECT_NE(one.node().StateHash(), other.node().StateHash());
}

}  // namespace
}  // namespace memcgd::core
