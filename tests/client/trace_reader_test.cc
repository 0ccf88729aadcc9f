// What each format's lines become, and what is said of lines and files that are none.
//
// MEMCGD_TESTDATA_DIR is a compile definition, a string: the directory tests/client/testdata of the source
// tree (target_compile_definitions(… PRIVATE
// MEMCGD_TESTDATA_DIR="${CMAKE_CURRENT_SOURCE_DIR}/client/testdata")).
//   tracefs.txt                     real lines of shared/fidelity's traces, up to three of each event
//   perf-script.txt                 real lines, pid and tid, with mmap and task records
//   perf-script-default-fields.txt  real lines, tid only
//   trace-cmd.txt                   made by hand after trace-cmd's trace_show_data()
//   tracefs-old-kernel.txt          made by hand: no flags, hex without 0x, events before they gained fields
#include "client/trace_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "client/perf_script_parser.h"
#include "client/trace_cmd_parser.h"
#include "client/tracefs_parser.h"

namespace memcgd::client {
namespace {

std::string TestData(const std::string& name) { return std::string(MEMCGD_TESTDATA_DIR) + "/" + name; }

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A record whose texts outlive the reader's buffer.
struct KeptRecord {
  TraceRecord value;
  std::string comm, path, ip;
};

struct Reading {
  absl::Status status;  // of Open() or of the last Next()
  std::vector<KeptRecord> records;
  std::vector<std::string> reports;
  TraceReader::Counts counts;
  TraceFormat format = TraceFormat::kUnknown;
};

Reading ReadFile(const std::string& path, bool strict = false, int max_reported = 10) {
  Reading reading;
  TraceReader::Options options;
  options.strict = strict;
  options.max_reported = max_reported;
  options.report = [&reading](const std::string& text) { reading.reports.push_back(text); };
  auto reader = TraceReader::Open(path, options);
  reading.status = reader.status();
  if (!reader.ok()) return reading;
  TraceRecord record;
  for (;;) {
    const absl::StatusOr<bool> more = (*reader)->Next(&record);
    reading.status = more.status();
    if (!more.ok() || !*more) break;
    reading.records.push_back(
        {record, std::string(record.comm), std::string(record.path), std::string(record.ip)});
  }
  reading.counts = (*reader)->counts();
  reading.format = (*reader)->format();
  return reading;
}

class TraceReaderTest : public testing::Test {
 protected:
  Reading ReadText(std::string_view text, bool strict = false, int max_reported = 10) {
    path_ = testing::TempDir() + "trace_reader_test." + std::to_string(getpid());
    FILE* file = fopen(path_.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(fwrite(text.data(), 1, text.size(), file), text.size());
    fclose(file);
    Reading reading = ReadFile(path_, strict, max_reported);
    unlink(path_.c_str());
    return reading;
  }

  // The one record of a text of one line.
  KeptRecord ReadOne(std::string_view line) {
    Reading reading = ReadText(std::string(line) + "\n");
    EXPECT_TRUE(reading.status.ok()) << reading.status;
    EXPECT_EQ(reading.counts.malformed, 0u) << (reading.reports.empty() ? "" : reading.reports[0]);
    EXPECT_EQ(reading.records.size(), 1u) << line;
    format_ = reading.format;
    return reading.records.empty() ? KeptRecord{} : reading.records[0];
  }

  // Why a line is malformed, with a good one before it so that the format is known.
  std::string WhyMalformed(std::string_view line) {
    const Reading reading = ReadText(std::string(kFault) + "\n" + std::string(line) + "\n");
    EXPECT_TRUE(reading.status.ok()) << reading.status;
    EXPECT_EQ(reading.counts.malformed, 1u) << line;
    return reading.reports.empty() ? "" : reading.reports[0];
  }

  static constexpr std::string_view kFault =
      "             cow-3913    (   3913) [001] d....  7670.951873: page_fault_user: address=0x7f66cf355130 "
      "ip=0x7f66cefc7166 error_code=0x7";
  // A head for bodies of tracefs.
  static std::string Line(std::string_view body) {
    return "             cow-3913    (   3913) [001] d....  7670.951873: " + std::string(body);
  }

  std::string path_;
  TraceFormat format_ = TraceFormat::kUnknown;
};

int CountOf(const Reading& reading, TraceOp op) {
  int count = 0;
  for (const KeptRecord& record : reading.records) count += record.value.op == op;
  return count;
}

// ---- tracefs ----

TEST_F(TraceReaderTest, AFaultOfTracefsHasAllItsFields) {
  const KeptRecord record = ReadOne(kFault);
  EXPECT_EQ(format_, TraceFormat::kTracefs);
  EXPECT_EQ(record.value.op, TraceOp::kPageFault);
  EXPECT_FALSE(record.value.from_kernel);
  EXPECT_EQ(record.comm, "cow");
  EXPECT_EQ(record.value.tid, 3913);
  EXPECT_EQ(record.value.tgid, 3913);
  EXPECT_EQ(record.value.cpu, 1u);
  EXPECT_EQ(record.value.time_ns, 7670951873000);
  EXPECT_TRUE(record.value.has_address);
  EXPECT_EQ(record.value.address, 0x7f66cf355130u);
  EXPECT_EQ(record.ip, "0x7f66cefc7166");
  EXPECT_EQ(record.value.error_code, 7);
}

TEST_F(TraceReaderTest, EveryEventOfTheFidelityTracesIsRead) {
  const Reading reading = ReadFile(TestData("tracefs.txt"));
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.format, TraceFormat::kTracefs);
  EXPECT_EQ(reading.counts.lines, 120u);
  EXPECT_EQ(reading.counts.records, 108u);
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.other, 0u);
  EXPECT_EQ(reading.counts.lost_places, 0u);
  EXPECT_EQ(reading.counts.time_backwards, 0u);
  EXPECT_EQ(reading.counts.bytes, Contents(TestData("tracefs.txt")).size());
  EXPECT_EQ(CountOf(reading, TraceOp::kPageFault), 6);
  EXPECT_EQ(CountOf(reading, TraceOp::kSyscallEnter), 26);
  EXPECT_EQ(CountOf(reading, TraceOp::kSyscallExit), 27);
  for (const TraceOp op :
       {TraceOp::kFilemapAdd, TraceOp::kFilemapDelete, TraceOp::kFilemapFault, TraceOp::kFilemapMapPages,
        TraceOp::kFilemapGetPages, TraceOp::kWriteBegin, TraceOp::kDirtyFolio, TraceOp::kFork, TraceOp::kExec,
        TraceOp::kExit, TraceOp::kExitMmap, TraceOp::kCgroupMkdir, TraceOp::kCgroupRmdir,
        TraceOp::kCgroupAttachTask, TraceOp::kReclaimBegin, TraceOp::kReclaimEnd}) {
    EXPECT_EQ(CountOf(reading, op), 3) << static_cast<int>(op);
  }
  EXPECT_EQ(CountOf(reading, TraceOp::kMarkVictim), 1);
}

TEST_F(TraceReaderTest, PageCacheEventsHaveDeviceInodeAndBytes) {
  KeptRecord record =
      ReadOne(Line("mm_filemap_add_to_page_cache: dev 254:3 ino a7a67a pfn=0x1129de ofs=12288 order=2"));
  EXPECT_EQ(record.value.op, TraceOp::kFilemapAdd);
  EXPECT_EQ(record.value.dev, MakeDev(254, 3));
  EXPECT_EQ(record.value.ino, 0xa7a67au);
  EXPECT_EQ(record.value.first_byte, 12288u);
  EXPECT_EQ(record.value.order, 2);
  record = ReadOne(Line("mm_filemap_delete_from_page_cache: dev 0:45 ino 1 pfn=0x1 ofs=0 order=0"));
  EXPECT_EQ(record.value.op, TraceOp::kFilemapDelete);
  record = ReadOne(Line("mm_filemap_map_pages: dev=254:0 ino=4992 ofs=2162688-2228223"));
  EXPECT_EQ(record.value.op, TraceOp::kFilemapMapPages);
  EXPECT_EQ(record.value.ino, 0x4992u);
  EXPECT_EQ(record.value.first_byte, 2162688u);
  EXPECT_EQ(record.value.last_byte, 2228223u);
  record = ReadOne(Line("mm_filemap_fault: dev=254:0 ino=5125f ofs=212992"));
  EXPECT_EQ(record.value.op, TraceOp::kFilemapFault);
  EXPECT_EQ(record.value.first_byte, 212992u);
  record = ReadOne(Line("ext4_da_write_begin: dev 254,0 ino 10952736 pos 4096 len 512"));
  EXPECT_EQ(record.value.op, TraceOp::kWriteBegin);
  EXPECT_EQ(record.value.ino, 10952736u);
  EXPECT_EQ(record.value.first_byte, 4096u);
  EXPECT_EQ(record.value.last_byte, 4607u);
  record = ReadOne(Line("writeback_dirty_folio: bdi 254:0: ino=266338304 index=43810817"));
  EXPECT_EQ(record.value.op, TraceOp::kDirtyFolio);
  EXPECT_EQ(record.value.dev, MakeDev(254, 0));
  EXPECT_EQ(record.value.page_index, 43810817u);
}

TEST_F(TraceReaderTest, ARangeWithoutEndReachesTheLargestOffset) {
  const KeptRecord record = ReadOne(Line("mm_filemap_get_pages: dev=254:0 ino=1 ofs=4096--1"));
  EXPECT_EQ(record.value.op, TraceOp::kFilemapGetPages);
  EXPECT_EQ(record.value.last_byte, UINT64_MAX);
}

TEST_F(TraceReaderTest, SystemCallsHaveTheirArgumentsAndReturns) {
  KeptRecord record =
      ReadOne(Line("sys_mmap(addr: 0, len: 0x2000, prot: 3, flags: 0x22, fd: 0xffffffff, off: 0)"));
  EXPECT_EQ(record.value.op, TraceOp::kSyscallEnter);
  EXPECT_EQ(record.value.syscall, Syscall::kMmap);
  EXPECT_EQ(record.value.args, (std::array<uint64_t, 6>{0, 0x2000, 3, 0x22, 0xffffffff, 0}));
  record = ReadOne(Line("sys_mmap -> 0x7f748ff06000"));
  EXPECT_EQ(record.value.op, TraceOp::kSyscallExit);
  EXPECT_EQ(record.value.ret, 0x7f748ff06000);
  record = ReadOne(Line("sys_mmap -> 0xfffffffffffffff4"));
  EXPECT_EQ(record.value.ret, -12);
  record = ReadOne(Line("sys_vfork()"));
  EXPECT_EQ(record.value.syscall, Syscall::kVfork);
  // "sys_exit_" begins trace-cmd's and perf's returns; here it is a call.
  record = ReadOne(Line("sys_exit_group(error_code: 1)"));
  EXPECT_EQ(record.value.op, TraceOp::kSyscallEnter);
  EXPECT_EQ(record.value.syscall, Syscall::kExitGroup);
  EXPECT_EQ(record.value.args[0], 1u);
  record = ReadOne(Line("sys_execve(filename: 0x55d0 \"/bin/a, b\", argv: 0x55e0, envp: 0x55f0)"));
  EXPECT_EQ(record.value.syscall, Syscall::kExecve);
}

TEST_F(TraceReaderTest, ArgumentsAreHexEvenWhereAnOldKernelLeavesThe0xAway) {
  const Reading reading = ReadFile(TestData("tracefs-old-kernel.txt"));
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.format, TraceFormat::kTracefs);
  EXPECT_EQ(reading.counts.malformed, 0u);
  ASSERT_EQ(reading.records.size(), 13u);
  EXPECT_EQ(reading.records[0].value.op, TraceOp::kLost);  // 11 of 15 entries are left
  const TraceRecord& mmap = reading.records[1].value;
  EXPECT_EQ(mmap.args, (std::array<uint64_t, 6>{0, 0x8000000, 3, 0x22, 0xffffffff, 0}));
  EXPECT_EQ(mmap.tgid, -1);
  EXPECT_EQ(mmap.cpu, 3u);
  const TraceRecord& munmap = reading.records[3].value;  // with types, as the verbose option prints
  EXPECT_EQ(munmap.args[0], 0x7f748ff06000u);
  EXPECT_EQ(munmap.args[1], 0x8000000u);
}

TEST_F(TraceReaderTest, EventsOfOlderKernelsLackFieldsAndAreRead) {
  const Reading reading = ReadFile(TestData("tracefs-old-kernel.txt"));
  ASSERT_EQ(reading.records.size(), 13u);
  EXPECT_EQ(reading.records[5].value.op, TraceOp::kFilemapAdd);  // page= before pfn=, no order=
  EXPECT_EQ(reading.records[5].value.first_byte, 4096u);
  EXPECT_EQ(reading.records[5].value.order, 0);
  EXPECT_EQ(reading.records[6].value.op, TraceOp::kWriteBegin);
  EXPECT_EQ(reading.records[6].value.last_byte, 4095u);
  EXPECT_EQ(reading.records[7].value.op, TraceOp::kDirtyFolio);  // writeback_dirty_page
  EXPECT_EQ(reading.records[8].value.dev, 0u);                   // a bdi that is named by no device
  EXPECT_EQ(reading.records[8].value.page_index, 4u);
  EXPECT_EQ(reading.records[10].value.op, TraceOp::kExit);
  EXPECT_EQ(reading.records[10].value.group_dead, -1);
  EXPECT_EQ(reading.records[11].value.child_pid, 3901);
}

TEST_F(TraceReaderTest, LostEventsAreCountedWhereverTheTraceSaysSo) {
  const Reading reading = ReadFile(TestData("tracefs-old-kernel.txt"));
  EXPECT_EQ(reading.counts.lost_places, 2u);
  EXPECT_EQ(reading.counts.lost_events, 4u + 123u);
  ASSERT_EQ(reading.records.size(), 13u);
  const TraceRecord& lost = reading.records[9].value;
  EXPECT_EQ(lost.op, TraceOp::kLost);
  EXPECT_EQ(lost.lost_events, 123u);
  EXPECT_EQ(lost.cpu, 1u);
  EXPECT_EQ(lost.time_ns, 7670952300000);  // of the line before it
}

TEST_F(TraceReaderTest, CgroupPathsAndNamesMayHoldBlanks) {
  KeptRecord record = ReadOne(Line("cgroup_mkdir: root=4 id=20099 level=2 path=/a b/te=am"));
  EXPECT_EQ(record.value.op, TraceOp::kCgroupMkdir);
  EXPECT_EQ(record.value.root, 4u);
  EXPECT_EQ(record.value.cgroup_id, 20099u);
  EXPECT_EQ(record.value.level, 2u);
  EXPECT_EQ(record.path, "/a b/te=am");
  record = ReadOne(
      Line("cgroup_attach_task: dst_root=4 dst_id=7 dst_level=1 dst_path=/x pid=1 y pid=42 comm=a pid=9"));
  EXPECT_EQ(record.value.op, TraceOp::kCgroupAttachTask);
  EXPECT_EQ(record.path, "/x pid=1 y");
  EXPECT_EQ(record.value.child_pid, 42);
}

TEST_F(TraceReaderTest, NamesWithinProcessEventsMayHoldAnything) {
  KeptRecord record =
      ReadOne(Line("sched_process_fork: comm=a child_pid=7 x pid=1 child_comm=b pid=2 child_pid=3905"));
  EXPECT_EQ(record.value.op, TraceOp::kFork);
  EXPECT_EQ(record.value.child_pid, 3905);
  record = ReadOne(Line("sched_process_exec: filename=/opt/a pid=1 b/cow pid=3905 old_pid=3907"));
  EXPECT_EQ(record.value.op, TraceOp::kExec);
  EXPECT_EQ(record.path, "/opt/a pid=1 b/cow");
  EXPECT_EQ(record.value.old_pid, 3907);
  record = ReadOne(Line("sched_process_exit: comm=a prio=7 pid=3901 prio=120 group_dead=false"));
  EXPECT_EQ(record.value.op, TraceOp::kExit);
  EXPECT_EQ(record.value.group_dead, 0);
}

TEST_F(TraceReaderTest, ADashInACommandNameIsNotThePid) {
  EXPECT_EQ(ReadOne("  Web-12 Con-tent-3902  (   3901) [001] d....  1.5: exit_mmap: x").comm,
            "Web-12 Con-tent");
  EXPECT_EQ(ReadOne("   a-1 [2] 3.4: b-3902  (   3901) [001] d....  1.5: exit_mmap: x").comm,
            "a-1 [2] 3.4: b");
  const KeptRecord record = ReadOne("    kworker/0:1-7-77      (-------) [000] d..1.  1.5: exit_mmap: x");
  EXPECT_EQ(record.comm, "kworker/0:1-7");
  EXPECT_EQ(record.value.tid, 77);
  EXPECT_EQ(record.value.tgid, -1);
}

TEST_F(TraceReaderTest, ACommandNameMayHoldBracketsAndInvalidUtf8) {
  EXPECT_EQ(ReadOne("      (sd-pam) [x]-3902  (   3901) [001] d....  1.5: exit_mmap: x").comm,
            "(sd-pam) [x]");
  EXPECT_EQ(ReadOne("            \xff\xfe\x80"
                    "a-3902  (   3901) [001] d....  1.5: exit_mmap: x")
                .comm,
            "\xff\xfe\x80"
            "a");
  EXPECT_EQ(ReadOne("           <...>-3902  [001]  1.5: exit_mmap: x").comm, "<...>");
  EXPECT_EQ(ReadOne("                -3902  [001]  1.5: exit_mmap: x").comm, "");
}

TEST_F(TraceReaderTest, ALineWithoutItsLeadingBlanksIsRead) {
  const KeptRecord record = ReadOne("Web-12 C-3902 (3901) [001] d.... 1.000000001: exit_mmap: x");
  EXPECT_EQ(record.comm, "Web-12 C");
  EXPECT_EQ(record.value.tid, 3902);
  EXPECT_EQ(record.value.time_ns, 1000000001);
}

TEST_F(TraceReaderTest, ABodyThatLooksLikeALineIsNotTheHead) {
  const Reading reading = ReadText(
      "x-1 [000] ..... 1.0: tracing_mark_write: y-2 [001] ..... 2.0: exit_mmap: z\n" + std::string(kFault));
  EXPECT_EQ(reading.counts.other, 1u);
  EXPECT_EQ(reading.records.size(), 1u);
  EXPECT_EQ(reading.counts.time_backwards, 0u);
}

TEST_F(TraceReaderTest, AnAddressPrintedAsASymbolIsCountedAndNotMalformed) {
  const Reading reading =
      ReadText(Line("page_fault_user: address=_end+0x12 ip=0x7f00 error_code=0x4") + "\n" +
               Line("page_fault_kernel: address=foo+0x1/0x20 [kvm] ip=bar+0x2/0x30 [kvm] error_code=0x0") +
               "\n" + Line("page_fault_user: addr=0x1000 ip=0x7f00 error_code=0x4") + "\n");
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.symbolic_addresses, 2u);
  ASSERT_EQ(reading.records.size(), 3u);
  EXPECT_FALSE(reading.records[0].value.has_address);
  EXPECT_EQ(reading.records[1].ip, "bar+0x2/0x30 [kvm]");
  EXPECT_TRUE(reading.records[1].value.from_kernel);
  EXPECT_TRUE(reading.records[2].value.has_address);
  EXPECT_EQ(reading.records[2].value.address, 0x1000u);
}

TEST_F(TraceReaderTest, EventsThatReplayDoesNotNeedAreSkippedAndCounted) {
  const Reading reading =
      ReadText(Line("sched_switch: prev_comm=a prev_pid=1") + "\n" +
               Line("sys_write(fd: 1, buf: 0x5, count: 3)") + "\n" + Line("sys_write -> 0x3") + "\n" +
               Line("<stack trace>") + "\n => do_exit\n" + Line("tcp_v4_rcv <-ip_rcv") + "\n" +
               Line("mm_vmscan_direct_reclaim_begin: order=0") + "\n" + std::string(kFault) + "\n");
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.other, 6u);
  EXPECT_EQ(reading.counts.records, 7u);
  ASSERT_EQ(reading.records.size(), 1u);
  EXPECT_EQ(reading.records[0].value.op, TraceOp::kPageFault);
}

// ---- trace-cmd ----

TEST_F(TraceReaderTest, TraceCmdReportIsReadWithAndWithoutFlags) {
  const Reading reading = ReadFile(TestData("trace-cmd.txt"));
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.format, TraceFormat::kTraceCmd);
  EXPECT_EQ(reading.counts.malformed, 0u) << reading.reports[0];
  EXPECT_EQ(reading.counts.other, 2u);  // sched_switch and the stack
  EXPECT_EQ(reading.counts.symbolic_addresses, 1u);
  EXPECT_EQ(reading.counts.lost_places, 2u);
  EXPECT_EQ(reading.counts.lost_events, 17u);
  ASSERT_EQ(reading.records.size(), 17u);
  const TraceRecord& mmap = reading.records[4].value;
  EXPECT_EQ(mmap.op, TraceOp::kSyscallEnter);
  EXPECT_EQ(mmap.args, (std::array<uint64_t, 6>{0, 0x2000, 3, 0x22, 0xffffffff, 0}));
  EXPECT_EQ(reading.records[5].value.ret, 0x7f748ff06000);
  EXPECT_EQ(reading.records[7].value.ret, -22);
  EXPECT_EQ(reading.records[9].comm, "Web Content-er");
  EXPECT_EQ(reading.records[15].path, "/opt/a b/cow");
}

TEST_F(TraceReaderTest, TraceCmdIsToldFromTracefsWithoutAHeader) {
  ReadOne("             cow-3901  [000]  7670.954010: sys_exit_mmap:        0x7f748ff06000");
  EXPECT_EQ(format_, TraceFormat::kTraceCmd);
  ReadOne("             cow-3901  [000]  7670.954010: sys_mmap -> 0x7f748ff06000");
  EXPECT_EQ(format_, TraceFormat::kTracefs);
}

TEST_F(TraceReaderTest, AnEventTraceCmdCouldNotFormatIsReadByItsFields) {
  const KeptRecord record = ReadOne(
      "             cow-3901  [000]  1.5: page_fault_user:      [FAILED TO PARSE] address=0x1000 ip=0x2000 "
      "error_code=4");
  EXPECT_EQ(record.value.address, 0x1000u);
  EXPECT_EQ(record.value.error_code, 4);
}

// ---- perf script ----

TEST_F(TraceReaderTest, PerfScriptWithPidAndTidIsRead) {
  const Reading reading = ReadFile(TestData("perf-script.txt"));
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.format, TraceFormat::kPerfScript);
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.other, 0u);
  EXPECT_EQ(reading.counts.records, reading.counts.lines);
  EXPECT_EQ(CountOf(reading, TraceOp::kPerfMmap), 5);
  EXPECT_EQ(CountOf(reading, TraceOp::kPerfComm), 2);
  EXPECT_EQ(CountOf(reading, TraceOp::kPerfExit), 3);
  EXPECT_EQ(CountOf(reading, TraceOp::kFork), 4);
  EXPECT_EQ(CountOf(reading, TraceOp::kExit), 3);
  const KeptRecord& mmap = reading.records[3];
  EXPECT_EQ(mmap.value.op, TraceOp::kPerfMmap);
  EXPECT_EQ(mmap.path, "/opt/cow");
  EXPECT_EQ(mmap.value.dev, MakeDev(0xfe, 0));
  EXPECT_EQ(mmap.value.ino, 10987138u);
  EXPECT_EQ(mmap.value.args, (std::array<uint64_t, 6>{0x55d36bb98000, 0x1000, 0x1000, 1 | 4, 0, 0}));
  EXPECT_EQ(mmap.value.tid, 24089);
  EXPECT_EQ(mmap.value.tgid, 24089);
  EXPECT_EQ(mmap.value.time_ns, 5717799507000);
}

TEST_F(TraceReaderTest, PerfScriptOfDefaultFieldsHasTheThreadOnly) {
  const Reading reading = ReadFile(TestData("perf-script-default-fields.txt"));
  EXPECT_EQ(reading.counts.malformed, 0u);
  const KeptRecord& comm = reading.records[2];
  EXPECT_EQ(comm.value.op, TraceOp::kPerfComm);
  EXPECT_EQ(comm.value.group_dead, 1);
  EXPECT_EQ(comm.path, "oom");
  const KeptRecord& fault = reading.records[6];
  EXPECT_EQ(fault.value.op, TraceOp::kPageFault);
  EXPECT_EQ(fault.comm, "oom");
  EXPECT_EQ(fault.value.tid, 24104);
  EXPECT_EQ(fault.value.tgid, -1);
  EXPECT_EQ(fault.value.cpu, 1u);
}

TEST_F(TraceReaderTest, PerfTaskRecordsNameProcessAndThread) {
  KeptRecord record = ReadOne("  a b 10/11 [000] 1.5: PERF_RECORD_FORK(10:12):(10:11)");
  EXPECT_EQ(record.comm, "a b");
  EXPECT_EQ(record.value.op, TraceOp::kFork);
  EXPECT_EQ(record.value.tid, 11);
  EXPECT_EQ(record.value.child_tgid, 10);
  EXPECT_EQ(record.value.child_pid, 12);
  record = ReadOne("  a 10/12 [000] 1.5: PERF_RECORD_EXIT(10:12):(10:11)");
  EXPECT_EQ(record.value.op, TraceOp::kPerfExit);
  EXPECT_EQ(record.value.child_pid, 12);
  EXPECT_EQ(record.value.child_tgid, 10);
  record = ReadOne("  a 10/12 [000] 1.5: PERF_RECORD_COMM: x: y:10/12");
  EXPECT_EQ(record.value.op, TraceOp::kPerfComm);
  EXPECT_EQ(record.path, "x: y");
  EXPECT_EQ(record.value.group_dead, 0);
}

TEST_F(TraceReaderTest, PerfMappingsMayBeSharedOrHaveABuildIdOrABlankInTheirName) {
  KeptRecord record = ReadOne(
      "  a 1/1 5.000001: PERF_RECORD_MMAP2 1/1: [0x7f00(0x2000) @ 0 00:01 77 0]: rw-s /dev/zero (deleted)");
  EXPECT_EQ(record.path, "/dev/zero (deleted)");
  EXPECT_EQ(record.value.dev, MakeDev(0, 1));
  EXPECT_EQ(record.value.args[3], 3u);
  EXPECT_EQ(record.value.args[4], 1u);
  record = ReadOne(
      "  a 1/1 5.000001: PERF_RECORD_MMAP2 1/1: [0x7f00(0x2000) @ 0x1000 <f6f4a1b2c3d4e5f60718>]: r-xp "
      "/lib/c.so");
  EXPECT_EQ(record.value.ino, 0u);
  EXPECT_EQ(record.value.args[2], 0x1000u);
  EXPECT_EQ(record.path, "/lib/c.so");
}

TEST_F(TraceReaderTest, PerfNamesMayHoldBlanksAndNumbers) {
  KeptRecord record = ReadOne(
      " pool 12 [1] x  77 [003] 5.123456789: exceptions:page_fault_user: address=0x1000 ip=0x1 "
      "error_code=0x4");
  EXPECT_EQ(record.comm, "pool 12 [1] x");
  EXPECT_EQ(record.value.tid, 77);
  EXPECT_EQ(record.value.time_ns, 5123456789);
  record = ReadOne("    :-1    -1 [003] 5.5: mmap:exit_mmap: x");
  EXPECT_EQ(format_, TraceFormat::kPerfScript);
  EXPECT_EQ(record.value.tid, -1);
}

TEST_F(TraceReaderTest, PerfPeriodsModifiersAndCallChainsArePassedOver) {
  const Reading reading = ReadText(
      "cow 24089 5717.800586:          1 syscalls:sys_enter_brk: brk: 0x00000000\n"
      "\t    7f1dde25ce22 brk+0x22 (/usr/lib/libc.so.6)\n"
      "\t    7f1dde25ce23 [unknown] ([unknown])\n"
      "\n"
      "cow 24089 5717.800590: exceptions:page_fault_user:u: address=0x1000 ip=0x2000 error_code=0x6\n"
      "cow 24089 5717.800591:       5000 cycles:ppp:  ffffffff81775b9a elf_load+0x28a ([kernel.kallsyms])\n"
      "cow 24089 5717.800592: syscalls:sys_enter_vfork:\n"
      "cow 24089 5717.800593: PERF_RECORD_SWITCH OUT\n");
  EXPECT_EQ(reading.counts.malformed, 0u) << reading.reports[0];
  EXPECT_EQ(reading.counts.other, 2u);
  ASSERT_EQ(reading.records.size(), 3u);
  EXPECT_EQ(reading.records[0].value.syscall, Syscall::kBrk);
  EXPECT_EQ(reading.records[1].value.address, 0x1000u);
  EXPECT_EQ(reading.records[2].value.syscall, Syscall::kVfork);
}

TEST_F(TraceReaderTest, WhatPerfSaysItLostIsCounted) {
  const Reading reading = ReadText(
      "Processed 120 events and lost 3 chunks!\n"
      "\n"
      "Check IO/CPU overload!\n"
      "\n"
      "cow 24089/24089 [000] 5.1: PERF_RECORD_LOST lost 40\n"
      "cow 24089/24089 [000] 5.2: PERF_RECORD_LOST_SAMPLES lost 2\n"
      "cow 24089/24089 [000] 5.3: mmap:exit_mmap: x\n");
  EXPECT_EQ(reading.format, TraceFormat::kPerfScript);
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.lost_places, 3u);
  EXPECT_EQ(reading.counts.lost_events, 42u);
  ASSERT_EQ(reading.records.size(), 4u);
  EXPECT_EQ(reading.records[1].value.lost_events, 40u);
  EXPECT_EQ(reading.records[1].value.time_ns, 5100000000);
}

// ---- bad lines ----

TEST_F(TraceReaderTest, AMalformedLineIsReportedWithFileAndLineAndReadingGoesOn) {
  const Reading reading = ReadText(std::string(kFault) + "\nwhat is this\n" + std::string(kFault) + "\n");
  EXPECT_TRUE(reading.status.ok());
  EXPECT_EQ(reading.records.size(), 2u);
  EXPECT_EQ(reading.counts.malformed, 1u);
  EXPECT_EQ(reading.counts.lines, 3u);
  ASSERT_EQ(reading.reports.size(), 1u);
  EXPECT_EQ(reading.reports[0].find(path_ + ":2: no line of a trace"), 0u) << reading.reports[0];
  EXPECT_NE(reading.reports[0].find("\"what is this\""), std::string::npos);
}

TEST_F(TraceReaderTest, OnlyTheFirstMalformedLinesAreReported) {
  std::string text = std::string(kFault) + "\n";
  for (int i = 0; i < 50; ++i) text += "bad\n";
  EXPECT_EQ(ReadText(text).reports.size(), 10u);
  EXPECT_EQ(ReadText(text, false, 3).reports.size(), 3u);
  EXPECT_EQ(ReadText(text, false, 0).counts.malformed, 50u);
}

TEST_F(TraceReaderTest, StrictReadingEndsAtTheFirstMalformedLine) {
  const Reading reading =
      ReadText(std::string(kFault) + "\nbad\n" + std::string(kFault) + "\n", /*strict=*/true);
  EXPECT_EQ(reading.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reading.status.message().find(path_ + ":2: "), 0u) << reading.status;
  EXPECT_EQ(reading.records.size(), 1u);
}

TEST_F(TraceReaderTest, OomScoreAdjIsReadBehindAnyName) {
  const KeptRecord record = ReadOne(
      "            runc-4510    [001] .....  7744.846453: oom_score_adj_update: pid=4511 comm=a "
      "oom_score_adj=5 "
      "oom_score_adj=-998");
  EXPECT_EQ(record.value.op, TraceOp::kOomScoreAdj);
  EXPECT_EQ(record.value.child_pid, 4511);
  EXPECT_EQ(record.value.ret, -998);
}

TEST_F(TraceReaderTest, AnEventWithoutAFieldItNeedsIsMalformed) {
  for (const char* body : {"page_fault_user: ip=0x1 error_code=0x7",
                           "page_fault_user: address=0x1 ip=0x2",
                           "page_fault_user: address=",
                           "page_fault_user: address=0x1z ip=0x2 error_code=0x7",
                           "page_fault_user: address=0x1 ip=0x2 error_code=0x7z",
                           "page_fault_user: address=0x11112222333344445 ip=0x2 error_code=0x7",
                           "mm_filemap_fault: dev=254:0 ino=1",
                           "mm_filemap_fault: dev=4096:0 ino=1 ofs=0",
                           "mm_filemap_map_pages: dev=1:1 ino=1 ofs=8192-4095",
                           "mm_filemap_map_pages: dev=1:1 ino=1 ofs=4096",
                           "mm_filemap_add_to_page_cache: dev 1:1 ino 1 pfn=0x1",
                           "mm_filemap_add_to_page_cache: dev 1:1 ino 1 pfn=0x1 ofs=0 order=99",
                           "ext4_write_begin: dev 1,1 ino 1 pos 5",
                           "ext4_write_begin: dev 1,1 ino 1 pos 18446744073709551615 len 2",
                           "writeback_dirty_folio: bdi 1:1: ino=5",
                           "sched_process_fork: comm=a pid=1",
                           "sched_process_fork: comm=a pid=1 child_comm=b child_pid=99999999999",
                           "sched_process_exec: filename=/a pid=1",
                           "sched_process_exit: comm=a pid=1 prio=1 group_dead=maybe",
                           "cgroup_mkdir: root=1 id=2 level=3",
                           "cgroup_attach_task: dst_root=1 dst_id=2 dst_level=3 dst_path=/a pid=5",
                           "mark_victim: comm=a",
                           "oom_score_adj_update: comm=a oom_score_adj=1",
                           "oom_score_adj_update: pid=5 comm=a",
                           "oom_score_adj_update: pid=5 comm=a oom_score_adj=1001",
                           "oom_score_adj_update: pid=5 comm=a oom_score_adj=-1001",
                           "oom_score_adj_update: pid=5 comm=a oom_score_adj=much",
                           "sys_mmap(addr: 0, len: 0x2000)",
                           "sys_mmap(addr: 0, len: 0x20",
                           "sys_munmap -> ",
                           "sys_brk(brk: what)",
                           "sys_enter_munmap: addr: 0x0",
                           "sys_exit_munmap: 0x",
                           "page_fault_use",
                           "gibberish here",
                           ""}) {
    EXPECT_NE(WhyMalformed(Line(body)), "") << body;
  }
}

TEST_F(TraceReaderTest, ATruncatedLastLineIsMalformedAndSaidToBe) {
  const Reading reading = ReadText(std::string(kFault) + "\n" + std::string(kFault.substr(0, 90)));
  EXPECT_TRUE(reading.status.ok());
  EXPECT_EQ(reading.records.size(), 1u);
  EXPECT_EQ(reading.counts.malformed, 1u);
  ASSERT_EQ(reading.reports.size(), 1u);
  EXPECT_NE(reading.reports[0].find("(the file ends within this line)"), std::string::npos)
      << reading.reports[0];
}

TEST_F(TraceReaderTest, AMissingLastNewlineLosesNoEvent) {
  EXPECT_EQ(ReadText(std::string(kFault) + "\n" + std::string(kFault)).records.size(), 2u);
}

TEST_F(TraceReaderTest, CarriageReturnsBeforeNewlinesAreNoPartOfALine) {
  std::string text;
  for (const char c : Contents(TestData("tracefs.txt"))) text += c == '\n' ? "\r\n" : std::string(1, c);
  const Reading reading = ReadText(text);
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.records, 108u);
  EXPECT_EQ(CountOf(reading, TraceOp::kCgroupMkdir), 3);
  for (const KeptRecord& record : reading.records) EXPECT_EQ(record.path.find('\r'), std::string::npos);
}

TEST_F(TraceReaderTest, AByteOrderMarkIsNoPartOfTheFirstLine) {
  const Reading reading = ReadText("\xef\xbb\xbf" + std::string(kFault) + "\r\n");
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.records.size(), 1u);
}

TEST_F(TraceReaderTest, AnOverlongLineIsMalformedAndPassedOver) {
  const Reading reading =
      ReadText(std::string(kFault) + "\n" + std::string(1 << 20, 'x') + "\n" + std::string(kFault) + "\n");
  EXPECT_TRUE(reading.status.ok());
  EXPECT_EQ(reading.records.size(), 2u);
  EXPECT_EQ(reading.counts.malformed, 1u);
  EXPECT_EQ(reading.reports[0], path_ + ":2: a line of more than 65536 bytes");
}

TEST_F(TraceReaderTest, TimesThatGoBackAreCountedAndKeptInFileOrder) {
  const std::string once = Contents(TestData("tracefs.txt"));
  const Reading reading = ReadText(once + once);  // a second boot begins again
  EXPECT_EQ(reading.counts.malformed, 0u);
  EXPECT_EQ(reading.counts.time_backwards, 1u);
  ASSERT_EQ(reading.records.size(), 216u);
  EXPECT_EQ(reading.records[108].value.time_ns, reading.records[0].value.time_ns);
}

TEST_F(TraceReaderTest, AClockThatCountsNoSecondsIsNamedAsTheReason) {
  const Reading reading = ReadText("             cow-3913    [001] d....  76709518731234: exit_mmap: x\n");
  EXPECT_FALSE(reading.status.ok());
  EXPECT_NE(reading.status.message().find("trace_clock"), absl::string_view::npos) << reading.status;
}

// ---- bad files ----

TEST_F(TraceReaderTest, AnEmptyFileIsAnEmptyTrace) {
  const Reading reading = ReadText("");
  EXPECT_TRUE(reading.status.ok());
  EXPECT_EQ(reading.counts.lines, 0u);
  EXPECT_EQ(reading.format, TraceFormat::kUnknown);
  EXPECT_TRUE(ReadText("# tracer: nop\n#\n").status.ok());
}

TEST_F(TraceReaderTest, TextThatIsNoTraceIsRefusedWithItsFirstLine) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "{\"json\": " + std::to_string(i) + "}\n";
  const Reading reading = ReadText(text);
  EXPECT_EQ(reading.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reading.status.message().find(path_ + ": is not a trace: "), 0u) << reading.status;
  EXPECT_NE(reading.status.message().find(path_ + ":1: "), absl::string_view::npos) << reading.status;
  EXPECT_EQ(reading.counts.lines, 200u);
  EXPECT_FALSE(ReadText("just one line\n").status.ok());
}

TEST_F(TraceReaderTest, ABinaryFileIsRefusedAtOnce) {
  std::mt19937 random(1);
  std::string garbage(10000, '\0');
  for (char& c : garbage) c = static_cast<char>(random());
  const Reading reading = ReadText(garbage);
  EXPECT_EQ(reading.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reading.status.message().find(path_ + ": is not a trace: "), 0u) << reading.status;
  EXPECT_EQ(reading.counts.lines, 0u);
}

TEST_F(TraceReaderTest, ZeroBytesInTheMiddleAreOneMalformedLine) {
  // What a machine that crashed leaves behind; far enough in that the file is known to be a trace.
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::string(kFault) + "\n";
  const Reading reading = ReadText(text + std::string(5000, '\0') + "\n" + std::string(kFault) + "\n");
  EXPECT_TRUE(reading.status.ok()) << reading.status;
  EXPECT_EQ(reading.records.size(), 101u);
  EXPECT_EQ(reading.counts.malformed, 1u);
}

TEST_F(TraceReaderTest, FilesThatCannotBeOpenedAreNamed) {
  EXPECT_EQ(ReadFile("/nonexistent/trace").status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile("/tmp").status, absl::InvalidArgumentError("/tmp: is a directory"));
}

TEST_F(TraceReaderTest, ADamagedFileKeepsWhatWasReadBefore) {
  // A zstd frame cut short: its first 20 bytes hold no line.  LineSourceTest has the other kinds of damage.
  const std::string cut("\x28\xb5\x2f\xfd\x24\x40\x01\x02\x00", 9);
  const Reading reading = ReadText(cut);
  EXPECT_EQ(reading.status.code(), absl::StatusCode::kDataLoss) << reading.status;
  EXPECT_EQ(reading.status.message().find(path_ + ":1: "), 0u) << reading.status;
}

// ---- any bytes whatever ----

// Each line in memory of its own size, so that a sanitizer sees a read of one byte too many.
void ParseAlone(const std::string& line) {
  const auto copy = std::make_unique<char[]>(line.size());
  std::copy(line.begin(), line.end(), copy.get());
  const std::string_view text(copy.get(), line.size());
  TraceRecord tracefs, trace_cmd, perf;
  ParseTracefsLine(text, &tracefs);
  ParseTraceCmdLine(text, &trace_cmd);
  ParsePerfScriptLine(text, &perf);
}

void Mutate(std::string* line, std::mt19937_64* random) {
  const auto below = [random](size_t limit) { return static_cast<size_t>((*random)() % limit); };
  for (size_t edits = 1 + below(4); edits > 0 && !line->empty(); --edits) {
    const size_t at = below(line->size());
    switch (below(6)) {
      case 0:
        (*line)[at] = static_cast<char>((*random)());
        break;
      case 1:
        (*line)[at] = " :=-/()[]0x9f\t"[below(14)];
        break;
      case 2:
        line->resize(at);
        break;
      case 3:
        line->erase(at, 1 + below(8));
        break;
      case 4:
        line->insert(at, line->substr(below(line->size()), below(24)));
        break;
      default:
        line->insert(at, std::string(1 + below(24), "0f9- "[below(5)]));
        break;
    }
  }
}

TEST_F(TraceReaderTest, MutatedLinesOfEveryFormatAreReadWithoutHarm) {
  std::vector<std::string> lines;
  for (const char* name : {"tracefs.txt", "tracefs-old-kernel.txt", "trace-cmd.txt", "perf-script.txt",
                           "perf-script-default-fields.txt"}) {
    std::istringstream text(Contents(TestData(name)));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
  }
  constexpr uint64_t kSeed = 20240613;
  constexpr int kRounds = 200;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string file;
    for (std::string line : lines) {
      Mutate(&line, &random);
      ParseAlone(line);
      file += line + "\n";
    }
    if (round % 20 == 0) {
      const Reading reading = ReadText(file);
      EXPECT_LE(reading.counts.records + reading.counts.malformed, reading.counts.lines);
    }
  }
}

TEST(TracefsParserTest, FlagsTellWhatRanAndHowDeep) {
  const auto flags_of = [](const char* columns) {
    TraceRecord record;
    const std::string line = std::string("             cow-3901    (   3901) [000] ") + columns +
                             "  7670.951873: page_fault_user: address=0x7f66cf355130 ip=0x1 error_code=0x7";
    EXPECT_EQ(ParseTracefsLine(line, &record).kind, ParsedLine::Kind::kRecord) << columns;
    return record.flags;
  };
  EXPECT_EQ(flags_of(".....").context, TraceContext::kTask);
  EXPECT_TRUE(flags_of("d....").irqs_off);
  EXPECT_TRUE(flags_of("DN...").irqs_off && flags_of("DN...").bh_off && flags_of("DN...").need_resched);
  EXPECT_EQ(flags_of("d.s2.").context, TraceContext::kSoftirq);
  EXPECT_EQ(flags_of("d.h..").context, TraceContext::kHardirq);
  EXPECT_EQ(flags_of("d.H..").context, TraceContext::kHardirq);
  EXPECT_EQ(flags_of("d.Z1.").context, TraceContext::kNmi);
  EXPECT_EQ(flags_of("d..a3").preempt_depth, 10);
  EXPECT_EQ(flags_of("d..a3").migrate_disable, 3);
  EXPECT_EQ(flags_of("d..1").preempt_depth, 1) << "four columns, before 5.15";
}

TEST(TracefsParserTest, EndOfAReclaimTellsThePagesItGot) {
  TraceRecord record;
  const std::string head = "             oom-4510    (   4510) [001] .....  7744.846453: ";
  EXPECT_EQ(ParseTracefsLine(head + "mm_vmscan_memcg_reclaim_end: nr_reclaimed=32", &record).kind,
            ParsedLine::Kind::kRecord);
  EXPECT_EQ(record.ret, 32);
  for (const char* bad : {"", "nr_reclaimed=", "nr_reclaimed=x", "nr_reclaimed=99999999999999999999999"}) {
    EXPECT_EQ(ParseTracefsLine(head + "mm_vmscan_memcg_reclaim_end: " + bad, &record).kind,
              ParsedLine::Kind::kMalformed)
        << bad;
  }
}

}  // namespace
}  // namespace memcgd::client
