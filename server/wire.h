// Where the wire's messages and the core's types meet: the only file pair that knows both.
//
// Frequent events need no decoding: Batch.words holds the very bits of core::Event, and the core reads them
// in place.  What is checked here is only what core types cannot express (a side event without an event, a
// number outside an enum); handles, CPUs, threads, positions and ranges are checked by the core.
//
// Thread safety: free functions; a BatchWork belongs to one thread at a time.
#ifndef MEMCGD_SERVER_WIRE_H_
#define MEMCGD_SERVER_WIRE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/node.h"
#include "core/sweep.h"
#include "memcgd/v1/cgroup.pb.h"
#include "memcgd/v1/ingest.pb.h"
#include "memcgd/v1/node.pb.h"
#include "memcgd/v1/oom.pb.h"
#include "memcgd/v1/whatif.pb.h"

namespace memcgd::server {

// Kinds of wide events, in the order of core::WideBody.
inline constexpr size_t kWideKinds = std::variant_size_v<core::WideBody>;

// A batch under way and what came of it; a call reuses its memory from batch to batch.
struct BatchWork {
  std::vector<core::WideEvent> wide;
  std::array<uint64_t, kWideKinds> wide_kinds{};  // wide events by kind
  core::BatchResult result;
};

// The batch as the core takes it; its spans point into `batch` and `work`.  INVALID_ARGUMENT names the event.
absl::StatusOr<core::Batch> ToCore(const v1::Batch& batch, BatchWork* work);

// Converts, lets the core check all of it, and applies all of it or nothing.  An error names sequence number
// and event, with a BadRequest about the field.
absl::Status ApplyBatch(core::Node* node, core::EventStream* stream, const v1::Batch& batch, BatchWork* work);

// Of all that a batch says but its sequence number.
uint64_t HashOf(const v1::Batch& batch);

// Adds the outcomes and notables of a batch to an Ack that ends with it.
void AddToAck(uint64_t sequence, const core::BatchResult& result, v1::Ack* ack);
void FillState(const core::MarkState& from, v1::State* to);

// INVALID_ARGUMENT where a field is outside its enum; the ranges of numbers are the core's to check.
absl::StatusOr<core::NodeConfig> ToCore(const v1::NodeSpec& spec);
// INVALID_ARGUMENT where the policy is unknown, or ratio and kbytes are both given.
absl::StatusOr<core::wide::SetOvercommit> ToCore(const v1::SetOvercommitRequest& request);
void FillNode(const core::NodeInfo& from, v1::Node* to);
void FillCgroup(const core::CgroupInfo& from, v1::Cgroup* to);
void FillReading(const core::CgroupReading& from, v1::ReadCgroupResponse* to);
// Of a call of WatchPeak.
using PeakWatch = core::Node::PeakWatch;
absl::Status ReadPeaks(core::Node* node, const PeakWatch& watch, const v1::WatchPeakRequest& request,
                       v1::WatchPeakResponse* to);
// At most `limit` records after that one.
std::vector<v1::OomRecord> OomRecordsOf(core::Node* node, uint64_t after_sequence, size_t limit);

// A sweep over batches of the wire: they are held, and read in place.  Thread safety: as core::Sweep.
class HeldSweep {
 public:
  explicit HeldSweep(std::unique_ptr<core::Sweep> core, uint32_t page_size)
      : core_(std::move(core)), page_size_(page_size) {}

  // The request has a batch.
  absl::Status Add(std::shared_ptr<const v1::SweepRequest> request);
  absl::Status Prepare(const v1::SweepPoints& points);
  absl::Status Run(size_t point, absl::FunctionRef<bool(uint64_t events)> went_on, v1::PointResult* to) const;
  uint64_t events() const { return core_->events(); }
  int64_t duration_ns() const { return core_->duration_ns(); }

 private:
  const std::unique_ptr<core::Sweep> core_;
  const uint32_t page_size_;
};
// On a new node, or on a fork of one.
absl::StatusOr<std::unique_ptr<HeldSweep>> NewSweep(const v1::NodeSpec& spec);
std::unique_ptr<HeldSweep> ForkSweep(core::Node* node);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_WIRE_H_
