#include "server/stream_call.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <utility>

#include "server/errors.h"
#include "server/limits.h"
#include "server/node_metadata.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using core::Locked;

// Batches that a worker handles before other calls get their turn.
constexpr int kBatchesPerTurn = 16;

StateBytes Serialized(const v1::StreamResponse& response) {
  return std::make_shared<const std::string>(response.SerializeAsString());
}

absl::Status Refused(std::string_view message) { return BadField("request", message); }

BatchOutcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return BatchOutcome::kMalformed;
    case absl::StatusCode::kFailedPrecondition:
      return BatchOutcome::kGap;
    case absl::StatusCode::kAlreadyExists:
      return BatchOutcome::kContentDiffers;
    default:
      return BatchOutcome::kRefused;
  }
}

}  // namespace

StreamCall::StreamCall(const IngestParts& parts, uint64_t id, grpc::CallbackServerContext* context,
                       std::function<void()> on_done)
    : parts_(parts), id_(id), metadata_(NodeMetadata(*context)), on_done_(std::move(on_done)) {}

void StreamCall::Start() {
  self_ = shared_from_this();
  Pump();
}

void StreamCall::GoAway(const absl::Status& why) {
  {
    Locked lock(mutex_);
    if (told_to_go_) return;
    told_to_go_ = true;
    if (!opened_) {
      EndLocked(why);
    } else if (!end_.has_value()) {
      auto message = std::make_unique<v1::StreamResponse>();
      message->mutable_go_away()->set_reason(std::string(why.message()));
      AddAnswerLocked({nullptr, Serialized(*message)});
    }
  }
  Pump();
}

void StreamCall::StopReading(const absl::Status& status) {
  {
    Locked lock(mutex_);
    if (!read_end_.has_value()) read_end_ = status;
  }
  Pump();
}

void StreamCall::End(const absl::Status& status) {
  {
    Locked lock(mutex_);
    EndLocked(status);
  }
  Pump();
}

void StreamCall::EndLocked(const absl::Status& status) {
  if (!end_.has_value()) end_ = status;
  received_.clear();
  received_bytes_ = 0;
}

void StreamCall::AddAnswerLocked(Answer answer) {
  unsent_bytes_ += answer.size();
  unsent_.push_back(std::move(answer));
}

StreamCall::Answer StreamCall::TakeAnswerLocked() {
  Answer answer = std::move(unsent_.front());
  unsent_.pop_front();
  unsent_bytes_ -= answer.size();
  acknowledging_ = answer.batches;
  return answer;
}

void StreamCall::DropAnswersLocked() {
  unsent_.clear();
  unsent_bytes_ = 0;
}

bool StreamCall::ClientReadsLocked() const {
  return unsent_.size() < kMaxUnsentAnswers && unsent_bytes_ < kMaxUnsentBytes &&
         unacknowledged_ < kWindowBatches;
}

void StreamCall::OnReadDone(bool ok) {
  std::unique_ptr<v1::StreamRequest> request;
  {
    Locked lock(mutex_);
    if (!spare_.empty()) {
      request = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (request == nullptr) request = std::make_unique<v1::StreamRequest>();
  const size_t bytes = ok ? read_buffer_.Length() : 0;
  const bool parsed = ok && Parse(request.get());
  {
    Locked lock(mutex_);
    reading_ = false;
    if (read_end_.has_value() || end_.has_value()) {
      // Came too late; the client sends it again when it resumes.
    } else if (parsed) {
      received_.push_back({std::move(request), bytes});
      received_bytes_ += bytes;
    } else if (ok) {
      read_end_ = Refused("the message is no StreamRequest");
    } else {
      read_end_ = absl::OkStatus();  // the client has nothing more to say
    }
  }
  Pump();
}

// Merges into the batch that the message held before, so that its memory is used again.
bool StreamCall::Parse(v1::StreamRequest* request) {
  if (request->has_batch()) {
    request->mutable_batch()->Clear();
    request->GetReflection()->MutableUnknownFields(request)->Clear();
  } else {
    request->Clear();
  }
  grpc::ProtoBufferReader reader(&read_buffer_);
  google::protobuf::io::CodedInputStream input(&reader);
  const bool parsed = request->MergeFromCodedStream(&input) && input.ConsumedEntireMessage();
  return parsed && reader.status().ok();
}

void StreamCall::OnWriteDone(bool ok) {
  {
    Locked lock(mutex_);
    writing_ = false;
    unacknowledged_ -= std::exchange(acknowledging_, 0);
    if (!ok) {
      DropAnswersLocked();
      EndLocked(absl::CancelledError("the connection is gone"));
    }
  }
  Pump();
}

void StreamCall::OnCancel() {
  {
    Locked lock(mutex_);
    DropAnswersLocked();
    EndLocked(absl::CancelledError("the call was cancelled"));
  }
  Pump();
}

void StreamCall::OnDone() {
  if (stream_ != nullptr) {
    stream_->Detach(id_);
    parts_.metrics->StreamClosed();
  }
  const std::shared_ptr<StreamCall> self = std::move(self_);
  on_done_();
}

void StreamCall::Pump() {
  const std::shared_ptr<StreamCall> self = shared_from_this();
  mutex_.Lock();
  if (pumping_) {
    pump_again_ = true;
    mutex_.Unlock();
    return;
  }
  pumping_ = true;
  Step step = Step::kNothing;
  do {
    pump_again_ = false;
    step = NextStepLocked();
    Answer answer;
    bool more_follow = false;
    if (step == Step::kWrite) {
      answer = TakeAnswerLocked();
      more_follow = !unsent_.empty();
    }
    const absl::Status end = end_.value_or(absl::OkStatus());
    mutex_.Unlock();
    if (step == Step::kFinish) {
      Finish(ToGrpcStatus(end));  // pumping_ stays set: nothing is started any more
      return;
    }
    if (step == Step::kWrite) Write(answer, more_follow);
    if (step == Step::kWork) parts_.workers->Schedule([self] { self->Work(); });
    if (step == Step::kRead) StartRead(&read_buffer_);
    mutex_.Lock();
  } while (step != Step::kNothing || pump_again_);
  pumping_ = false;
  mutex_.Unlock();
}

StreamCall::Step StreamCall::NextStepLocked() {
  if (finished_) return Step::kNothing;
  if (!end_.has_value() && read_end_.has_value() && received_.empty() && !working_) end_ = *read_end_;
  if (!writing_ && !unsent_.empty()) {
    writing_ = true;
    return Step::kWrite;
  }
  if (end_.has_value()) {
    finished_ = !writing_ && !working_;
    return finished_ ? Step::kFinish : Step::kNothing;
  }
  if (!working_ && !received_.empty() && ClientReadsLocked()) {
    working_ = true;
    return Step::kWork;
  }
  if (!reading_ && !read_end_.has_value() && received_.size() < kMaxReadAhead &&
      received_bytes_ < kMaxReadAheadBytes) {
    reading_ = true;
    return Step::kRead;
  }
  return Step::kNothing;
}

void StreamCall::Write(const Answer& answer, bool more_follow) {
  const grpc::Slice slice(answer.message != nullptr ? answer.message->SerializeAsString() : *answer.bytes);
  write_buffer_ = grpc::ByteBuffer(&slice, 1);
  grpc::WriteOptions options;
  // Not worth a packet of its own when the next message is at hand.
  if (more_follow) options.set_buffer_hint();
  StartWrite(&write_buffer_, options);
}

void StreamCall::Work() {
  for (int turn = 0; turn < kBatchesPerTurn; ++turn) {
    Received next = TakeReceived();
    if (next.request == nullptr) break;
    const absl::Status status = Handle(*next.request);
    {
      Locked lock(mutex_);
      if (!status.ok()) EndLocked(status);
      if (spare_.size() < kMaxReadAhead && next.bytes <= kMaxSpareBytes) {
        spare_.push_back(std::move(next.request));
      }
    }
    Pump();
  }
  {
    Locked lock(mutex_);
    working_ = false;
  }
  Pump();  // takes another turn, behind the other calls, where there is more to do
}

StreamCall::Received StreamCall::TakeReceived() {
  Locked lock(mutex_);
  if (end_.has_value() || received_.empty() || !ClientReadsLocked()) return {};
  Received next = std::move(received_.front());
  received_.pop_front();
  received_bytes_ -= next.bytes;
  return next;
}

absl::Status StreamCall::Handle(const v1::StreamRequest& request) {
  const bool open = stream_ != nullptr;
  switch (request.request_case()) {
    case v1::StreamRequest::kOpen:
      return open ? Refused("open may only be the first message of a call") : HandleOpen(request.open());
    case v1::StreamRequest::kBatch:
      return open ? HandleBatch(request.batch()) : Refused("the first message of a call must be open");
    case v1::StreamRequest::REQUEST_NOT_SET:
      break;
  }
  return Refused("neither open nor batch is set");
}

absl::Status StreamCall::HandleOpen(const v1::Open& open) {
  absl::Status status = CheckNodeMetadata(metadata_, open.node());
  if (!status.ok()) return status;
  auto node = parts_.registry->Find(open.node());
  if (!node.ok()) return node.status();
  const absl::StatusOr<ServedStream*> stream = (*node)->OpenStream(open.stream_id(), open.incarnation());
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<uint64_t> next =
      (*stream)->Attach(id_, [weak = weak_from_this()](const absl::Status& why) {
        if (const std::shared_ptr<StreamCall> call = weak.lock()) call->End(why);
      });
  if (!next.ok()) return next.status();
  node_ = *std::move(node);
  stream_ = *stream;
  parts_.metrics->StreamOpened();

  v1::StreamResponse response;
  v1::Opened* opened = response.mutable_opened();
  opened->set_incarnation(node_->incarnation());
  opened->set_next_sequence(*next);
  opened->set_max_batch_events(kMaxBatchEvents);
  opened->set_window_batches(kWindowBatches);
  Locked lock(mutex_);
  opened_ = true;
  AddAnswerLocked({nullptr, Serialized(response)});
  return absl::OkStatus();
}

absl::Status StreamCall::HandleBatch(const v1::Batch& batch) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<StateBytes> states;
  const auto apply = [&](core::EventStream* stream, std::vector<StateBytes>* given) {
    const absl::Status status = ApplyBatch(node_->core(), stream, batch, &work_);
    if (!status.ok()) return status;
    for (const auto& mark : work_.result.marks) {
      v1::StreamResponse response;
      FillState(mark, response.mutable_state());
      given->push_back(Serialized(response));
    }
    return status;
  };
  const auto turn = stream_->Submit(id_, batch.sequence(), HashOf(batch), apply, &states);
  if (!turn.ok()) {
    parts_.metrics->RecordNotApplied(OutcomeOf(turn.status()));
    return turn.status();
  }
  const bool applied = *turn == ServedStream::Turn::kApplied;
  if (applied) {
    const auto duration = std::chrono::steady_clock::now() - begin;
    parts_.metrics->RecordApplied(work_.result, work_.wide_kinds,
                                  std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
    if (!work_.result.ooms.empty()) node_->OomHappened();
  } else {
    parts_.metrics->RecordNotApplied(BatchOutcome::kRepeated);
  }
  Acknowledge(batch.sequence(), states, applied);
  return absl::OkStatus();
}

// States first: who sees the Ack of a batch has seen all that it gave.
void StreamCall::Acknowledge(uint64_t sequence, const std::vector<StateBytes>& states, bool applied) {
  Locked lock(mutex_);
  for (const StateBytes& state : states) AddAnswerLocked({nullptr, state});
  if (unsent_.empty() || unsent_.back().message == nullptr) {
    AddAnswerLocked({std::make_unique<v1::StreamResponse>(), nullptr});
  }
  ++unacknowledged_;
  ++unsent_.back().batches;
  v1::Ack* ack = unsent_.back().message->mutable_ack();
  if (applied) {
    AddToAck(sequence, work_.result, ack);
  } else {
    ack->set_applied_through(sequence);
  }
}

}  // namespace memcgd::server
