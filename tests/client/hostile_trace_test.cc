// Traces that somebody damaged, on purpose or not: the readers and the translator end with an answer, count
// what they do not understand, and make no more of a line than a line can be.  Seeds are fixed; a failure
// prints its.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client/trace_reader.h"
#include "client/trace_translator.h"

namespace memcgd::client {
namespace {

constexpr const char* kSnippets[] = {"tracefs.txt", "tracefs-old-kernel.txt", "trace-cmd.txt",
                                     "perf-script.txt", "perf-script-default-fields.txt"};
constexpr int kMaxReported = 10;

using Lines = std::vector<std::string>;

Lines LinesOf(const char* snippet) {
  std::ifstream file(std::string(MEMCGD_TESTDATA_DIR) + "/" + snippet);
  EXPECT_TRUE(file.good()) << snippet;
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

struct Answer {
  absl::Status status;
  TraceReader::Counts read;
  TraceTranslator::Counts translated;
  size_t reports = 0;
  size_t batch_bytes = 0;
};

class HostileTraceTest : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  Answer Replay(const std::string& text) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    Answer answer;
    TraceReader::Options options;
    options.max_reported = kMaxReported;
    options.report = [&answer](const std::string&) { ++answer.reports; };
    auto reader = TraceReader::Open(path_, options);
    if (!reader.ok()) {
      answer.status = reader.status();
      return answer;
    }
    BatchBuilder builder;
    TraceTranslator translator({.window = 256, .cpus = 4}, &builder);
    TraceRecord record;
    for (;;) {
      const absl::StatusOr<bool> more = (*reader)->Next(&record);
      answer.status = more.status();
      if (!more.ok() || !*more) break;
      translator.Add(record);
    }
    translator.Finish();
    answer.read = (*reader)->counts();
    answer.translated = translator.counts();
    answer.batch_bytes = builder.Take(1).ByteSizeLong();
    return answer;
  }

  const std::string path_ = testing::TempDir() + "hostile_trace_" + std::to_string(getpid());
};

std::string Joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

void FlipBytes(std::mt19937_64& random, std::string* line) {
  for (uint64_t flips = 1 + random() % 4; flips > 0 && !line->empty(); --flips) {
    (*line)[random() % line->size()] = static_cast<char>(random());
  }
}

// Every number of the line becomes one that does not fit where it stands.
void MakeNumbersHuge(std::mt19937_64& random, std::string* line) {
  static constexpr const char* kHuge[] = {"18446744073709551615", "9223372036854775808", "4294967296",
                                          "99999999999999999999999999", "0xffffffffffffffff"};
  std::string out;
  for (size_t i = 0; i < line->size();) {
    size_t end = i;
    while (end < line->size() && (*line)[end] >= '0' && (*line)[end] <= '9') ++end;
    if (end == i) {
      out += (*line)[i++];
    } else {
      out += random() % 3 == 0 ? kHuge[random() % std::size(kHuge)] : line->substr(i, end - i);
      i = end;
    }
  }
  *line = out;
}

Lines Damaged(std::mt19937_64& random, Lines lines) {
  for (uint64_t damages = 1 + random() % 20; damages > 0; --damages) {
    std::string& line = lines[random() % lines.size()];
    switch (random() % 5) {
      case 0:
        FlipBytes(random, &line);
        break;
      case 1:
        line.resize(random() % (line.size() + 1));
        break;
      case 2:
        std::swap(line, lines[random() % lines.size()]);
        break;
      case 3:
        lines.insert(lines.begin() + static_cast<ptrdiff_t>(random() % lines.size()), line);
        break;
      default:
        MakeNumbersHuge(random, &line);
    }
  }
  return lines;
}

TEST_P(HostileTraceTest, EveryLineThatIsNoneIsCounted) {
  const Lines lines = LinesOf(GetParam());
  const Answer whole = Replay(Joined(lines));
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  std::mt19937_64 random(1);
  for (uint64_t bad : {1, 7, 40}) {
    Lines damaged = lines;
    for (uint64_t i = 0; i < bad; ++i) {
      // Behind what shows the format.
      const size_t at = damaged.size() - random() % (damaged.size() / 2);
      damaged.insert(damaged.begin() + static_cast<ptrdiff_t>(at), "this is no line of any trace");
    }
    const Answer answer = Replay(Joined(damaged));
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.read.malformed, whole.read.malformed + bad);
    EXPECT_EQ(answer.read.records, whole.read.records);
    EXPECT_EQ(answer.translated.events, whole.translated.events);
  }
}

TEST_P(HostileTraceTest, NoDamageMakesMoreOfATraceThanItsLinesCanBe) {
  constexpr size_t kMostBytesALine = 1024;
  const Lines lines = LinesOf(GetParam());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::string text = Joined(Damaged(random, lines));
    if (random() % 4 == 0) text.resize(random() % (text.size() + 1));
    const Answer answer = Replay(text);
    if (!answer.status.ok()) continue;  // said to be no trace at all
    const TraceReader::Counts& read = answer.read;
    ASSERT_LE(read.records + read.malformed, read.lines);
    ASSERT_EQ(answer.reports, std::min<uint64_t>(read.malformed, kMaxReported));
    ASSERT_LE(answer.batch_bytes, text.size() + read.lines * kMostBytesALine);
  }
}

INSTANTIATE_TEST_SUITE_P(Snippets, HostileTraceTest, testing::ValuesIn(kSnippets), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

}  // namespace
}  // namespace memcgd::client
