#include "client/loadgen/fault_generator.h"

#include <algorithm>

#include "client/loadgen/side_batches.h"

namespace memcgd::client::loadgen {

namespace v1 = memcgd::v1;

FaultGenerator::FaultGenerator(Area area, uint64_t pages, uint32_t cpus, const Part& part)
    : area_(area),
      pages_(pages),
      part_(part),
      cpu_(part.stream % cpus),
      tid_(TidOf(part.stream)),
      first_page_(kFirstPage + part.stream * pages) {}

std::vector<v1::Batch> FaultGenerator::SetUpNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  batches.DefinePath(1, area_ == Area::kOwn ? "/pft" : "/multi-fault-all-split");
  batches.CreateCgroup(1);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) batches.MakeThread(TidOf(stream), TidOf(0), 1);
  if (area_ == Area::kPartOfOne) {
    v1::Mmap* map = batches.Add(0, TidOf(0))->mutable_mmap();
    map->set_address(kFirstPage * kPageSize);
    map->set_length(part_.streams * pages_ * kPageSize);
    map->set_prot(1 | 2);        // read, write
    map->set_flags(0x2 | 0x20);  // private, anonymous
  }
  return batches.Take();
}

uint64_t FaultGenerator::Fill(v1::Batch* batch) {
  WordWriter words(batch, part_.batch_events, &time_ns_);
  uint64_t faults = 0;
  while (words.left() > 0) {
    if (area_ == Area::kOwn && !mapped_) {
      words.Add(WordKind::kMmapAnon, cpu_, tid_, RangeBody(first_page_, pages_));
      mapped_ = true;
    }
    const uint64_t run = std::min<uint64_t>(words.left(), pages_ - touched_);
    const uint64_t first = first_page_ + touched_;
    for (uint64_t i = 0; i < run; ++i) {
      words.Add(WordKind::kFault, cpu_, tid_, AddressBody((first + i) * kPageSize, kUserWriteFault));
    }
    touched_ += run;
    faults += run;
    if (touched_ < pages_ || words.left() == 0) continue;
    words.Add(area_ == Area::kOwn ? WordKind::kMunmap : WordKind::kDontNeed, cpu_, tid_,
              RangeBody(first_page_, pages_));
    mapped_ = false;
    touched_ = 0;
  }
  words.Finish();
  return faults;
}

std::vector<v1::Batch> FaultGenerator::TearDown() {
  if (!mapped_) return {};
  v1::Batch batch;
  WordWriter words(&batch, 1, &time_ns_);
  words.Add(WordKind::kMunmap, cpu_, tid_, RangeBody(first_page_, pages_));
  words.Finish();
  mapped_ = false;
  touched_ = 0;
  return {batch};
}

std::vector<v1::Batch> FaultGenerator::TearDownNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t stream = 1; stream < part_.streams; ++stream) batches.EndThread(TidOf(stream));
  batches.EndProcess(TidOf(0));
  batches.RemoveCgroup(1);
  return batches.Take();
}

}  // namespace memcgd::client::loadgen
