// What a batch must be; the first event that is not is named, and nothing of the batch is applied.
#include "core/event_stream.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/node.h"

namespace memcgd::core {
namespace {

struct EventStreamTest : testing::Test {
  NodeConfig config;
  EventStream stream{"s"};
  std::vector<Event> events;
  std::vector<WideEvent> wide;

  EventStreamTest() {
    config.cpus = 4;
    stream.DefinePath("/a");
    stream.DefineFile(FileId{1});
    stream.DefineName("sh");
  }
  std::string Said() {
    absl::Status status = stream.Check({0, events, wide}, config);
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  // What is said of one wide event.
  std::string SaidOf(WideBody body, uint32_t tid = 10, uint32_t cpu = 0) {
    wide = {WideEvent{0, cpu, tid, 0, std::move(body)}};
    return Said();
  }
  std::string SaidOf(Event event) {
    events = {event};
    return Said();
  }
  static Event Make(EventKind kind, uint64_t body, uint32_t tid = 10, uint32_t cpu = 0) {
    return {Event::Head(kind, cpu, tid, 0), body};
  }
};

bool Refuses(const std::string& said, const std::string& index, const std::string& why) {
  return said.starts_with(index) && said.find(why) != said.npos;
}

TEST_F(EventStreamTest, AnEmptyBatchIsFine) { EXPECT_EQ(Said(), ""); }

TEST_F(EventStreamTest, AFrequentEventIsNamedByItsIndex) {
  Event good = Make(EventKind::kFault, Event::AddressBody(0x1000, 6));
  events = {good, good, Make(EventKind::kFault, 0, 0)};
  EXPECT_TRUE(Refuses(Said(), "event 2: ", "thread id 0"));
}

TEST_F(EventStreamTest, EveryFrequentKindHasItsRules) {
  EXPECT_TRUE(Refuses(SaidOf(Make(EventKind::kInvalid, 0)), "event 0: ", "unknown kind 0"));
  EXPECT_TRUE(Refuses(SaidOf(Make(static_cast<EventKind>(40), 0)), "event 0: ", "unknown kind 40"));
  EXPECT_TRUE(Refuses(SaidOf(Make(EventKind::kFault, 0, 10, 4)), "event 0: ", "CPU 4 of a node that has 4"));
  for (EventKind kind :
       {EventKind::kFileFault, EventKind::kMapPages, EventKind::kFileAdd, EventKind::kFileDelete,
        EventKind::kFileRead, EventKind::kFileWrite, EventKind::kFileDirty, EventKind::kReadahead}) {
    EXPECT_EQ(SaidOf(Make(kind, Event::FileBody(1, 0, 0))), "");
    EXPECT_TRUE(Refuses(SaidOf(Make(kind, Event::FileBody(0, 0, 0))), "event 0: ", "file handle 0"));
    EXPECT_TRUE(Refuses(SaidOf(Make(kind, Event::FileBody(2, 0, 0))), "event 0: ", "file handle 2"));
  }
  EXPECT_TRUE(Refuses(SaidOf(Make(EventKind::kFileAdd, Event::FileBody(1, 0, 11))), "event 0: ", "order 11"));
  EXPECT_TRUE(Refuses(SaidOf(Make(EventKind::kFileDelete, Event::FileBody(1, ~0u, 1))),
                      "event 0: ", "last page index"));
  EXPECT_EQ(SaidOf(Make(EventKind::kFileAdd, Event::FileBody(1, ~0u, 0))), "");
  for (EventKind kind : {EventKind::kMmapAnon, EventKind::kMunmap, EventKind::kDontNeed}) {
    EXPECT_EQ(SaidOf(Make(kind, Event::RangeBody(1, 1))), "");
    EXPECT_TRUE(Refuses(SaidOf(Make(kind, Event::RangeBody(1, 0))), "event 0: ", "0 pages"));
    EXPECT_TRUE(
        Refuses(SaidOf(Make(kind, Event::RangeBody((uint64_t{1} << 45) - 1, 2))), "event 0: ", "57 bits"));
    EXPECT_TRUE(Refuses(SaidOf(Make(kind, Event::RangeBody(1, 1), 0)), "event 0: ", "thread id 0"));
  }
  EXPECT_EQ(SaidOf(Make(EventKind::kFileAdd, Event::FileBody(1, 0, 0), 0)), "");  // a kernel thread
}

TEST_F(EventStreamTest, PageSizeCountsForRanges) {
  config.page_size = 65536;
  EXPECT_TRUE(Refuses(SaidOf(Make(EventKind::kMunmap, Event::RangeBody(uint64_t{1} << 41, 1))),
                      "event 0: ", "57 bits"));
  EXPECT_TRUE(Refuses(SaidOf(wide::Munmap{4096, 65536}), "side event 0: ", "page size"));
}

TEST_F(EventStreamTest, EveryWideKindHasItsRules) {
  struct Case {
    WideBody body;
    std::string why;
    uint32_t tid = 10;
  };
  const uint32_t anon = kMapPrivate | kMapAnonymous;
  const Case cases[] = {
      {wide::DefinePath{2, "a"}, "begin with /"},
      {wide::DefinePath{3, "/b"}, "path handle 3 is not the next one, 2"},
      {wide::DefineFile{1, 0, 0, false}, "file handle 1 is not the next one, 2"},
      {wide::DefineFile{2, ~0u, 0, false}, "no device"},
      {wide::DefineName{2, std::string(256, 'x')}, "255"},
      {wide::DefineName{9, ""}, "name handle 9"},
      {wide::Mmap{0x1000, 0, 3, anon, 0, 0}, "length is 0"},
      {wide::Mmap{0x1001, 4096, 3, anon, 0, 0}, "page size"},
      {wide::Mmap{0x1000, ~uint64_t{0}, 3, anon, 0, 0}, "57 bits"},
      {wide::Mmap{0x1000, 4096, 3, kMapAnonymous, 0, 0}, "neither shared nor private"},
      {wide::Mmap{0x1000, 4096, 3, kMapPrivate, 7, 0}, "file handle 7"},
      {wide::Mmap{0x1000, 4096, 3, anon, 0, 0}, "thread id 0", 0},
      {wide::BaselineArea{{0x1000, 0, 3, anon, 0, 0}}, "length is 0"},
      {wide::Munmap{0x1000, 0}, "length is 0"},
      {wide::Munmap{0x1000, 4096}, "thread id 4194304", 1u << 22},
      {wide::Brk{uint64_t{1} << 57}, "57 bits"},
      {wide::Mremap{0x1000, 4096, 0x2000, 0, 0}, "length is 0"},
      {wide::Mremap{0x1001, 4096, 0x2000, 4096, 0}, "page size"},
      {wide::Mprotect{0x1001, 4096, 0}, "page size"},
      {wide::Madvise{uint64_t{1} << 57, 4096, 0}, "57 bits"},
      {wide::Mlock{uint64_t{1} << 58, 1, false}, "57 bits"},
      {wide::Munlock{0, uint64_t{1} << 60}, "57 bits"},
      {wide::Clone{0, false, false}, "thread id 0"},
      {wide::Clone{10, false, false}, "its own child"},
      {wide::Exec{5}, "name handle 5"},
      {wide::ExecArguments{40000}, "40000 argument pages"},
      {wide::Exit{false}, "thread id 0", 0},
      {wide::ExitMmap{}, "thread id 0", 0},
      {wide::Comm{5}, "name handle 5"},
      {wide::FileRange{EventKind::kFault, 1, 0, 1, 0}, "no such operation"},
      {wide::FileRange{EventKind::kFileAdd, 1, 0, 0, 0}, "0 pages"},
      {wide::FileRange{EventKind::kFileAdd, 1, 0, 1u << 25, 0}, "33554432 pages"},
      {wide::FileRange{EventKind::kFileAdd, 1, 0, 1, 11}, "order 11"},
      {wide::FileRange{EventKind::kFileAdd, 1, uint64_t{1} << 32, 1, 0}, "passes the last"},
      {wide::FileRange{EventKind::kFileAdd, 3, 0, 1, 0}, "file handle 3"},
      {wide::FileRange{EventKind::kFileFault, 1, 0, 1, 0}, "thread id 0", 0},
      {wide::FileRange{EventKind::kFileFault, 1, 0, 1, 0}, "thread id 5000000", 5000000},
      {wide::FileRange{EventKind::kFileRead, 1, 0, 1, 0}, "thread id 5000000", 5000000},
      {wide::CgroupCreate{0}, "path handle 0"},
      {wide::CgroupRemove{2}, "path handle 2"},
      {wide::CgroupAttach{1, 0}, "thread id 0"},
      {wide::SetKnob{7, "memory.max", "1"}, "path handle 7"},
      {wide::ReclaimBegin{}, "thread id 0", 0},
      {wide::ReclaimEnd{0}, "thread id 0", 0},
      {wide::MarkVictim{0}, "thread id 0"},
      {wide::SetOomScoreAdj{0, 0}, "thread id 0"},
      {wide::SetOomScoreAdj{10, 1001}, "oom_score_adj 1001 is not in −1000 … 1000"},
      {wide::SetOomScoreAdj{10, -1001}, "oom_score_adj -1001 is not in"},
      {wide::BaselineProcess{0, 0, 0}, "thread id 0"},
      {wide::BaselineProcess{1, 9, 0}, "path handle 9"},
      {wide::BaselinePresent{0x1000, 0, true}, "pages are not in"},
      {wide::BaselinePresent{uint64_t{1} << 57, 1, true}, "57 bits"},
      {wide::BaselineCached{1, 0, 0, 0, false, false}, "pages are not in"},
      {wide::BaselineCached{1, ~0u, 2, 0, false, false}, "last page index"},
      {wide::BaselineCached{4, 0, 1, 0, false, false}, "file handle 4"},
  };
  for (const Case& c : cases) {
    std::string said = SaidOf(c.body, c.tid);
    EXPECT_TRUE(Refuses(said, "side event 0: ", c.why))
        << "body " << c.body.index() << ": " << said << ", not " << c.why;
  }
  EXPECT_TRUE(Refuses(SaidOf(wide::Mark{1}, 0, 4), "side event 0: ", "CPU 4"));
}

TEST_F(EventStreamTest, PositionsAscendAndLieInTheBatch) {
  Event good = Make(EventKind::kFault, Event::AddressBody(0x1000, 6));
  events = {good, good};
  wide = {WideEvent{2, 0, 10, 0, wide::ExitMmap{}}, WideEvent{1, 0, 10, 0, wide::ExitMmap{}}};
  EXPECT_TRUE(Refuses(Said(), "side event 1: ", "goes back"));
  wide = {WideEvent{3, 0, 10, 0, wide::ExitMmap{}}};
  EXPECT_TRUE(Refuses(Said(), "side event 0: ", "past the batch's 2 events"));
}

TEST_F(EventStreamTest, AHandleCanBeUsedInTheBatchThatDefinesItButNotBefore) {
  Event uses = Make(EventKind::kFileAdd, Event::FileBody(2, 0, 0));
  wide = {WideEvent{0, 0, 0, 0, wide::DefineFile{2, 1, 1, false}}};
  EXPECT_EQ(SaidOf(uses), "");
  wide[0].position = 1;
  EXPECT_TRUE(Refuses(SaidOf(uses), "event 0: ", "file handle 2"));
}

TEST(EventStreamNodeTest, ARefusedBatchChangesNothing) {
  std::unique_ptr<Node> node = *Node::Create(NodeConfig{});
  EventStream* stream = node->OpenStream("s");
  uint64_t before = node->StateHash();
  std::vector<Event> events = {{Event::Head(EventKind::kFault, 0, 10, 0), Event::AddressBody(0x1000, 6)},
                               {0, 0}};
  std::vector<WideEvent> wide = {WideEvent{0, 0, 0, 0, wide::DefinePath{1, "/a"}},
                                 WideEvent{0, 0, 0, 0, wide::CgroupCreate{1}}};
  BatchResult result;
  EXPECT_FALSE(node->Apply(stream, {0, events, wide}, &result).ok());
  EXPECT_EQ(node->StateHash(), before);
  events.pop_back();
  EXPECT_TRUE(node->Apply(stream, {0, events, wide}, &result).ok());
}

TEST_F(EventStreamTest, ARangeOfLargeFoliosEndsWithTheLastIndexToo) {
  wide = {
      WideEvent{0, 0, 0, 0, wide::DefineFile{2, 1, 1, false}},
      WideEvent{0, 0, 10, 0, wide::FileRange{EventKind::kFileAdd, 2, (uint64_t{1} << 32) - 1025, 1025, 10}}};
  EXPECT_TRUE(Refuses(Said(), "side event 1: ", "passes the last"));
}

TEST_F(EventStreamTest, AFilesOffsetIsAMultipleOfThePageSize) {
  wide = {WideEvent{0, 0, 0, 0, wide::DefineFile{2, 1, 1, false}},
          WideEvent{0, 0, 10, 0, wide::Mmap{0x1000, 0x1000, kProtRead, kMapShared, 2, 17}}};
  EXPECT_TRUE(Refuses(Said(), "side event 1: ", "offset 17"));
}

}  // namespace
}  // namespace memcgd::core
