// The lines of a file, whatever it is compressed with and however long they are; and what is said of files
// that cannot be read.
#include "client/line_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memcgd::client {
namespace {

using Result = LineSource::Result;

// Hands out its text in pieces of a given size, then an error if there is one.
class PiecewiseStream : public ByteStream {
 public:
  PiecewiseStream(std::string text, size_t piece, absl::Status end = absl::OkStatus())
      : text_(std::move(text)), piece_(piece), end_(std::move(end)) {}

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    const size_t count = std::min({size, piece_, text_.size() - at_});
    if (count == 0 && !end_.ok()) return end_;
    std::memcpy(to, text_.data() + at_, count);
    at_ += count;
    return count;
  }

 private:
  const std::string text_;
  const size_t piece_;
  const absl::Status end_;
  size_t at_ = 0;
};

class LineSourceTest : public testing::Test {
 protected:
  // A file of this test's own.
  std::string Write(std::string_view content) {
    const std::string path = testing::TempDir() + "line_source_test." + std::to_string(getpid()) + "." +
                             std::to_string(files_.size());
    FILE* file = fopen(path.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(fwrite(content.data(), 1, content.size(), file), content.size());
    fclose(file);
    files_.push_back(path);
    return path;
  }

  void TearDown() override {
    for (const std::string& path : files_) unlink(path.c_str());
  }

  // Every line of `source`, "<too long>" for those that are; status_ is how it ended.
  std::vector<std::string> Lines(LineSource& source) {
    std::vector<std::string> lines;
    std::string_view line;
    for (;;) {
      switch (source.Next(&line)) {
        case Result::kLine:
          lines.emplace_back(line);
          break;
        case Result::kTooLong:
          lines.emplace_back("<too long>");
          break;
        case Result::kEnd:
          status_ = absl::OkStatus();
          return lines;
        case Result::kError:
          status_ = source.status();
          return lines;
      }
    }
  }

  std::vector<std::string> LinesOf(const std::string& path) {
    auto source = LineSource::Open(path);
    if (!source.ok()) {
      status_ = source.status();
      return {};
    }
    return Lines(**source);
  }

  std::vector<std::string> files_;
  absl::Status status_;
};

using Strings = std::vector<std::string>;

std::string Zstd(std::string_view text, bool checksum = false) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum ? 1 : 0);
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  EXPECT_FALSE(ZSTD_isError(size));
  out.resize(size);
  return out;
}

std::string Gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Text that does not compress to nothing, so that a file cut in its middle has lost something.
std::string NumberedLines(int count) {
  std::string text;
  uint64_t x = 88172645463325252u;
  for (int i = 0; i < count; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    text += "line " + std::to_string(i) + " " + std::to_string(x) + "\n";
  }
  return text;
}

TEST_F(LineSourceTest, LinesComeWithoutTheirEnds) {
  EXPECT_EQ(LinesOf(Write("one\ntwo\r\n\nfour\n")), (Strings{"one", "two", "", "four"}));
  EXPECT_TRUE(status_.ok());
}

TEST_F(LineSourceTest, AMissingLastNewlineLosesNothing) {
  auto source = LineSource::Open(Write("one\ntwo\r"));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(Lines(**source), (Strings{"one", "two"}));
  EXPECT_TRUE((*source)->last_line_is_unended());
  EXPECT_EQ((*source)->line_number(), 2u);
  EXPECT_EQ((*source)->bytes(), 8u);
}

TEST_F(LineSourceTest, AnEmptyFileHasNoLine) {
  EXPECT_EQ(LinesOf(Write("")), Strings{});
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(LinesOf("/dev/null"), Strings{});
  EXPECT_TRUE(status_.ok());
}

TEST_F(LineSourceTest, PiecesOfAnySizeMakeTheSameLines) {
  std::string text = NumberedLines(500) + "\r\nlast\r";
  LineSource whole("whole", std::make_unique<PiecewiseStream>(text, text.size()));
  const Strings expected = Lines(whole);
  ASSERT_EQ(expected.size(), 502u);
  for (size_t piece : {1u, 2u, 3u, 7u, 64u, 4095u}) {
    LineSource source("pieces", std::make_unique<PiecewiseStream>(text, piece));
    EXPECT_EQ(Lines(source), expected) << piece;
    EXPECT_EQ(source.bytes(), text.size());
  }
}

TEST_F(LineSourceTest, TheLongestLineIsTakenAndOneByteMoreIsPassedOver) {
  const std::string longest(LineSource::kMaxLineBytes, 'x');
  for (const char* end : {"\n", "\r\n"}) {
    for (size_t piece : {size_t{4096}, size_t{65536}, size_t{65537}, size_t{1} << 20}) {
      LineSource source("long", std::make_unique<PiecewiseStream>(
                                    "a\n" + longest + end + "b\n" + longest + "y" + end + "c\n", piece));
      EXPECT_EQ(Lines(source), (Strings{"a", longest, "b", "<too long>", "c"}));
      EXPECT_EQ(source.line_number(), 5u);
    }
  }
}

TEST_F(LineSourceTest, ALineLongerThanTheBufferIsPassedOver) {
  const std::string huge(5 * LineSource::kBufferBytes + 17, 'x');
  const std::string text = "a\n" + huge + "\nb\n" + huge;
  LineSource source("huge", std::make_unique<PiecewiseStream>(text, 100000));
  EXPECT_EQ(Lines(source), (Strings{"a", "<too long>", "b", "<too long>"}));
  EXPECT_TRUE(source.last_line_is_unended());
  EXPECT_EQ(source.bytes(), text.size());
}

TEST_F(LineSourceTest, GzipAndZstdAreRecognisedByContent) {
  const std::string text = NumberedLines(100000);
  const Strings plain = LinesOf(Write(text));
  ASSERT_EQ(plain.size(), 100000u);
  EXPECT_EQ(LinesOf(Write(Gzip(text))), plain);
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(LinesOf(Write(Zstd(text))), plain);
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(LineSourceTest, CompressedFilesPutOneBehindTheOtherAreReadToTheEnd) {
  EXPECT_EQ(LinesOf(Write(Gzip("a\nb") + Gzip("") + Gzip("c\n"))), (Strings{"a", "bc"}));
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(LinesOf(Write(Zstd("a\nb") + Zstd("") + Zstd("c\n"))), (Strings{"a", "bc"}));
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(LineSourceTest, ZeroBytesBehindGzipArePadding) {
  EXPECT_EQ(LinesOf(Write(Gzip("a\n") + std::string(300000, '\0'))), (Strings{"a"}));
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(LineSourceTest, ARunOfOneByteDecompressesInBoundedSteps) {
  // 16 MiB of one line out of a few kilobytes: the decompressor has output left with no input.
  const std::string huge(16 << 20, 'x');
  EXPECT_EQ(LinesOf(Write(Zstd("a\n" + huge + "\nb\n"))), (Strings{"a", "<too long>", "b"}));
  EXPECT_EQ(LinesOf(Write(Gzip("a\n" + huge + "\nb\n"))), (Strings{"a", "<too long>", "b"}));
}

// A file cut short or damaged gives the lines before the damage, then an error with the file and the line.
void ExpectLinesThenError(const Strings& plain, const Strings& got, const absl::Status& status,
                          const std::string& path, std::string_view what) {
  ASSERT_LT(got.size(), plain.size());
  EXPECT_GT(got.size(), 0u);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), plain.begin()));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  const std::string message(status.message());
  EXPECT_EQ(message.find(path + ":" + std::to_string(got.size() + 1) + ": "), 0u) << message;
  EXPECT_NE(message.find(what), std::string::npos) << message;
}

TEST_F(LineSourceTest, ACutZstdFileGivesItsLinesThenAnError) {
  const std::string text = NumberedLines(100000);
  const std::string whole = Zstd(text);
  const std::string path = Write(whole.substr(0, whole.size() * 3 / 4));
  const Strings plain = LinesOf(Write(text));
  const Strings got = LinesOf(path);
  ExpectLinesThenError(plain, got, status_, path, "zstd file ends too early");
}

TEST_F(LineSourceTest, ACutGzipFileGivesItsLinesThenAnError) {
  const std::string text = NumberedLines(100000);
  const std::string whole = Gzip(text);
  const std::string path = Write(whole.substr(0, whole.size() * 3 / 4));
  const Strings plain = LinesOf(Write(text));
  const Strings got = LinesOf(path);
  ExpectLinesThenError(plain, got, status_, path, "gzip file ends too early");
}

TEST_F(LineSourceTest, AZstdFileDamagedInTheMiddleIsAnError) {
  const std::string text = NumberedLines(100000);
  std::string damaged = Zstd(text, /*checksum=*/true);
  for (size_t i = 0; i < 4000; ++i) damaged[damaged.size() * 3 / 4 + i] ^= 0x5a;
  const std::string path = Write(damaged);
  LinesOf(path);
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss) << status_;
  EXPECT_NE(status_.message().find("zstd file is damaged"), absl::string_view::npos) << status_;
}

TEST_F(LineSourceTest, AGzipFileDamagedInTheMiddleIsAnError) {
  const std::string text = NumberedLines(100000);
  std::string damaged = Gzip(text);
  for (size_t i = 0; i < 4000; ++i) damaged[damaged.size() * 3 / 4 + i] ^= 0x5a;
  LinesOf(Write(damaged));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss) << status_;
  EXPECT_NE(status_.message().find("gzip file is damaged"), absl::string_view::npos) << status_;
}

TEST_F(LineSourceTest, GarbageBehindCompressedTextIsAnErrorAfterTheText) {
  EXPECT_EQ(LinesOf(Write(Zstd("a\nb\n") + "garbage")), (Strings{"a", "b"}));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss) << status_;
  EXPECT_EQ(LinesOf(Write(Gzip("a\nb\n") + "garbage")), (Strings{"a", "b"}));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDataLoss) << status_;
}

TEST_F(LineSourceTest, AnErrorStaysAndHalfALineIsNotHandedOut) {
  LineSource source("bad",
                    std::make_unique<PiecewiseStream>("a\nb\nhalf", 3, absl::UnavailableError("gone")));
  EXPECT_EQ(Lines(source), (Strings{"a", "b"}));
  EXPECT_EQ(status_, absl::UnavailableError("bad:3: gone"));
  std::string_view line;
  EXPECT_EQ(source.Next(&line), Result::kError);
  EXPECT_EQ(source.Next(&line), Result::kError);
}

TEST_F(LineSourceTest, AMissingFileIsNotFound) {
  LinesOf("/nonexistent/trace.txt");
  EXPECT_EQ(status_.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status_.message().find("/nonexistent/trace.txt: "), 0u) << status_;
}

TEST_F(LineSourceTest, ADirectoryIsRefusedByName) {
  LinesOf(testing::TempDir());
  EXPECT_EQ(status_, absl::InvalidArgumentError(testing::TempDir() + ": is a directory"));
}

TEST_F(LineSourceTest, AFileThatMayNotBeReadIsRefusedByName) {
  const std::string path = Write("secret\n");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // Root may read anything, so root becomes somebody else for the while.
  constexpr uid_t kNobody = 65534;
  const bool is_root = geteuid() == 0;
  if (is_root && seteuid(kNobody) != 0) GTEST_SKIP() << "cannot give up root here";
  LinesOf(path);
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(status_.code(), absl::StatusCode::kPermissionDenied) << status_;
  EXPECT_EQ(status_.message().find(path + ": "), 0u) << status_;
}

TEST_F(LineSourceTest, OtherKindsOfFileAreNamedForWhatTheyAre) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {std::string("PERFILE2") + std::string(64, '\1'), "perf script"},
      {"\x17\x08\x44tracing6", "trace-cmd report"},
      {std::string("\xfd"
                   "7zXZ\0\0",
                   7),
       "xz"},
      {"BZh91AY", "bzip2"},
      {"\xff\xfe#\0", "UTF-16"},
      {"\x7f"
       "ELF\2\1\1",
       "program"},
  };
  for (const auto& [content, what] : kinds) {
    const std::string path = Write(content);
    LinesOf(path);
    EXPECT_EQ(status_.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_EQ(status_.message().find(path + ": is not a trace: "), 0u) << status_;
    EXPECT_NE(status_.message().find(what), absl::string_view::npos) << status_;
  }
}

TEST_F(LineSourceTest, StandardInputIsReadAndDecompressed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string content = Zstd("a\nb\n");
  ASSERT_EQ(write(ends[1], content.data(), content.size()), static_cast<ssize_t>(content.size()));
  close(ends[1]);
  const int saved = dup(STDIN_FILENO);
  ASSERT_GE(dup2(ends[0], STDIN_FILENO), 0);
  close(ends[0]);
  const Strings lines = LinesOf("-");
  if (saved >= 0) {
    dup2(saved, STDIN_FILENO);
    close(saved);
  }
  EXPECT_EQ(lines, (Strings{"a", "b"}));
}

}  // namespace
}  // namespace memcgd::client
