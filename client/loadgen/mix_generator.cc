#include "client/loadgen/mix_generator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/loadgen/side_batches.h"

namespace memcgd::client::loadgen {

namespace v1 = memcgd::v1;

MixGenerator::MixGenerator(const MixWeights& weights, uint32_t cpus, const Part& part)
    : weights_(weights),
      sum_(weights.fault + weights.mmap + weights.munmap + weights.fork + weights.file_read),
      part_(part),
      cpu_(part.stream % cpus),
      tid_(TidOf(part.stream)),
      random_(part.seed * 1'000'003 + part.stream),
      cached_(kFilePages / kChunkPages) {}

std::vector<v1::Batch> MixGenerator::SetUpNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) {
    batches.DefinePath(stream + 1, absl::StrCat("/mix-", stream));
    batches.CreateCgroup(stream + 1);
    batches.MakeThread(TidOf(stream), TidOf(stream), stream + 1);
  }
  return batches.Take();
}

std::vector<v1::Batch> MixGenerator::SetUp() {
  SideBatches batches(part_.batch_events, time_ns_);
  batches.DefineFile(1, 1 + part_.stream);
  return batches.Take();
}

uint64_t MixGenerator::Fill(v1::Batch* batch) {
  WordWriter words(batch, std::max(part_.batch_events, kMostEvents), &time_ns_);
  while (words.left() >= kMostEvents) Operate(&words);
  words.Finish();
  return EventsOf(*batch);
}

void MixGenerator::Operate(WordWriter* words) {
  uint32_t at = random_.Below(sum_);
  if (at < weights_.fault) return Touch(words);
  at -= weights_.fault;
  if (at < weights_.mmap) return Map(words);
  at -= weights_.mmap;
  if (at < weights_.munmap) return Unmap(words);
  at -= weights_.munmap;
  at < weights_.fork ? Fork(words) : Read(words);
}

uint32_t MixGenerator::Pick(bool mapped) {
  const uint32_t first = random_.Below(kAreas);
  for (uint32_t i = 0; i < kAreas; ++i) {
    const uint32_t area = (first + i) % kAreas;
    if (areas_[area].mapped == mapped) return area;
  }
  return kAreas;
}

void MixGenerator::Touch(WordWriter* words) {
  uint32_t area = Pick(true);
  if (area != kAreas && areas_[area].touched == kAreaPages) {
    words->Add(WordKind::kMunmap, cpu_, tid_, RangeBody(PageOf(area), kAreaPages));
    areas_[area] = {};
    area = kAreas;
  }
  if (area == kAreas) {
    Map(words);
    area = Pick(true);
  }
  words->Add(WordKind::kFault, cpu_, tid_,
             AddressBody((PageOf(area) + areas_[area].touched++) * kPageSize, kUserWriteFault));
}

void MixGenerator::Map(WordWriter* words) {
  const uint32_t area = Pick(false);
  if (area == kAreas) return Unmap(words);
  words->Add(WordKind::kMmapAnon, cpu_, tid_, RangeBody(PageOf(area), kAreaPages));
  areas_[area].mapped = true;
}

void MixGenerator::Unmap(WordWriter* words) {
  const uint32_t area = Pick(true);
  if (area == kAreas) return Map(words);
  words->Add(WordKind::kMunmap, cpu_, tid_, RangeBody(PageOf(area), kAreaPages));
  areas_[area] = {};
}

void MixGenerator::Fork(WordWriter* words) {
  const uint32_t child = tid_ + 1;
  words->AddSide(cpu_, tid_)->mutable_clone()->set_child_tid(child);
  const uint32_t area = Pick(true);
  if (area != kAreas && areas_[area].touched > 0) {
    constexpr uint32_t kCopy = kUserWriteFault | 1;  // a write to a page that is there, and shared now
    words->Add(WordKind::kFault, cpu_, child, AddressBody(PageOf(area) * kPageSize, kCopy));
  }
  words->AddSide(cpu_, child)->mutable_exit()->set_group_dead(true);
  words->AddSide(cpu_, child)->mutable_exit_mmap();
}

void MixGenerator::Read(WordWriter* words) {
  const uint32_t chunk = random_.Below(kFilePages / kChunkPages);
  const uint32_t page = chunk * kChunkPages;
  if (!cached_[chunk]) {
    for (uint32_t i = 0; i < kChunkPages; ++i) {
      words->Add(WordKind::kFileAdd, cpu_, tid_, FileBody(1, page + i, 0));
    }
    cached_[chunk] = true;
  }
  words->Add(WordKind::kFileRead, cpu_, tid_, FileBody(1, page, kChunkPages - 1));
}

std::vector<v1::Batch> MixGenerator::TearDown() {
  std::vector<v1::Batch> batches;
  for (uint32_t chunk = 0; chunk < cached_.size(); ++chunk) {
    if (!cached_[chunk]) continue;
    WordWriter words(&batches.emplace_back(), kChunkPages, &time_ns_);
    for (uint32_t i = 0; i < kChunkPages; ++i) {
      words.Add(WordKind::kFileDelete, cpu_, tid_, FileBody(1, chunk * kChunkPages + i, 0));
    }
    words.Finish();
  }
  cached_.assign(cached_.size(), false);
  return batches;
}

std::vector<v1::Batch> MixGenerator::TearDownNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) {
    batches.EndProcess(TidOf(stream));
    batches.RemoveCgroup(stream + 1);
  }
  return batches.Take();
}

}  // namespace memcgd::client::loadgen
