#include "server/node_registry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace memcgd::server {
namespace {

// A stream whose batches are applied by writing their number down.
class ServedStreamTest : public testing::Test {
 protected:
  absl::StatusOr<ServedStream::Turn> Submit(uint64_t call, uint64_t sequence, uint64_t hash,
                                            const absl::Status& outcome = absl::OkStatus()) {
    states_.clear();
    const auto apply = [&](core::EventStream*, std::vector<StateBytes>* states) {
      if (outcome.ok()) {
        applied_.push_back(sequence);
        states->push_back(std::make_shared<const std::string>("state " + std::to_string(sequence)));
      }
      return outcome;
    };
    return stream_.Submit(call, sequence, hash, apply, &states_);
  }

  ServedStream stream_{"s", nullptr};
  std::vector<uint64_t> applied_;
  std::vector<StateBytes> states_;
  absl::Status ended_;  // what the first call ended with
  const ServedStream::EndCall end_ = [this](const absl::Status& why) { ended_ = why; };
};

TEST_F(ServedStreamTest, BatchesApplyInOrderFromOne) {
  EXPECT_EQ(*stream_.Attach(1, end_), 1u);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    EXPECT_EQ(*Submit(1, sequence, 100 + sequence), ServedStream::Turn::kApplied);
  }
  EXPECT_EQ(applied_, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(*stream_.Attach(2, end_), 4u);
}

TEST_F(ServedStreamTest, ARepeatIsAnsweredFromMemory) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  ASSERT_TRUE(Submit(1, 1, 100).ok());
  ASSERT_TRUE(Submit(1, 2, 200).ok());
  EXPECT_EQ(*Submit(1, 1, 100), ServedStream::Turn::kRepeated);
  ASSERT_EQ(states_.size(), 1u);
  EXPECT_EQ(*states_[0], "state 1");
  EXPECT_EQ(applied_.size(), 2u);
}

TEST_F(ServedStreamTest, ADifferingRepeatIsRefused) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  ASSERT_TRUE(Submit(1, 1, 100).ok());
  const auto turn = Submit(1, 1, 101);
  EXPECT_EQ(turn.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(turn.status().message(), "stream \"s\": batch 1 was applied already with other content");
  EXPECT_EQ(*Submit(1, 2, 200), ServedStream::Turn::kApplied);
}

TEST_F(ServedStreamTest, ARepeatOlderThanMemoryIsAcknowledgedUnchecked) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  for (uint64_t sequence = 1; sequence <= kRememberedBatches + 1; ++sequence) {
    ASSERT_TRUE(Submit(1, sequence, sequence).ok());
  }
  EXPECT_EQ(*Submit(1, 1, 999), ServedStream::Turn::kRepeated);
  EXPECT_TRUE(states_.empty()) << "States are kept for the window only";
  EXPECT_EQ(Submit(1, 2, 999).status().code(), absl::StatusCode::kAlreadyExists)
      << "the oldest that is known";
  EXPECT_EQ(
      *Submit(1, kRememberedBatches + 1 - kWindowBatches + 1, kRememberedBatches + 1 - kWindowBatches + 1),
      ServedStream::Turn::kRepeated);
  EXPECT_EQ(states_.size(), 1u) << "the oldest of the window";
}

TEST_F(ServedStreamTest, AGapIsRefusedWithBothNumbers) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  const auto turn = Submit(1, 3, 0);
  EXPECT_EQ(turn.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(turn.status().message(), "stream \"s\": expected batch 1, got 3");
  EXPECT_EQ(Submit(1, 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServedStreamTest, ABatchThatIsRefusedLeavesTheNumberFree) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  EXPECT_EQ(Submit(1, 1, 100, absl::InvalidArgumentError("event 0: bad")).status().message(), "event 0: bad");
  EXPECT_EQ(*Submit(1, 1, 200), ServedStream::Turn::kApplied);
}

TEST_F(ServedStreamTest, ANewCallEndsTheOlder) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  ASSERT_TRUE(Submit(1, 1, 100).ok());
  EXPECT_EQ(*stream_.Attach(2, [](const absl::Status&) {}), 2u);
  EXPECT_EQ(ended_.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ended_.message(), "stream \"s\" was opened again");
  EXPECT_EQ(Submit(1, 2, 0).status().code(), absl::StatusCode::kAborted);
  stream_.Detach(1);  // the older call's end does not touch the newer
  EXPECT_TRUE(Submit(2, 2, 0).ok());
}

TEST_F(ServedStreamTest, ADetachedCallSubmitsNothing) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  stream_.Detach(1);
  EXPECT_EQ(Submit(1, 1, 0).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(ended_.ok());
}

TEST_F(ServedStreamTest, RetiringEndsTheCallAndRefusesNewOnes) {
  ASSERT_TRUE(stream_.Attach(1, end_).ok());
  stream_.Retire(absl::NotFoundError("gone"));
  EXPECT_EQ(ended_.message(), "gone");
  EXPECT_EQ(Submit(1, 1, 0).status().message(), "gone");
  EXPECT_EQ(stream_.Attach(2, end_).status().message(), "gone");
}

class NodeRegistryTest : public testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<ServedNode>> Create(const std::string& name) {
    return registry_.Create(name, {});
  }

  NodeRegistry registry_;
};

TEST(NodeNameTest, RulesAreThoseOfTheContract) {
  for (const std::string& name : {std::string("a"), std::string("web-1.example_9"), std::string(253, 'n')}) {
    EXPECT_TRUE(CheckNodeName(name).ok()) << name;
  }
  for (const std::string& name :
       {std::string(), std::string(254, 'n'), std::string("a/b"), std::string("a b"), std::string("a\n"),
        std::string("é"), std::string("."), std::string("..")}) {
    EXPECT_EQ(CheckNodeName(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(NodeRegistryTest, ANodeIsMadeFoundListedAndDeleted) {
  ASSERT_TRUE(Create("b").ok());
  ASSERT_TRUE(Create("a").ok());
  ASSERT_TRUE(Create("c").ok());
  EXPECT_EQ((*registry_.Find("b"))->name(), "b");
  const auto page = registry_.List("a", 1);
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0]->name(), "b");
  EXPECT_EQ(registry_.List("", 10).size(), 3u);
  EXPECT_TRUE(registry_.Delete("b").ok());
  EXPECT_EQ(registry_.Find("b").status().message(), "no node \"b\"");
  EXPECT_EQ(registry_.Delete("b").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(registry_.size(), 2u);
}

TEST_F(NodeRegistryTest, ANameIsTakenOnce) {
  ASSERT_TRUE(Create("a").ok());
  const auto again = Create("a");
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again.status().message(), "node \"a\" exists");
}

TEST_F(NodeRegistryTest, EachNodeHasItsOwnIncarnation) {
  ASSERT_TRUE(Create("a").ok());
  const uint64_t first = (*registry_.Find("a"))->incarnation();
  ASSERT_TRUE(registry_.Delete("a").ok());
  ASSERT_TRUE(Create("a").ok());
  const uint64_t second = (*registry_.Find("a"))->incarnation();
  EXPECT_NE(first, 0u);
  EXPECT_NE(second, 0u);
  EXPECT_NE(first, second);
}

TEST_F(NodeRegistryTest, AStreamIsTheSameWhenItIsOpenedAgain) {
  const auto node = *Create("a");
  const auto stream = node->OpenStream("s", 0);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(*node->OpenStream("s", node->incarnation()), *stream);
  EXPECT_NE(*node->OpenStream("t", 0), *stream);
  EXPECT_EQ(node->OpenStream("s", node->incarnation() + 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(node->OpenStream("", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(node->OpenStream(std::string(128, 'i'), 0).ok());
  EXPECT_EQ(node->OpenStream(std::string(129, 'i'), 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NodeRegistryTest, DeletingANodeEndsItsStreams) {
  const auto node = *Create("a");
  ServedStream* stream = *node->OpenStream("s", 0);
  absl::Status ended;
  ASSERT_TRUE(stream->Attach(1, [&ended](const absl::Status& why) { ended = why; }).ok());
  ASSERT_TRUE(registry_.Delete("a").ok());
  EXPECT_EQ(ended.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ended.message(), "node \"a\" was deleted");
  EXPECT_EQ(node->OpenStream("t", 0).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace memcgd::server
