// Limits of a node: what a batch that could pass one is told, and what it leaves.
#include "core/growth.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/core/node_driver.h"

namespace memcgd::core {
namespace {

class LimitsTest : public testing::Test {
 protected:
  explicit LimitsTest() : node_(*Node::Create(SmallNode(2))), stream_(node_->OpenStream("s")) {}

  static Event Touch(uint32_t tid, PageNumber page) {
    return {Event::Head(EventKind::kFault, 0, tid, 0),
            Event::AddressBody(page << 12, kFaultWrite | kFaultUser)};
  }
  absl::Status Apply(const std::vector<Event>& events, const std::vector<WideEvent>& wide = {}) {
    result_ = {};
    return node_->Apply(stream_, {.base_time_ns = 1, .events = events, .wide = wide}, &result_);
  }
  absl::Status Apply(WideBody body, uint32_t tid = 7) {
    return Apply({}, {{.position = 0, .cpu = 0, .tid = tid, .time_ns = 1, .body = std::move(body)}});
  }
  absl::Status TouchPages(uint32_t tid, PageNumber first, uint32_t count) {
    std::vector<Event> events;
    for (uint32_t i = 0; i < count; ++i) events.push_back(Touch(tid, first + i));
    return Apply(events);
  }
  uint64_t outcomes(Outcome outcome) const { return result_.outcomes[static_cast<size_t>(outcome)]; }

  std::unique_ptr<Node> node_;
  EventStream* stream_;
  BatchResult result_;
};

TEST_F(LimitsTest, PagesStayBelowTheirLimitAndCanBeFreed) {
  node_->SetLimits({.pages = 5000});
  absl::Status status;
  PageNumber next = 0x1000;
  for (; status.ok() && next < 0x10000; next += 100) status = TouchPages(7, next, 100);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(node_->Sizes().pages, 5000u);
  EXPECT_GT(node_->Sizes().pages, 4000u);
  const uint64_t hash = node_->StateHash();
  EXPECT_TRUE(absl::IsResourceExhausted(TouchPages(7, next, 1000)));
  EXPECT_EQ(node_->StateHash(), hash) << "a refused batch left something behind";
  EXPECT_TRUE(Apply(wide::Munmap{0x1000 << 12, uint64_t{0x10000} << 12}).ok());
  EXPECT_TRUE(TouchPages(7, 0x1000, 100).ok());
  EXPECT_EQ(node_->CheckInvariants(), "");
}

TEST_F(LimitsTest, WhatOneEventPopulatesStopsAtTheLimit) {
  node_->SetLimits({.pages = 5000});
  node_->SetOvercommit({OvercommitPolicy::kAlways, 0, 0});
  wide::Mmap map{};
  map.address = uint64_t{1} << 30;
  map.length = uint64_t{1} << 40;
  map.prot = kProtRead | kProtWrite;
  map.flags = kMapPrivate | kMapAnonymous | kMapPopulate;
  EXPECT_TRUE(Apply(map).ok());
  EXPECT_EQ(outcomes(Outcome::kEnomem), 1u);
  EXPECT_LE(node_->Sizes().pages, 5000u + 1024);
  EXPECT_EQ(node_->CheckInvariants(), "");
}

TEST_F(LimitsTest, ARunOfAFilesPagesStopsAtTheLimit) {
  for (const uint32_t order : {0u, 4u}) {
    node_ = *Node::Create(SmallNode(2));
    stream_ = node_->OpenStream("s");
    node_->SetLimits({.pages = 5000});
    ASSERT_TRUE(Apply(wide::DefineFile{1, 8, 1, false}).ok());
    EXPECT_TRUE(Apply(wide::FileRange{EventKind::kFileAdd, 1, 0, 1u << 20, order}).ok());
    EXPECT_EQ(outcomes(Outcome::kEnomem), 1u);
    EXPECT_EQ(result_.notables.size(), 1u);
    EXPECT_GT(node_->Sizes().pages, 4000u);
    EXPECT_LE(node_->Sizes().pages, 5000u + 1024);
    EXPECT_EQ(node_->CheckInvariants(), "");
  }
}

TEST_F(LimitsTest, ProcessesFilesAndCgroups) {
  node_->SetLimits({.files = 20, .processes = 50, .cgroups = 10, .cgroup_depth = 3});
  absl::Status status;
  for (uint32_t tid = 100; status.ok() && tid < 1000; ++tid) status = Apply({Touch(tid, 1)});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(node_->Sizes().processes, 50u);
  EXPECT_TRUE(Apply({Touch(100, 2)}).ok()) << "one that is there is no new one";

  status = absl::OkStatus();
  for (uint32_t file = 1; status.ok() && file < 100; ++file)
    status = Apply(wide::DefineFile{file, 8, file, false}, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(node_->Sizes().files, 20u);

  EXPECT_TRUE(absl::IsResourceExhausted([&] {
    absl::Status made;
    for (int i = 0; made.ok() && i < 100; ++i) made = node_->CreateCgroup("/g" + std::to_string(i));
    return made;
  }()));
  EXPECT_EQ(node_->Sizes().cgroups, 10u);
  ASSERT_TRUE(Apply(wide::DefinePath{1, "/more"}, 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Apply(wide::CgroupCreate{1}, 0)));
  ASSERT_TRUE(node_->RemoveCgroup("/g0").ok());
  EXPECT_TRUE(Apply(wide::CgroupCreate{1}, 0).ok());
}

TEST_F(LimitsTest, DepthIsCountedFromTheRoot) {
  node_->SetLimits({.cgroup_depth = 2});
  ASSERT_TRUE(node_->CreateCgroup("/a").ok());
  ASSERT_TRUE(node_->CreateCgroup("/a/b").ok());
  EXPECT_EQ(node_->CreateCgroup("/a/b/c").message(),
            "cgroup \"/a/b/c\" would be 3 levels deep; 2 are allowed");
}

TEST_F(LimitsTest, AreasAreAsTheKernelRefusesThem) {
  node_->SetLimits({.areas = 10});
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    wide::Mmap map{};
    map.address = (i + 1) << 20;
    map.length = 4096;
    map.prot = kProtRead;
    map.flags = kMapPrivate | kMapAnonymous;
    ASSERT_TRUE(Apply(map).ok());
    refused += outcomes(Outcome::kEnomem);
  }
  EXPECT_EQ(refused, 10u);
}

TEST_F(LimitsTest, ShortOfMemoryOnlyWhatFreesIsApplied) {
  std::atomic<bool> is_short{false};
  node_->SetLimits({.memory_is_short = &is_short});
  ASSERT_TRUE(TouchPages(7, 0x1000, 100).ok());
  is_short = true;
  EXPECT_EQ(TouchPages(7, 0x2000, 1).message(), "the server's memory is used up: only what frees is applied");
  EXPECT_TRUE(Apply(wide::Munmap{0x1000 << 12, 50 << 12}).ok());
  EXPECT_TRUE(Apply(wide::ExitMmap{}).ok());
  EXPECT_EQ(node_->Info().resident_pages, 0u);
  is_short = false;
  EXPECT_TRUE(TouchPages(8, 0x1000, 100).ok());
}

TEST_F(LimitsTest, MarksInOneBatchAskForSoManyCgroupsOnly) {
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(node_->CreateCgroup("/g" + std::to_string(i)).ok());
  std::vector<WideEvent> wide(1024, {.body = wide::Mark{1}});
  EXPECT_TRUE(absl::IsResourceExhausted(Apply({}, wide)));
  wide.resize(100);
  EXPECT_TRUE(Apply({}, wide).ok());
}

}  // namespace
}  // namespace memcgd::core
