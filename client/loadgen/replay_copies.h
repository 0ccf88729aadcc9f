// replay: a recorded trace, decoded once, sent over and over with its ids rewritten.
//
// A copy is the whole trace: its threads, files and names get numbers of their own, its cgroups stand below
// "/copy-N", and at its end whatever still lives is ended: threads, cached folios, cgroups.  So copies of one
// node, on one stream or on several, do not meet.  Only vm.overcommit_memory is the node's: a change of it is
// seen by all.
//
// Numbers: threads are counted 1 … n in order of appearance, and copy k has k × n more, beginning again where
// 22 bits are used up (their last users ended long ago).  Handles go up with each copy of a stream; after
// 2^24 − 1 of them the stream has no more events.
//
// Thread safety: a Recording does not change once it is made; ReplayCopies as of Generator.
#ifndef MEMCGD_CLIENT_LOADGEN_REPLAY_COPIES_H_
#define MEMCGD_CLIENT_LOADGEN_REPLAY_COPIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/loadgen/generator.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client::loadgen {

struct Recording {
  std::vector<memcgd::v1::Batch> batches;  // with threads counted 1 … threads
  uint32_t threads = 0;
  uint32_t paths = 0, files = 0, names = 0;  // handles
  uint32_t cpus = 1;
  int64_t duration_ns = 0;
  uint64_t events = 0;  // of a copy, the ending included
};

// Decodes a trace (all of it in memory: 16 bytes a frequent event) into batches of `batch_events`.  Errors
// name the file.
absl::StatusOr<Recording> ReadRecording(const std::string& path, uint32_t batch_events);

// The same from batches as BatchBuilder made them.
Recording MakeRecording(std::vector<memcgd::v1::Batch> batches, uint32_t batch_events);

class ReplayCopies final : public Generator {
 public:
  ReplayCopies(std::shared_ptr<const Recording> recording, const Part& part);

  uint64_t Fill(memcgd::v1::Batch* batch) override;
  // The rest of the copy under way.
  std::vector<memcgd::v1::Batch> TearDown() override;

 private:
  // What is added to the numbers of the copy under way.
  struct Offsets {
    uint32_t copy = 0;  // over all streams of the node
    uint32_t thread = 0, path = 0, file = 0, name = 0;
    int64_t time_ns = 0;
  };

  void FillOne(memcgd::v1::Batch* batch);
  void Rewrite(memcgd::v1::SideEvent* side) const;
  void NextCopy();

  const std::shared_ptr<const Recording> recording_;
  const Part part_;
  Offsets offsets_;
  uint32_t round_ = 0;  // copies of this stream that are done
  size_t next_ = 0;     // of the recording's batches
  bool used_up_ = false;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_REPLAY_COPIES_H_
