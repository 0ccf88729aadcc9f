// IngestService over a real connection.  Marks read what was applied.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "server/limits.h"
#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

constexpr uint64_t kHeap = 0x10000000;

class IngestTest : public ServerFixture {
 protected:
  IngestTest() { EXPECT_TRUE(CreateNode("n").ok()); }

  // Two faults on pages of their own per batch.
  static v1::Batch TwoFaults(uint64_t sequence) {
    return BatchOf(sequence, {Fault(7, kHeap + sequence * 8192), Fault(7, kHeap + sequence * 8192 + 4096)});
  }

  uint64_t EventsOf(const std::string& node) {
    v1::Node read;
    EXPECT_TRUE(GetNode(node, &read).ok());
    return read.events();
  }
};

uint64_t CountOf(const v1::Ack& ack) {
  uint64_t events = 0;
  for (const v1::OutcomeCount& count : ack.outcomes()) events += count.count();
  return events;
}

int64_t AnonOf(const v1::State& state) {
  for (int i = 0; i < state.stat_names_size(); ++i) {
    if (state.stat_names(i) == "anon") return state.cgroups(0).stat(i);
  }
  return -1;
}

TEST_F(IngestTest, OpenTellsWhatTheClientNeeds) {
  Feed feed(ingest_.get(), "n");
  const auto opened = feed.Open("s");
  ASSERT_TRUE(opened.has_value());
  v1::Node node;
  ASSERT_TRUE(GetNode("n", &node).ok());
  EXPECT_EQ(opened->incarnation(), node.incarnation());
  EXPECT_NE(opened->incarnation(), 0u);
  EXPECT_EQ(opened->next_sequence(), 1u);
  EXPECT_EQ(opened->max_batch_events(), kMaxBatchEvents);
  EXPECT_EQ(opened->window_batches(), kWindowBatches);
  EXPECT_TRUE(feed.End().ok());
}

TEST_F(IngestTest, BatchesApplyAndAreAcknowledged) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  const auto ack = feed.Apply(TwoFaults(1));
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->applied_through(), 1u);
  EXPECT_EQ(ack->durable_through(), 0u);
  EXPECT_EQ(CountOf(*ack), 2u);
  EXPECT_EQ(feed.Apply(TwoFaults(2))->applied_through(), 2u);
  EXPECT_TRUE(feed.End().ok());
  EXPECT_EQ(EventsOf("n"), 4u);
}

TEST_F(IngestTest, AMarkReadsWhatStandsBeforeIt) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  v1::Batch batch = BatchOf(1, {Fault(7, kHeap), Fault(7, kHeap + 4096), Fault(7, kHeap + 8192)});
  for (uint32_t position = 1; position <= 3; ++position) {
    v1::SideEvent* side = batch.add_side();
    side->set_position(position);
    side->mutable_mark()->set_id(100 + position);
  }
  std::vector<v1::State> states;
  ASSERT_TRUE(feed.Apply(batch, &states).has_value());
  ASSERT_EQ(states.size(), 3u) << "States come before the Ack of their batch";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(states[i].id(), 101u + i);
    EXPECT_EQ(states[i].cgroups(0).path(), "/");
    EXPECT_EQ(AnonOf(states[i]), 4096 * (i + 1));
  }
}

TEST_F(IngestTest, AStreamResumesWhereItStood) {
  uint64_t incarnation = 0;
  {
    Feed feed(ingest_.get(), "n");
    incarnation = feed.Open("s")->incarnation();
    ASSERT_TRUE(feed.Apply(TwoFaults(1)).has_value());
    ASSERT_TRUE(feed.Apply(TwoFaults(2)).has_value());
    feed.End();
  }
  Feed feed(ingest_.get(), "n");
  const auto opened = feed.Open("s", incarnation);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->next_sequence(), 3u);
  EXPECT_TRUE(feed.Apply(TwoFaults(3)).has_value());
  EXPECT_EQ(EventsOf("n"), 6u);
}

TEST_F(IngestTest, HandlesLiveAsLongAsTheirStream) {
  {
    Feed feed(ingest_.get(), "n");
    ASSERT_TRUE(feed.Open("s").has_value());
    v1::Batch batch = BatchOf(1, {});
    batch.add_side()->mutable_define_path()->set_handle(1);
    batch.mutable_side(0)->mutable_define_path()->set_path("/kept");
    ASSERT_TRUE(feed.Apply(batch).has_value());
    feed.End();
  }
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  v1::Batch batch = BatchOf(2, {});
  batch.add_side()->mutable_cgroup_create()->set_path(1);
  AddMark(1, &batch);
  std::vector<v1::State> states;
  ASSERT_TRUE(feed.Apply(batch, &states).has_value()) << feed.End().error_message();
  ASSERT_EQ(states.size(), 1u);
  ASSERT_EQ(states[0].cgroups_size(), 2);
  EXPECT_EQ(states[0].cgroups(1).path(), "/kept");
}

TEST_F(IngestTest, ARepeatedBatchIsAcknowledgedAndNotAppliedAgain) {
  v1::Batch marked = TwoFaults(1);
  AddMark(9, &marked);
  {
    Feed feed(ingest_.get(), "n");
    ASSERT_TRUE(feed.Open("s").has_value());
    ASSERT_TRUE(feed.Apply(marked).has_value());
    ASSERT_TRUE(feed.Apply(TwoFaults(2)).has_value());
    feed.End();
  }
  const uint64_t events = EventsOf("n");
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  std::vector<v1::State> states;
  const auto ack = feed.Apply(marked, &states);
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->applied_through(), 1u);
  EXPECT_EQ(CountOf(*ack), 0u);
  ASSERT_EQ(states.size(), 1u) << "the client may never have received it";
  EXPECT_EQ(states[0].id(), 9u);
  EXPECT_EQ(AnonOf(states[0]), 8192);
  EXPECT_TRUE(feed.Apply(TwoFaults(2)).has_value());
  EXPECT_EQ(EventsOf("n"), events);
  EXPECT_EQ(feed.Apply(TwoFaults(3))->applied_through(), 3u);
}

TEST_F(IngestTest, ADifferingDuplicateIsRefused) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  ASSERT_TRUE(feed.Apply(TwoFaults(1)).has_value());
  v1::Batch other = TwoFaults(1);
  other.set_base_time_ns(77);
  EXPECT_FALSE(feed.Apply(other).has_value());
  const grpc::Status status = feed.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(status.error_message(), "stream \"s\": batch 1 was applied already with other content");
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status)->reason(), "CONTENT_DIFFERS");
  EXPECT_EQ(EventsOf("n"), 2u);
}

TEST_F(IngestTest, AGapIsRefusedNamingBothNumbers) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  ASSERT_TRUE(feed.Apply(TwoFaults(1)).has_value());
  EXPECT_FALSE(feed.Apply(TwoFaults(3)).has_value());
  const grpc::Status status = feed.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "stream \"s\": expected batch 2, got 3");
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason(), "SEQUENCE_GAP");
  EXPECT_EQ(info->metadata().at("expected"), "2");
}

TEST_F(IngestTest, WhatWasReceivedBeforeARefusalIsAcknowledged) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  for (uint64_t sequence : {1, 2, 3, 9}) feed.Write(TwoFaults(sequence));
  std::vector<v1::StreamResponse> rest;
  EXPECT_EQ(feed.End(&rest).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest.back().ack().applied_through(), 3u);
}

// Malformed batches: each is refused with the index of its event, with nothing of it applied, and the stream
// goes on with the right batch under the same number.
struct Malformed {
  std::string name;
  std::string index;  // how the message names the event
  std::string field;
  void (*spoil)(v1::Batch* batch);
};

class MalformedBatchTest : public IngestTest, public testing::WithParamInterface<Malformed> {};

TEST_P(MalformedBatchTest, IsRefusedWholeAndLeavesTheStreamIntact) {
  v1::Node before;
  {
    Feed feed(ingest_.get(), "n");
    ASSERT_TRUE(feed.Open("s").has_value());
    ASSERT_TRUE(feed.Apply(TwoFaults(1)).has_value());
    ASSERT_TRUE(GetNode("n", &before).ok());
    v1::Batch bad = TwoFaults(2);
    GetParam().spoil(&bad);
    EXPECT_FALSE(feed.Apply(bad).has_value());
    const grpc::Status status = feed.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(status.error_message().starts_with("batch 2: " + GetParam().index + ": "))
        << status.error_message();
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field_violations(0).field(), GetParam().field);
  }
  v1::Node after;
  ASSERT_TRUE(GetNode("n", &after).ok());
  EXPECT_EQ(after.events(), before.events());
  EXPECT_EQ(after.state_hash(), before.state_hash());
  Feed feed(ingest_.get(), "n");
  EXPECT_EQ(feed.Open("s")->next_sequence(), 2u);
  EXPECT_TRUE(feed.Apply(TwoFaults(2)).has_value());
}

INSTANTIATE_TEST_SUITE_P(
    , MalformedBatchTest,
    testing::Values(
        Malformed{"UnknownKind", "event 1", "batch.words[2]",
                  [](v1::Batch* batch) { batch->set_words(2, 63); }},
        Malformed{"KindZero", "event 0", "batch.words[0]", [](v1::Batch* batch) { batch->set_words(0, 0); }},
        Malformed{"CpuOutOfRange", "event 1", "batch.words[2]",
                  [](v1::Batch* batch) { batch->set_words(2, batch->words(2) | uint64_t{1023} << 6); }},
        Malformed{
            "ThreadZero", "event 1", "batch.words[2]",
            [](v1::Batch* batch) { batch->set_words(2, batch->words(2) & ~(uint64_t{0x3fffff} << 16)); }},
        Malformed{"UnknownFileHandle", "event 1", "batch.words[2]",
                  [](v1::Batch* batch) {
                    batch->set_words(2, core::Event::Head(core::EventKind::kFileRead, 0, 7, 0));
                    batch->set_words(3, core::Event::FileBody(99, 0, 0));
                  }},
        Malformed{"OddWords", "event 2", "batch.words[4]", [](v1::Batch* batch) { batch->add_words(1); }},
        Malformed{"SideWithoutEvent", "side event 0", "batch.side[0]",
                  [](v1::Batch* batch) { batch->add_side()->set_tid(7); }},
        Malformed{"PositionPastTheEnd", "side event 0", "batch.side[0]",
                  [](v1::Batch* batch) {
                    batch->add_side()->mutable_exit_mmap();
                    batch->mutable_side(0)->set_tid(7);
                    batch->mutable_side(0)->set_position(3);
                  }},
        Malformed{"PositionGoesBack", "side event 1", "batch.side[1]",
                  [](v1::Batch* batch) {
                    AddMark(1, batch);
                    batch->add_side()->mutable_mark()->set_id(2);
                  }},
        Malformed{"SideCpuOutOfRange", "side event 0", "batch.side[0]",
                  [](v1::Batch* batch) {
                    batch->add_side()->mutable_brk()->set_address(4096);
                    batch->mutable_side(0)->set_tid(7);
                    batch->mutable_side(0)->set_cpu(1);
                  }},
        Malformed{"HandleNotDefined", "side event 0", "batch.side[0]",
                  [](v1::Batch* batch) { batch->add_side()->mutable_cgroup_create()->set_path(3); }},
        Malformed{"HandleDefinedTwice", "side event 1", "batch.side[1]",
                  [](v1::Batch* batch) {
                    for (int i = 0; i < 2; ++i) {
                      v1::DefinePath* define = batch->add_side()->mutable_define_path();
                      define->set_handle(1);
                      define->set_path("/x");
                    }
                  }},
        Malformed{"BadPath", "side event 0", "batch.side[0]",
                  [](v1::Batch* batch) {
                    batch->add_side()->mutable_define_path()->set_handle(1);
                    batch->mutable_side(0)->mutable_define_path()->set_path("/a/../b");
                  }}),
    [](const testing::TestParamInfo<Malformed>& info) { return info.param.name; });

TEST_F(IngestTest, BytesThatAreNoMessageAreRefused) {
  // The call as gRPC sees it without our messages.
  grpc::GenericStub generic(channel_);
  grpc::CompletionQueue queue;
  const auto context = ContextFor("n");
  const auto call = generic.PrepareCall(context.get(), "/memcgd.v1.IngestService/Stream", &queue);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
  };
  call->StartCall(nullptr);
  next();
  const grpc::Slice garbage(std::string("\x12\xff\xff"));
  call->Write(grpc::ByteBuffer(&garbage, 1), nullptr);
  next();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "request: the message is no StreamRequest");
}

TEST_F(IngestTest, OpenComesFirstAndOnce) {
  Feed early(ingest_.get(), "n");
  early.Write(TwoFaults(1));
  EXPECT_EQ(early.End().error_message(), "request: the first message of a call must be open");
  Feed twice(ingest_.get(), "n");
  ASSERT_TRUE(twice.Open("s").has_value());
  EXPECT_FALSE(twice.Open("s").has_value());
  EXPECT_EQ(twice.End().error_message(), "request: open may only be the first message of a call");
  Feed empty(ingest_.get(), "n");
  empty.Write(v1::StreamRequest());
  EXPECT_EQ(empty.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(IngestTest, AWrongIncarnationIsRefused) {
  Feed feed(ingest_.get(), "n");
  EXPECT_FALSE(feed.Open("s", 12345).has_value());
  const grpc::Status status = feed.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status)->reason(), "WRONG_INCARNATION");
}

TEST_F(IngestTest, AnUnknownNodeIsNamed) {
  Feed feed(ingest_.get(), "nowhere");
  EXPECT_FALSE(feed.Open("s").has_value());
  const grpc::Status status = feed.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no node \"nowhere\"");
}

TEST_F(IngestTest, TheMetadataMustNameTheNode) {
  ASSERT_TRUE(CreateNode("m").ok());
  const auto status_with = [this](const std::string& metadata) {
    const auto context = ContextFor(metadata);
    const auto call = ingest_->Stream(context.get());
    v1::StreamRequest request;
    request.mutable_open()->set_node("n");
    request.mutable_open()->set_stream_id("s");
    call->Write(request);
    v1::StreamResponse response;
    EXPECT_FALSE(call->Read(&response));
    return call->Finish();
  };
  EXPECT_EQ(status_with("m").error_message(),
            "x-memcg-node: the metadata names node \"m\", the request node \"n\"");
  EXPECT_EQ(status_with("").error_message(),
            "x-memcg-node: the metadata is missing; the request names node \"n\"");
  EXPECT_EQ(status_with("m").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(IngestTest, TwoStreamsFeedOneNode) {
  static constexpr uint64_t kBatches = 200;
  const auto feed_all = [this](uint32_t tid) {
    Feed feed(ingest_.get(), "n");
    const std::string id = "s" + std::to_string(tid);
    ASSERT_TRUE(feed.Open(id).has_value());
    for (uint64_t sequence = 1; sequence <= kBatches; ++sequence) {
      ASSERT_TRUE(feed.Write(BatchOf(sequence, {Fault(tid, kHeap + sequence * 4096)})));
    }
    std::vector<v1::StreamResponse> rest;
    ASSERT_TRUE(feed.End(&rest).ok());
    EXPECT_EQ(rest.back().ack().applied_through(), kBatches);
  };
  std::thread other(feed_all, 8);
  feed_all(9);
  other.join();
  v1::Node node;
  ASSERT_TRUE(GetNode("n", &node).ok());
  EXPECT_EQ(node.events(), 2 * kBatches);
  EXPECT_EQ(node.resident_pages(), 2 * kBatches);
  EXPECT_EQ(node.streams(), 2u);
}

TEST_F(IngestTest, AClientThatNeverReadsIsHeldByFlowControl) {
  // 16 KiB a batch, whose Ack has notables of 5 KiB, folded or not: flow control fills soon, both ways.
  constexpr uint64_t kBatches = 1000, kFaults = 1024, kNotables = 16;
  // A channel that does not widen its window of 64 KiB to what the connection could carry.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::IngestService::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  const auto context = ContextFor("n");
  const auto call = stub->Stream(context.get());
  v1::StreamRequest open;
  open.mutable_open()->set_node("n");
  open.mutable_open()->set_stream_id("s");
  ASSERT_TRUE(call->Write(open));
  std::atomic<uint64_t> written{0};
  std::thread writer([&call, &written] {
    for (uint64_t sequence = 1; sequence <= kBatches; ++sequence) {
      v1::StreamRequest request;
      v1::Batch* batch = request.mutable_batch();
      *batch = BatchOf(sequence, {});
      for (uint64_t i = 0; i < kFaults; ++i) {
        const core::Event fault = Fault(7, kHeap + i * 4096);
        batch->add_words(fault.head);
        batch->add_words(fault.body);
      }
      if (sequence == 1) {
        v1::DefinePath* define = batch->add_side()->mutable_define_path();
        define->set_handle(1);
        define->set_path("/" + std::string(250, 'p'));
      }
      for (uint64_t i = 0; i < kNotables; ++i) batch->add_side()->mutable_cgroup_remove()->set_path(1);
      for (auto& side : *batch->mutable_side()) side.set_position(sequence == 1 ? 0 : kFaults);
      if (!call->Write(request)) return;
      written = sequence;
    }
    call->WritesDone();
  });
  const auto applied = [this] { return EventsOf("n") / (kFaults + kNotables); };
  uint64_t before = 0, now = 0;
  do {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    now = applied();
  } while (now != before || now == 0);
  EXPECT_LT(now, kBatches / 2) << "nothing is applied whose Ack would only add to those that wait";
  EXPECT_LT(written, kBatches) << "a write waits: what is not applied stays with the client";
  RecordProperty("applied", static_cast<int>(now));
  RecordProperty("written", static_cast<int>(written));
  // Once it reads, all goes on.
  v1::StreamResponse response;
  uint64_t acknowledged = 0;
  while (call->Read(&response)) {
    if (response.has_ack()) acknowledged = response.ack().applied_through();
  }
  writer.join();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_EQ(acknowledged, kBatches);
  EXPECT_EQ(applied(), kBatches);
}

TEST_F(IngestTest, AStreamOpenedAgainEndsTheOlderCall) {
  Feed older(ingest_.get(), "n");
  ASSERT_TRUE(older.Open("s").has_value());
  ASSERT_TRUE(older.Apply(TwoFaults(1)).has_value());
  Feed newer(ingest_.get(), "n");
  EXPECT_EQ(newer.Open("s")->next_sequence(), 2u);
  EXPECT_FALSE(older.Read().has_value());
  const grpc::Status status = older.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "stream \"s\" was opened again");
  EXPECT_TRUE(newer.Apply(TwoFaults(2)).has_value());
  EXPECT_TRUE(newer.End().ok());
}

TEST_F(IngestTest, DeletingANodeEndsItsStreams) {
  Feed feed(ingest_.get(), "n");
  const auto opened = feed.Open("s");
  ASSERT_TRUE(opened.has_value());
  ASSERT_TRUE(feed.Apply(TwoFaults(1)).has_value());
  ASSERT_TRUE(DeleteNode("n").ok());
  EXPECT_FALSE(feed.Read().has_value());
  const grpc::Status status = feed.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "node \"n\" was deleted");
  // A node of the same name is another one.
  ASSERT_TRUE(CreateNode("n").ok());
  Feed again(ingest_.get(), "n");
  EXPECT_FALSE(again.Open("s", opened->incarnation()).has_value());
  EXPECT_EQ(again.End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(IngestTest, DeletingANodeUnderLoadIsSafe) {
  std::atomic<bool> stop{false};
  std::thread feeder([this, &stop] {
    while (!stop) {
      Feed feed(ingest_.get(), "n");
      const auto opened = feed.Open("s");
      for (uint64_t i = 0; opened.has_value() && i < 50; ++i)
        feed.Write(TwoFaults(opened->next_sequence() + i));
      feed.End();
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(DeleteNode("n").ok());
    EXPECT_TRUE(CreateNode("n").ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stop = true;
  feeder.join();
  // A call is over for its client a moment before it is for the server.
  for (int i = 0; i < 500 && server_->TEST_metrics()->OpenStreams() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(server_->TEST_metrics()->OpenStreams(), 0);
}

TEST_F(IngestTest, AClientThatDoesNotReadHoldsOnlyItself) {
  Feed lazy(ingest_.get(), "n");
  ASSERT_TRUE(lazy.Open("lazy").has_value());
  std::thread writer([&lazy] {
    for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
      v1::Batch batch = TwoFaults(sequence);
      for (int i = 0; i < 200; ++i) AddMark(i, &batch);
      if (!lazy.Write(batch)) return;
    }
  });
  Feed lively(ingest_.get(), "n");
  ASSERT_TRUE(lively.Open("lively").has_value());
  for (uint64_t sequence = 1; sequence <= 50; ++sequence) {
    ASSERT_TRUE(lively.Apply(BatchOf(sequence, {Fault(9, kHeap + sequence * 4096)})).has_value());
  }
  uint64_t states = 0, applied = 0;
  while (applied < 100) {
    const auto response = lazy.Read();
    ASSERT_TRUE(response.has_value());
    if (response->has_state()) ++states;
    if (response->has_ack()) applied = response->ack().applied_through();
  }
  writer.join();
  EXPECT_EQ(states, 100u * 200u);
  EXPECT_TRUE(lazy.End().ok());
}

TEST_F(IngestTest, ADrainAcknowledgesWhatWasReceived) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) feed.Write(TwoFaults(sequence));
  std::thread drain([this] { server_->Drain(std::chrono::seconds(10)); });
  uint64_t applied = 0;
  bool told = false;
  while (const auto response = feed.Read()) {
    if (response->has_go_away()) {
      told = true;
      EXPECT_NE(response->go_away().reason(), "");
      feed.WritesDone();
    }
    if (response->has_ack()) applied = response->ack().applied_through();
  }
  EXPECT_TRUE(told);
  EXPECT_EQ(applied, 20u);
  EXPECT_TRUE(feed.End().ok()) << "who goes by himself ends well";
  drain.join();
}

TEST_F(IngestTest, ADrainEndsClientsThatDoNotGo) {
  Feed feed(ingest_.get(), "n");
  ASSERT_TRUE(feed.Open("s").has_value());
  ASSERT_TRUE(feed.Apply(TwoFaults(1)).has_value());
  const auto begin = std::chrono::steady_clock::now();
  std::thread drain([this] { server_->Drain(std::chrono::seconds(2)); });
  ASSERT_TRUE(feed.Read()->has_go_away());
  feed.Write(TwoFaults(2));
  EXPECT_EQ(feed.Read()->ack().applied_through(), 2u) << "until the grace is over it is served";
  EXPECT_FALSE(feed.Read().has_value());
  drain.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  const grpc::Status status = feed.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status)->reason(), "DRAINING");
}

}  // namespace
}  // namespace memcgd::server
