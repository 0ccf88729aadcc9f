// Seeded bytes as events: whatever comes, a batch is either refused whole, naming the event, or applied;
// nothing crashes and no count is lost.
//
// MEMCGD_SEED=<n> makes other bytes, MEMCGD_FUZZ_BATCHES=<n> more of them.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/event_stream.h"
#include "core/node.h"

namespace memcgd::core {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

class Fuzzer {
 public:
  Fuzzer(uint64_t seed, uint32_t page_size) : random_(seed), page_size_(page_size) {}

  void NextBatch() {
    events.clear();
    wide.clear();
    uint32_t count = Below(24);
    for (uint32_t i = 0; i < count; ++i) {
      while (Below(3) == 0) wide.push_back(Wide(i));
      events.push_back(Frequent());
    }
    if (Below(64) == 0 && !wide.empty()) wide.back().position += Below(3);  // out of order, or past the end
  }

  std::vector<Event> events;
  std::vector<WideEvent> wide;
  // Handles that the stream has by now.
  uint32_t paths = 1, files = 1, names = 1;

  // The batch was applied: what it defined is there.
  void Applied() {
    for (const WideEvent& event : wide) {
      paths += std::holds_alternative<wide::DefinePath>(event.body);
      files += std::holds_alternative<wide::DefineFile>(event.body);
      names += std::holds_alternative<wide::DefineName>(event.body);
    }
  }

 private:
  uint64_t Bits() { return random_(); }
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  bool Rarely() { return Below(400) == 0; }

  uint32_t Cpu() { return Rarely() ? static_cast<uint32_t>(Bits()) & 1023 : Below(3); }
  uint32_t Tid() { return Rarely() ? static_cast<uint32_t>(Bits()) : 1 + Below(12); }
  uint64_t Address() {
    if (Below(2000) == 0) return Bits() & kMaxAddress;
    if (Below(2000) == 0) return kMaxAddress - Below(4) * page_size_;
    if (Below(2000) == 0) return Below(4) * page_size_;
    return uint64_t{0x7f0000000000} + uint64_t{Below(700)} * page_size_ + (Rarely() ? Below(page_size_) : 0);
  }
  uint64_t Length() { return Rarely() ? Bits() >> Below(64) : uint64_t{Below(64)} * page_size_; }
  uint32_t File() {
    return Rarely() ? static_cast<uint32_t>(Bits()) & kMaxHandle : (files == 1 ? 1 : 1 + Below(files - 1));
  }
  uint32_t Path() { return Rarely() ? Below(1000) : (paths == 1 ? 1 : 1 + Below(paths - 1)); }
  uint32_t Name() { return Rarely() ? Below(1000) : Below(names); }
  uint64_t Index() {
    return Rarely() ? static_cast<uint32_t>(Bits()) | (Below(2) == 0 ? 0xffff0000u : 0) : Below(200);
  }
  uint64_t Count() { return Rarely() ? Bits() | (uint64_t{1} << 30) : 1 + Below(40); }
  uint32_t Order() { return Rarely() ? Below(64) : (Below(4) == 0 ? Below(11) : 0); }
  uint32_t Pick(std::initializer_list<uint32_t> values) {
    return values.begin()[Below(static_cast<uint32_t>(values.size()))];
  }

  Event Frequent() {
    if (Below(500) == 0) return {Bits(), Bits()};
    EventKind kind = static_cast<EventKind>(Rarely() ? Below(64) : 1 + Below(kEventKinds - 1));
    Event event;
    uint32_t tid = Tid() & kMaxTid;
    event.head = Event::Head(kind, Cpu(), tid, Below(kMaxEventTimeUs));
    switch (kind) {
      case EventKind::kFault:
      case EventKind::kBrk:
      case EventKind::kAccess:
      case EventKind::kInstruction:
        event.body = Event::AddressBody(Address() & kMaxAddress, Below(2) == 0 ? 6 : Below(128));
        break;
      case EventKind::kMmapAnon:
      case EventKind::kMunmap:
      case EventKind::kDontNeed:
        event.body = Event::RangeBody((Address() & kMaxAddress) / page_size_,
                                      Rarely() ? Bits() & 0x7ffff : 1 + Below(40));
        break;
      default:
        event.body = Event::FileBody(
            File(), static_cast<uint32_t>(Index()),
            kind == EventKind::kFileAdd || kind == EventKind::kFileDelete ? Order() : Below(256));
    }
    return event;
  }

  wide::Mmap Map() {
    uint32_t flags =
        Pick({kMapPrivate, kMapShared, kMapPrivate | kMapAnonymous, kMapShared | kMapAnonymous}) |
        (Below(4) == 0 ? static_cast<uint32_t>(Bits()) & ~kMapTypeMask : 0);
    if (Rarely()) flags = static_cast<uint32_t>(Bits());
    return {Address(), Length(), Below(8), flags, Below(2) == 0 ? 0 : File(), Index() * page_size_};
  }

  WideEvent Wide(uint32_t position) {
    WideEvent event;
    event.position = position;
    event.cpu = Cpu();
    event.tid = Tid();
    event.time_ns = static_cast<int64_t>(Rarely() ? Bits() : Below(1u << 30));
    event.body = Body();
    return event;
  }
  // A body of any kind.  New handles are few, so that they stay as many as a test can hold.
  WideBody Body() {
    switch (Below(32)) {
      case 0:
        if (paths < 12)
          return wide::DefinePath{
              paths, Rarely() ? "/" : "/g" + std::to_string(Below(3)) + (Below(2) == 0 ? "/h" : "")};
        return wide::DefinePath{paths + Rarely(), Rarely() ? "/a//b" : "/x"};
      case 1:
        return wide::DefineFile{files < 10 || Rarely() ? files : 0, Rarely() ? ~0u : 0x800001, Below(8),
                                Below(3) == 0};
      case 2:
        return wide::DefineName{names < 5 ? names : 0, std::string(Rarely() ? 5000 : 8, 'n')};
      case 3:
        return wide::Mark{Bits()};
      case 4:
      case 5:
        return Map();
      case 6:
        return wide::Munmap{Address(), Length()};
      case 7:
        return wide::Brk{Address()};
      case 8:
      case 9:
        return wide::Mremap{Address(), Length(), Address(), Length(), Below(8)};
      case 10:
        return wide::Mprotect{Address(), Length(), Below(8)};
      case 11:
      case 12:
        return wide::Madvise{Address(), Length(),
                             Rarely() ? static_cast<uint32_t>(Bits()) : Pick({4, 8, 9, 22, 23, 24, 102})};
      case 13:
        return Below(8) == 0 ? wide::Mlock{0, 0, Below(2) == 0}
                             : wide::Mlock{Address(), Length(), Below(2) == 0};
      case 14:
        return Below(8) == 0 ? wide::Munlock{0, 0} : wide::Munlock{Address(), Length()};
      case 15:
      case 16:
        return wide::Clone{Tid(), Below(3) == 0, Below(3) == 0};
      case 17:
        return wide::Exec{Name()};
      case 18:
        return wide::ExecArguments{Rarely() ? static_cast<uint32_t>(Bits()) | (1u << 20) : Below(40)};
      case 19:
      case 20:
        return wide::Exit{Below(2) == 0};
      case 21:
        return wide::ExitMmap{};
      case 22:
        return wide::Comm{Name()};
      case 23:
        return wide::FileRange{static_cast<EventKind>(Below(18)), File(), Index(), Count(), Order()};
      case 24:
        return wide::CgroupCreate{Path()};
      case 25:
        return Below(2) == 0 ? WideBody(wide::CgroupRemove{Path()})
                             : WideBody(wide::CgroupAttach{Path(), Tid()});
      case 26:
        return wide::SetKnob{Path(), Pick({0, 1}) ? "memory.max" : "memory.none",
                             std::to_string(Below(1u << 24))};
      case 27:
        return wide::SetOvercommit{static_cast<OvercommitPolicy>(Below(3)), Below(200),
                                   Rarely() ? Bits() : 0};
      case 28:
        return Below(2) == 0 ? WideBody(wide::ReclaimBegin{}) : WideBody(wide::ReclaimEnd{Bits()});
      case 29:
        if (Below(2) == 0) return wide::MarkVictim{Tid()};
        return wide::SetOomScoreAdj{Tid(), static_cast<int32_t>(Below(2003)) - 1001};
      case 30:
        return Below(2) == 0 ? WideBody(wide::BaselineProcess{Tid(), Below(2) * Path(), Name()})
                             : WideBody(wide::BaselineArea{Map()});
      default:
        if (Below(2) == 0) return wide::BaselinePresent{Address(), Count(), Below(2) == 0};
        return wide::BaselineCached{File(),        Index(),      Count(), Below(2) * Path(),
                                    Below(2) == 0, Below(2) == 0};
    }
  }

  std::mt19937_64 random_;
  const uint32_t page_size_;
};

void Fuzz(uint32_t page_size, uint64_t batches) {
  // As the server does: else the heap is trimmed and faulted in again all the time.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  uint64_t seed = FromEnvironment("MEMCGD_SEED", 1);
  NodeConfig config;
  config.cpus = 3;
  config.page_size = page_size;
  config.memory_bytes = uint64_t{4096} * page_size;
  std::unique_ptr<Node> node = *Node::Create(config);
  EventStream* stream = node->OpenStream("fuzz");
  Fuzzer fuzzer(seed, page_size);
  uint64_t applied = 0;
  for (uint64_t i = 0; i < batches; ++i) {
    SCOPED_TRACE("MEMCGD_SEED=" + std::to_string(seed) + ", batch " + std::to_string(i));
    fuzzer.NextBatch();
    BatchResult result;
    absl::Status status = node->Apply(stream, {static_cast<int64_t>(i), fuzzer.events, fuzzer.wide}, &result);
    if (status.ok()) {
      ++applied;
      fuzzer.Applied();
      EXPECT_LE(result.notables.size(), BatchResult::kMaxNotables);
    } else {
      ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      bool names_event =
          status.message().substr(0, 6) == "event " || status.message().substr(0, 11) == "side event ";
      ASSERT_TRUE(names_event) << status;
      ASSERT_EQ(result.wide_events, 0u);
    }
    if (i % 1000 == 0) {
      ASSERT_EQ(node->CheckInvariants(), "");
    }
  }
  ASSERT_EQ(node->CheckInvariants(), "");
  // Enough of it got in to mean something.
  EXPECT_GT(applied, batches / 4);
  EXPECT_LT(applied, batches);
  std::string saved = node->Save();
  absl::StatusOr<std::unique_ptr<Node>> loaded = Node::Load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE((*loaded)->Save() == saved);
}

TEST(EventFuzzTest, NoBytesCrashTheNodeOrLoseACount) {
  Fuzz(4096, FromEnvironment("MEMCGD_FUZZ_BATCHES", 100000));
}

TEST(EventFuzzTest, NorWithLargePages) { Fuzz(65536, FromEnvironment("MEMCGD_FUZZ_BATCHES", 20000)); }

}  // namespace
}  // namespace memcgd::core
