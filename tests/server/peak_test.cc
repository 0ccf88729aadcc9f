// CgroupService.WatchPeak and ReclaimCgroup.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/limits.h"
#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

class PeakTest : public ServerFixture {
 protected:
  // A watch of a cgroup's peaks.
  struct Watch {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::WatchPeakRequest, v1::WatchPeakResponse>> call;
  };

  void SetUp() override {
    v1::NodeSpec spec;
    spec.set_reclaim(v1::RECLAIM_MODE_MODELLED);
    spec.set_swap_bytes(64 << 20);
    ASSERT_TRUE(CreateNode("n", nullptr, spec).ok());
    feed_ = std::make_unique<Feed>(ingest_.get(), "n");
    ASSERT_TRUE(feed_->Open("s").has_value());
    v1::Batch batch;
    batch.add_side()->mutable_define_path()->set_handle(1);
    batch.mutable_side(0)->mutable_define_path()->set_path("/job");
    batch.add_side()->mutable_cgroup_create()->set_path(1);
    v1::SideEvent* clone = batch.add_side();
    clone->set_tid(1);
    clone->mutable_clone()->set_child_tid(10);
    batch.add_side()->mutable_cgroup_attach()->set_path(1);
    batch.mutable_side(3)->mutable_cgroup_attach()->set_moved_tid(10);
    Apply(std::move(batch));
  }
  void TearDown() override { EndFeed(); }

  void EndFeed() {
    if (feed_ == nullptr) return;
    EXPECT_TRUE(feed_->End().ok());
    feed_ = nullptr;
  }

  v1::Ack Apply(v1::Batch batch) {
    batch.set_sequence(++sequence_);
    return feed_->Apply(batch).value_or(v1::Ack());
  }
  // Thread 10 touches so many pages.
  v1::Ack Touch(uint64_t first, uint64_t pages) {
    v1::Batch batch;
    for (uint64_t i = first; i < first + pages; ++i) {
      const core::Event fault = Fault(10, i << 12);
      batch.add_words(fault.head);
      batch.add_words(fault.body);
    }
    return Apply(std::move(batch));
  }
  void Unmap(uint64_t first, uint64_t pages) {
    v1::Batch batch;
    v1::SideEvent* side = batch.add_side();
    side->set_tid(10);
    side->mutable_munmap()->set_address(first << 12);
    side->mutable_munmap()->set_length(pages << 12);
    Apply(std::move(batch));
  }

  Watch Begin(const std::string& metadata) {
    Watch watch{ContextFor(metadata), nullptr};
    watch.call = cgroups_->WatchPeak(watch.context.get());
    return watch;
  }
  static v1::WatchPeakRequest First(const std::string& node, const std::string& path) {
    v1::WatchPeakRequest request;
    request.set_node(node);
    request.set_path(path);
    return request;
  }
  // The answer, or how the call ended.
  static grpc::Status Ask(Watch& watch, const v1::WatchPeakRequest& request,
                          v1::WatchPeakResponse* response) {
    if (watch.call->Write(request) && watch.call->Read(response)) return grpc::Status::OK;
    return watch.call->Finish();
  }
  static grpc::Status End(Watch& watch) {
    watch.call->WritesDone();
    return watch.call->Finish();
  }

  grpc::Status Reclaim(const std::string& path, uint64_t bytes, v1::ReclaimCgroupResponse* response = nullptr,
                       std::optional<uint32_t> swappiness = std::nullopt) {
    v1::ReclaimCgroupRequest request;
    request.set_node("n");
    request.set_path(path);
    request.set_bytes(bytes);
    if (swappiness.has_value()) request.set_swappiness(*swappiness);
    v1::ReclaimCgroupResponse unused;
    return cgroups_->ReclaimCgroup(ContextFor("n").get(), request, response == nullptr ? &unused : response);
  }

  std::unique_ptr<Feed> feed_;
  uint64_t sequence_ = 0;
};

TEST_F(PeakTest, EachWatchHasPeaksOfItsOwn) {
  Touch(0x1000, 500);
  Watch one = Begin("n"), other = Begin("n");
  v1::WatchPeakRequest reset = First("n", "/job");
  reset.set_reset_memory(true);
  v1::WatchPeakResponse peaks;
  ASSERT_TRUE(Ask(one, reset, &peaks).ok());
  EXPECT_GE(peaks.memory_peak_bytes(), 500u << 12) << "of all time, before the first reset";
  ASSERT_TRUE(Ask(other, First("n", "/job"), &peaks).ok());
  Unmap(0x1000, 500);
  Touch(0x9000, 50);
  v1::WatchPeakRequest again;
  again.set_reset_memory(true);
  ASSERT_TRUE(Ask(one, again, &peaks).ok());
  EXPECT_GE(peaks.memory_peak_bytes(), 500u << 12) << "it began anew at the usage, which was the peak";
  ASSERT_TRUE(Ask(one, {}, &peaks).ok());
  EXPECT_EQ(peaks.memory_peak_bytes(), peaks.memory_current_bytes());
  EXPECT_LT(peaks.memory_peak_bytes(), 300u << 12);
  ASSERT_TRUE(Ask(other, {}, &peaks).ok());
  EXPECT_GE(peaks.memory_peak_bytes(), 500u << 12) << "the other never reset";
  EXPECT_TRUE(End(one).ok());
  EXPECT_TRUE(End(other).ok());
}

TEST_F(PeakTest, SwapHasAPeakToo) {
  Touch(0x1000, 500);
  Watch watch = Begin("n");
  v1::WatchPeakResponse peaks;
  ASSERT_TRUE(Ask(watch, First("n", "/job"), &peaks).ok());
  EXPECT_EQ(peaks.swap_peak_bytes(), 0u);
  ASSERT_TRUE(Reclaim("/job", 64 << 12).ok());
  v1::WatchPeakRequest reset;
  reset.set_reset_swap(true);
  ASSERT_TRUE(Ask(watch, reset, &peaks).ok());
  EXPECT_GE(peaks.swap_peak_bytes(), 64u << 12);
  EXPECT_EQ(peaks.swap_current_bytes(), peaks.swap_peak_bytes());
  EXPECT_TRUE(End(watch).ok());
}

TEST_F(PeakTest, WhatIsWrongIsNamed) {
  v1::WatchPeakResponse peaks;
  const auto code_of = [&](const std::string& metadata, const v1::WatchPeakRequest& request) {
    Watch watch = Begin(metadata);
    const grpc::Status status = Ask(watch, request, &peaks);
    EXPECT_NE(status.error_details(), "") << status.error_message();
    return status.error_code();
  };
  EXPECT_EQ(code_of("n", First("n", "/none")), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code_of("n", First("n", "none")), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code_of("n", {}), grpc::StatusCode::INVALID_ARGUMENT) << "the metadata names another node";
  EXPECT_EQ(code_of("x", First("x", "/job")), grpc::StatusCode::NOT_FOUND);
  Watch watch = Begin("n");
  ASSERT_TRUE(Ask(watch, First("n", "/job"), &peaks).ok());
  const grpc::Status twice = Ask(watch, First("n", "/job"), &peaks);
  EXPECT_EQ(twice.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(twice)->field_violations(0).field(), "node");
}

TEST_F(PeakTest, WhatIsRemovedIsNoLongerThere) {
  ASSERT_TRUE(CreateCgroup("n", "/gone").ok());
  Watch of_cgroup = Begin("n"), of_node = Begin("n");
  v1::WatchPeakResponse peaks;
  ASSERT_TRUE(Ask(of_cgroup, First("n", "/gone"), &peaks).ok());
  ASSERT_TRUE(Ask(of_node, First("n", "/job"), &peaks).ok());
  ASSERT_TRUE(DeleteCgroup("n", "/gone").ok());
  const grpc::Status gone = Ask(of_cgroup, {}, &peaks);
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(gone.error_message().find("\"/gone\" was removed"), std::string::npos) << gone.error_message();
  EndFeed();
  ASSERT_TRUE(DeleteNode("n").ok());
  EXPECT_EQ(Ask(of_node, {}, &peaks).error_code(), grpc::StatusCode::NOT_FOUND);
}

// What a watch holds is freed when its call ends, however it ends.
TEST_F(PeakTest, ACgroupHasSoManyWatchesAndRoomWhenOneGoes) {
  constexpr int kMost = 64;
  std::vector<Watch> watches;
  v1::WatchPeakResponse peaks;
  for (int i = 0; i < kMost; ++i) {
    watches.push_back(Begin("n"));
    ASSERT_TRUE(Ask(watches.back(), First("n", "/job"), &peaks).ok()) << i;
  }
  Watch over = Begin("n");
  EXPECT_EQ(Ask(over, First("n", "/job"), &peaks).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(CreateCgroup("n", "/job/below").ok());
  Watch below = Begin("n");
  EXPECT_TRUE(Ask(below, First("n", "/job/below"), &peaks).ok()) << "each cgroup for itself";
  watches[0].context->TryCancel();
  EXPECT_EQ(watches[0].call->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(End(watches[1]).ok());
  int open = 0;
  for (int tries = 0; tries < 500 && open < 2; ++tries) {  // they end in a moment
    Watch next = Begin("n");
    if (Ask(next, First("n", "/job"), &peaks).ok()) {
      ++open;
      watches.push_back(std::move(next));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  EXPECT_EQ(open, 2);
}

TEST_F(PeakTest, AServerThatStopsEndsTheWatches) {
  Watch watch = Begin("n");
  v1::WatchPeakResponse peaks;
  ASSERT_TRUE(Ask(watch, First("n", "/job"), &peaks).ok());
  EndFeed();
  std::thread drain([this] { server_->Drain(std::chrono::milliseconds(4000)); });
  EXPECT_FALSE(watch.call->Read(&peaks));
  EXPECT_EQ(watch.call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  drain.join();
}

TEST_F(PeakTest, ReclaimTellsWhatItGot) {
  Touch(0x1000, 500);
  v1::ReclaimCgroupResponse response;
  ASSERT_TRUE(Reclaim("/job", 1 << 20, &response).ok());
  EXPECT_GE(response.reclaimed_bytes(), 1u << 20);
  ASSERT_TRUE(Reclaim("/job", 64 << 12, &response, 201).ok()) << "anonymous pages only";
  const grpc::Status less = Reclaim("/", uint64_t{1} << 40);
  EXPECT_EQ(less.error_code(), grpc::StatusCode::ABORTED) << less.error_message();
  const auto info = DetailOf<google::rpc::ErrorInfo>(less);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "RECLAIMED_LESS");
  EXPECT_EQ(info->metadata().at("requested_bytes"), "1099511627776");
  EXPECT_NE(info->metadata().at("reclaimed_bytes"), "0");
  ASSERT_TRUE(Reclaim("/job", 0, &response).ok());
  EXPECT_EQ(response.reclaimed_bytes(), 0u);
}

TEST_F(PeakTest, ReclaimNamesWhatIsWrong) {
  const auto field_of = [this](uint64_t bytes, uint32_t swappiness) {
    const grpc::Status status = Reclaim("/job", bytes, nullptr, swappiness);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    return detail.has_value() ? detail->field_violations(0).field() : "";
  };
  EXPECT_EQ(field_of(1, 202), "swappiness");
  EXPECT_EQ(field_of(uint64_t{1} << 63, 60), "bytes");
  EXPECT_EQ(Reclaim("/none", 1).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(CreateNode("recorded").ok());
  v1::ReclaimCgroupRequest request;
  request.set_node("recorded");
  request.set_path("/");
  request.set_bytes(1);
  v1::ReclaimCgroupResponse response;
  const grpc::Status status = cgroups_->ReclaimCgroup(ContextFor("recorded").get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(status.error_message().find("make it with reclaim \"modelled\""), std::string::npos);
}

// memory.high of 64 pages, 1000 pages that cannot go anywhere: the tasks are held up, and the ack says for
// how long.
TEST_F(PeakTest, TheDelayAtMemoryHighIsInTheAckAndInTheReading) {
  v1::Batch batch;
  v1::SetKnob* swap = batch.add_side()->mutable_set_knob();
  swap->set_path(1);
  swap->set_knob("memory.swap.max");
  swap->set_value("0");
  v1::SetKnob* high = batch.add_side()->mutable_set_knob();
  high->set_path(1);
  high->set_knob("memory.high");
  high->set_value("256K");
  EXPECT_EQ(Apply(std::move(batch)).high_delay_us(), 0u);
  const v1::Ack ack = Touch(0x1000, 1000);
  EXPECT_GT(ack.high_delay_us(), 10'000u);
  v1::ReadCgroupRequest read;
  read.set_node("n");
  read.set_path("/job");
  v1::ReadCgroupResponse reading;
  ASSERT_TRUE(cgroups_->ReadCgroup(ContextFor("n").get(), read, &reading).ok());
  EXPECT_EQ(reading.high_delay_us(), ack.high_delay_us());
  ASSERT_EQ(reading.swap_events_size(), 3);
  EXPECT_EQ(reading.swap_events(0).name(), "high");
  EXPECT_EQ(reading.swap_events(1).name(), "max");
  EXPECT_EQ(reading.swap_events(2).name(), "fail");
}

}  // namespace
}  // namespace memcgd::server
