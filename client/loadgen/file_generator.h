// The experiments that read files.
//
// memory-stat: each stream's process, in a cgroup five levels deep, reads a sparse file from its beginning to
// its end; then the file is dropped from the cache and read again.  Beside it stand idle cgroups, of which
// one in ten is dying: removed, and kept by one page of the page cache.
//
// lru-file-readtwice: each cgroup has a file of its own and two processes that read it, the second a chunk
// behind the first, so that every page is read twice (and activated); then the file is dropped.  A stream
// serves its cgroups in turn, a chunk each.
//
// Thread safety: as of Generator.
#ifndef MEMCGD_CLIENT_LOADGEN_FILE_GENERATOR_H_
#define MEMCGD_CLIENT_LOADGEN_FILE_GENERATOR_H_

#include <string>
#include <vector>

#include "client/loadgen/event_words.h"
#include "client/loadgen/generator.h"

namespace memcgd::client::loadgen {

// A file that is read in chunks, cached page by page, and dropped at its end.  Stops wherever a batch is full
// and goes on there.
class FileCycle {
 public:
  static constexpr uint32_t kChunkPages = 32;  // readahead's 128 KiB

  // `pages`: a multiple of kChunkPages.
  FileCycle(uint32_t file, uint32_t cpu, std::vector<uint32_t> readers, uint32_t pages)
      : file_(file), cpu_(cpu), readers_(std::move(readers)), pages_(pages) {}

  // Events until a chunk is done or the batch is full; the number of pages that readers read is added to
  // *read.  True where a chunk (or the dropping of one) was done.
  bool Step(WordWriter* words, uint64_t* read);
  // What is cached goes.
  void Drop(std::vector<memcgd::v1::Batch>* batches, size_t batch_events, int64_t* time_ns);

 private:
  const uint32_t file_, cpu_;
  const std::vector<uint32_t> readers_;  // the first one's reads fill the cache
  const uint32_t pages_;
  bool dropping_ = false;
  uint32_t page_ = 0;   // of the next chunk
  uint32_t event_ = 0;  // of that chunk
};

class FileGenerator final : public Generator {
 public:
  static constexpr char kRoot[] = "/memory-stat";  // the poller reads it: all the cgroups are below

  FileGenerator(uint64_t pages, uint32_t idle_cgroups, uint32_t cpus, const Part& part);

  std::vector<memcgd::v1::Batch> SetUpNode() override;
  std::vector<memcgd::v1::Batch> SetUp() override;
  uint64_t Fill(memcgd::v1::Batch* batch) override;
  std::vector<memcgd::v1::Batch> TearDown() override;
  std::vector<memcgd::v1::Batch> TearDownNode() override;

 private:
  static constexpr uint32_t kFirstTid = 1000;
  static constexpr uint32_t kOneIn = 10;  // idle cgroups, one dies
  static constexpr uint32_t kFirstLeaf = 3;

  bool Dies(uint32_t idle) const { return idle % kOneIn == kOneIn - 1; }

  const uint32_t idle_cgroups_;
  const Part part_;
  FileCycle cycle_;
  int64_t time_ns_ = 1;
};

class ReadTwiceGenerator final : public Generator {
 public:
  ReadTwiceGenerator(uint64_t pages, uint32_t cgroups, uint32_t cpus, const Part& part);

  std::vector<memcgd::v1::Batch> SetUpNode() override;
  std::vector<memcgd::v1::Batch> SetUp() override;
  uint64_t Fill(memcgd::v1::Batch* batch) override;
  std::vector<memcgd::v1::Batch> TearDown() override;
  std::vector<memcgd::v1::Batch> TearDownNode() override;

 private:
  static constexpr uint32_t kFirstTid = 1000;

  static uint32_t Reader(uint32_t cgroup, uint32_t which) { return kFirstTid + 2 * cgroup + which; }

  const uint32_t cgroups_;
  const Part part_;
  std::vector<FileCycle> cycles_;  // one for each cgroup of this stream
  size_t turn_ = 0;
  int64_t time_ns_ = 1;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_FILE_GENERATOR_H_
