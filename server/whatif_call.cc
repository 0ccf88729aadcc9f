#include "server/whatif_call.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <utility>

#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::Locked;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kProgressEvery{250};

absl::Status TooMuch(std::string_view what, size_t limit) {
  return absl::ResourceExhaustedError(Cat("a sweep may have ", limit, " ", what, " at most"));
}

}  // namespace

WhatIfCall::WhatIfCall(const WhatIfParts& parts, grpc::CallbackServerContext* context,
                       std::function<void()> on_done)
    : parts_(parts), metadata_(NodeMetadata(*context)), on_done_(std::move(on_done)) {}

void WhatIfCall::Start() {
  self_ = shared_from_this();
  Locked lock(mutex_);
  PumpLocked();
}

void WhatIfCall::End(const absl::Status& status) {
  const std::shared_ptr<WhatIfCall> self = shared_from_this();
  Locked lock(mutex_);
  EndLocked(status);
  PumpLocked();
}

void WhatIfCall::EndLocked(const absl::Status& status) {
  if (!end_.has_value()) end_ = status;
  cancelled_ = true;
}

// ---- what the client sends

void WhatIfCall::OnReadDone(bool ok) {
  auto request = std::make_unique<v1::SweepRequest>();
  absl::Status status;
  if (ok && !grpc::SerializationTraits<v1::SweepRequest>::Deserialize(&read_buffer_, request.get()).ok())
    status = BadField("request", "the message is no SweepRequest");
  if (ok && status.ok()) status = Handle(std::move(request));
  const std::shared_ptr<WhatIfCall> self = shared_from_this();
  Locked lock(mutex_);
  reading_ = false;
  if (!ok) read_ended_ = true;
  if (!status.ok()) EndLocked(status);
  PumpLocked();
}

absl::Status WhatIfCall::Handle(std::unique_ptr<v1::SweepRequest> request) {
  const bool started = sweep_ != nullptr;
  switch (request->request_case()) {
    case v1::SweepRequest::kStart:
      if (started) return BadField("start", "it may only be the first message of a call");
      Work(parts_.admin_workers,
           [this, start = std::move(*request->mutable_start())] { return Begin(start); });
      return absl::OkStatus();
    case v1::SweepRequest::kBatch:
      if (!started) return BadField("request", "the first message of a call must be start");
      return HoldBatch(std::move(request));
    case v1::SweepRequest::kPoints:
      if (!started) return BadField("request", "the first message of a call must be start");
      Work(parts_.sweep_workers,
           [this, points = std::move(*request->mutable_points())] { return BeginPoints(points); });
      return absl::OkStatus();
    case v1::SweepRequest::REQUEST_NOT_SET:
      break;
  }
  return BadField("request", "none of start, batch and points is set");
}

absl::Status WhatIfCall::HoldBatch(std::unique_ptr<v1::SweepRequest> request) {
  const uint64_t sequence = request->batch().sequence();
  if (loaded_) return BadField("batch", "no batch may follow the first points");
  if (sequence != next_sequence_) {
    return BadField("batch.sequence", Cat("expected batch ", next_sequence_, ", got ", sequence));
  }
  ++next_sequence_;
  bytes_ += request->SpaceUsedLong();
  if (bytes_ > kMaxSweepBytes) return TooMuch("bytes of events (split the trace)", kMaxSweepBytes);
  return sweep_->Add(std::shared_ptr<const v1::SweepRequest>(std::move(request)));
}

// Runs the task on a worker; its error ends the call.
void WhatIfCall::Work(WorkerPool* workers, std::function<absl::Status()> task) {
  {
    Locked lock(mutex_);
    ++working_;
  }
  workers->Schedule([self = shared_from_this(), task = std::move(task)] { self->Worked(task()); });
}

void WhatIfCall::Worked(const absl::Status& status) {
  Locked lock(mutex_);
  --working_;
  if (!status.ok()) EndLocked(status);
  PumpLocked();
}

absl::Status WhatIfCall::Begin(const v1::SweepStart& start) {
  parallelism_ =
      start.parallelism() == 0 ? parts_.sweep_threads : std::min(start.parallelism(), parts_.sweep_threads);
  absl::StatusOr<std::unique_ptr<HeldSweep>> sweep = absl::InternalError("not set");
  switch (start.base_case()) {
    case v1::SweepStart::kSpec:
      sweep = NewSweep(start.spec());
      break;
    case v1::SweepStart::kNode: {
      const absl::Status status = CheckNodeMetadata(metadata_, start.node());
      if (!status.ok()) return status;
      const auto node = parts_.registry->Find(start.node());
      if (!node.ok()) return node.status();
      sweep = ForkSweep((*node)->core());
      break;
    }
    case v1::SweepStart::BASE_NOT_SET:
      return BadField("start", "neither spec nor node is set");
  }
  if (!sweep.ok()) return sweep.status();
  sweep_ = *std::move(sweep);
  return absl::OkStatus();
}

// ---- points

absl::Status WhatIfCall::BeginPoints(const v1::SweepPoints& points) {
  const auto count = static_cast<size_t>(points.points_size());
  if (count == 0) return BadField("points", "there are none");
  if (count > kMaxSweepPoints) return TooMuch("points at a time", kMaxSweepPoints);
  if (static_cast<size_t>(points.cgroups_size()) > kMaxSweepCgroups) {
    return TooMuch("cgroups to look at", kMaxSweepCgroups);
  }
  if (static_cast<size_t>(points.cgroups_size()) * count > kMaxSweepResults) {
    return TooMuch("results, points × cgroups,", kMaxSweepResults);
  }
  absl::Status status = sweep_->Prepare(points);
  if (!status.ok()) return status;
  events_done_ = 0;
  events_total_ = sweep_->events() * count;
  const size_t runners = std::min<size_t>(parallelism_, count);
  {
    Locked lock(mutex_);
    next_point_ = points_done_ = points_sent_ = 0;
    results_.assign(count, std::nullopt);
    if (!std::exchange(loaded_, true)) {
      v1::SweepResponse response;
      response.mutable_loaded()->set_events(sweep_->events());
      response.mutable_loaded()->set_duration_ns(sweep_->duration_ns());
      SendLocked(response);
    }
  }
  for (size_t i = 0; i < runners; ++i) Work(parts_.sweep_workers, [this] { return RunPoint(); });
  return absl::OkStatus();
}

absl::Status WhatIfCall::RunPoint() {
  size_t index = 0;
  {
    Locked lock(mutex_);
    if (cancelled_ || next_point_ == results_.size()) return absl::OkStatus();
    index = next_point_++;
  }
  SendProgress();
  v1::SweepResponse response;
  const auto went_on = [this](uint64_t events) {
    events_done_ += events;
    SendProgress();
    return !cancelled_;
  };
  const absl::Status status = sweep_->Run(index, went_on, response.mutable_result());
  if (!status.ok()) return status;
  bool more = false;
  {
    Locked lock(mutex_);
    ++points_done_;
    results_[index] = std::move(response);
    for (; points_sent_ < results_.size() && results_[points_sent_].has_value(); ++points_sent_) {
      SendLocked(*results_[points_sent_]);
      results_[points_sent_]->Clear();
    }
    more = next_point_ < results_.size();
  }
  if (more) Work(parts_.sweep_workers, [this] { return RunPoint(); });
  return absl::OkStatus();
}

// What was not sent yet is worth more.
void WhatIfCall::SendProgress() {
  const auto now = steady_clock::now();
  Locked lock(mutex_);
  if (now < next_progress_ || writing_ || !unsent_.empty()) return;
  next_progress_ = now + kProgressEvery;
  v1::SweepResponse response;
  // Marks are not applied, so that the end may lie below the total.
  response.mutable_progress()->set_events_done(std::min(events_done_.load(), events_total_));
  response.mutable_progress()->set_events_total(events_total_);
  response.mutable_progress()->set_points_done(static_cast<uint32_t>(points_done_));
  SendLocked(response);
  PumpLocked();
}

// ---- what the call does next

void WhatIfCall::SendLocked(const v1::SweepResponse& response) {
  if (!end_.has_value()) unsent_.push_back(response.SerializeAsString());
}

void WhatIfCall::OnWriteDone(bool ok) {
  const std::shared_ptr<WhatIfCall> self = shared_from_this();
  Locked lock(mutex_);
  writing_ = false;
  if (!ok) EndLocked(absl::CancelledError("the connection is gone"));
  PumpLocked();
}

void WhatIfCall::OnCancel() { End(absl::CancelledError("the call was cancelled")); }

void WhatIfCall::OnDone() {
  const std::shared_ptr<WhatIfCall> self = std::move(self_);
  on_done_();
}

void WhatIfCall::PumpLocked() {
  if (finished_) return;
  if (read_ended_ && working_ == 0 && unsent_.empty() && !end_.has_value()) {
    end_ = loaded_ ? absl::OkStatus() : BadField("points", "the call ended without any");
  }
  if (!writing_ && !unsent_.empty() && !cancelled_) {
    writing_ = true;
    const grpc::Slice slice(unsent_.front());
    unsent_.pop_front();
    write_buffer_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&write_buffer_);
    return;
  }
  if (end_.has_value()) {
    if (writing_ || working_ != 0) return;
    finished_ = true;
    Finish(ToGrpcStatus(*end_));
    return;
  }
  if (!reading_ && !read_ended_ && working_ == 0) {
    reading_ = true;
    StartRead(&read_buffer_);
  }
}

}  // namespace memcgd::server
