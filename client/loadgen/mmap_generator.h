// mmap1: each thread, a process of its own, maps an area and unmaps it, over and over.  Nothing is touched:
// what is measured is the commit account.
//
// Thread safety: as of Generator.
#ifndef MEMCGD_CLIENT_LOADGEN_MMAP_GENERATOR_H_
#define MEMCGD_CLIENT_LOADGEN_MMAP_GENERATOR_H_

#include "client/loadgen/event_words.h"
#include "client/loadgen/generator.h"

namespace memcgd::client::loadgen {

class MmapGenerator final : public Generator {
 public:
  // `pages` 1 … kMaxRangePages.
  MmapGenerator(uint64_t pages, uint32_t cpus, const Part& part);

  std::vector<memcgd::v1::Batch> SetUpNode() override;
  uint64_t Fill(memcgd::v1::Batch* batch) override;
  std::vector<memcgd::v1::Batch> TearDownNode() override;

 private:
  static constexpr uint32_t kFirstTid = 1000;

  const uint64_t pages_;
  const Part part_;
  const uint32_t cpu_;
  int64_t time_ns_ = 1;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_MMAP_GENERATOR_H_
