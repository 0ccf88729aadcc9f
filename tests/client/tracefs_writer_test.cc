// A line that was written is read again as the record that it was written of.
#include "client/tracefs_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "client/trace_reader.h"
#include "client/tracefs_parser.h"

namespace memcgd::client {
namespace {

std::string LineOf(const TraceRecord& record) {
  std::string line;
  AppendTracefsLine(record, &line);
  return line;
}

TraceRecord Parsed(const std::string& line) {
  TraceRecord record;
  EXPECT_TRUE(line.ends_with('\n')) << line;
  const ParsedLine parsed = ParseTracefsLine(std::string_view(line).substr(0, line.size() - 1), &record);
  EXPECT_EQ(parsed.kind, ParsedLine::Kind::kRecord) << line << (parsed.why != nullptr ? parsed.why : "");
  return record;
}

auto Fields(const TraceRecord& record) {
  return std::tuple(record.op, record.syscall, record.order, record.error_code, record.from_kernel,
                    record.has_address, record.group_dead, record.cpu, record.tid, record.tgid,
                    record.time_ns, record.address, record.dev, record.ino, record.first_byte,
                    record.last_byte, record.page_index, record.args, record.ret, record.child_pid,
                    record.old_pid, record.root, record.level, record.cgroup_id, record.lost_events,
                    record.comm, record.path, record.ip);
}

auto Flags(const TraceFlags& flags) {
  return std::tuple(flags.irqs_off, flags.bh_off, flags.need_resched, flags.context, flags.preempt_depth,
                    flags.migrate_disable);
}

void ExpectSurvives(const std::string& path) {
  auto reader = TraceReader::Open(path, {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  TraceRecord record;
  uint64_t records = 0;
  for (; *(*reader)->Next(&record); ++records) {
    const std::string line = LineOf(record);
    const TraceRecord again = Parsed(line);
    if (record.op == TraceOp::kLost) record.time_ns = again.time_ns;  // such lines have none
    ASSERT_EQ(Fields(again), Fields(record)) << line;
    ASSERT_EQ(Flags(again.flags), Flags(record.flags)) << line;
  }
  EXPECT_GT(records, 10u);
}

TEST(TracefsWriterTest, EachKindOfRecordSurvives) {
  ExpectSurvives(std::string(MEMCGD_TESTDATA_DIR) + "/tracefs.txt");
}

TEST(TracefsWriterTest, WholeTracesSurvive) {
  for (const char* name : {"cow", "dying", "mmap-churn", "oom", "reclaim-stream", "shmem"})
    ExpectSurvives(std::string(MEMCGD_FIDELITY_DIR) + "/traces/" + name + "/trace.txt.zst");
}

TEST(TracefsWriterTest, TimesKeepTheirNanoseconds) {
  TraceRecord record;
  record.op = TraceOp::kExitMmap;
  record.time_ns = 50'179'000'000'001;
  record.comm = "job";
  EXPECT_EQ(LineOf(record), "             job-0 (-------) [000] ..... 50179.000000001: exit_mmap: \n");
}

TEST(TracefsWriterTest, ANameCannotEndTheLine) {
  TraceRecord record;
  record.op = TraceOp::kExec;
  record.comm = "a\nb-1 [0]";
  record.path = "/tmp/x\n           evil-1 (1) [000] ..... 1.0: exit_mmap: ";
  record.tid = 7;
  const std::string line = LineOf(record);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(Parsed(line).tid, 7);
}

TEST(TracefsWriterTest, WhatOnlyPerfHasIsLeftOut) {
  TraceRecord record;
  record.op = TraceOp::kPerfMmap;
  EXPECT_EQ(LineOf(record), "");
}

}  // namespace
}  // namespace memcgd::client
