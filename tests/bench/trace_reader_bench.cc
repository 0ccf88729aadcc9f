// How fast a trace is read: lines a second on one core, of plain text and of zstd.
//
// The trace is $MEMCGD_BENCH_TRACE, plain or compressed, else MEMCGD_FIDELITY_DIR's
// traces/buildfarm/trace.txt.zst (MEMCGD_FIDELITY_DIR is a compile definition, a string: tests/fidelity).  It
// is decompressed into a temporary file of at least kMinBytes, repeating it, so that opening and the page
// cache's first miss do not count.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "client/line_source.h"
#include "client/trace_reader.h"

namespace memcgd::client {
namespace {

constexpr size_t kMinBytes = 64 << 20;

std::string TracePath() {
  const char* path = std::getenv("MEMCGD_BENCH_TRACE");
  return path != nullptr ? path : std::string(MEMCGD_FIDELITY_DIR) + "/traces/buildfarm/trace.txt.zst";
}

// The trace's text in a temporary file, removed at exit; empty where the trace cannot be read.
class PlainTrace {
 public:
  PlainTrace() {
    const std::string text = ReadText();
    if (text.empty()) return;
    char path[] = "/tmp/trace_reader_bench.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0) return;
    path_ = path;
    FILE* file = fdopen(fd, "wb");
    for (size_t written = 0; written < kMinBytes; written += text.size()) {
      std::fwrite(text.data(), 1, text.size(), file);
    }
    std::fclose(file);
  }
  ~PlainTrace() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  PlainTrace(const PlainTrace&) = delete;
  PlainTrace& operator=(const PlainTrace&) = delete;

  const std::string& path() const { return path_; }

 private:
  static std::string ReadText() {
    std::string text;
    auto source = LineSource::Open(TracePath());
    if (!source.ok()) return text;
    std::string_view line;
    while ((*source)->Next(&line) == LineSource::Result::kLine) text.append(line).push_back('\n');
    return text;
  }

  std::string path_;
};

void ReadAll(benchmark::State& state, const std::string& path) {
  uint64_t lines = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    auto reader = TraceReader::Open(path, {});
    if (!reader.ok()) {
      state.SkipWithError(std::string(reader.status().message()).c_str());
      return;
    }
    TraceRecord record;
    for (;;) {
      const absl::StatusOr<bool> more = (*reader)->Next(&record);
      if (!more.ok() || !*more) break;
      benchmark::DoNotOptimize(record.time_ns);
    }
    lines += (*reader)->counts().lines;
    bytes += (*reader)->counts().bytes;
  }
  state.counters["lines"] = benchmark::Counter(static_cast<double>(lines), benchmark::Counter::kIsRate);
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

// The plain text's path, or the trace's own where there is none, so that the error names it.
std::string PlainPath() {
  static const PlainTrace trace;
  return trace.path().empty() ? TracePath() : trace.path();
}

void BM_ReadPlainText(benchmark::State& state) { ReadAll(state, PlainPath()); }
BENCHMARK(BM_ReadPlainText)->Unit(benchmark::kMillisecond);

// As it is kept on disk.
void BM_ReadAsStored(benchmark::State& state) { ReadAll(state, TracePath()); }
BENCHMARK(BM_ReadAsStored)->Unit(benchmark::kMillisecond);

// Lines alone, unparsed: the floor below which no parser gets.
void BM_LinesOfPlainText(benchmark::State& state) {
  uint64_t lines = 0;
  for (auto _ : state) {
    auto source = LineSource::Open(PlainPath());
    if (!source.ok()) {
      state.SkipWithError(std::string(source.status().message()).c_str());
      return;
    }
    std::string_view line;
    while ((*source)->Next(&line) == LineSource::Result::kLine) benchmark::DoNotOptimize(line.data());
    lines += (*source)->line_number();
  }
  state.counters["lines"] = benchmark::Counter(static_cast<double>(lines), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_LinesOfPlainText)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace memcgd::client

BENCHMARK_MAIN();
