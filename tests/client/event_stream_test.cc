// The stream against a scripted server: what it sends, what it sends again, and how it ends.
#include "client/event_stream.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using ServerStream = grpc::ServerReaderWriter<v1::StreamResponse, v1::StreamRequest>;

// Applies batches as memcgd does: in order, each once, States before their Ack; and fails when told to.
class ScriptedServer final : public v1::IngestService::Service {
 public:
  ScriptedServer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ScriptedServer() override {
    release_ = true;
    Stop();
  }

  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Stream(grpc::ServerContext* context, ServerStream* stream) override {
    v1::StreamRequest request;
    if (!stream->Read(&request) || !request.has_open())
      return {grpc::StatusCode::INVALID_ARGUMENT, "no open"};
    const auto metadata = context->client_metadata().find(kNodeMetadata);
    if (metadata != context->client_metadata().end()) {
      metadata_ = std::string(metadata->second.data(), metadata->second.size());
    }
    ++opens_;
    if (request.open().incarnation() != 0 && request.open().incarnation() != incarnation_) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "another incarnation"};
    }
    if (opens_ <= refuse_opens_) return {grpc::StatusCode::ABORTED, "the stream is open elsewhere"};
    v1::StreamResponse response;
    response.mutable_opened()->set_incarnation(incarnation_);
    response.mutable_opened()->set_next_sequence(applied_ + 1);
    response.mutable_opened()->set_window_batches(window_);
    response.mutable_opened()->set_max_batch_events(max_events_);
    stream->Write(response);
    while (stream->Read(&request)) {
      grpc::Status status = Take(request.batch(), context, stream);
      if (!status.ok()) return status;
    }
    return grpc::Status::OK;
  }

  std::string address_;
  std::atomic<uint64_t> incarnation_{77};
  uint32_t window_ = 4;
  uint32_t max_events_ = 100;
  std::atomic<int> opens_{0};
  int refuse_opens_ = 0;
  uint64_t fail_after_ = 0;     // applied, not acknowledged; then the call fails, once
  bool lose_states_ = false;    // those of the failed batch are not sent again
  uint64_t go_away_after_ = 0;  // once
  bool silent_ = false;         // reads and never answers
  std::atomic<bool> release_{false};
  uint64_t applied_ = 0;
  std::vector<uint64_t> sequences_;  // as they came, repeated ones too
  std::vector<v1::Batch> batches_;   // applied
  std::string metadata_;

 private:
  grpc::Status Take(const v1::Batch& batch, grpc::ServerContext* context, ServerStream* stream) {
    while (silent_ && !release_ && !context->IsCancelled())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    sequences_.push_back(batch.sequence());
    if (batch.sequence() > applied_ + 1) return {grpc::StatusCode::OUT_OF_RANGE, "a gap"};
    const bool repeated = batch.sequence() <= applied_;
    if (!repeated) {
      applied_ = batch.sequence();
      batches_.push_back(batch);
    }
    if (fail_after_ != 0 && applied_ >= fail_after_) {
      fail_after_ = 0;
      return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
    }
    v1::StreamResponse response;
    for (const v1::SideEvent& event : batch.side()) {
      if (!event.has_mark() || (repeated && lose_states_)) continue;
      response.mutable_state()->set_id(event.mark().id());
      stream->Write(response);
    }
    v1::Ack* ack = response.mutable_ack();
    ack->set_applied_through(batch.sequence());
    if (!repeated) {
      v1::OutcomeCount* count = ack->add_outcomes();
      count->set_outcome(v1::OUTCOME_NO_AREA);
      count->set_count(1);
      ack->set_high_delay_us(7);
    }
    stream->Write(response);
    if (go_away_after_ != 0 && applied_ >= go_away_after_) {
      go_away_after_ = 0;
      response.mutable_go_away()->set_reason("drain");
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> server_;
};

class EventStreamTest : public testing::Test {
 protected:
  EventStream::Options Options(std::chrono::milliseconds timeout = std::chrono::milliseconds(5000)) {
    EventStream::Options options;
    options.server = ConnectTo(server_.address_, timeout).value();
    options.node = "n";
    options.stream_id = "s";
    options.first_backoff = std::chrono::milliseconds(5);
    options.on_state = [this](const v1::State& state) {
      states_.push_back(state.id());
      return absl::OkStatus();
    };
    return options;
  }

  static v1::Batch Words(int events) {
    v1::Batch batch;
    for (int i = 0; i < 2 * events; ++i) batch.add_words(static_cast<uint64_t>(i));
    return batch;
  }
  static v1::Batch WithMark(uint64_t id) {
    v1::Batch batch = Words(1);
    v1::SideEvent* event = batch.add_side();
    event->set_position(1);
    event->mutable_mark()->set_id(id);
    return batch;
  }

  absl::Status SendAll(EventStream* stream, uint64_t batches) {
    absl::Status status = stream->Open();
    for (uint64_t i = 1; status.ok() && i <= batches; ++i) status = stream->Send(WithMark(i));
    return status.ok() ? stream->Finish() : status;
  }

  static std::vector<uint64_t> UpTo(uint64_t last) {
    std::vector<uint64_t> numbers;
    for (uint64_t i = 1; i <= last; ++i) numbers.push_back(i);
    return numbers;
  }

  ScriptedServer server_;
  std::vector<uint64_t> states_;
};

TEST_F(EventStreamTest, BatchesArriveInOrderAndEachMarkIsAnswered) {
  EventStream stream(Options());
  ASSERT_EQ(SendAll(&stream, 50), absl::OkStatus());
  EXPECT_EQ(server_.sequences_, UpTo(50));
  EXPECT_EQ(states_, UpTo(50));
  EXPECT_EQ(server_.metadata_, "n");
  EXPECT_EQ(stream.counts().batches, 50u);
  EXPECT_EQ(stream.counts().events, 100u);
  EXPECT_EQ(stream.counts().states, 50u);
  EXPECT_EQ(stream.counts().outcomes[v1::OUTCOME_NO_AREA], 50u);
  EXPECT_EQ(stream.counts().high_delay_us, 350u);
  EXPECT_EQ(stream.counts().reconnects, 0u);
}

TEST_F(EventStreamTest, WindowOfOneWorks) {
  server_.window_ = 1;
  EventStream stream(Options());
  ASSERT_EQ(SendAll(&stream, 10), absl::OkStatus());
  EXPECT_EQ(states_, UpTo(10));
}

TEST_F(EventStreamTest, ResumesAfterABrokenConnectionWithoutLossOrRepetition) {
  for (uint64_t at = 1; at <= 12; at += 3) {
    server_.fail_after_ = server_.applied_ + at;
    EventStream::Options options = Options();
    server_.applied_ = 0;
    server_.batches_.clear();
    server_.fail_after_ = at;
    states_.clear();
    EventStream stream(std::move(options));
    ASSERT_EQ(SendAll(&stream, 12), absl::OkStatus()) << "broken after " << at;
    EXPECT_EQ(server_.applied_, 12u);
    EXPECT_EQ(server_.batches_.size(), 12u);
    EXPECT_EQ(states_, UpTo(12)) << "broken after " << at;
    EXPECT_EQ(stream.counts().reconnects, 1u);
  }
}

TEST_F(EventStreamTest, GoesOnAfterGoAway) {
  server_.go_away_after_ = 5;
  EventStream stream(Options());
  ASSERT_EQ(SendAll(&stream, 30), absl::OkStatus());
  EXPECT_EQ(server_.batches_.size(), 30u);
  EXPECT_EQ(states_, UpTo(30));
  EXPECT_EQ(stream.counts().reconnects, 1u);
}

TEST_F(EventStreamTest, TriesAgainWhileTheServerHoldsTheOldCall) {
  server_.fail_after_ = 3;
  server_.refuse_opens_ = 0;
  EventStream stream(Options());
  ASSERT_EQ(stream.Open(), absl::OkStatus());
  server_.refuse_opens_ = 4;
  for (uint64_t i = 1; i <= 6; ++i) ASSERT_EQ(stream.Send(WithMark(i)), absl::OkStatus());
  ASSERT_EQ(stream.Finish(), absl::OkStatus());
  EXPECT_EQ(states_, UpTo(6));
  EXPECT_EQ(stream.counts().reconnects, 1u);  // what was refused is no connection
}

TEST_F(EventStreamTest, AnotherIncarnationIsDataLossAndNamesTheServer) {
  EventStream stream(Options());
  ASSERT_EQ(stream.Open(), absl::OkStatus());
  server_.fail_after_ = 2;
  server_.incarnation_ = 78;
  absl::Status status;
  for (uint64_t i = 1; status.ok() && i <= 20; ++i) status = stream.Send(WithMark(i));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), server_.address_)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "start again")) << status;
  EXPECT_EQ(stream.Send(WithMark(21)), status) << "errors stay";
  EXPECT_EQ(stream.Finish(), status);
}

TEST_F(EventStreamTest, ALostAnswerIsDataLossRatherThanAWrongOrMissingOne) {
  server_.fail_after_ = 2;
  server_.lose_states_ = true;
  EventStream stream(Options());
  EXPECT_EQ(SendAll(&stream, 10).code(), absl::StatusCode::kDataLoss);
}

TEST_F(EventStreamTest, ASilentServerIsGivenUpInTime) {
  server_.silent_ = true;
  const auto start = std::chrono::steady_clock::now();
  EventStream stream(Options(std::chrono::milliseconds(600)));
  const absl::Status status = SendAll(&stream, 10);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(EventStreamTest, AServerThatIsGoneIsUnavailableAndNamed) {
  EventStream stream(Options(std::chrono::milliseconds(600)));
  ASSERT_EQ(stream.Open(), absl::OkStatus());
  server_.Stop();
  absl::Status status;
  for (uint64_t i = 1; status.ok() && i <= 10; ++i) status = stream.Send(WithMark(i));
  if (status.ok()) status = stream.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("memcgd at ", server_.address_))) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "is it running?")) << status;
}

TEST_F(EventStreamTest, AFirstConnectionThatFailsIsNotTriedForLong) {
  server_.Stop();
  const auto start = std::chrono::steady_clock::now();
  EventStream stream(Options(std::chrono::milliseconds(60000)));
  EXPECT_EQ(stream.Open().code(), absl::StatusCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(EventStreamTest, CancellingEndsAWait) {
  server_.silent_ = true;
  std::atomic<bool> cancelled{false};
  EventStream::Options options = Options(std::chrono::milliseconds(60000));
  options.cancelled = &cancelled;
  EventStream stream(std::move(options));
  ASSERT_EQ(stream.Open(), absl::OkStatus());
  std::thread later([&cancelled] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled = true;
  });
  absl::Status status;
  for (uint64_t i = 1; status.ok() && i <= 10; ++i) status = stream.Send(WithMark(i));
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  later.join();
}

TEST_F(EventStreamTest, AnErrorOfTheCallbackEndsTheStream) {
  EventStream::Options options = Options();
  options.on_state = [](const v1::State& state) {
    return state.id() == 3 ? absl::InternalError("no room") : absl::OkStatus();
  };
  EventStream stream(std::move(options));
  EXPECT_EQ(SendAll(&stream, 10), absl::InternalError("no room"));
}

TEST_F(EventStreamTest, AUsedStreamIsRefused) {
  server_.applied_ = 5;
  EventStream stream(Options());
  EXPECT_EQ(stream.Open().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EventStreamTest, BatchesAreCutToWhatTheServerTakes) {
  EventStream stream(Options());
  ASSERT_EQ(stream.Open(), absl::OkStatus());
  ASSERT_EQ(stream.Send(Words(250)), absl::OkStatus());
  ASSERT_EQ(stream.Finish(), absl::OkStatus());
  ASSERT_EQ(server_.batches_.size(), 3u);
  EXPECT_EQ(server_.batches_[0].words_size(), 200);
  EXPECT_EQ(server_.batches_[2].words_size(), 100);
  EXPECT_EQ(server_.batches_[2].words(0), 400u);
}

// Positions of side events among the words, of all parts as of one batch.
std::vector<std::pair<uint32_t, uint64_t>> SideOf(const std::vector<v1::Batch>& parts) {
  std::vector<std::pair<uint32_t, uint64_t>> side;
  uint32_t words = 0;
  for (const v1::Batch& part : parts) {
    for (const v1::SideEvent& event : part.side())
      side.emplace_back(words + event.position(), event.mark().id());
    words += static_cast<uint32_t>(part.words_size() / 2);
  }
  return side;
}

TEST(SplitBatchTest, PartsKeepOrderPositionsAndTimes) {
  v1::Batch batch;
  batch.set_base_time_ns(123);
  for (uint64_t i = 0; i < 20; ++i) batch.add_words(i);
  uint64_t id = 0;
  for (uint32_t position : {0u, 0u, 3u, 3u, 3u, 7u, 10u, 10u}) {
    v1::SideEvent* event = batch.add_side();
    event->set_position(position);
    event->set_time_offset_ns(static_cast<int64_t>(id));
    event->mutable_mark()->set_id(id++);
  }
  const auto whole = SideOf({batch});
  for (size_t limit = 1; limit <= 18; ++limit) {
    const std::vector<v1::Batch> parts = SplitBatch(batch, {limit, 1 << 20, 256});
    EXPECT_EQ(SideOf(parts), whole) << limit;
    std::vector<uint64_t> words;
    for (const v1::Batch& part : parts) {
      EXPECT_EQ(part.base_time_ns(), 123);
      EXPECT_LE(static_cast<size_t>(part.words_size() / 2 + part.side_size()), limit);
      words.insert(words.end(), part.words().begin(), part.words().end());
    }
    EXPECT_EQ(words, std::vector<uint64_t>(batch.words().begin(), batch.words().end())) << limit;
  }
}

TEST(SplitBatchTest, PartsKeepWithinBytesAndMarks) {
  v1::Batch batch;
  for (uint32_t i = 0; i < 100; ++i) {
    v1::SideEvent* event = batch.add_side();
    event->mutable_define_path()->set_handle(i + 1);
    event->mutable_define_path()->set_path(std::string(4000, 'x'));
  }
  for (const v1::Batch& part : SplitBatch(batch, {8192, 20000, 256})) EXPECT_LE(part.ByteSizeLong(), 20000u);
  batch.Clear();
  for (uint64_t i = 0; i < 10; ++i) batch.add_side()->mutable_mark()->set_id(i);
  EXPECT_EQ(SplitBatch(batch, {8192, 1 << 20, 4}).size(), 3u);
}

}  // namespace
}  // namespace memcgd::client
