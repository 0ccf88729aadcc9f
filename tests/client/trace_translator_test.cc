// The rules by which lines of a trace become events, one claim each.  What is sent is read back from the
// batches and written as a line of text an event, in order; beginnings of processes and definitions of names
// are left out where a claim is not about them.
#include "client/trace_translator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace memcgd::client {
namespace {

using memcgd::v1::Batch;
using memcgd::v1::SideEvent;
using Lines = std::vector<std::string>;

constexpr uint64_t kPage = 4096;

// ---- reading events back ----

class Reader {
 public:
  void Read(const Batch& batch) {
    int side = 0;
    for (int i = 0; i <= batch.words_size() / 2; ++i) {
      for (; side < batch.side_size() && batch.side(side).position() == static_cast<uint32_t>(i); ++side) {
        ReadSide(batch.side(side));
      }
      if (i < batch.words_size() / 2)
        ReadWord(batch.words(2 * i), batch.words(2 * i + 1), batch.base_time_ns());
    }
  }

  const Lines& lines() const { return lines_; }
  const Lines& beginnings() const { return beginnings_; }
  const std::vector<int64_t>& times_us() const { return times_us_; }
  const std::map<uint32_t, bool>& shmem() const { return shmem_; }

 private:
  void ReadWord(uint64_t head, uint64_t body, int64_t base_ns) {
    std::ostringstream line;
    line << (head >> 16 & 0x3fffff) << ' ';
    const uint64_t address = body & kMaxWordAddress;
    const std::string file = files_[body & 0xffffff] + "[" + std::to_string(body >> 24 & 0xffffffff) + "]";
    const uint64_t extra = body >> 56;
    const uint64_t range_address = (body & ((uint64_t{1} << 45) - 1)) << 12, pages = body >> 45;
    line << std::hex;
    switch (static_cast<WordKind>(head & 63)) {
      case WordKind::kFault:
        line << "fault " << address << " e" << (body >> 57);
        break;
      case WordKind::kInstruction:
        line << "at " << address;
        break;
      case WordKind::kBrk:
        line << "brk " << address;
        break;
      case WordKind::kAccess:
        line << "access " << address;
        break;
      case WordKind::kFileFault:
        line << "file_fault " << file;
        break;
      case WordKind::kMapPages:
        line << "map_pages " << file << "+" << extra + 1;
        break;
      case WordKind::kFileAdd:
        line << "add " << file << " order " << extra;
        break;
      case WordKind::kFileDelete:
        line << "delete " << file << " order " << extra;
        break;
      case WordKind::kFileRead:
        line << "read " << file << "+" << extra + 1;
        break;
      case WordKind::kFileWrite:
        line << "write " << file << "+" << extra + 1;
        break;
      case WordKind::kFileDirty:
        line << "dirty " << file;
        break;
      case WordKind::kReadahead:
        line << "readahead " << file;
        break;
      case WordKind::kMmapAnon:
        line << "mmap_anon " << range_address << "+" << pages;
        break;
      case WordKind::kMunmap:
        line << "munmap " << range_address << "+" << pages;
        break;
      case WordKind::kDontNeed:
        line << "dontneed " << range_address << "+" << pages;
        break;
    }
    lines_.push_back(line.str());
    times_us_.push_back(base_ns / 1000 + static_cast<int64_t>(head >> 38));
  }

  void ReadSide(const SideEvent& side) {
    std::ostringstream line;
    line << side.tid() << ' ' << std::hex;
    switch (side.event_case()) {
      case SideEvent::kDefineFile:
        files_[side.define_file().handle()] = "i" + std::to_string(side.define_file().ino());
        shmem_[static_cast<uint32_t>(side.define_file().ino())] = side.define_file().shmem();
        return;
      case SideEvent::kDefinePath:
        paths_[side.define_path().handle()] = side.define_path().path();
        return;
      case SideEvent::kDefineName:
        names_[side.define_name().handle()] = side.define_name().name();
        return;
      case SideEvent::kBaselineProcess:
        line << "process " << std::dec << side.baseline_process().tgid() << ' '
             << names_[side.baseline_process().name()];
        beginnings_.push_back(line.str());
        return;
      case SideEvent::kMark:
        line << "mark " << side.mark().id();
        break;
      case SideEvent::kMmap:
        WriteArea("mmap", side.mmap(), line);
        break;
      case SideEvent::kBaselineArea:
        WriteArea("area", side.baseline_area().area(), line);
        break;
      case SideEvent::kMremap:
        line << "mremap " << side.mremap().old_address() << "+" << side.mremap().old_length() << " "
             << side.mremap().new_address() << "+" << side.mremap().new_length() << " flags "
             << side.mremap().flags();
        break;
      case SideEvent::kMprotect:
        line << "mprotect " << side.mprotect().address() << "+" << side.mprotect().length() << " "
             << side.mprotect().prot();
        break;
      case SideEvent::kMadvise:
        line << "madvise " << side.madvise().address() << "+" << side.madvise().length() << " "
             << side.madvise().advice();
        break;
      case SideEvent::kMlock:
        line << "mlock " << side.mlock().address() << "+" << side.mlock().length()
             << (side.mlock().on_fault() ? " on_fault" : "");
        break;
      case SideEvent::kMunlock:
        line << "munlock " << side.munlock().address() << "+" << side.munlock().length();
        break;
      case SideEvent::kClone:
        line << "clone " << std::dec << side.clone().child_tid()
             << (side.clone().thread() ? " thread" : " process")
             << (side.clone().shares_mm() ? " shares" : " copies");
        break;
      case SideEvent::kExecArguments:
        line << "arguments";
        break;
      case SideEvent::kExec:
        line << "exec " << names_[side.exec().name()];
        break;
      case SideEvent::kExit:
        line << "exit" << (side.exit().group_dead() ? " last" : "");
        break;
      case SideEvent::kExitMmap:
        line << "exit_mmap";
        break;
      case SideEvent::kComm:
        line << "comm " << names_[side.comm().name()];
        break;
      case SideEvent::kCgroupCreate:
        line << "create " << paths_[side.cgroup_create().path()];
        break;
      case SideEvent::kCgroupRemove:
        line << "remove " << paths_[side.cgroup_remove().path()];
        break;
      case SideEvent::kCgroupAttach:
        line << "attach " << std::dec << side.cgroup_attach().moved_tid() << " "
             << paths_[side.cgroup_attach().path()];
        break;
      case SideEvent::kSetKnob:
        line << "set " << paths_[side.set_knob().path()] << ' ' << side.set_knob().knob() << ' '
             << side.set_knob().value();
        break;
      case SideEvent::kReclaimBegin:
        line << "reclaim";
        break;
      case SideEvent::kReclaimEnd:
        line << "reclaimed";
        if (side.reclaim_end().reclaimed_pages() != 0) line << ' ' << side.reclaim_end().reclaimed_pages();
        break;
      case SideEvent::kMarkVictim:
        line << "victim " << std::dec << side.mark_victim().victim_tid();
        break;
      case SideEvent::kSetOomScoreAdj:
        line << "adj " << std::dec << side.set_oom_score_adj().target_tid() << ' '
             << side.set_oom_score_adj().oom_score_adj();
        break;
      default:
        line << side.ShortDebugString();
        break;
    }
    lines_.push_back(line.str());
  }

  void WriteArea(const char* what, const memcgd::v1::Mmap& area, std::ostringstream& line) {
    line << what << ' ' << area.address() << "+" << area.length() << " prot " << area.prot() << " flags "
         << area.flags();
    if (area.file() != 0) line << ' ' << files_[area.file()] << "@" << area.offset();
  }

  Lines lines_, beginnings_;
  std::vector<int64_t> times_us_;
  std::map<uint32_t, std::string> files_, paths_, names_;
  std::map<uint32_t, bool> shmem_;
};

// ---- making records ----

constexpr uint32_t kDisk = MakeDev(254, 0);

struct Trace {
  std::vector<TraceRecord> records;
  int64_t time_ns = 1'000'000'000;
  bool has_tgid = true;

  TraceRecord& Line(TraceOp op, int32_t tid, int32_t tgid = 0) {
    TraceRecord& record = records.emplace_back();
    record.op = op;
    record.tid = tid;
    record.tgid = !has_tgid ? -1 : tgid == 0 ? tid : tgid;
    record.time_ns = time_ns += 10'000;
    record.comm = "work";
    return record;
  }

  TraceRecord& Fault(int32_t tid, uint64_t address, uint8_t error_code = 6, int32_t tgid = 0) {
    TraceRecord& record = Line(TraceOp::kPageFault, tid, tgid);
    record.address = address;
    record.error_code = error_code;
    record.ip = "0x401000";
    return record;
  }
  TraceRecord& KernelFault(int32_t tid, uint64_t address, std::string_view ip = "elf_load",
                           uint8_t error_code = 2) {
    TraceRecord& record = Fault(tid, address, error_code);
    record.from_kernel = true;
    record.ip = ip;
    return record;
  }
  TraceRecord& File(TraceOp op, int32_t tid, uint64_t ino, uint64_t first, uint64_t last, int32_t tgid = 0) {
    TraceRecord& record = Line(op, tid, tgid);
    record.dev = kDisk;
    record.ino = ino;
    record.first_byte = first * kPage;
    record.last_byte = last * kPage + kPage - 1;
    return record;
  }
  void FileFault(int32_t tid, uint64_t ino, uint64_t page) {
    File(TraceOp::kFilemapFault, tid, ino, page, page);
  }
  void MapPages(int32_t tid, uint64_t ino, uint64_t first, uint64_t last) {
    File(TraceOp::kFilemapMapPages, tid, ino, first, last);
  }
  void Read(int32_t tid, uint64_t ino, uint64_t first, uint64_t last) {
    File(TraceOp::kFilemapGetPages, tid, ino, first, last);
  }
  void Add(int32_t tid, uint64_t ino, uint64_t first, uint64_t pages = 1) {
    for (uint64_t i = 0; i < pages; ++i) File(TraceOp::kFilemapAdd, tid, ino, first + i, first + i);
  }
  void Enter(int32_t tid, Syscall syscall, std::initializer_list<uint64_t> args, int32_t tgid = 0) {
    TraceRecord& record = Line(TraceOp::kSyscallEnter, tid, tgid);
    record.syscall = syscall;
    std::copy(args.begin(), args.end(), record.args.begin());
  }
  void Return(int32_t tid, Syscall syscall, int64_t ret, int32_t tgid = 0) {
    TraceRecord& record = Line(TraceOp::kSyscallExit, tid, tgid);
    record.syscall = syscall;
    record.ret = ret;
  }
  void Call(int32_t tid, Syscall syscall, std::initializer_list<uint64_t> args, int64_t ret) {
    Enter(tid, syscall, args);
    Return(tid, syscall, ret);
  }
  TraceRecord& Fork(int32_t tid, int32_t child) {
    TraceRecord& record = Line(TraceOp::kFork, tid);
    record.child_pid = child;
    return record;
  }
  TraceRecord& Exec(int32_t tid, std::string_view path, int32_t old_pid = 0) {
    TraceRecord& record = Line(TraceOp::kExec, tid);
    record.path = path;
    record.old_pid = old_pid == 0 ? tid : old_pid;
    return record;
  }
  void Exit(int32_t tid, int8_t group_dead = 1, int32_t tgid = 0) {
    Line(TraceOp::kExit, tid, tgid).group_dead = group_dead;
  }
  void ExitMmap(int32_t tid) { Line(TraceOp::kExitMmap, tid); }
  TraceRecord& Cgroup(TraceOp op, std::string_view path, int32_t pid = 0, uint32_t root = 4) {
    TraceRecord& record = Line(op, 900);
    record.root = root;
    record.path = path;
    record.child_pid = pid;
    return record;
  }
};

// Translates records, with a mark after the record that each of `marks` counts.
Reader Translate(const Trace& trace, TraceTranslator::Options options = {}, size_t cut = SIZE_MAX,
                 TraceTranslator::Counts* counts = nullptr) {
  BatchBuilder builder;
  TraceTranslator translator(options, &builder);
  Reader reader;
  uint64_t sequence = 0;
  for (const TraceRecord& record : trace.records) {
    // A line with no other use stands for a question.
    if (record.op == TraceOp::kOther) translator.Mark(record.ino);
    translator.Add(record);
    if (builder.size() >= cut) reader.Read(builder.Take(++sequence));
  }
  translator.Finish();
  reader.Read(builder.Take(++sequence));
  if (counts != nullptr) *counts = translator.counts();
  return reader;
}

Lines Told(const Trace& trace, TraceTranslator::Options options = {}) {
  return Translate(trace, options).lines();
}

// ---- faults ----

TEST(TraceTranslatorTest, FaultWithoutFileLineStaysAtItsPlace) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Fault(2, 0x102000);
  trace.Fault(1, 0x103000);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "2 fault 102000 e6", "1 fault 103000 e6"}));
}

TEST(TraceTranslatorTest, FaultGoesBehindTheLastOfItsFileLines) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.FileFault(1, 7, 3);
  trace.Add(1, 7, 3);
  trace.Fault(2, 0x102000);
  trace.FileFault(1, 7, 3);
  trace.Fault(2, 0x103000);
  trace.Fault(1, 0x104000);
  EXPECT_EQ(Told(trace),
            Lines({"1 file_fault i7[3]", "1 add i7[3] order 0", "2 fault 102000 e6", "1 file_fault i7[3]",
                   "1 fault 101000 e6", "2 fault 103000 e6", "1 fault 104000 e6"}));
}

TEST(TraceTranslatorTest, OtherThreadsLinesDoNotEndTheLookAhead) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Fault(2, 0x102000);
  trace.MapPages(1, 7, 16, 31);
  EXPECT_EQ(Told(trace), Lines({"2 fault 102000 e6", "1 map_pages i7[16]+10", "1 fault 101000 e6"}));
}

TEST(TraceTranslatorTest, ReclaimWithinAFaultDoesNotEndTheLookAhead) {
  Trace trace;
  trace.Fault(1, 0x101000, 4);
  trace.FileFault(1, 7, 3);
  trace.Line(TraceOp::kReclaimBegin, 1);
  trace.File(TraceOp::kFilemapDelete, 1, 8, 0, 0);
  trace.Line(TraceOp::kReclaimEnd, 1);
  trace.Add(1, 7, 3);
  trace.FileFault(1, 7, 3);
  EXPECT_EQ(Told(trace), Lines({"1 file_fault i7[3]", "1 reclaim", "1 delete i8[0] order 0", "1 reclaimed",
                                "1 add i7[3] order 0", "1 file_fault i7[3]", "1 fault 101000 e4"}));
}

TEST(TraceTranslatorTest, FileLineAfterTheThreadWentOnIsNoFaults) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Enter(1, Syscall::kMlock, {0x5000, 0x1000});
  trace.FileFault(1, 7, 3);
  trace.Return(1, Syscall::kMlock, 0);
  trace.Fault(1, 0x102000);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 mlock 5000+1000", "1 fault 102000 e6"}));
}

TEST(TraceTranslatorTest, InstructionGoesBeforeAReadThatNoFileBacks) {
  Trace trace;
  trace.Fault(1, 0x101000, 4);
  trace.Fault(1, 0x102000, 0x14);
  trace.Fault(1, 0x103000, 4);
  trace.MapPages(1, 7, 0, 0);
  trace.Fault(1, 0x104000, 6);
  trace.Fault(1, 0x105000, 5);
  EXPECT_EQ(Told(trace),
            Lines({"1 at 401000", "1 fault 101000 e4", "1 at 401000", "1 fault 102000 e14",
                   "1 map_pages i7[0]+1", "1 fault 103000 e4", "1 fault 104000 e6", "1 fault 105000 e5"}));
}

TEST(TraceTranslatorTest, KernelFaultThatIsRepeatedAtOnceWasNotHandled) {
  Trace trace;
  trace.KernelFault(1, 0x101000, "copy_from_user", 0);
  trace.KernelFault(1, 0x101008, "copy_from_user", 0);
  trace.KernelFault(1, 0x102000, "copy_from_user", 0);
  trace.KernelFault(1, 0x103000, "copy_from_user_nmi", 0);
  TraceTranslator::Counts counts;
  EXPECT_EQ(Translate(trace, {}, SIZE_MAX, &counts).lines(),
            Lines({"1 fault 101008 e0", "1 fault 102000 e0"}));
  EXPECT_EQ(counts.dropped_faults, 2);
}

TEST(TraceTranslatorTest, KernelFaultThatAFileBackedWasHandled) {
  Trace trace;
  trace.KernelFault(1, 0x101000, "copy_from_user", 0);
  trace.MapPages(1, 7, 0, 0);
  trace.KernelFault(1, 0x101008, "copy_from_user", 0);
  EXPECT_EQ(Told(trace), Lines({"1 map_pages i7[0]+1", "1 fault 101000 e0", "1 fault 101008 e0"}));
}

TEST(TraceTranslatorTest, FaultsWithoutAUserAddressAreCountedAndLeftOut) {
  Trace trace;
  trace.Fault(1, 0).has_address = false;
  trace.FileFault(1, 7, 3);
  trace.Fault(1, 0xffffffffff600000, 0x15);
  trace.Fault(1, 0x18, 4);
  TraceTranslator::Counts counts;
  EXPECT_EQ(Translate(trace, {}, SIZE_MAX, &counts).lines(), Lines());
  EXPECT_EQ(counts.no_address, 1);
  EXPECT_EQ(counts.dropped_faults, 2);
}

// ---- calls that fault in pages of files ----

TEST(TraceTranslatorTest, PopulateFaultsInWhatItsLinesShowAfterTheArea) {
  Trace trace;
  trace.Enter(1, Syscall::kMmap, {0, 0x20000, 1, 0x8002, 3, 0x3000});
  trace.FileFault(1, 7, 3);  // a miss, and its second try
  trace.Add(1, 7, 3, 2);
  trace.MapPages(1, 7, 3, 4);
  trace.MapPages(1, 7, 19, 20);  // what was cached already
  trace.Return(1, Syscall::kMmap, 0x100000);
  EXPECT_EQ(Told(trace), Lines({"1 mmap 100000+20000 prot 1 flags 8002 i7@3000", "1 file_fault i7[3]",
                                "1 add i7[3] order 0", "1 add i7[4] order 0", "1 map_pages i7[3]+2",
                                "1 fault 100000 e0", "1 map_pages i7[19]+2", "1 fault 110000 e0"}));
}

TEST(TraceTranslatorTest, PopulateOfAPrivateWritableAreaCopiesPageByPage) {
  Trace trace;
  trace.Enter(1, Syscall::kMmap, {0, 0x2000, 3, 0x8002, 3, 0});
  trace.FileFault(1, 7, 0);
  trace.FileFault(1, 7, 1);
  trace.Return(1, Syscall::kMmap, 0x100000);
  EXPECT_EQ(Told(trace), Lines({"1 mmap 100000+2000 prot 3 flags 8002 i7@0", "1 file_fault i7[0]",
                                "1 fault 100000 e2", "1 file_fault i7[1]", "1 fault 101000 e2"}));
}

TEST(TraceTranslatorTest, PageThatFaultAroundLeftOutIsOneFaultWithIt) {
  Trace trace;
  trace.Enter(1, Syscall::kMmap, {0, 0x4000, 1, 0x8002, 3, 0});
  trace.MapPages(1, 7, 0, 3);
  trace.MapPages(1, 7, 0, 3);
  trace.FileFault(1, 7, 2);
  trace.MapPages(1, 7, 0, 3);
  trace.FileFault(1, 7, 3);
  trace.Return(1, Syscall::kMmap, 0x100000);
  int faults = 0;
  const Lines told = Told(trace);
  for (const std::string& line : told) faults += line.starts_with("1 fault ") ? 1 : 0;
  EXPECT_EQ(faults, 3);
  EXPECT_EQ(told.back(), "1 fault 103000 e0");
}

TEST(TraceTranslatorTest, MmapThatFailedPopulatedNothing) {
  Trace trace;
  trace.Enter(1, Syscall::kMmap, {0, 0x2000, 1, 0x8002, 3, 0});
  trace.MapPages(1, 7, 0, 1);
  trace.Return(1, Syscall::kMmap, -12);
  trace.Fault(1, 0x101000);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6"}));
}

TEST(TraceTranslatorTest, MlockFaultsInTheAreaThatItsMmapToldOf) {
  Trace trace;
  trace.Call(1, Syscall::kMmap, {0, 0x10000, 1, 2, 3, 0x2000}, 0x100000);
  trace.Enter(1, Syscall::kMlock, {0x104000, 0x2000});
  trace.MapPages(1, 7, 2, 17);
  trace.Return(1, Syscall::kMlock, 0);
  EXPECT_EQ(Told(trace), Lines({"1 mmap 100000+10000 prot 1 flags 2", "1 map_pages i7[2]+10",
                                "1 fault 104000 e0", "1 mlock 104000+2000"}));
}

TEST(TraceTranslatorTest, MadvisePopulateWriteFaultsInForWriting) {
  Trace trace;
  trace.Call(1, Syscall::kMmap, {0, 0x10000, 3, 1, 3, 0}, 0x100000);
  trace.Enter(1, Syscall::kMadvise, {0x101000, 0x1000, 23});
  trace.FileFault(1, 7, 1);
  trace.Return(1, Syscall::kMadvise, 0);
  EXPECT_EQ(Told(trace), Lines({"1 mmap 100000+10000 prot 3 flags 1", "1 file_fault i7[1]",
                                "1 fault 101000 e2", "1 madvise 101000+1000 17"}));
}

TEST(TraceTranslatorTest, PopulateOfAnAreaThatNoLineToldOfIsLeftOut) {
  Trace trace;
  trace.Call(1, Syscall::kMmap, {0, 0x10000, 1, 2, 3, 0}, 0x100000);
  trace.Call(1, Syscall::kMunmap, {0x100000, 0x10000}, 0);
  trace.Enter(1, Syscall::kMlockall, {1});
  trace.MapPages(1, 7, 0, 15);
  trace.Return(1, Syscall::kMlockall, 0);
  EXPECT_EQ(Told(trace), Lines({"1 mmap 100000+10000 prot 1 flags 2", "1 munmap 100000+10", "1 mlock 0+0"}));
}

TEST(TraceTranslatorTest, PopulateThatDoesNotFitTheWindowLeavesTheAreaAndIsCounted) {
  Trace trace;
  trace.Enter(1, Syscall::kMmap, {0, 0x1000000, 1, 0x8002, 3, 0});
  for (uint64_t page = 0; page < 0x1000; page += 16) trace.MapPages(1, 7, page, page + 15);
  trace.Return(1, Syscall::kMmap, 0x100000);
  TraceTranslator::Counts counts;
  const Reader reader = Translate(trace, {.window = 64}, SIZE_MAX, &counts);
  EXPECT_EQ(reader.lines(), Lines({"1 mmap 100000+1000000 prot 1 flags 8002 i7@0"}));
  EXPECT_EQ(counts.unresolved, 1);
}

// ---- who did it ----

TEST(TraceTranslatorTest, DeletionsByKswapdAreEvictions) {
  Trace trace;
  trace.File(TraceOp::kFilemapDelete, 55, 7, 8, 8).comm = "kswapd0";
  trace.File(TraceOp::kFilemapDelete, 55, 7, 9, 9).comm = "kswapd0";
  trace.File(TraceOp::kFilemapAdd, 55, 7, 9, 9).comm = "kswapd0";
  EXPECT_EQ(Told(trace), Lines({"55 reclaim", "55 delete i7[8] order 0", "55 delete i7[9] order 0",
                                "55 reclaimed 2", "55 add i7[9] order 0"}));
}

TEST(TraceTranslatorTest, ProcessNamedKswapdTruncates) {
  Trace trace;
  trace.Fault(55, 0x101000).comm = "kswapd0";
  trace.File(TraceOp::kFilemapDelete, 55, 7, 8, 8).comm = "kswapd0";
  trace.File(TraceOp::kFilemapDelete, 56, 7, 9, 9).comm = "kswapd0-guard";
  EXPECT_EQ(Told(trace), Lines({"55 fault 101000 e6", "55 delete i7[8] order 0", "56 delete i7[9] order 0"}));
}

TEST(TraceTranslatorTest, LinesOfAnInterruptAreNotTheThreads) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.File(TraceOp::kFilemapDelete, 1, 9, 0, 0).flags.context = TraceContext::kSoftirq;
  trace.KernelFault(1, 0x500000, "", 0).flags.context = TraceContext::kNmi;
  trace.FileFault(1, 7, 3);
  TraceTranslator::Counts counts;
  const Reader reader = Translate(trace, {}, SIZE_MAX, &counts);
  EXPECT_EQ(reader.lines(), Lines({"2 delete i9[0] order 0", "1 file_fault i7[3]", "1 fault 101000 e6"}));
  EXPECT_EQ(counts.dropped_faults, 1);
}

TEST(TraceTranslatorTest, KernelFaultWithPreemptionDisabledIsRefused) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.KernelFault(1, 0x102000, "", 0).flags.preempt_depth = 1;
  trace.Fault(1, 0x103000).flags.preempt_depth = 1;  // what an old tracer adds
  trace.KernelFault(1, 0x104000, "", 0).flags.preempt_depth = 1;
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 fault 103000 e6", "1 fault 104000 e0"}));
}

// ---- system calls ----

TEST(TraceTranslatorTest, UnmappingStandsAtTheEntry) {
  Trace trace;
  trace.Enter(1, Syscall::kMunmap, {0x10000, 0x1fff});
  trace.Call(2, Syscall::kMmap, {0, 0x2000, 3, 0x22, ~uint64_t{0}, 0}, 0x10000);
  trace.Return(1, Syscall::kMunmap, 0);
  trace.Enter(1, Syscall::kMadvise, {0x20000, 0x1000, 4});
  trace.Fault(2, 0x20000);
  trace.Return(1, Syscall::kMadvise, 0);
  EXPECT_EQ(Told(trace),
            Lines({"1 munmap 10000+2", "2 mmap_anon 10000+2", "1 dontneed 20000+1", "2 fault 20000 e6"}));
}

TEST(TraceTranslatorTest, CallThatFailedIsNoEvent) {
  Trace trace;
  trace.Call(1, Syscall::kMunmap, {0x10000, 0x1000}, -22);
  trace.Call(1, Syscall::kMadvise, {0x10000, 0x1000, 4}, -12);
  trace.Call(1, Syscall::kMmap, {0, 0x1000, 3, 0x22, 0, 0}, -12);
  trace.Call(1, Syscall::kMprotect, {0x10000, 0x1000, 1}, -12);
  trace.Call(1, Syscall::kMremap, {0x10000, 0x1000, 0x2000, 1, 0}, -12);
  EXPECT_EQ(Told(trace), Lines());
}

TEST(TraceTranslatorTest, CallWhoseReturnWasLostIsTakenToHaveSucceeded) {
  Trace trace;
  trace.Enter(1, Syscall::kMunmap, {0x10000, 0x1000});
  trace.Call(1, Syscall::kBrk, {0}, 0x50000);
  EXPECT_EQ(Told(trace), Lines({"1 munmap 10000+1", "1 brk 50000"}));
}

TEST(TraceTranslatorTest, ReturnWithoutItsEntryIsNoEvent) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Return(1, Syscall::kMmap, 0x10000);
  trace.Enter(1, Syscall::kMprotect, {0x10000, 0x1000, 1});
  trace.Return(1, Syscall::kMmap, 0x20000);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6"}));
}

TEST(TraceTranslatorTest, OnlyPlainPrivateAnonymousMemoryIsAFrequentMmap) {
  Trace trace;
  const auto map = [&trace](uint64_t prot, uint64_t flags) {
    trace.Call(1, Syscall::kMmap, {0, 0x1800, prot, flags, 3, 0x3000}, 0x10000);
  };
  map(3, 0x22);
  map(3, 0x20022);  // MAP_STACK
  map(0, 0x22);     // a reservation
  map(3, 0x4022);   // NORESERVE
  map(3, 0x8022);   // POPULATE
  map(3, 0x21);     // shared
  map(1, 0x802);    // a file, private
  EXPECT_EQ(Told(trace),
            Lines({"1 mmap_anon 10000+2", "1 mmap_anon 10000+2", "1 mmap 10000+2000 prot 0 flags 22",
                   "1 mmap 10000+2000 prot 3 flags 4022", "1 mmap 10000+2000 prot 3 flags 8022",
                   "1 mmap 10000+2000 prot 3 flags 21", "1 mmap 10000+2000 prot 1 flags 802"}));
}

TEST(TraceTranslatorTest, PopulateTellsTheFileOfItsMmap) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Enter(1, Syscall::kMmap, {0, 0x2000, 1, 0x8002, 3, 0x3000});
  trace.FileFault(1, 7, 3);
  trace.MapPages(1, 7, 3, 4);
  trace.Return(1, Syscall::kMmap, 0x10000);
  EXPECT_EQ(Told(trace)[1], "1 mmap 10000+2000 prot 1 flags 8002 i7@3000");
}

TEST(TraceTranslatorTest, OtherCallsStandAtTheirReturn) {
  Trace trace;
  trace.Call(1, Syscall::kMremap, {0x10000, 0x1000, 0x2000, 1, 0}, 0x30000);
  trace.Call(1, Syscall::kMprotect, {0x10000, 0x1000, 1}, 0);
  trace.Call(1, Syscall::kMadvise, {0x10000, 0x1000, 23}, 0);
  trace.Call(1, Syscall::kMlock2, {0x10000, 0x1000, 1}, 0);
  trace.Call(1, Syscall::kMlockall, {1}, 0);
  trace.Call(1, Syscall::kMunlock, {0x10000, 0x1000}, 0);
  EXPECT_EQ(Told(trace), Lines({"1 mremap 10000+1000 30000+2000 flags 1", "1 mprotect 10000+1000 1",
                                "1 madvise 10000+1000 17", "1 mlock 10000+1000 on_fault", "1 mlock 0+0",
                                "1 munlock 10000+1000"}));
}

// ---- the page cache ----

TEST(TraceTranslatorTest, FileRangesArePages) {
  Trace trace;
  trace.File(TraceOp::kFilemapAdd, 1, 7, 8, 8).order = 3;
  TraceRecord& write = trace.File(TraceOp::kWriteBegin, 1, 7, 0, 0);
  write.first_byte = 4000;
  write.last_byte = 4000 + 5000 - 1;
  trace.Read(1, 7, 1, 3);
  trace.File(TraceOp::kFilemapDelete, 1, 7, 8, 8).order = 3;
  EXPECT_EQ(Told(trace),
            Lines({"1 add i7[8] order 3", "1 write i7[0]+3", "1 read i7[1]+3", "1 delete i7[8] order 3"}));
}

TEST(TraceTranslatorTest, DirtyLineNamesTheDiskAndMeansTheFile) {
  Trace trace;
  trace.File(TraceOp::kWriteBegin, 1, 7, 0, 0).dev = MakeDev(8, 1);
  trace.File(TraceOp::kWriteBegin, 1, 9, 0, 0).dev = MakeDev(8, 1);
  TraceRecord& dirty = trace.Line(TraceOp::kDirtyFolio, 1);
  dirty.dev = MakeDev(8, 0);
  dirty.ino = 7;
  dirty.page_index = 5;
  BatchBuilder builder;
  TraceTranslator translator({}, &builder);
  for (const TraceRecord& record : trace.records) translator.Add(record);
  const Batch batch = builder.Take(1);
  ASSERT_EQ(batch.words_size(), 6);
  EXPECT_EQ(batch.words(5) & 0xffffff, batch.words(1) & 0xffffff) << "the same handle";
}

TEST(TraceTranslatorTest, KernelThreadsDeletionsNeedNoProcess) {
  Trace trace;
  trace.File(TraceOp::kFilemapDelete, 55, 7, 8, 8);
  const Reader reader = Translate(trace);
  EXPECT_EQ(reader.lines(), Lines({"55 delete i7[8] order 0"}));
  EXPECT_EQ(reader.beginnings(), Lines());
}

TEST(TraceTranslatorTest, FilesOfADeviceWithoutDiskAreSharedMemoryUntilOneIsReadLikeAFile) {
  constexpr uint32_t kTmpfs = MakeDev(0, 26), kBtrfs = MakeDev(0, 31);
  Trace trace;
  trace.File(TraceOp::kFilemapDelete, 1, 11, 0, 0).dev = kTmpfs;
  trace.File(TraceOp::kFilemapMapPages, 1, 12, 0, 0).dev = kBtrfs;
  trace.File(TraceOp::kFilemapGetPages, 1, 13, 0, 0).dev = kBtrfs;
  trace.File(TraceOp::kFilemapMapPages, 1, 12, 0, 0).dev = kBtrfs;
  trace.File(TraceOp::kFilemapDelete, 1, 14, 0, 0);
  EXPECT_EQ(Translate(trace).shmem(),
            (std::map<uint32_t, bool>{{11, true}, {12, false}, {13, false}, {14, false}}));
}

// ---- readahead ----

TEST(TraceTranslatorTest, FirstReadOfAFileMarksThePageBehindWhatWasAskedFor) {
  Trace trace;
  trace.Add(1, 7, 0, 4);
  trace.Read(1, 7, 0, 0);
  const Lines told = Told(trace);
  ASSERT_EQ(told.size(), 6);
  EXPECT_EQ(told[4], "1 readahead i7[1]");
  EXPECT_EQ(told[5], "1 read i7[0]+1");
}

TEST(TraceTranslatorTest, ReadThatMetTheMarkMarksTheFirstPageItAdded) {
  Trace trace;
  trace.Add(1, 7, 4, 8);
  trace.Read(1, 7, 1, 3);
  EXPECT_EQ(Told(trace)[8], "1 readahead i7[4]");
}

TEST(TraceTranslatorTest, ReadAroundAFaultMarksItsLastQuarter) {
  Trace trace;
  TraceTranslator::Options options;
  options.readahead_pages = 32;
  trace.Fault(1, 0x101000, 4);
  trace.FileFault(1, 7, 20);
  trace.Add(1, 7, 4, 32);
  trace.FileFault(1, 7, 20);
  const Lines told = Told(trace, options);
  ASSERT_EQ(told.size(), 36);
  EXPECT_EQ(told[33], "1 readahead i7[28]") << "20 - 16 + 32 - 8";
}

TEST(TraceTranslatorTest, FaultThatMetTheMarkMarksTheFirstPageItAdded) {
  Trace trace;
  trace.Fault(1, 0x101000, 4);
  trace.FileFault(1, 7, 20);
  trace.Add(1, 7, 64, 2);
  trace.Fault(1, 0x102000);
  EXPECT_EQ(Told(trace), Lines({"1 file_fault i7[20]", "1 fault 101000 e4", "1 add i7[64] order 0",
                                "1 add i7[65] order 0", "1 readahead i7[64]", "1 fault 102000 e6"}));
}

TEST(TraceTranslatorTest, WritesAndFaultsOfCodeLeaveNoMark) {
  Trace trace;
  trace.File(TraceOp::kWriteBegin, 1, 7, 0, 0);
  trace.Add(1, 7, 0, 4);
  trace.Read(1, 7, 0, 0);
  trace.Fault(1, 0x101000, 0x14);
  trace.FileFault(1, 8, 20);
  trace.Add(1, 8, 20, 16);
  trace.FileFault(1, 8, 20);
  for (const std::string& line : Told(trace)) EXPECT_EQ(line.find("readahead"), std::string::npos) << line;
}

// ---- fork ----

TEST(TraceTranslatorTest, CloneFlagsTellWhatIsShared) {
  Trace trace;
  const auto clone = [&trace](int32_t child, uint64_t flags) {
    trace.Enter(1, Syscall::kClone, {flags});
    trace.Fork(1, child);
    trace.Return(1, Syscall::kClone, child);
  };
  clone(11, 0x1200011);
  clone(12, 0x3d0f00);
  clone(13, 0x4111);
  trace.Enter(1, Syscall::kVfork, {});
  trace.Fork(1, 14);
  trace.Enter(1, Syscall::kFork, {});
  trace.Fork(1, 15);
  EXPECT_EQ(Told(trace),
            Lines({"1 clone 11 process copies", "1 clone 12 thread shares", "1 clone 13 process shares",
                   "1 clone 14 process shares", "1 clone 15 process copies"}));
}

TEST(TraceTranslatorTest, Clone3IsAThreadWhereTheGroupIsTheParents) {
  Trace trace;
  trace.Enter(1, Syscall::kClone3, {});
  trace.Fork(1, 11);
  trace.Return(1, Syscall::kClone3, 11);
  trace.Fault(1, 0x101000);
  trace.Fault(11, 0x102000, 6, 1);
  EXPECT_EQ(Told(trace), Lines({"1 clone 11 thread shares", "1 fault 101000 e6", "11 fault 102000 e6"}));
}

TEST(TraceTranslatorTest, Clone3WithItsOwnGroupIsASpawn) {
  Trace trace;
  trace.Enter(1, Syscall::kClone3, {});
  trace.Fork(1, 11);
  trace.Fault(11, 0x102000, 6);
  trace.Exec(11, "/bin/true");
  trace.Return(1, Syscall::kClone3, 11);
  EXPECT_EQ(Told(trace), Lines({"1 clone 11 process shares", "11 fault 102000 e6", "11 exec true"}));
}

TEST(TraceTranslatorTest, Clone3WhoseFirstFaultIsACopyOnWriteIsAFork) {
  Trace trace;
  trace.Enter(1, Syscall::kClone3, {});
  trace.Fork(1, 11);
  trace.Fault(11, 0x102000, 7);
  EXPECT_EQ(Told(trace), Lines({"1 clone 11 process copies", "11 fault 102000 e7"}));
}

TEST(TraceTranslatorTest, Clone3WhoseParentGoesOnIsNoSpawn) {
  Trace trace;
  trace.Enter(1, Syscall::kClone3, {});
  trace.Fork(1, 11);
  trace.Return(1, Syscall::kClone3, 11);
  trace.Fault(11, 0x102000, 6);
  EXPECT_EQ(Told(trace), Lines({"1 clone 11 process copies", "11 fault 102000 e6"}));
}

TEST(TraceTranslatorTest, WithoutGroupsAChildIsAThreadUnlessItExecs) {
  Trace trace;
  trace.has_tgid = false;
  trace.Fork(1, 11);
  trace.Fault(11, 0x102000);
  trace.Fault(1, 0x101000);
  trace.Fault(11, 0x103000);
  trace.Fork(1, 12);
  trace.Fault(12, 0x104000);
  trace.Exec(12, "sh");
  EXPECT_EQ(Told(trace),
            Lines({"1 clone 11 thread shares", "11 fault 102000 e6", "1 fault 101000 e6",
                   "11 fault 103000 e6", "1 clone 12 process shares", "12 fault 104000 e6", "12 exec sh"}));
}

TEST(TraceTranslatorTest, PerfsForkTellsTheGroupAndIsNoSecondFork) {
  Trace trace;
  trace.has_tgid = false;
  TraceRecord& thread = trace.Fork(1, 11);
  thread.child_tgid = thread.tgid = 1;
  trace.Fork(1, 11);
  TraceRecord& process = trace.Fork(1, 12);
  process.child_tgid = 12;
  process.tgid = 1;
  trace.Fork(1, 12);
  trace.Fault(12, 0x101000, 7);
  EXPECT_EQ(Told(trace),
            Lines({"1 clone 11 thread shares", "1 clone 12 process copies", "12 fault 101000 e7"}));
}

TEST(TraceTranslatorTest, KernelThreadsAreNotTold) {
  Trace trace;
  trace.Fork(2, 11).comm = "kthreadd";
  EXPECT_EQ(Translate(trace).beginnings(), Lines());
}

// ---- exec and exit ----

TEST(TraceTranslatorTest, ExecStandsWhereTheOldAddressSpaceEnds) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Read(1, 7, 0, 0);
  trace.Read(1, 8, 0, 0);
  trace.ExitMmap(1);
  trace.Fault(2, 0x102000);
  trace.KernelFault(1, 0x103000);
  trace.FileFault(1, 7, 3);
  trace.Exec(1, "/usr/bin/make");
  trace.Fault(1, 0x104000);
  EXPECT_EQ(Told(trace),
            Lines({"1 fault 101000 e6", "1 arguments", "1 read i7[0]+1", "1 read i8[0]+1", "1 exec make",
                   "2 fault 102000 e6", "1 file_fault i7[3]", "1 fault 103000 e2", "1 fault 104000 e6"}));
}

TEST(TraceTranslatorTest, ExecOfASharedAddressSpaceStandsBeforeTheKernelsFaults) {
  Trace trace;
  trace.Enter(1, Syscall::kVfork, {});
  trace.Fork(1, 11);
  trace.Fault(11, 0x101000);
  trace.Read(11, 7, 0, 0);
  trace.KernelFault(11, 0x102000);
  trace.FileFault(11, 7, 3);
  trace.KernelFault(11, 0x103000, "_copy_to_user");
  trace.Exec(11, "cc1");
  EXPECT_EQ(Told(trace),
            Lines({"1 clone 11 process shares", "11 fault 101000 e6", "11 arguments", "11 read i7[0]+1",
                   "11 exec cc1", "11 file_fault i7[3]", "11 fault 102000 e2", "11 fault 103000 e2"}));
}

TEST(TraceTranslatorTest, KernelFaultsOfAReadAreNoExec) {
  Trace trace;
  trace.Read(1, 7, 0, 0);
  trace.KernelFault(1, 0x102000, "_copy_to_iter");
  trace.Fault(1, 0x103000);
  trace.Exec(1, "sh");
  EXPECT_EQ(Told(trace), Lines({"1 read i7[0]+1", "1 fault 102000 e2", "1 fault 103000 e6", "1 exec sh"}));
}

TEST(TraceTranslatorTest, EndOfAnotherProcessesAddressSpaceIsNoExec) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.ExitMmap(1);  // it read /proc/PID/maps of a process that died
  trace.Fault(1, 0x102000);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 fault 102000 e6"}));
}

TEST(TraceTranslatorTest, AddressSpaceEndsAfterItsLastThread) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Exit(1);
  trace.Fault(2, 0x102000);
  trace.ExitMmap(1);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 exit last", "2 fault 102000 e6", "1 exit_mmap"}));
}

TEST(TraceTranslatorTest, AddressSpaceEndsBeforeItsLastThreadOnOlderKernels) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.ExitMmap(1);
  trace.Fault(2, 0x102000);
  trace.Exit(1);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 exit_mmap", "2 fault 102000 e6", "1 exit last"}));
}

TEST(TraceTranslatorTest, WithoutExitMmapLinesTheLastThreadEndsTheAddressSpace) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Enter(1, Syscall::kVfork, {});
  trace.Fork(1, 11);
  trace.Exit(11);
  trace.Exit(1);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 clone 11 process shares", "11 exit last",
                                "1 exit last", "1 exit_mmap"}));
}

TEST(TraceTranslatorTest, TraceWithoutExitMmapLinesDoesNotWaitForThemTwice) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Exit(1);
  for (uint64_t i = 0; i < 10; ++i) trace.Fault(2, 0x10000 + i * kPage);
  trace.Fault(3, 0x101000);
  trace.Exit(3);
  TraceTranslator::Counts counts;
  const Lines told = Translate(trace, {.window = 8}, SIZE_MAX, &counts).lines();
  ASSERT_EQ(told.size(), 16);
  EXPECT_EQ(told[2], "1 exit_mmap");
  EXPECT_EQ(told[15], "3 exit_mmap");
  EXPECT_EQ(counts.unresolved, 0);
}

TEST(TraceTranslatorTest, ExitThatDoesNotSayWhetherItIsTheLastIsJudgedByTheThreadsSeen) {
  Trace trace;
  trace.ExitMmap(99);
  trace.Fault(1, 0x101000, 6, 1);
  trace.Fault(11, 0x101000, 6, 1);
  trace.Exit(1, -1, 1);
  trace.Exit(11, -1, 1);
  EXPECT_EQ(Told(trace),
            Lines({"99 exec ", "1 fault 101000 e6", "11 fault 101000 e6", "1 exit", "11 exit last"}));
}

TEST(TraceTranslatorTest, ExecOfAnotherThreadThanTheLeaderTakesItsNumber) {
  Trace trace;
  trace.Fault(1, 0x101000, 6, 1);
  trace.Fault(11, 0x101000, 6, 1);
  trace.Exit(1, 0, 1);
  trace.ExitMmap(1);
  trace.Exec(1, "sh", 11);
  trace.Fault(1, 0x102000);
  const Reader reader = Translate(trace);
  EXPECT_EQ(reader.lines(), Lines({"1 fault 101000 e6", "11 fault 101000 e6", "1 exit", "1 exec sh",
                                   "11 exit", "1 fault 102000 e6"}));
  EXPECT_EQ(reader.beginnings(), Lines({"1 process 1 work", "11 process 1 work", "1 process 1 work"}));
}

TEST(TraceTranslatorTest, ThreadNumbersAreUsedAgain) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Exit(1);
  trace.ExitMmap(1);
  trace.Fault(1, 0x102000);
  EXPECT_EQ(Translate(trace).beginnings(), Lines({"1 process 1 work", "1 process 1 work"}));
}

TEST(TraceTranslatorTest, ThreadThatWasNotSeenBeginsBeforeItsFirstEvent) {
  Trace trace;
  trace.Fault(11, 0x101000, 6, 10);
  trace.Read(12, 7, 0, 0);
  trace.Exit(13);
  trace.ExitMmap(13);
  const Reader reader = Translate(trace);
  EXPECT_EQ(reader.beginnings(), Lines({"11 process 10 work", "12 process 12 work"}));
  EXPECT_EQ(reader.lines(), Lines({"11 fault 101000 e6", "12 read i7[0]+1"}));
}

// ---- perf's own records ----

TEST(TraceTranslatorTest, PerfTellsExecAndTheAreasThatItMapped) {
  Trace trace;
  TraceRecord& comm = trace.Line(TraceOp::kPerfComm, 1);
  comm.path = "cow";
  comm.group_dead = 1;
  TraceRecord& area = trace.Line(TraceOp::kPerfMmap, 1);
  area.args = {0x400000, 0x1000, 0x2000, 5, 0};
  area.dev = kDisk;
  area.ino = 7;
  area.path = "/opt/cow";
  trace.KernelFault(1, 0x403000);
  trace.FileFault(1, 7, 3);
  trace.Exec(1, "/opt/cow");
  trace.Fault(1, 0x105000);
  EXPECT_EQ(Told(trace), Lines({"1 exec cow", "1 area 400000+1000 prot 5 flags 2 i7@2000",
                                "1 file_fault i7[3]", "1 fault 403000 e2", "1 fault 105000 e6"}));
}

TEST(TraceTranslatorTest, PerfTellsTheFileOfAnMmap) {
  Trace trace;
  trace.Enter(1, Syscall::kMmap, {0, 0x2000, 5, 0x802, 3, 0x3000});
  TraceRecord& area = trace.Line(TraceOp::kPerfMmap, 1);
  area.args = {0x10000, 0x2000, 0x3000, 5, 0};
  area.dev = kDisk;
  area.ino = 7;
  trace.Return(1, Syscall::kMmap, 0x10000);
  trace.Enter(1, Syscall::kMprotect, {0x10000, 0x1000, 5});
  trace.Line(TraceOp::kPerfMmap, 1).args = {0x10000, 0x1000, 0, 5, 0};
  trace.Return(1, Syscall::kMprotect, 0);
  EXPECT_EQ(Told(trace), Lines({"1 mmap 10000+2000 prot 5 flags 802 i7@3000", "1 mprotect 10000+1000 5"}));
}

TEST(TraceTranslatorTest, PerfTellsNamesAndExitsOnce) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Line(TraceOp::kPerfComm, 1).path = "worker";
  trace.Exit(1);
  trace.Line(TraceOp::kPerfExit, 1);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "1 comm worker", "1 exit last", "1 exit_mmap"}));
}

// ---- cgroups ----

TEST(TraceTranslatorTest, AttachMakesACgroupThatWasNotSeenToBeMade) {
  Trace trace;
  trace.Cgroup(TraceOp::kCgroupAttachTask, "/a/b", 1);
  trace.Cgroup(TraceOp::kCgroupMkdir, "/a/c");
  trace.Cgroup(TraceOp::kCgroupAttachTask, "/a", 1);
  trace.Cgroup(TraceOp::kCgroupAttachTask, "/", 1);
  trace.Cgroup(TraceOp::kCgroupRmdir, "/a/c");
  trace.Cgroup(TraceOp::kCgroupMkdir, "/a/c");
  const Reader reader = Translate(trace);
  EXPECT_EQ(reader.lines(), Lines({"0 create /a/b", "0 attach 1 /a/b", "0 create /a/c", "0 attach 1 /a",
                                   "0 attach 1 /", "0 remove /a/c", "0 create /a/c"}));
  EXPECT_EQ(reader.beginnings(), Lines({"1 process 1 "}));
}

TEST(TraceTranslatorTest, KnobsAreSetBetweenTheirCgroupsCreationAndWhatFollows) {
  Trace trace;
  trace.Cgroup(TraceOp::kCgroupAttachTask, "/a/b", 1);
  trace.Cgroup(TraceOp::kCgroupMkdir, "/a/c");
  trace.Cgroup(TraceOp::kCgroupRmdir, "/a/c");
  trace.Cgroup(TraceOp::kCgroupMkdir, "/a/c");
  TraceTranslator::Options options;
  options.knobs = {
      {"/a", "memory.max", "4096"}, {"/a/c", "memory.low", "max"}, {"/b", "memory.high", "1", true}};
  EXPECT_EQ(Translate(trace, options).lines(),
            Lines({"0 set /b memory.high 1", "0 create /a/b", "0 set /a memory.max 4096", "0 attach 1 /a/b",
                   "0 create /a/c", "0 set /a/c memory.low max", "0 remove /a/c", "0 create /a/c",
                   "0 set /a/c memory.low max"}));
}

TEST(TraceTranslatorTest, OomScoreAdjIsOfWhomItIsWrittenTo) {
  Trace trace;
  TraceRecord& first = trace.Line(TraceOp::kOomScoreAdj, 1);
  first.child_pid = 7;
  first.ret = -998;
  TraceRecord& second = trace.Line(TraceOp::kOomScoreAdj, 7);
  second.child_pid = 7;
  second.ret = 1000;
  const Reader reader = Translate(trace);
  EXPECT_EQ(reader.lines(), Lines({"1 adj 7 -998", "7 adj 7 1000"}));
  EXPECT_EQ(reader.beginnings(), Lines({"7 process 7 "})) << "it was there before the trace";
}

TEST(TraceTranslatorTest, OtherHierarchiesAreCountedAndLeftOut) {
  Trace trace;
  trace.Cgroup(TraceOp::kCgroupMkdir, "/x", 0, 1);
  trace.Cgroup(TraceOp::kCgroupMkdir, "/a", 0, 4);
  trace.Cgroup(TraceOp::kCgroupMkdir, "a//b", 0, 4);
  TraceTranslator::Counts counts;
  EXPECT_EQ(Translate(trace, {}, SIZE_MAX, &counts).lines(), Lines({"0 create /x"})) << "the first one seen";
  EXPECT_EQ(counts.other_hierarchy, 2);
  EXPECT_EQ(Translate(trace, {.root = 4}, SIZE_MAX, &counts).lines(), Lines({"0 create /a"}));
  EXPECT_EQ(counts.other_hierarchy, 1);
  EXPECT_EQ(counts.bad_paths, 1);
}

// ---- marks, the window, places ----

TEST(TraceTranslatorTest, MarkStandsBetweenTheRecords) {
  Trace trace;
  trace.Fault(1, 0x101000);
  trace.Line(TraceOp::kOther, 1).ino = 5;
  trace.Fault(1, 0x102000);
  EXPECT_EQ(Told(trace), Lines({"1 fault 101000 e6", "0 mark 5", "1 fault 102000 e6"}));
}

TEST(TraceTranslatorTest, FaultThatWasInTheMiddleAtAMarkComesAfterIt) {
  Trace trace;
  trace.Fault(1, 0x101000, 4);
  trace.Line(TraceOp::kOther, 1).ino = 5;
  trace.MapPages(1, 7, 0, 0);
  EXPECT_EQ(Told(trace), Lines({"0 mark 5", "1 map_pages i7[0]+1", "1 fault 101000 e4"}));
}

TEST(TraceTranslatorTest, WhatWaitsTooLongIsTakenAtItsFaceValue) {
  Trace trace;
  trace.Fault(1, 0x101000, 4);
  for (uint64_t i = 0; i < 20; ++i) trace.Fault(2, 0x10000 + i * kPage);
  trace.MapPages(1, 7, 0, 0);
  trace.Fault(1, 0x102000);
  TraceTranslator::Counts counts;
  const Lines told = Translate(trace, {.window = 8}, SIZE_MAX, &counts).lines();
  ASSERT_EQ(told.size(), 23);
  EXPECT_EQ(told[0], "1 at 401000");
  EXPECT_EQ(told[1], "1 fault 101000 e4");
  EXPECT_EQ(told[22], "1 fault 102000 e6");
  EXPECT_EQ(counts.unresolved, 1);
  EXPECT_EQ(counts.events, 25) << "and two beginnings";
}

TEST(TraceTranslatorTest, CpusAreFoldedOntoTheNodes) {
  Trace trace;
  trace.Fault(1, 0x101000).cpu = 5;
  BatchBuilder builder;
  TraceTranslator translator({.cpus = 4}, &builder);
  translator.Add(trace.records[0]);
  translator.Finish();
  EXPECT_EQ(builder.Take(1).words(0) >> 6 & 1023, 1);
}

TEST(TraceTranslatorTest, IdleTasksAndImpossibleNumbersMakeNoEvents) {
  Trace trace;
  trace.Fault(0, 0x101000);
  trace.Fault(-1, 0x1000);
  trace.Fault(4194304, 0x101000);
  EXPECT_EQ(Told(trace), Lines());
}

// ---- any trace ----

// Lines in any order, of few threads and files, so that they meet.
Trace AnyTrace(uint64_t seed, int lines) {
  std::mt19937_64 random(seed);
  Trace trace;
  trace.has_tgid = random() % 2 == 0;
  constexpr std::string_view kPaths[] = {"/", "/a", "/a/b", "bad", "/a/../b"};
  for (int i = 0; i < lines; ++i) {
    TraceRecord& record = trace.Line(static_cast<TraceOp>(random() % (static_cast<int>(TraceOp::kLost) + 1)),
                                     1 + random() % 5, 1 + static_cast<int32_t>(random() % 5));
    if (record.op == TraceOp::kOther) record.ino = i;
    record.syscall = static_cast<Syscall>(random() % (static_cast<int>(Syscall::kProcessMadvise) + 1));
    record.error_code = random() % 32;
    record.order = random() % 3;
    record.from_kernel = random() % 3 == 0;
    record.address = (14 + random() % 8) * kPage;
    record.dev = random() % 2 == 0 ? kDisk : MakeDev(0, 26);
    if (record.op != TraceOp::kOther) record.ino = random() % 4;
    record.first_byte = random() % 8 * kPage;
    record.last_byte = record.first_byte + random() % 8 * kPage;
    record.group_dead = static_cast<int8_t>(random() % 3) - 1;
    record.ret = random() % 3 == 0 ? -12 : static_cast<int64_t>(random() % 8 * kPage);
    for (uint64_t& arg : record.args) arg = random() % 4 * kPage;
    record.child_pid = static_cast<int32_t>(random() % 6);
    record.old_pid = 1 + static_cast<int32_t>(random() % 5);
    record.root = 4;
    record.path = kPaths[random() % 5];
    record.ip = "0x401000";
  }
  return trace;
}

TEST(TraceTranslatorTest, EventsDoNotDependOnWhereBatchesAreCut) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = AnyTrace(seed, 2000);
    const Reader whole = Translate(trace);
    for (size_t cut : {1, 2, 7, 100, 1000}) {
      const Reader parts = Translate(trace, {}, cut);
      ASSERT_EQ(parts.lines(), whole.lines()) << "cut at " << cut;
      ASSERT_EQ(parts.beginnings(), whole.beginnings()) << "cut at " << cut;
    }
  }
}

TEST(TraceTranslatorTest, EveryMarkComesOutInOrderWhateverTheLines) {
  for (uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = AnyTrace(seed, 3000);
    Lines expected, found;
    for (const TraceRecord& record : trace.records) {
      if (record.op != TraceOp::kOther) continue;
      std::ostringstream line;
      line << "0 mark " << std::hex << record.ino;
      expected.push_back(line.str());
    }
    for (const std::string& line : Told(trace, {.window = 64})) {
      if (line.starts_with("0 mark")) found.push_back(line);
    }
    ASSERT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace memcgd::client
