#include "client/sweep_client.h"

#include <utility>

#include "client/event_stream.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice{50};

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

SweepClient::SweepClient(Options options, const v1::SweepStart& start)
    : options_(std::move(options)), stub_(v1::WhatIfService::NewStub(options_.server.channel)) {
  if (start.has_node()) context_.AddMetadata(kNodeMetadata, start.node());
  watcher_ = std::thread([this] { Watch(); });
  waiting_since_ = NowNs();
  call_ = stub_->Sweep(&context_);
  waiting_since_ = 0;
  v1::SweepRequest request;
  *request.mutable_start() = start;
  Write(request).IgnoreError();  // the next call tells
}

SweepClient::~SweepClient() {
  if (!ended_) {
    context_.TryCancel();
    call_->Finish();
  }
  done_ = true;
  watcher_.join();
}

void SweepClient::Watch() {
  while (!done_) {
    std::this_thread::sleep_for(kSlice);
    const int64_t since = waiting_since_;
    const std::chrono::nanoseconds waited(since == 0 ? 0 : NowNs() - since);
    if (waited > options_.server.timeout) silent_ = true;
    const bool interrupted = options_.cancelled != nullptr && *options_.cancelled;
    if (silent_ || interrupted) context_.TryCancel();
  }
}

absl::Status SweepClient::Write(const v1::SweepRequest& request) {
  if (ended_) return status_;
  waiting_since_ = NowNs();
  const bool written = call_->Write(request);
  waiting_since_ = 0;
  return written ? absl::OkStatus() : Ended();
}

absl::Status SweepClient::Ended() {
  const grpc::Status status = call_->Finish();
  ended_ = true;
  if (options_.cancelled != nullptr && *options_.cancelled) {
    status_ = absl::CancelledError("interrupted");
  } else if (silent_) {
    status_ = StatusFromGrpc(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""), options_.server);
  } else if (status.ok()) {
    status_ = absl::InternalError("memcgd ended the sweep before it was done");
  } else {
    status_ = StatusFromGrpc(status, options_.server);
  }
  return status_;
}

absl::Status SweepClient::Send(v1::Batch batch) {
  for (v1::Batch& part : SplitBatch(std::move(batch), BatchLimits{})) {
    part.set_sequence(next_sequence_++);
    v1::SweepRequest request;
    *request.mutable_batch() = std::move(part);
    absl::Status status = Write(request);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::PointResult>> SweepClient::Run(const v1::SweepPoints& points) {
  v1::SweepRequest request;
  *request.mutable_points() = points;
  absl::Status status = Write(request);
  if (!status.ok()) return status;
  std::vector<v1::PointResult> results;
  while (results.size() < static_cast<size_t>(points.points_size())) {
    v1::SweepResponse response;
    waiting_since_ = NowNs();
    const bool read = call_->Read(&response);
    waiting_since_ = 0;
    if (!read) return Ended();
    if (response.has_loaded()) loaded_ = response.loaded();
    if (response.has_progress() && options_.on_progress) options_.on_progress(response.progress());
    if (response.has_result()) results.push_back(std::move(*response.mutable_result()));
  }
  return results;
}

}  // namespace memcgd::client
