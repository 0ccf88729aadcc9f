#include "tests/support/in_process_replay.h"

#include <cstdio>
#include <cstdlib>

#include "client/batch_builder.h"
#include "client/trace_reader.h"
#include "client/trace_translator.h"
#include "server/wire.h"

namespace memcgd::tests {
namespace {

[[noreturn]] void Die(const std::string& path, absl::string_view why) {
  std::fprintf(stderr, "%s: %s\n", path.c_str(), std::string(why).c_str());
  std::abort();
}

}  // namespace

std::vector<v1::Batch> TranslateTrace(const std::string& path, const std::vector<int64_t>& times_ns,
                                      size_t batch_events) {
  auto reader = client::TraceReader::Open(path, {});
  if (!reader.ok()) Die(path, reader.status().ToString());
  client::BatchBuilder builder;
  client::TraceTranslator translator({}, &builder);
  std::vector<v1::Batch> batches;
  size_t next_time = 0;
  client::TraceRecord record;
  for (;;) {
    absl::StatusOr<bool> more = (*reader)->Next(&record);
    if (!more.ok()) Die(path, more.status().ToString());
    if (!*more) break;
    for (; next_time < times_ns.size() && record.time_ns > times_ns[next_time]; ++next_time) {
      translator.Mark(next_time);
    }
    translator.Add(record);
    if (builder.size() >= batch_events) batches.push_back(builder.Take(batches.size() + 1));
  }
  for (; next_time < times_ns.size(); ++next_time) translator.Mark(next_time);
  translator.Finish();
  if (builder.size() > 0) batches.push_back(builder.Take(batches.size() + 1));
  return batches;
}

std::vector<core::MarkState> ApplyBatches(core::Node& node, const std::string& stream,
                                          const std::vector<v1::Batch>& batches) {
  core::EventStream* events = node.OpenStream(stream);
  std::vector<core::MarkState> marks;
  for (const v1::Batch& batch : batches) {
    server::BatchWork work;
    absl::Status status = server::ApplyBatch(&node, events, batch, &work);
    if (!status.ok()) Die(stream, status.ToString());
    for (core::MarkState& mark : work.result.marks) marks.push_back(std::move(mark));
  }
  return marks;
}

}  // namespace memcgd::tests
