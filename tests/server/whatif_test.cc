#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memcgd/v1/whatif.grpc.pb.h"
#include "server/limits.h"
#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

// Batch 1 makes /job with thread 10 in it; each batch touches 100 pages.
v1::Batch JobBatch(uint64_t sequence) {
  v1::Batch batch;
  batch.set_sequence(sequence);
  batch.set_base_time_ns(static_cast<int64_t>(sequence) * 1'000'000'000);
  if (sequence == 1) {
    batch.add_side()->mutable_define_path()->set_handle(1);
    batch.mutable_side(0)->mutable_define_path()->set_path("/job");
    batch.add_side()->mutable_cgroup_create()->set_path(1);
    v1::CgroupAttach* attach = batch.add_side()->mutable_cgroup_attach();
    attach->set_path(1);
    attach->set_moved_tid(10);
  }
  for (uint64_t i = 0; i < 100; ++i) {
    const core::Event fault = Fault(10, (sequence * 1000 + i) << 12);
    batch.add_words(fault.head);
    batch.add_words(fault.body);
  }
  return batch;
}

v1::Point Limited(const std::string& value) {
  v1::Point point;
  v1::KnobChange* knob = point.add_changes()->mutable_knob();
  knob->set_path("/job");
  knob->set_knob("memory.max");
  knob->set_value(value);
  point.add_changes()->set_reclaim(v1::RECLAIM_MODE_NONE);
  return point;
}

// One call of WhatIfService.Sweep.
class SweepCall {
 public:
  SweepCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& node)
      : stub_(v1::WhatIfService::NewStub(channel)),
        context_(ContextFor(node)),
        call_(stub_->Sweep(context_.get())) {}

  bool Start(const v1::SweepStart& start) {
    v1::SweepRequest request;
    *request.mutable_start() = start;
    return call_->Write(request);
  }
  bool StartNew() {
    v1::SweepStart start;
    start.mutable_spec()->set_cpus(2);
    return Start(start);
  }
  bool Send(const v1::Batch& batch) {
    v1::SweepRequest request;
    *request.mutable_batch() = batch;
    return call_->Write(request);
  }
  bool Ask(const v1::SweepPoints& points) {
    v1::SweepRequest request;
    *request.mutable_points() = points;
    return call_->Write(request);
  }
  // The next answer that is no progress.
  std::optional<v1::SweepResponse> Read() {
    v1::SweepResponse response;
    do {
      if (!call_->Read(&response)) return std::nullopt;
    } while (response.has_progress());
    return response;
  }
  std::vector<v1::PointResult> Results(size_t count) {
    std::vector<v1::PointResult> results;
    while (results.size() < count) {
      std::optional<v1::SweepResponse> response = Read();
      if (!response.has_value()) break;
      if (response->has_result()) results.push_back(response->result());
    }
    return results;
  }
  void Cancel() { context_->TryCancel(); }
  grpc::Status End() {
    call_->WritesDone();
    while (Read().has_value()) {
    }
    return call_->Finish();
  }

 private:
  std::unique_ptr<v1::WhatIfService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SweepRequest, v1::SweepResponse>> call_;
};

class WhatIfTest : public ServerFixture {
 protected:
  std::unique_ptr<SweepCall> Call(const std::string& node = "") {
    return std::make_unique<SweepCall>(channel_, node);
  }
  static v1::SweepPoints Points(std::initializer_list<const char*> limits) {
    v1::SweepPoints points;
    for (const char* limit : limits) *points.add_points() = Limited(limit);
    points.add_cgroups("/job");
    return points;
  }
};

TEST_F(WhatIfTest, PointsAreAnsweredInOrderAsOftenAsAsked) {
  const auto call = Call();
  ASSERT_TRUE(call->StartNew());
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) ASSERT_TRUE(call->Send(JobBatch(sequence)));
  ASSERT_TRUE(call->Ask(Points({"64K", "256K", "1M", "max"})));
  const auto loaded = call->Read();
  ASSERT_TRUE(loaded.has_value() && loaded->has_loaded());
  EXPECT_EQ(loaded->loaded().events(), 503u);
  EXPECT_EQ(loaded->loaded().duration_ns(), 4'000'000'000);
  const auto results = call->Results(4);
  ASSERT_EQ(results.size(), 4u);
  const uint64_t peaks[] = {64 << 10, 256 << 10, 1 << 20, results[3].cgroups(0).peak_bytes()};
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i].index(), i);
    EXPECT_EQ(results[i].cgroups(0).path(), "/job");
    EXPECT_EQ(results[i].cgroups(0).peak_bytes(), peaks[i]);
  }
  EXPECT_GE(peaks[3], 500u * 4096);
  ASSERT_TRUE(call->Ask(Points({"max", "64K"})));
  const auto again = call->Results(2);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].cgroups(0).SerializeAsString(), results[3].cgroups(0).SerializeAsString());
  EXPECT_EQ(again[1].cgroups(0).SerializeAsString(), results[0].cgroups(0).SerializeAsString());
  EXPECT_TRUE(call->End().ok());
}

TEST_F(WhatIfTest, TheSameQuestionGivesTheSameBytes) {
  std::vector<std::string> answers;
  for (uint32_t parallelism : {1, 2, 8}) {
    const auto call = Call();
    v1::SweepStart start;
    start.mutable_spec()->set_cpus(2);
    start.set_parallelism(parallelism);
    ASSERT_TRUE(call->Start(start));
    for (uint64_t sequence = 1; sequence <= 3; ++sequence) ASSERT_TRUE(call->Send(JobBatch(sequence)));
    v1::SweepPoints points = Points({"64K", "128K", "256K", "512K", "1M", "2M", "max"});
    points.set_miss_ratio(true);
    ASSERT_TRUE(call->Ask(points));
    std::string bytes;
    for (const v1::PointResult& result : call->Results(7)) bytes += result.SerializeAsString();
    EXPECT_TRUE(call->End().ok());
    answers.push_back(bytes);
  }
  EXPECT_FALSE(answers[0].empty());
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(answers[2], answers[0]);
}

TEST_F(WhatIfTest, AForkOfALiveNodeLeavesItAsItIs) {
  CreateNode("live");
  {
    Feed feed(ingest_.get(), "live");
    ASSERT_TRUE(feed.Open("s").has_value());
    ASSERT_TRUE(feed.Apply(JobBatch(1)).has_value());
    EXPECT_TRUE(feed.End().ok());
  }
  const auto hash = [this] { return server_->TEST_registry()->Find("live").value()->core()->StateHash(); };
  const uint64_t before = hash();
  const auto call = Call("live");
  v1::SweepStart start;
  start.set_node("live");
  ASSERT_TRUE(call->Start(start));
  v1::Batch batch = JobBatch(2);
  batch.set_sequence(1);
  ASSERT_TRUE(call->Send(batch));
  ASSERT_TRUE(call->Ask(Points({"max", "512K"})));
  const auto results = call->Results(2);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_GE(results[0].cgroups(0).usage_bytes(), 200u * 4096);
  EXPECT_EQ(results[1].cgroups(0).usage_bytes(), 128u * 4096);
  EXPECT_TRUE(call->End().ok());
  EXPECT_EQ(hash(), before);
}

TEST_F(WhatIfTest, AnUnknownCgroupIsNotFoundAndTheNearestNamed) {
  const auto call = Call();
  ASSERT_TRUE(call->StartNew());
  ASSERT_TRUE(call->Send(JobBatch(1)));
  v1::SweepPoints points = Points({"max"});
  points.add_cgroups("/jpb");
  call->Ask(points);
  const grpc::Status status = call->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(status.error_message().find("\"/jpb\""), std::string::npos);
  EXPECT_NE(status.error_message().find("the nearest is \"/job\""), std::string::npos)
      << status.error_message();
}

TEST_F(WhatIfTest, WhatComesOutOfTurnIsRefused) {
  const auto ends = [this](const std::function<void(SweepCall*)>& say, grpc::StatusCode code,
                           const char* about) {
    const auto call = Call();
    say(call.get());
    const grpc::Status status = call->End();
    EXPECT_EQ(status.error_code(), code) << about << ": " << status.error_message();
    EXPECT_NE(status.error_message().find(about), std::string::npos) << status.error_message();
  };
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  ends([](SweepCall* call) { call->Send(JobBatch(1)); }, kInvalid, "start");
  ends([](SweepCall*) {}, kInvalid, "points");
  ends([](SweepCall* call) { call->Start({}); }, kInvalid, "neither spec nor node");
  ends([](SweepCall* call) { call->StartNew() && call->StartNew(); }, kInvalid, "first message");
  ends([](SweepCall* call) { call->StartNew() && call->Send(JobBatch(2)); }, kInvalid,
       "expected batch 1, got 2");
  ends([](SweepCall* call) { call->StartNew() && call->Ask({}); }, kInvalid, "points");
  ends(
      [](SweepCall* call) {
        v1::Batch batch = JobBatch(1);
        batch.add_words(7);
        call->StartNew() && call->Send(batch);
      },
      kInvalid, "batch 1");
  ends(
      [](SweepCall* call) {
        call->StartNew() && call->Send(JobBatch(1)) && call->Ask(Points({"max"})) && call->Send(JobBatch(2));
      },
      kInvalid, "no batch may follow");
  ends([](SweepCall* call) { call->StartNew() && call->Send(JobBatch(1)) && call->Ask(Points({"-1"})); },
       kInvalid, "point 0: memory.max");
  ends(
      [](SweepCall* call) {
        v1::SweepPoints points;
        for (size_t i = 0; i <= kMaxSweepPoints; ++i) points.add_points();
        call->StartNew() && call->Ask(points);
      },
      grpc::StatusCode::RESOURCE_EXHAUSTED, "points at a time");
}

TEST_F(WhatIfTest, ANodeThatIsNotThereIsNotFound) {
  const auto call = Call("nobody");
  v1::SweepStart start;
  start.set_node("nobody");
  call->Start(start);
  EXPECT_EQ(call->End().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(WhatIfTest, ACancelledSweepStopsAndMakesRoom) {
  for (size_t i = 0; i < 3 * kMaxSweeps; ++i) {
    auto call = Call();
    ASSERT_TRUE(call->StartNew());
    for (uint64_t sequence = 1; sequence <= 20; ++sequence) ASSERT_TRUE(call->Send(JobBatch(sequence)));
    v1::SweepPoints points;
    for (int point = 0; point < 2000; ++point) *points.add_points() = Limited("64K");
    points.add_cgroups("/job");
    ASSERT_TRUE(call->Ask(points));
    ASSERT_TRUE(call->Read().has_value());
    call->Cancel();
    EXPECT_EQ(call->End().error_code(), grpc::StatusCode::CANCELLED);
    // The server may learn of it a moment later.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

TEST_F(WhatIfTest, MoreSweepsThanAllowedAreRefused) {
  std::vector<std::unique_ptr<SweepCall>> calls;
  for (size_t i = 0; i < kMaxSweeps; ++i) {
    calls.push_back(Call());
    ASSERT_TRUE(calls.back()->StartNew());
    ASSERT_TRUE(calls.back()->Send(JobBatch(1)));
    ASSERT_TRUE(calls.back()->Ask(Points({"max"})));
    ASSERT_EQ(calls.back()->Results(1).size(), 1u);
  }
  const auto one_more = Call();
  one_more->StartNew();
  EXPECT_EQ(one_more->End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& call : calls) EXPECT_TRUE(call->End().ok());
}

}  // namespace
}  // namespace memcgd::server
