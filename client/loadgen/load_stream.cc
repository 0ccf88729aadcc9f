#include "client/loadgen/load_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace memcgd::client::loadgen {
namespace {

namespace v1 = memcgd::v1;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{50};  // how soon a cancelled stream notices

void* AsTag(intptr_t tag) { return reinterpret_cast<void*>(tag); }

std::chrono::system_clock::time_point Wall(LoadStream::Clock::time_point time) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(time - LoadStream::Clock::now());
}

}  // namespace

LoadStream::LoadStream(Server server, std::string node, std::string stream_id,
                       const std::atomic<bool>* cancelled)
    : server_(std::move(server)),
      node_(std::move(node)),
      stream_id_(std::move(stream_id)),
      cancelled_(*cancelled),
      stub_(v1::IngestService::NewStub(server_.channel)) {}

// What is under way comes back cancelled, and is waited for.
LoadStream::~LoadStream() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status LoadStream::Open() {
  context_.AddMetadata(kNodeMetadata, node_);
  last_progress_ = Clock::now();
  call_ = stub_->AsyncStream(&context_, &queue_, AsTag(kStart));
  while (!opened_) {
    absl::Status status = Poll(Clock::now() + kSlice);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void LoadStream::Send(v1::StreamRequest* request) {
  request->mutable_batch()->set_sequence(++sent_);
  if (sent_ == acknowledged_ + 1) last_progress_ = Clock::now();
  writing_ = true;
  call_->Write(*request, AsTag(kWrite));
}

absl::Status LoadStream::Poll(Clock::time_point until) {
  if (cancelled_) return absl::CancelledError("interrupted");
  void* tag = nullptr;
  bool ok = false;
  const auto slice = std::min(until, Clock::now() + kSlice);
  switch (queue_.AsyncNext(&tag, &ok, Wall(slice))) {
    case grpc::CompletionQueue::SHUTDOWN:
      return absl::InternalError("the completion queue was shut down");
    case grpc::CompletionQueue::TIMEOUT:
      if ((!opened_ || sent_ != acknowledged_) && Clock::now() - last_progress_ >= server_.timeout) {
        return StatusFromGrpc(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""), server_);
      }
      return absl::OkStatus();
    case grpc::CompletionQueue::GOT_EVENT:
      break;
  }
  if (!ok) return Broken();
  switch (reinterpret_cast<intptr_t>(tag)) {
    case kStart: {
      v1::StreamRequest open;
      open.mutable_open()->set_node(node_);
      open.mutable_open()->set_stream_id(stream_id_);
      writing_ = true;
      call_->Write(open, AsTag(kWrite));
      call_->Read(&incoming_, AsTag(kRead));
      return absl::OkStatus();
    }
    case kWrite:
      writing_ = false;
      return absl::OkStatus();
    case kRead:
      return OnRead();
    default:
      return absl::OkStatus();
  }
}

absl::Status LoadStream::OnRead() {
  last_progress_ = Clock::now();
  switch (incoming_.response_case()) {
    case v1::StreamResponse::kOpened:
      opened_ = true;
      window_ = std::max<uint64_t>(incoming_.opened().window_batches(), 1);
      if (incoming_.opened().max_batch_events() != 0)
        max_batch_events_ = incoming_.opened().max_batch_events();
      break;
    case v1::StreamResponse::kAck:
      acknowledged_ = std::max(acknowledged_, incoming_.ack().applied_through());
      last_ack_ = last_progress_;
      for (const v1::OutcomeCount& count : incoming_.ack().outcomes()) {
        const auto outcome = static_cast<size_t>(count.outcome());
        outcomes_[outcome < kOutcomes ? outcome : 0] += count.count();
      }
      break;
    case v1::StreamResponse::kGoAway:
      return absl::UnavailableError(absl::StrCat("memcgd at ", server_.address, " is stopping"));
    default:
      break;
  }
  incoming_.Clear();
  call_->Read(&incoming_, AsTag(kRead));
  return absl::OkStatus();
}

absl::Status LoadStream::Drain() {
  while (acknowledged_ < sent_ || writing_) {
    absl::Status status = Poll(Clock::now() + kSlice);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool LoadStream::WaitFor(Tag tag, milliseconds most) {
  const auto end = std::chrono::system_clock::now() + most;
  void* got = nullptr;
  bool ok = false;
  while (queue_.AsyncNext(&got, &ok, end) == grpc::CompletionQueue::GOT_EVENT) {
    if (got == AsTag(tag)) return true;
  }
  return false;
}

void LoadStream::Finish() {
  call_->WritesDone(AsTag(kWritesDone));
  WaitFor(kRead, milliseconds{1000});  // nothing more comes
  call_->Finish(&final_status_, AsTag(kFinish));
  WaitFor(kFinish, milliseconds{1000});
}

// The call is at its end: says why.
absl::Status LoadStream::Broken() {
  if (std::exchange(ended_, true)) return absl::UnavailableError("the stream has ended");
  call_->Finish(&final_status_, AsTag(kFinish));
  if (!WaitFor(kFinish, milliseconds{2000})) {
    return absl::UnavailableError(absl::StrCat("the connection to memcgd at ", server_.address, " broke"));
  }
  if (final_status_.ok()) {
    return absl::UnavailableError(absl::StrCat("memcgd at ", server_.address, " ended the stream"));
  }
  return StatusFromGrpc(final_status_, server_);
}

}  // namespace memcgd::client::loadgen
