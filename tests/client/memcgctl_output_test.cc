// What memcgctl prints, against the expected text.
#include "client/memcgctl_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// A part of the executable memcgctl, and so of no library.
#include "client/memcgctl_output.cc"  // NOLINT(bugprone-suspicious-include)

namespace memcgd::client {
namespace {

v1::State TwoCgroups() {
  v1::State state;
  state.set_committed_as_bytes(4096);
  for (const char* name : {"anon", "file", "pgfault", "workingset_refault_file"}) state.add_stat_names(name);
  v1::CgroupState* root = state.add_cgroups();
  root->set_path("/");
  for (int64_t value : {16871424, 0, 4119, 7}) root->add_stat(value);
  v1::CgroupState* child = state.add_cgroups();
  child->set_path("/a \"b\"");
  for (int64_t value : {4096, 512, 1, 0}) child->add_stat(value);
  return state;
}

TEST(HumanBytesTest, UnitsAreOf1024) {
  EXPECT_EQ(HumanBytes(0), "0");
  EXPECT_EQ(HumanBytes(1), "1 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes(16871424), "16.1 MiB");
  EXPECT_EQ(HumanBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(INT64_MAX), "8.0 EiB");
  EXPECT_EQ(HumanBytes(-4096), "-4.0 KiB");
}

TEST(StatIsBytesTest, CountsAreTold) {
  for (const char* name : {"anon", "file_mapped", "pagetables", "slab", "zswap", "swap", "total_cache"}) {
    EXPECT_TRUE(StatIsBytes(name)) << name;
  }
  for (const char* name : {"pgfault", "pgmajfault", "workingset_refault_anon", "thp_fault_alloc", "zswpin",
                           "pswpout", "numa_pages_migrated", "total_pgpgin"}) {
    EXPECT_FALSE(StatIsBytes(name)) << name;
  }
}

TEST(StateTest, JsonHasBytesAndCountsUnderTheKernelsNames) {
  EXPECT_EQ(
      CgroupsJson(TwoCgroups()),
      "{\"/\": {\"anon\": 16871424, \"file\": 0, \"pgfault\": 4119, \"workingset_refault_file\": 7}, "
      "\"/a \\\"b\\\"\": {\"anon\": 4096, \"file\": 512, \"pgfault\": 1, \"workingset_refault_file\": 0}}");
}

TEST(StateTest, TableHasTheColumnsThatTheServerKnows) {
  EXPECT_EQ(CgroupsTable(TwoCgroups()),
            "cgroup      anon   file  pgfault  refault_file\n"
            "/       16.1 MiB      0     4119             7\n"
            "/a \"b\"   4.0 KiB  512 B        1             0\n");
}

TEST(JsonStringTest, IsJsonWhateverTheBytes) {
  EXPECT_EQ(JsonString("a\"\\\n"), "\"a\\\"\\\\\\n\"");
  EXPECT_EQ(JsonString("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(ReadingTest, KernelTextIsTheKernelsFile) {
  v1::ReadCgroupResponse reading;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, int64_t>>{{"anon", 4096}, {"pgfault", 3}}) {
    v1::StatItem* line = reading.add_stat();
    line->set_name(name);
    line->set_value(value);
  }
  EXPECT_EQ(KernelText(reading.stat()), "anon 4096\npgfault 3\n");
  EXPECT_EQ(ItemsJson(reading.stat()), "{\"anon\": 4096, \"pgfault\": 3}");
  EXPECT_EQ(ItemsTable(reading.stat(), /*bytes_too=*/true),
            "name       value\nanon     4.0 KiB\npgfault        3\n");
}

TEST(NodeTest, JsonIsWhole) {
  v1::Node node;
  node.set_name("n");
  node.mutable_spec()->set_cpus(2);
  node.set_state_hash(0xffffffffffffffff);
  const auto json = nlohmann::json::parse(NodeJson(node));
  EXPECT_EQ(json["name"], "n");
  EXPECT_EQ(json["cpus"], 2);
  EXPECT_EQ(json["state_hash"], "ffffffffffffffff");
  EXPECT_EQ(json["overcommit"], "guess");
  EXPECT_EQ(json["zero_page"], true);
}

TEST(CgroupTreeTest, IsDrawn) {
  std::vector<v1::Cgroup> cgroups;
  for (const char* path : {"/", "/a", "/a/x", "/a/y", "/b", "/b/z"}) {
    v1::Cgroup cgroup;
    cgroup.set_path(path);
    cgroups.push_back(cgroup);
  }
  cgroups[2].set_processes(2);
  cgroups[4].set_dying_descendants(1);
  EXPECT_EQ(CgroupTree(cgroups),
            "/\n"
            "├─ a\n"
            "│  ├─ x  (2 processes)\n"
            "│  └─ y\n"
            "└─ b  (1 dying below)\n"
            "   └─ z\n");
  cgroups.erase(cgroups.begin());
  cgroups.resize(3);
  EXPECT_EQ(CgroupTree(cgroups), "/a\n├─ x  (2 processes)\n└─ y\n") << "of a part";
}

TEST(OutputTest, AReaderThatIsGoneIsAnEndAndAFullDiskAnError) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  Output gone(ends[1]);
  EXPECT_FALSE(gone.Write("x").ok());
  EXPECT_TRUE(gone.reader_is_gone());
  close(ends[1]);

  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Output output(full);
  EXPECT_EQ(output.Write("x").message(), "cannot write to standard output: No space left on device");
  EXPECT_FALSE(output.reader_is_gone());
  close(full);
}

}  // namespace
}  // namespace memcgd::client
