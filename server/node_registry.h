// The nodes of this server by name, and what their streams have behind them.
//
// A ServedStream keeps what makes resuming safe: the next sequence number, the hashes of the batches that
// were applied, and the States that the last of them gave (a client whose connection broke may not have
// received them; a repeated batch is answered with them again).
//
// Thread safety: all of it.  Lock order: NodeRegistry::mutex_ and ServedNode::mutex_ are held alone;
// ServedStream::apply_mutex_, then ServedStream::owner_mutex_.  The core's locks come below apply_mutex_.
//
// Invariants:
//  1. At most one call owns a stream; only it may submit batches.
//  2. A batch is applied under apply_mutex_ and only where its number is next_sequence_.
//  3. Nothing of this file waits for a batch while it holds another lock than apply_mutex_.
#ifndef MEMCGD_SERVER_NODE_REGISTRY_H_
#define MEMCGD_SERVER_NODE_REGISTRY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/archive.h"
#include "core/mutex.h"
#include "core/node.h"
#include "server/limits.h"
#include "server/server_limits.h"

namespace memcgd::server {

// A State as it goes over the wire; shared between the stream's memory and the calls that send it.
using StateBytes = std::shared_ptr<const std::string>;

class ServedStream {
 public:
  // Ends the call that owns the stream with that error; called without locks held.
  using EndCall = std::function<void(const absl::Status&)>;
  // Applies the batch, adding the States that it gives.  An error means that nothing was applied.
  using ApplyBatch =
      absl::FunctionRef<absl::Status(core::EventStream* stream, std::vector<StateBytes>* states)>;
  enum class Turn { kApplied, kRepeated };

  ServedStream(std::string id, core::EventStream* core) : id_(std::move(id)), core_(core) {}
  ServedStream(const ServedStream&) = delete;
  ServedStream& operator=(const ServedStream&) = delete;

  const std::string& id() const { return id_; }

  // Makes `call` the owner; a call that owned it before ends with ABORTED.  Waits for the batch under way,
  // and returns the next sequence number.  NOT_FOUND where the node was deleted.
  absl::StatusOr<uint64_t> Attach(uint64_t call, EndCall end) ABSL_LOCKS_EXCLUDED(apply_mutex_, owner_mutex_);
  // The call is over.  Does not wait.
  void Detach(uint64_t call) ABSL_LOCKS_EXCLUDED(owner_mutex_);

  // Applies a batch in its turn, or recognises a repeated one.  Fills `states` with what it gave.
  // FAILED_PRECONDITION: a gap.  ALREADY_EXISTS: repeated with other content.  ABORTED, NOT_FOUND: the call
  // does not own the stream (any more).  An error of `apply` leaves the stream as it was.
  absl::StatusOr<Turn> Submit(uint64_t call, uint64_t sequence, uint64_t content_hash, ApplyBatch apply,
                              std::vector<StateBytes>* states)
      ABSL_LOCKS_EXCLUDED(apply_mutex_, owner_mutex_);

  // Whether a call owns it.
  bool IsOwned() ABSL_LOCKS_EXCLUDED(owner_mutex_);
  // The last batch that was saved when the server stopped, 0 where there is none.
  uint64_t durable_through() const { return durable_through_; }
  // Where it stands, and what it remembers.  REQUIRES: retired, and its last batch awaited; or nobody has it
  // yet.
  void Save(core::Writer* to) ABSL_LOCKS_EXCLUDED(apply_mutex_);
  void Load(core::Reader* from) ABSL_LOCKS_EXCLUDED(apply_mutex_);

  // The node was deleted, or the server stops: ends the call and refuses new ones.
  void Retire(const absl::Status& why) ABSL_LOCKS_EXCLUDED(owner_mutex_);
  // Returns once the batch under way is applied.  After Retire() there is no other.
  void AwaitBatch() ABSL_LOCKS_EXCLUDED(apply_mutex_) { core::Locked lock(apply_mutex_); }

 private:
  struct Remembered {
    uint64_t sequence;
    std::vector<StateBytes> states;
  };

  absl::Status CheckOwner(uint64_t call) ABSL_LOCKS_EXCLUDED(owner_mutex_);
  absl::Status Recall(uint64_t sequence, uint64_t content_hash, std::vector<StateBytes>* states)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mutex_);
  void Remember(uint64_t sequence, uint64_t content_hash, const std::vector<StateBytes>& states)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mutex_);

  const std::string id_;
  core::EventStream* const core_;  // the node's
  uint64_t durable_through_ = 0;   // constant after Load()

  core::Mutex apply_mutex_ ABSL_ACQUIRED_BEFORE(owner_mutex_);
  uint64_t next_sequence_ ABSL_GUARDED_BY(apply_mutex_) = 1;
  // By sequence number modulo its size.
  std::array<uint64_t, kRememberedBatches> hashes_ ABSL_GUARDED_BY(apply_mutex_){};
  // Of the last kWindowBatches batches, those with States.
  std::deque<Remembered> remembered_ ABSL_GUARDED_BY(apply_mutex_);
  size_t remembered_bytes_ ABSL_GUARDED_BY(apply_mutex_) = 0;

  core::Mutex owner_mutex_;
  uint64_t owner_ ABSL_GUARDED_BY(owner_mutex_) = 0;  // 0: none
  EndCall end_ ABSL_GUARDED_BY(owner_mutex_);
  absl::Status retired_ ABSL_GUARDED_BY(owner_mutex_);
};

class ServedNode {
 public:
  ServedNode(std::string name, uint64_t incarnation, std::unique_ptr<core::Node> core);

  const std::string& name() const { return name_; }
  // Names the state; never 0.
  uint64_t incarnation() const { return incarnation_; }
  core::Node* core() { return core_.get(); }

  // The stream of that id, made where it is new.  INVALID_ARGUMENT, NOT_FOUND (deleted), RESOURCE_EXHAUSTED,
  // FAILED_PRECONDITION where `known_incarnation` is neither 0 nor the node's.
  absl::StatusOr<ServedStream*> OpenStream(std::string_view id, uint64_t known_incarnation)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ids of its streams after that one ("" for all), in order, at most `limit`; true: a call owns it.
  std::vector<std::pair<std::string, bool>> ListStreams(std::string_view after, size_t limit)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // From here on `told` is called after each call of the OOM killer, and when the node is deleted; without
  // locks held, by whoever applied what called it.
  void TellOoms(const void* listener, std::function<void()> told) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopTellingOoms(const void* listener) ABSL_LOCKS_EXCLUDED(mutex_);
  // The OOM killer was called.
  void OomHappened() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the streams' calls with `why`, refuses new ones, and waits for the batches under way: nothing is
  // applied any more.
  void Retire(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  // Its streams, with what each remembers.  REQUIRES: retired; or nobody has it yet.
  void SaveStreams(core::Writer* to) ABSL_LOCKS_EXCLUDED(mutex_);
  void LoadStreams(core::Reader* from) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::vector<ServedStream*> Streams() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string name_;
  const uint64_t incarnation_;
  const std::unique_ptr<core::Node> core_;

  core::Mutex mutex_;
  absl::Status retired_ ABSL_GUARDED_BY(mutex_);
  std::map<const void*, std::function<void()>> oom_listeners_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<ServedStream>, std::less<>> streams_ ABSL_GUARDED_BY(mutex_);
};

// Whether a node of that name is to be listed.
using NodeFilter = std::function<bool(std::string_view name)>;
inline bool EveryNode(std::string_view) { return true; }

class NodeRegistry {
 public:
  explicit NodeRegistry(const ServerLimits& limits = {}) : limits_(limits) {}

  // INVALID_ARGUMENT, ALREADY_EXISTS, RESOURCE_EXHAUSTED, each naming the node.
  absl::StatusOr<std::shared_ptr<ServedNode>> Create(std::string_view name, const core::NodeConfig& config)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // One that was saved.  RESOURCE_EXHAUSTED, ALREADY_EXISTS.
  absl::Status Add(std::shared_ptr<ServedNode> node) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::shared_ptr<ServedNode>> Find(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Those after that name ("" for all) that the filter lets through, in order, at most `limit`.
  std::vector<std::shared_ptr<ServedNode>> List(std::string_view after, size_t limit,
                                                const NodeFilter& filter = EveryNode)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Where `forget` refuses (OnDelete()), the node stays.
  absl::Status Delete(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);
  // `forget` removes what was saved of a node that is deleted.  Before the registry is used.
  void OnDelete(std::function<absl::Status(const std::string& name)> forget) { forget_ = std::move(forget); }
  // Retires every node.
  void Retire(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the fullest node each.
  core::NodeSizes LargestSizes() ABSL_LOCKS_EXCLUDED(mutex_);
  // What the mechanisms of all nodes did that this server ever had; never goes back.  No batch waits for it.
  core::MechanismCounters MechanismTotals() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::function<absl::Status(const std::string& name)> forget_;  // none: nothing is saved

  const ServerLimits limits_;
  core::Mutex mutex_;
  std::map<std::string, std::shared_ptr<ServedNode>, std::less<>> nodes_ ABSL_GUARDED_BY(mutex_);
  // Deleted nodes: those whose last batches are awaited, and what the others counted.  Each node is in one of
  // the three at any time.
  std::vector<std::shared_ptr<ServedNode>> leaving_ ABSL_GUARDED_BY(mutex_);
  core::MechanismCounters left_ ABSL_GUARDED_BY(mutex_);
};

// Names a state; never 0.
uint64_t RandomIncarnation();

// 1 … 253 bytes of letters, digits, '.', '-' and '_', not only dots: a name may become a directory's.
absl::Status CheckNodeName(std::string_view name);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_NODE_REGISTRY_H_
