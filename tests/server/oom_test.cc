#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "memcgd/v1/oom.grpc.pb.h"
#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

// Makes /job with a limit of 16 pages and thread 10 in it, which touches 100 pages: it cannot but be killed.
v1::Batch KillingBatch(uint64_t sequence) {
  v1::Batch batch;
  batch.set_sequence(sequence);
  if (sequence == 1) {
    batch.add_side()->mutable_define_path()->set_handle(1);
    batch.mutable_side(0)->mutable_define_path()->set_path("/job");
    batch.add_side()->mutable_cgroup_create()->set_path(1);
    v1::SetKnob* knob = batch.add_side()->mutable_set_knob();
    knob->set_path(1);
    knob->set_knob("memory.max");
    knob->set_value("64K");
  }
  const auto tid = static_cast<uint32_t>(10 * sequence);
  v1::SideEvent* clone = batch.add_side();
  clone->set_tid(1);
  clone->mutable_clone()->set_child_tid(tid);
  v1::CgroupAttach* attach = batch.add_side()->mutable_cgroup_attach();
  attach->set_path(1);
  attach->set_moved_tid(tid);
  for (uint64_t i = 0; i < 100; ++i) {
    const core::Event fault = Fault(tid, (1000 + i) << 12);
    batch.add_words(fault.head);
    batch.add_words(fault.body);
  }
  return batch;
}

class OomTest : public ServerFixture {
 protected:
  void SetUp() override {
    ooms_ = v1::OomService::NewStub(channel_);
    v1::NodeSpec spec;
    spec.set_reclaim(v1::RECLAIM_MODE_MODELLED);
    ASSERT_TRUE(CreateNode("n", nullptr, spec).ok());
  }
  grpc::Status List(const std::string& node, uint64_t after, v1::ListOomRecordsResponse* response) {
    v1::ListOomRecordsRequest request;
    request.set_node(node);
    request.set_after_sequence(after);
    return ooms_->ListOomRecords(ContextFor(node).get(), request, response);
  }

  std::unique_ptr<v1::OomService::Stub> ooms_;
};

TEST_F(OomTest, AKillIsInTheAckAndExplained) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  const auto ack = feed.Apply(KillingBatch(1));
  ASSERT_TRUE(ack.has_value());
  ASSERT_EQ(ack->ooms_size(), 1);
  v1::ListOomRecordsResponse listed;
  ASSERT_TRUE(List("n", 0, &listed).ok());
  ASSERT_EQ(listed.records_size(), 1);
  const v1::OomRecord& record = listed.records(0);
  EXPECT_EQ(record.sequence(), ack->ooms(0));
  EXPECT_EQ(record.breached(), "/job");
  EXPECT_EQ(record.charged(), "/job");
  EXPECT_EQ(record.tid(), 10u);
  ASSERT_EQ(record.levels_size(), 2);
  EXPECT_EQ(record.levels(0).path(), "/job");
  EXPECT_EQ(record.levels(0).max_bytes(), 64u << 10);
  EXPECT_EQ(record.levels(1).path(), "/");  // its limit is the node's memory
  EXPECT_TRUE(record.levels(1).has_max_bytes());
  ASSERT_GE(record.victims_size(), 1);
  EXPECT_EQ(record.victims(0).tgid(), 10u);
  EXPECT_TRUE(record.victims(0).killed());
  ASSERT_TRUE(List("n", record.sequence(), &listed).ok());
  EXPECT_EQ(listed.records_size(), 0);
  EXPECT_TRUE(feed.End().ok());
}

TEST_F(OomTest, AWatchSeesWhatWasAndWhatComes) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  ASSERT_TRUE(feed.Apply(KillingBatch(1)).has_value());
  const auto context = ContextFor("n");
  v1::WatchOomRecordsRequest request;
  request.set_node("n");
  const auto watch = ooms_->WatchOomRecords(context.get(), request);
  v1::WatchOomRecordsResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.record().victims(0).tgid(), 10u);
  ASSERT_TRUE(feed.Apply(KillingBatch(2)).has_value());
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.record().victims(0).tgid(), 20u);
  ASSERT_TRUE(feed.Apply(KillingBatch(3)).has_value());
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.record().sequence(), 3u);
  EXPECT_TRUE(feed.End().ok());
  ASSERT_TRUE(DeleteNode("n").ok());
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(OomTest, AWatchThatIsCancelledEnds) {
  const auto context = ContextFor("n");
  v1::WatchOomRecordsRequest request;
  request.set_node("n");
  const auto watch = ooms_->WatchOomRecords(context.get(), request);
  context->TryCancel();
  v1::WatchOomRecordsResponse response;
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(OomTest, AnUnknownNodeIsNotFound) {
  v1::ListOomRecordsResponse listed;
  EXPECT_EQ(List("nobody", 0, &listed).error_code(), grpc::StatusCode::NOT_FOUND);
  const auto context = ContextFor("nobody");
  v1::WatchOomRecordsRequest request;
  request.set_node("nobody");
  EXPECT_EQ(ooms_->WatchOomRecords(context.get(), request)->Finish().error_code(),
            grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace memcgd::server
