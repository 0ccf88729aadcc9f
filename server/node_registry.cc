#include "server/node_registry.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "server/errors.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::Locked;

absl::Status TooManyNodes(std::string_view name, size_t nodes) {
  return absl::ResourceExhaustedError(
      Cat("node ", Quoted(name), ": the server has ", nodes, " nodes; no more are allowed"));
}

}  // namespace

uint64_t RandomIncarnation() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) value = uint64_t{device()} << 32 | device();
  return value;
}

absl::StatusOr<uint64_t> ServedStream::Attach(uint64_t call, EndCall end) {
  EndCall end_older;
  {
    Locked lock(owner_mutex_);
    if (!retired_.ok()) return retired_;
    end_older = std::exchange(end_, std::move(end));
    owner_ = call;
  }
  if (end_older != nullptr) {
    end_older(WithReason(absl::AbortedError(Cat("stream ", Quoted(id_), " was opened again")),
                         "STREAM_REOPENED", {{"stream_id", id_}}));
  }
  Locked lock(apply_mutex_);  // behind the batch that the older call may have under way
  return next_sequence_;
}

void ServedStream::Detach(uint64_t call) {
  Locked lock(owner_mutex_);
  if (owner_ != call) return;
  owner_ = 0;
  end_ = nullptr;
}

bool ServedStream::IsOwned() {
  Locked lock(owner_mutex_);
  return owner_ != 0;
}

absl::Status ServedStream::CheckOwner(uint64_t call) {
  Locked lock(owner_mutex_);
  if (!retired_.ok()) return retired_;
  if (owner_ == call) return absl::OkStatus();
  return absl::AbortedError(Cat("stream ", Quoted(id_), " was opened again"));
}

absl::StatusOr<ServedStream::Turn> ServedStream::Submit(uint64_t call, uint64_t sequence,
                                                        uint64_t content_hash, ApplyBatch apply,
                                                        std::vector<StateBytes>* states) {
  Locked lock(apply_mutex_);
  absl::Status status = CheckOwner(call);
  if (!status.ok()) return status;
  if (sequence == 0) return BadField("batch.sequence", "0 is no sequence number; they begin at 1");
  if (sequence < next_sequence_) {
    status = Recall(sequence, content_hash, states);
    if (!status.ok()) return status;
    return Turn::kRepeated;
  }
  if (sequence > next_sequence_) {
    return WithReason(About(absl::FailedPreconditionError(Cat("stream ", Quoted(id_), ": expected batch ",
                                                              next_sequence_, ", got ", sequence)),
                            {.type = "SEQUENCE", .name = id_, .field = "batch.sequence"}),
                      "SEQUENCE_GAP", {{"expected", Cat(next_sequence_)}, {"got", Cat(sequence)}});
  }
  status = apply(core_, states);
  if (!status.ok()) return status;
  Remember(sequence, content_hash, *states);
  ++next_sequence_;
  return Turn::kApplied;
}

absl::Status ServedStream::Recall(uint64_t sequence, uint64_t content_hash, std::vector<StateBytes>* states) {
  const bool hash_known = next_sequence_ - sequence <= kRememberedBatches;
  if (hash_known && hashes_[sequence % kRememberedBatches] != content_hash) {
    return WithReason(About(absl::AlreadyExistsError(Cat("stream ", Quoted(id_), ": batch ", sequence,
                                                         " was applied already with other content")),
                            {.type = "batch", .name = Cat(sequence), .field = "batch.sequence"}),
                      "CONTENT_DIFFERS", {{"sequence", Cat(sequence)}});
  }
  const auto at = std::find_if(remembered_.begin(), remembered_.end(),
                               [sequence](const Remembered& entry) { return entry.sequence == sequence; });
  if (at != remembered_.end()) *states = at->states;
  return absl::OkStatus();
}

void ServedStream::Remember(uint64_t sequence, uint64_t content_hash, const std::vector<StateBytes>& states) {
  const auto bytes_of = [](const std::vector<StateBytes>& all) {
    size_t bytes = 0;
    for (const StateBytes& state : all) bytes += state->size();
    return bytes;
  };
  hashes_[sequence % kRememberedBatches] = content_hash;
  if (!states.empty()) {
    remembered_.push_back({sequence, states});
    remembered_bytes_ += bytes_of(states);
  }
  while (!remembered_.empty() && (remembered_.front().sequence + kWindowBatches <= sequence ||
                                  remembered_bytes_ > kMaxRememberedStateBytes)) {
    remembered_bytes_ -= bytes_of(remembered_.front().states);
    remembered_.pop_front();
  }
}

void ServedStream::Save(core::Writer* to) {
  Locked lock(apply_mutex_);
  (*to)(next_sequence_);
  const uint64_t first = next_sequence_ - std::min<uint64_t>(next_sequence_ - 1, kRememberedBatches);
  for (uint64_t sequence = first; sequence < next_sequence_; ++sequence)
    (*to)(hashes_[sequence % kRememberedBatches]);
  to->Size(remembered_.size());
  for (const Remembered& entry : remembered_) {
    (*to)(entry.sequence);
    to->Size(entry.states.size());
    for (const StateBytes& state : entry.states) (*to)(*state);
  }
}

void ServedStream::Load(core::Reader* from) {
  Locked lock(apply_mutex_);
  (*from)(next_sequence_);
  if (next_sequence_ == 0) return from->Fail();
  durable_through_ = next_sequence_ - 1;
  const uint64_t first = next_sequence_ - std::min<uint64_t>(next_sequence_ - 1, kRememberedBatches);
  for (uint64_t sequence = first; sequence < next_sequence_; ++sequence)
    (*from)(hashes_[sequence % kRememberedBatches]);
  const uint64_t entries = from->Size(0);
  for (uint64_t i = 0; i < entries && from->ok(); ++i) {
    Remembered entry{};
    (*from)(entry.sequence);
    const uint64_t states = from->Size(0);
    for (uint64_t j = 0; j < states && from->ok(); ++j) {
      std::string state;
      (*from)(state);
      remembered_bytes_ += state.size();
      entry.states.push_back(std::make_shared<const std::string>(std::move(state)));
    }
    remembered_.push_back(std::move(entry));
  }
}

void ServedStream::Retire(const absl::Status& why) {
  EndCall end;
  {
    Locked lock(owner_mutex_);
    retired_ = why;
    owner_ = 0;
    end = std::exchange(end_, nullptr);
  }
  if (end != nullptr) end(why);
}

ServedNode::ServedNode(std::string name, uint64_t incarnation, std::unique_ptr<core::Node> core)
    : name_(std::move(name)), incarnation_(incarnation), core_(std::move(core)) {}

absl::StatusOr<ServedStream*> ServedNode::OpenStream(std::string_view id, uint64_t known_incarnation) {
  if (id.empty() || id.size() > kMaxStreamIdBytes) {
    return BadField("open.stream_id",
                    Cat(Quoted(id), " has ", id.size(), " bytes; 1 … ", kMaxStreamIdBytes, " are allowed"));
  }
  if (known_incarnation != 0 && known_incarnation != incarnation_) {
    return WithReason(
        About(absl::FailedPreconditionError(Cat("node ", Quoted(name_), " has incarnation ", incarnation_,
                                                ", the stream was opened for ", known_incarnation)),
              {.type = "INCARNATION", .name = name_, .field = "open.incarnation"}),
        "WRONG_INCARNATION", {{"incarnation", Cat(incarnation_)}});
  }
  Locked lock(mutex_);
  if (!retired_.ok()) return retired_;
  const auto at = streams_.find(id);
  if (at != streams_.end()) return at->second.get();
  if (streams_.size() >= kMaxStreamsPerNode) {
    return absl::ResourceExhaustedError(
        Cat("node ", Quoted(name_), " has ", kMaxStreamsPerNode, " streams; more are not allowed"));
  }
  auto stream = std::make_unique<ServedStream>(std::string(id), core_->OpenStream(id));
  return streams_.emplace(std::string(id), std::move(stream)).first->second.get();
}

void ServedNode::TellOoms(const void* listener, std::function<void()> told) {
  Locked lock(mutex_);
  oom_listeners_[listener] = std::move(told);
}

void ServedNode::StopTellingOoms(const void* listener) {
  Locked lock(mutex_);
  oom_listeners_.erase(listener);
}

void ServedNode::OomHappened() {
  std::map<const void*, std::function<void()>> listeners;
  {
    Locked lock(mutex_);
    listeners = oom_listeners_;
  }
  for (const auto& [listener, told] : listeners) told();
}

std::vector<std::pair<std::string, bool>> ServedNode::ListStreams(std::string_view after, size_t limit) {
  std::vector<ServedStream*> found;  // they live as long as this does
  {
    Locked lock(mutex_);
    for (auto it = streams_.upper_bound(after); it != streams_.end() && found.size() < limit; ++it) {
      found.push_back(it->second.get());
    }
  }
  std::vector<std::pair<std::string, bool>> streams;
  for (ServedStream* stream : found) streams.emplace_back(stream->id(), stream->IsOwned());
  return streams;
}

std::vector<ServedStream*> ServedNode::Streams() {
  std::vector<ServedStream*> streams;
  Locked lock(mutex_);
  for (const auto& [id, stream] : streams_) streams.push_back(stream.get());
  return streams;
}

void ServedNode::Retire(const absl::Status& why) {
  {
    Locked lock(mutex_);
    retired_ = why;
  }
  const std::vector<ServedStream*> streams = Streams();  // there will be no others
  for (ServedStream* stream : streams) stream->Retire(why);
  OomHappened();  // whoever listens finds the node gone
  for (ServedStream* stream : streams) stream->AwaitBatch();
}

void ServedNode::SaveStreams(core::Writer* to) {
  const std::vector<ServedStream*> streams = Streams();
  to->Size(streams.size());
  for (ServedStream* stream : streams) {
    (*to)(stream->id());
    stream->Save(to);
  }
}

void ServedNode::LoadStreams(core::Reader* from) {
  const uint64_t size = from->Size(0);
  for (uint64_t i = 0; i < size && from->ok(); ++i) {
    std::string id;
    (*from)(id);
    auto stream = std::make_unique<ServedStream>(id, core_->OpenStream(id));
    stream->Load(from);
    Locked lock(mutex_);
    streams_.emplace(std::move(id), std::move(stream));
  }
}

absl::StatusOr<std::shared_ptr<ServedNode>> NodeRegistry::Create(std::string_view name,
                                                                 const core::NodeConfig& config) {
  absl::Status status = CheckNodeName(name);
  if (!status.ok()) return status;
  const Subject subject = {.type = "node", .name = name, .field = "name"};
  {
    // Asked before the node is made, as making one takes a while; what counts is the second look below.
    Locked lock(mutex_);
    if (nodes_.contains(name)) return AlreadyExists(subject);
    if (nodes_.size() >= limits_.nodes) return TooManyNodes(name, nodes_.size());
  }
  absl::StatusOr<std::unique_ptr<core::Node>> core = core::Node::Create(config);
  if (!core.ok()) return About(core.status(), {.type = "node", .name = name, .field = "spec"});
  (*core)->SetLimits(limits_.node);
  auto node = std::make_shared<ServedNode>(std::string(name), RandomIncarnation(), *std::move(core));
  Locked lock(mutex_);
  if (!nodes_.emplace(std::string(name), node).second) return AlreadyExists(subject);
  return node;
}

absl::Status NodeRegistry::Add(std::shared_ptr<ServedNode> node) {
  node->core()->SetLimits(limits_.node);
  Locked lock(mutex_);
  const std::string name = node->name();
  if (nodes_.size() >= limits_.nodes) return TooManyNodes(name, nodes_.size());
  if (nodes_.emplace(name, std::move(node)).second) return absl::OkStatus();
  return AlreadyExists({.type = "node", .name = name, .field = "name"});
}

absl::StatusOr<std::shared_ptr<ServedNode>> NodeRegistry::Find(std::string_view name) {
  absl::Status status = CheckNodeName(name);
  if (!status.ok()) return status;
  Locked lock(mutex_);
  const auto at = nodes_.find(name);
  if (at == nodes_.end()) return NotFound({.type = "node", .name = name, .field = "node"});
  return at->second;
}

std::vector<std::shared_ptr<ServedNode>> NodeRegistry::List(std::string_view after, size_t limit,
                                                            const NodeFilter& filter) {
  std::vector<std::shared_ptr<ServedNode>> nodes;
  Locked lock(mutex_);
  for (auto at = nodes_.upper_bound(after); at != nodes_.end() && nodes.size() < limit; ++at) {
    if (filter(at->first)) nodes.push_back(at->second);
  }
  return nodes;
}

absl::Status NodeRegistry::Delete(std::string_view name) {
  absl::Status status = CheckNodeName(name);
  if (!status.ok()) return status;
  const Subject subject = {.type = "node", .name = name, .field = "name"};
  std::shared_ptr<ServedNode> node;
  {
    Locked lock(mutex_);
    const auto at = nodes_.find(name);
    if (at == nodes_.end()) return NotFound(subject);
    node = at->second;
  }
  // Before the answer, so that what was deleted does not come back with the next start.
  if (forget_) status = forget_(node->name());
  if (!status.ok()) return status;
  {
    Locked lock(mutex_);
    const auto at = nodes_.find(name);
    if (at == nodes_.end() || at->second != node) return NotFound(subject);  // another call was first
    nodes_.erase(at);
    leaving_.push_back(node);
  }
  node->Retire(WithReason(About(absl::NotFoundError(Cat("node ", Quoted(name), " was deleted")),
                                {.type = "node", .name = name, .field = "open.node"}),
                          "NODE_DELETED", {{"node", node->name()}}));
  const core::MechanismCounters counters = node->core()->Counters();
  Locked lock(mutex_);
  left_ += counters;
  std::erase(leaving_, node);  // freed with its last user: calls that end, or here
  return absl::OkStatus();
}

void NodeRegistry::Retire(const absl::Status& why) {
  std::vector<std::shared_ptr<ServedNode>> nodes;
  {
    Locked lock(mutex_);
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
  }
  for (const std::shared_ptr<ServedNode>& node : nodes) node->Retire(why);
}

core::MechanismCounters NodeRegistry::MechanismTotals() {
  std::vector<std::shared_ptr<ServedNode>> nodes;
  core::MechanismCounters totals;
  {
    Locked lock(mutex_);
    totals = left_;
    nodes = leaving_;
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
  }
  for (const std::shared_ptr<ServedNode>& node : nodes) totals += node->core()->Counters();
  return totals;
}

core::NodeSizes NodeRegistry::LargestSizes() {
  core::NodeSizes most;
  Locked lock(mutex_);
  for (const auto& [name, node] : nodes_) {
    const core::NodeSizes sizes = node->core()->Sizes();
    most.pages = std::max(most.pages, sizes.pages);
    most.files = std::max(most.files, sizes.files);
    most.processes = std::max(most.processes, sizes.processes);
    most.cgroups = std::max(most.cgroups, sizes.cgroups);
  }
  return most;
}

size_t NodeRegistry::size() {
  Locked lock(mutex_);
  return nodes_.size();
}

absl::Status CheckNodeName(std::string_view name) {
  const auto allowed = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  if (name.empty()) return BadField("name", "a node's name is empty");
  if (name.size() > kMaxNodeNameBytes) {
    return BadField("name", Cat("node name ", Quoted(name), " has ", name.size(), " bytes; at most ",
                                kMaxNodeNameBytes, " are allowed"));
  }
  if (!std::all_of(name.begin(), name.end(), allowed)) {
    return BadField("name", Cat("node name ", Quoted(name),
                                " has other characters than letters, digits, '.', '-' "
                                "and '_'"));
  }
  if (name.find_first_not_of('.') == name.npos) {
    return BadField("name", Cat("node name ", Quoted(name), " has nothing but dots"));
  }
  return absl::OkStatus();
}

}  // namespace memcgd::server
