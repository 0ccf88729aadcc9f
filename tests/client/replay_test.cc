// The times file, and what the head of a trace tells.
#include "client/replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace memcgd::client {
namespace {

class TempFile {
 public:
  explicit TempFile(const std::string& content) {
    std::string name = testing::TempDir() + "/replay_test_XXXXXX";
    const int fd = mkstemp(name.data());
    path_ = name;
    EXPECT_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    close(fd);
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ErrorOf(const std::string& text) {
  const auto times = ParseStatTimes("f", text);
  return times.ok() ? "" : std::string(times.status().message());
}

TEST(StatTimeTest, IsReadExactly) {
  EXPECT_EQ(ParseStatTime("0")->time_ns, 0);
  EXPECT_EQ(ParseStatTime("7670.951873")->time_ns, 7670951873000);
  EXPECT_EQ(ParseStatTime("7670.962876500")->time_ns, 7670962876500);
  // 2⁵³ ns is 104 days: a double would be off from here on.
  EXPECT_EQ(ParseStatTime("9007199.254740993")->time_ns, 9007199254740993);
  EXPECT_EQ(ParseStatTime("8999999999.999999999")->time_ns, 8999999999999999999);
  EXPECT_EQ(ParseStatTime("1.0000000019")->time_ns, 1000000001) << "at or before";
  EXPECT_EQ(ParseStatTime("1.10")->text, "1.10") << "as given";
}

TEST(StatTimeTest, RefusesWhatIsNoTime) {
  for (const char* text : {"", "x", "-1", "+1", ".5", "5.", "1e3", "0x10", "1.5s", "1,5", "007.5", "1 2",
                           "nan", "1..2", "9000000001", "99999999999999999999999"}) {
    EXPECT_FALSE(ParseStatTime(text).ok()) << text;
  }
}

TEST(StatTimesTest, CommentsBlanksAndWindowsLinesArePassedOver) {
  const auto times = ParseStatTimes("f", "# head\n\n 1.5 # first\r\n\t2\n2\n");
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 3u);
  EXPECT_EQ((*times)[0].text, "1.5");
  EXPECT_EQ((*times)[2].time_ns, 2000000000);
  EXPECT_TRUE(ParseStatTimes("f", "")->empty());
}

TEST(StatTimesTest, ErrorsNameFileAndLine) {
  EXPECT_EQ(ErrorOf("1\nsoon\n"), "f:2: \"soon\" is not a time: seconds are wanted, as 7670.951873");
  EXPECT_EQ(ErrorOf("1\n\n3\n2.5\n"), "f:4: time 2.5 comes after 3: times must be ascending");
  EXPECT_EQ(ErrorOf("1\n\xff\x01\n"),
            "f:2: \"\\xff\\x01\" is not a time: seconds are wanted, as 7670.951873");
}

TEST(StatTimesTest, AFileIsReadAsTheTextIs) {
  const TempFile file("1.25\n# x\n2.5");
  const auto times = ReadStatTimes(file.path());
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->back().text, "2.5");
  const TempFile bad("1\nx\n");
  EXPECT_EQ(std::string(ReadStatTimes(bad.path()).status().message()).rfind(bad.path() + ":2: ", 0), 0u);
  EXPECT_FALSE(ReadStatTimes("/nonexistent").ok());
}

TEST(CpusOfTraceTest, AreInTheHead) {
  const TempFile tracefs("# tracer: nop\n#\n# entries-in-buffer/entries-written: 14724/14724   #P:12\n#\n");
  EXPECT_EQ(CpusOfTrace(tracefs.path()), 12u);
  const TempFile trace_cmd("cpus=4\n  a-1 [000] 1.0: x: y\n");
  EXPECT_EQ(CpusOfTrace(trace_cmd.path()), 4u);
  const TempFile none("a 1 [000] 1.000: x: #P:5\n");
  EXPECT_EQ(CpusOfTrace(none.path()), 0u);
  EXPECT_EQ(CpusOfTrace("-"), 0u);
  EXPECT_EQ(CpusOfTrace("/nonexistent"), 0u);
}

}  // namespace
}  // namespace memcgd::client
