// mix: each stream's process faults, maps, unmaps, forks and reads a file, at random by weight.
//
// A fault touches the next page of one of its areas (512 pages each, 64 at most); where all are touched, one
// is unmapped and mapped again.  A fork's child writes to one page, which is copied, and ends.  A read reads
// a chunk of a file of 16384 pages, which is cached the first time.  What cannot be done (nothing to unmap)
// is done the other way round (mapped).
//
// Thread safety: as of Generator.
#ifndef MEMCGD_CLIENT_LOADGEN_MIX_GENERATOR_H_
#define MEMCGD_CLIENT_LOADGEN_MIX_GENERATOR_H_

#include <array>
#include <vector>

#include "client/loadgen/event_words.h"
#include "client/loadgen/generator.h"
#include "client/loadgen/random.h"

namespace memcgd::client::loadgen {

// What mix does, by weight.
struct MixWeights {
  uint32_t fault = 9000, mmap = 300, munmap = 300, fork = 1, file_read = 400;
};

class MixGenerator final : public Generator {
 public:
  MixGenerator(const MixWeights& weights, uint32_t cpus, const Part& part);

  std::vector<memcgd::v1::Batch> SetUpNode() override;
  std::vector<memcgd::v1::Batch> SetUp() override;
  uint64_t Fill(memcgd::v1::Batch* batch) override;
  std::vector<memcgd::v1::Batch> TearDown() override;
  std::vector<memcgd::v1::Batch> TearDownNode() override;

 private:
  static constexpr uint32_t kAreas = 64;
  static constexpr uint32_t kAreaPages = 512;
  static constexpr uint64_t kFirstPage = 0x7f0000000;
  static constexpr uint32_t kFilePages = 16384;
  static constexpr uint32_t kChunkPages = 16;
  static constexpr uint32_t kMostEvents = kChunkPages + 1;  // of one operation

  struct Area {
    bool mapped = false;
    uint32_t touched = 0;
  };

  uint32_t TidOf(uint32_t stream) const { return kFirstTid + 2 * stream; }
  uint64_t PageOf(uint32_t area) const { return kFirstPage + uint64_t{area} * kAreaPages; }
  void Operate(WordWriter* words);
  void Touch(WordWriter* words);
  void Map(WordWriter* words);
  void Unmap(WordWriter* words);
  void Fork(WordWriter* words);
  void Read(WordWriter* words);
  // The mapped (or unmapped) area at or after a random one; kAreas where there is none.
  uint32_t Pick(bool mapped);

  static constexpr uint32_t kFirstTid = 1000;

  const MixWeights weights_;
  const uint32_t sum_;
  const Part part_;
  const uint32_t cpu_, tid_;
  Random random_;
  std::array<Area, kAreas> areas_{};
  std::vector<bool> cached_;  // by chunk
  int64_t time_ns_ = 1;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_MIX_GENERATOR_H_
