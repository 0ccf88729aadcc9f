#include "client/loadgen/mmap_generator.h"

#include <algorithm>

#include "client/loadgen/side_batches.h"

namespace memcgd::client::loadgen {

namespace v1 = memcgd::v1;

MmapGenerator::MmapGenerator(uint64_t pages, uint32_t cpus, const Part& part)
    : pages_(pages), part_(part), cpu_(part.stream % cpus) {}

std::vector<v1::Batch> MmapGenerator::SetUpNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  batches.DefinePath(1, "/mmap1");
  batches.CreateCgroup(1);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) {
    batches.MakeThread(kFirstTid + stream, kFirstTid + stream, 1);
  }
  return batches.Take();
}

// Batches hold whole pairs: the account is back where it was after each.
uint64_t MmapGenerator::Fill(v1::Batch* batch) {
  const uint64_t pairs = std::max<uint64_t>(part_.batch_events / 2, 1);
  WordWriter words(batch, 2 * pairs, &time_ns_);
  const uint64_t range = RangeBody(0x7f0000000, pages_);
  for (uint64_t i = 0; i < pairs; ++i) {
    words.Add(WordKind::kMmapAnon, cpu_, kFirstTid + part_.stream, range);
    words.Add(WordKind::kMunmap, cpu_, kFirstTid + part_.stream, range);
  }
  words.Finish();
  return pairs;
}

std::vector<v1::Batch> MmapGenerator::TearDownNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) batches.EndProcess(kFirstTid + stream);
  batches.RemoveCgroup(1);
  return batches.Take();
}

}  // namespace memcgd::client::loadgen
