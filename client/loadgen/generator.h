// What one stream of an experiment sends: the same events for the same seed, whoever takes them
// (memcg-loadgen through gRPC, tests/bench in process).
//
// A node's streams begin together in two steps: first stream 0 makes what all of them need (cgroups, the
// process whose threads they are), and it is acknowledged; then each makes its own.  The end is the mirror
// image.  After it the node holds no process and no cgroup of the experiment, and no page but those that wait
// in a CPU's batch for the LRU lists.
//
// Thread safety: one thread at a time for each generator; those of one node share nothing that changes.
#ifndef MEMCGD_CLIENT_LOADGEN_GENERATOR_H_
#define MEMCGD_CLIENT_LOADGEN_GENERATOR_H_

#include <cstdint>
#include <vector>

#include "memcgd/v1/ingest.pb.h"

namespace memcgd::client::loadgen {

// Which of a node's streams it is, and how large its batches are.
struct Part {
  uint32_t stream = 0;
  uint32_t streams = 1;
  uint32_t batch_events = 8192;
  uint64_t seed = 1;
};

class Generator {
 public:
  virtual ~Generator() = default;

  // Asked of stream 0 only.
  virtual std::vector<memcgd::v1::Batch> SetUpNode() { return {}; }
  virtual std::vector<memcgd::v1::Batch> SetUp() { return {}; }
  // Fills the batch, whose memory it uses again, with the next events, and returns how many units of the
  // experiment's (faults, pages read …) they are.  No allocation per event.  An empty batch: there are no
  // more.
  virtual uint64_t Fill(memcgd::v1::Batch* batch) = 0;
  virtual std::vector<memcgd::v1::Batch> TearDown() { return {}; }
  virtual std::vector<memcgd::v1::Batch> TearDownNode() { return {}; }
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_GENERATOR_H_
