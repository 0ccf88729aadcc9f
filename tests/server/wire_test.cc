#include "server/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "server/limits.h"

namespace memcgd::server {
namespace {

namespace wide = core::wide;

const google::protobuf::OneofDescriptor* SideKinds() {
  return v1::SideEvent::descriptor()->FindOneofByName("event");
}

// A side event of that kind with nothing in it but what it cannot be without.
v1::SideEvent Empty(const google::protobuf::FieldDescriptor* kind) {
  v1::SideEvent event;
  event.GetReflection()->MutableMessage(&event, kind);
  if (event.has_file_range()) event.mutable_file_range()->set_op(v1::FileRange::OP_ADD);
  return event;
}

// The only wide event of a batch with that side event.
core::WideEvent Converted(const v1::SideEvent& event) {
  v1::Batch batch;
  batch.set_base_time_ns(1000);
  *batch.add_side() = event;
  BatchWork work;
  const auto converted = ToCore(batch, &work);
  EXPECT_TRUE(converted.ok()) << converted.status();
  return work.wide.empty() ? core::WideEvent() : work.wide[0];
}

std::string RefusalOf(const v1::Batch& batch) {
  BatchWork work;
  const auto converted = ToCore(batch, &work);
  EXPECT_EQ(converted.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(converted.status().message());
}

TEST(WireTest, EverySideEventHasItsOwnCoreEvent) {
  std::set<size_t> seen;
  for (int i = 0; i < SideKinds()->field_count(); ++i) {
    const core::WideEvent event = Converted(Empty(SideKinds()->field(i)));
    EXPECT_TRUE(seen.insert(event.body.index()).second) << SideKinds()->field(i)->name();
  }
  EXPECT_EQ(seen.size(), kWideKinds);
}

TEST(WireTest, PlaceAndTimeOfASideEventArrive) {
  v1::SideEvent from;
  from.set_position(7);
  from.set_cpu(3);
  from.set_tid(4194303);
  from.set_time_offset_ns(-1500);
  from.mutable_exit()->set_group_dead(true);
  const core::WideEvent to = Converted(from);
  EXPECT_EQ(to.position, 7u);
  EXPECT_EQ(to.cpu, 3u);
  EXPECT_EQ(to.tid, 4194303u);
  EXPECT_EQ(to.time_ns, -500);
  EXPECT_TRUE(std::get<wide::Exit>(to.body).group_dead);
}

TEST(WireTest, FieldsOfSideEventsArrive) {
  v1::SideEvent from;
  v1::Mmap* mmap = from.mutable_baseline_area()->mutable_area();
  mmap->set_address(0x7f0000001000);
  mmap->set_length(8192);
  mmap->set_prot(3);
  mmap->set_flags(0x22);
  mmap->set_file(9);
  mmap->set_offset(4096);
  const core::WideEvent area = Converted(from);
  const auto& to = std::get<wide::BaselineArea>(area.body).area;
  EXPECT_EQ(to.address, 0x7f0000001000u);
  EXPECT_EQ(to.length, 8192u);
  EXPECT_EQ(to.prot, 3u);
  EXPECT_EQ(to.flags, 0x22u);
  EXPECT_EQ(to.file, 9u);
  EXPECT_EQ(to.offset, 4096u);

  v1::FileRange* range = from.mutable_file_range();
  range->set_op(v1::FileRange::OP_DIRTY);
  range->set_file(5);
  range->set_index(uint64_t{1} << 40);
  range->set_count(300);
  range->set_order(9);
  const core::WideEvent file = Converted(from);
  const auto& file_range = std::get<wide::FileRange>(file.body);
  EXPECT_EQ(file_range.op, core::EventKind::kFileDirty);
  EXPECT_EQ(file_range.file, 5u);
  EXPECT_EQ(file_range.index, uint64_t{1} << 40);
  EXPECT_EQ(file_range.count, 300u);
  EXPECT_EQ(file_range.order, 9u);

  v1::DefineName* name = from.mutable_define_name();
  name->set_handle(77);
  name->set_name("kworker/0:1-\xff (x)");
  const core::WideEvent defined = Converted(from);
  EXPECT_EQ(std::get<wide::DefineName>(defined.body).handle, 77u);
  EXPECT_EQ(std::get<wide::DefineName>(defined.body).name, "kworker/0:1-\xff (x)");

  range = from.mutable_file_range();
  range->set_op(v1::FileRange::OP_READAHEAD);
  const core::WideEvent marked = Converted(from);
  EXPECT_EQ(std::get<wide::FileRange>(marked.body).op, core::EventKind::kReadahead);

  v1::MigrateFolio* migrate = from.mutable_migrate_folio();
  migrate->set_path(3);
  migrate->set_file(4);
  migrate->set_index(uint64_t{1} << 40);
  migrate->set_address(0x7000);
  const core::WideEvent migrated = Converted(from);
  const auto& folio = std::get<wide::MigrateFolio>(migrated.body);
  EXPECT_EQ(folio.path, 3u);
  EXPECT_EQ(folio.file, 4u);
  EXPECT_EQ(folio.index, uint64_t{1} << 40);
  EXPECT_EQ(folio.address, 0x7000u);

  from.mutable_define_path()->set_path("/any\xff");
  const core::WideEvent path = Converted(from);
  EXPECT_EQ(std::get<wide::DefinePath>(path.body).path, "/any\xff");

  v1::SetOvercommit* policy = from.mutable_set_overcommit();
  policy->set_policy(v1::OVERCOMMIT_POLICY_NEVER);
  policy->set_ratio_percent(80);
  policy->set_kbytes(12);
  const core::WideEvent set = Converted(from);
  const auto& overcommit = std::get<wide::SetOvercommit>(set.body);
  EXPECT_EQ(overcommit.policy, core::OvercommitPolicy::kNever);
  EXPECT_EQ(overcommit.ratio_percent, 80u);
  EXPECT_EQ(overcommit.kbytes, 12u);

  from.mutable_set_oom_score_adj()->set_target_tid(11);
  from.mutable_set_oom_score_adj()->set_oom_score_adj(-998);
  const core::WideEvent adjusted = Converted(from);
  EXPECT_EQ(std::get<wide::SetOomScoreAdj>(adjusted.body).target_tid, 11u);
  EXPECT_EQ(std::get<wide::SetOomScoreAdj>(adjusted.body).oom_score_adj, -998);
}

TEST(WireTest, FrequentEventsAreReadInPlace) {
  v1::Batch batch;
  batch.set_base_time_ns(5);
  batch.add_words(core::Event::Head(core::EventKind::kFileRead, 1023, core::kMaxTid, core::kMaxEventTimeUs));
  batch.add_words(core::Event::FileBody(core::kMaxHandle, 0xffffffff, 255));
  BatchWork work;
  const auto converted = ToCore(batch, &work);
  ASSERT_TRUE(converted.ok());
  ASSERT_EQ(converted->events.size(), 1u);
  EXPECT_EQ(static_cast<const void*>(converted->events.data()),
            static_cast<const void*>(batch.words().data()));
  const core::Event& event = converted->events[0];
  EXPECT_EQ(event.kind(), core::EventKind::kFileRead);
  EXPECT_EQ(event.cpu(), 1023u);
  EXPECT_EQ(event.tid(), core::kMaxTid);
  EXPECT_EQ(event.time_us(), core::kMaxEventTimeUs);
  EXPECT_EQ(event.file(), core::kMaxHandle);
  EXPECT_EQ(event.index(), 0xffffffffu);
  EXPECT_EQ(event.extra(), 255u);
}

TEST(WireTest, OddWordsAreRefused) {
  v1::Batch batch;
  for (int i = 0; i < 5; ++i) batch.add_words(1);
  EXPECT_EQ(RefusalOf(batch), "event 2: has one word; 5 words are not pairs");
}

TEST(WireTest, TooManyEventsAreRefused) {
  v1::Batch batch;
  batch.mutable_words()->Resize(2 * kMaxBatchEvents, 0);
  BatchWork work;
  EXPECT_TRUE(ToCore(batch, &work).ok());
  batch.add_side()->mutable_exit_mmap();
  EXPECT_EQ(RefusalOf(batch), "65537 events in a batch; at most 65536 are allowed");
}

TEST(WireTest, ASideEventWithoutAnEventIsRefused) {
  v1::Batch batch;
  batch.add_side()->mutable_exit_mmap();
  batch.add_side()->set_tid(4);
  EXPECT_EQ(RefusalOf(batch), "side event 1: no event that this server knows is set");
}

TEST(WireTest, NumbersOutsideTheirEnumAreRefused) {
  v1::Batch batch;
  batch.add_side()->mutable_file_range()->set_file(1);
  EXPECT_EQ(RefusalOf(batch), "side event 0: file range operation 0 is unknown");
  batch.mutable_side(0)->mutable_set_overcommit()->set_policy(static_cast<v1::OvercommitPolicy>(9));
  EXPECT_EQ(RefusalOf(batch), "side event 0: overcommit policy 9 is unknown");
}

TEST(WireTest, ATimeBeyond64BitsIsRefused) {
  v1::Batch batch;
  batch.set_base_time_ns(std::numeric_limits<int64_t>::max());
  batch.add_side()->mutable_exit_mmap();
  batch.mutable_side(0)->set_time_offset_ns(1);
  EXPECT_EQ(RefusalOf(batch), "side event 0: its time does not fit 64 bits");
}

TEST(WireTest, TooManyMarksAreRefused) {
  v1::Batch batch;
  for (size_t i = 0; i < kMaxBatchMarks; ++i) batch.add_side()->mutable_mark()->set_id(i);
  BatchWork work;
  EXPECT_TRUE(ToCore(batch, &work).ok());
  batch.add_side()->mutable_mark()->set_id(1);
  EXPECT_EQ(RefusalOf(batch), "side event 1024: more than 1024 marks in a batch");
}

TEST(WireTest, HashDependsOnAllButTheSequenceNumber) {
  v1::Batch batch;
  batch.set_sequence(1);
  batch.add_words(3);
  batch.add_words(4);
  batch.add_side()->mutable_mark()->set_id(1);
  const uint64_t hash = HashOf(batch);
  std::set<uint64_t> hashes = {hash};
  v1::Batch other = batch;
  other.set_sequence(2);
  EXPECT_EQ(HashOf(other), hash);
  other.set_base_time_ns(1);
  EXPECT_TRUE(hashes.insert(HashOf(other)).second);
  other = batch;
  other.set_words(0, 4);
  other.set_words(1, 3);
  EXPECT_TRUE(hashes.insert(HashOf(other)).second) << "swapped words";
  other = batch;
  other.mutable_side(0)->mutable_mark()->set_id(2);
  EXPECT_TRUE(hashes.insert(HashOf(other)).second);
  other = batch;
  other.add_words(0);
  other.add_words(0);
  EXPECT_TRUE(hashes.insert(HashOf(other)).second) << "zero words";
  other = batch;
  other.clear_side();
  EXPECT_TRUE(hashes.insert(HashOf(other)).second);
}

TEST(WireTest, AcksFoldAndKeepSixteenNotables) {
  core::BatchResult result;
  result.outcomes[static_cast<size_t>(core::Outcome::kOk)] = 10;
  result.outcomes[static_cast<size_t>(core::Outcome::kNoArea)] = 1;
  result.high_delay_us = 1500;
  for (uint32_t i = 0; i < 10; ++i) {
    result.notables.push_back({.position = i, .outcome = core::Outcome::kNoArea, .detail = "no area"});
  }
  v1::Ack ack;
  AddToAck(4, result, &ack);
  AddToAck(5, result, &ack);
  EXPECT_EQ(ack.applied_through(), 5u);
  EXPECT_EQ(ack.durable_through(), 0u);
  EXPECT_EQ(ack.high_delay_us(), 3000u);
  ASSERT_EQ(ack.outcomes_size(), 2);
  EXPECT_EQ(ack.outcomes(0).outcome(), v1::OUTCOME_OK);
  EXPECT_EQ(ack.outcomes(0).count(), 20u);
  EXPECT_EQ(ack.outcomes(1).count(), 2u);
  ASSERT_EQ(ack.notables_size(), 16);
  EXPECT_EQ(ack.notables(15).sequence(), 5u);
  EXPECT_EQ(ack.notables(15).position(), 5u);
}

TEST(WireTest, ASpecOfZeroesMeansTheDefaults) {
  const auto config = ToCore(v1::NodeSpec());
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->cpus, 1u);
  EXPECT_EQ(config->memory_bytes, uint64_t{16} << 30);
  EXPECT_EQ(config->swap_bytes, 0u);
  EXPECT_EQ(config->page_size, 4096u);
  EXPECT_TRUE(config->zero_page);
  EXPECT_EQ(config->overcommit, core::OvercommitPolicy::kGuess);
  EXPECT_EQ(config->overcommit_ratio, 50u);
  EXPECT_EQ(config->writeback_bytes_per_second, uint64_t{200} << 20);
  EXPECT_EQ(config->read_bytes_per_second, uint64_t{1536} << 20);
}

TEST(WireTest, ASpecSurvivesTheWayThereAndBack) {
  v1::NodeSpec spec;
  spec.set_cpus(8);
  spec.set_memory_bytes(uint64_t{1} << 33);
  spec.set_swap_bytes(1 << 20);
  spec.set_page_size(65536);
  spec.set_no_zero_page(true);
  spec.set_overcommit(v1::OVERCOMMIT_POLICY_ALWAYS);
  spec.set_reclaim(v1::RECLAIM_MODE_NONE);
  spec.set_overcommit_ratio(70);
  spec.set_overcommit_kbytes(4);
  spec.set_writeback_bytes_per_second(1 << 22);
  spec.set_read_bytes_per_second(1 << 23);
  spec.mutable_mechanisms()->set_charge_order(v1::CHARGE_ORDER_UPTODATE_FIRST);
  spec.mutable_mechanisms()->set_commit_batch(v1::COMMIT_BATCH_SMALL);
  spec.mutable_mechanisms()->set_css_refs(v1::CSS_REFS_PER_PAGE);
  spec.mutable_mechanisms()->set_stats(v1::STATS_FORM_WALK);
  spec.mutable_mechanisms()->set_lru_lock(v1::LRU_LOCK_PER_NODE);
  const auto config = ToCore(spec);
  ASSERT_TRUE(config.ok());
  core::NodeInfo info;
  info.config = *config;
  v1::Node node;
  FillNode(info, &node);
  EXPECT_EQ(node.spec().SerializeAsString(), spec.SerializeAsString());
}

TEST(WireTest, EveryCounterOfTheMechanismsArrives) {
  core::NodeInfo info;
  uint64_t next = 1;
#define MEMCGD_FILL(field, help) info.counters.field = next++;
  MEMCGD_MECHANISM_COUNTERS(MEMCGD_FILL)
#undef MEMCGD_FILL
  v1::Node node;
  FillNode(info, &node);
  const auto* descriptor = v1::MechanismCounters::descriptor();
  ASSERT_EQ(static_cast<uint64_t>(descriptor->field_count()), next - 1);
  for (int i = 0; i < descriptor->field_count(); ++i) {
    EXPECT_EQ(
        node.mechanism_counters().GetReflection()->GetUInt64(node.mechanism_counters(), descriptor->field(i)),
        static_cast<uint64_t>(i) + 1)
        << descriptor->field(i)->name();
  }
}

TEST(WireTest, PathsThatAreNotUtf8AreEscapedInAnswers) {
  core::MarkState mark;
  mark.cgroups.push_back({"/a\xff", {}});
  v1::State state;
  FillState(mark, &state);
  EXPECT_EQ(state.cgroups(0).path(), "/a\\xff");
  core::BatchResult result;
  result.notables.push_back(
      {.position = 0, .outcome = core::Outcome::kNoCgroup, .detail = "no cgroup /\xfe"});
  v1::Ack ack;
  AddToAck(1, result, &ack);
  EXPECT_EQ(ack.notables(0).detail(), "no cgroup /\\xfe");
}

TEST(WireTest, AReadingTellsItsErrorBound) {
  core::CgroupReading reading;
  reading.error_bound = 640;
  v1::ReadCgroupResponse response;
  FillReading(reading, &response);
  EXPECT_EQ(response.error_bound(), 640u);
}

TEST(WireTest, AReadingKeepsTheOrderOfItsLines) {
  core::CgroupReading reading;
  reading.peak_bytes = 9;
  reading.stat = {{"anon", 4096}, {"file", -4096}};
  reading.events = {{"low", 0}, {"max", 3}};
  reading.swap_events = {{"high", 5}, {"max", 6}, {"fail", 7}};
  reading.swap_current_bytes = 10;
  reading.swap_peak_bytes = 11;
  reading.high_delay_us = 12;
  v1::ReadCgroupResponse response;
  FillReading(reading, &response);
  EXPECT_FALSE(response.has_current_bytes()) << "the root has none";
  EXPECT_FALSE(response.has_root_usage());
  EXPECT_EQ(response.swap_current_bytes(), 10u);
  EXPECT_EQ(response.swap_peak_bytes(), 11u);
  EXPECT_EQ(response.high_delay_us(), 12u);
  ASSERT_EQ(response.swap_events_size(), 3);
  EXPECT_EQ(response.swap_events(2).name(), "fail");
  EXPECT_EQ(response.swap_events(2).value(), 7);
  ASSERT_EQ(response.stat_size(), 2);
  EXPECT_EQ(response.stat(1).name(), "file");
  EXPECT_EQ(response.stat(1).value(), -4096);
  ASSERT_EQ(response.events_size(), 2);
  EXPECT_EQ(response.events(1).value(), 3);
}

}  // namespace
}  // namespace memcgd::server
