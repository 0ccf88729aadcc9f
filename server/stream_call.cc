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

constexpr std::chrono::seconds kRoomRetryDelay{5};

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

void StreamCall::Request(RawIngestService* service, grpc::ServerCompletionQueue* queue,
                         std::function<absl::Status()> on_start, std::function<void()> on_done) {
  self_ = shared_from_this();
  on_start_ = std::move(on_start);
  on_done_ = std::move(on_done);
  context_.AsyncNotifyWhenDone(&over_tag_);
  requests_.fetch_add(1, std::memory_order_release);  // pairs with Complete()
  service->RequestStream(&context_, &stream_io_, queue, queue, &start_tag_);
}

void StreamCall::Complete(void* tag, bool ok) {
  requests_.load(std::memory_order_acquire);  // pairs with Request()
  const Tag& completed = *static_cast<Tag*>(tag);
  (completed.call->*completed.on)(ok);
}

void StreamCall::OnStart(bool ok) {
  if (!ok) return Leave();  // the server was shut down: no call, and no other tag
  {
    Locked lock(mutex_);
    last_read_ = std::chrono::steady_clock::now();
  }
  absl::Status admitted = on_start_();
  if (admitted.ok()) admitted = parts_.access->Check(context_, "IngestService.Stream", Right::kWriteNode);
  if (!admitted.ok()) return End(admitted);
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

bool StreamCall::EndIfIdle(std::chrono::steady_clock::time_point now, std::chrono::seconds idle,
                           std::chrono::seconds stalled) {
  using std::chrono::seconds;
  bool cancel = false;
  {
    Locked lock(mutex_);
    if (end_.has_value()) return false;
    const auto unread = writing_ ? now - write_began_ : std::chrono::steady_clock::duration::zero();
    const auto silent = now - last_read_;
    const bool busy = received_ || working_ || writing_;
    if (stalled != seconds(0) && unread >= stalled) {
      EndLocked(WithReason(absl::UnavailableError("the client has not read its answers"), "STREAM_STALLED"));
      cancel = true;  // no status passes an answer that is not taken
    } else if (!opened_ && !busy && silent >= kOpenTimeout) {
      EndLocked(WithReason(
          absl::DeadlineExceededError(Cat("the call was not opened within ", kOpenTimeout.count(), " s")),
          "NOT_OPENED"));
    } else if (idle != seconds(0) && !busy && silent >= idle) {
      EndLocked(
          WithReason(absl::UnavailableError(Cat("no batch for ", idle.count(), " s; open the stream again")),
                     "STREAM_IDLE"));
    } else {
      return false;
    }
  }
  if (cancel) context_.TryCancel();
  Pump();
  return true;
}

void StreamCall::EndLocked(const absl::Status& status) {
  if (!end_.has_value()) end_ = status;
  received_ = false;
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
  const bool parsed = ok && Parse();
  read_buffer_.Clear();
  {
    Locked lock(mutex_);
    reading_ = false;
    last_read_ = std::chrono::steady_clock::now();
    if (read_end_.has_value() || end_.has_value()) {
      // Came too late; the client sends it again when it resumes.
    } else if (parsed) {
      received_ = true;
    } else if (ok) {
      read_end_ = Refused("the message is no StreamRequest");
    } else {
      read_end_ = absl::OkStatus();  // the client has nothing more to say
    }
  }
  Work();
  LeaveIfLast();
}

// Merges into the batch that the message held before, so that its memory is used again.
bool StreamCall::Parse() {
  if (request_->has_batch()) {
    request_->mutable_batch()->Clear();
    request_->GetReflection()->MutableUnknownFields(request_.get())->Clear();
  } else {
    request_->Clear();
  }
  request_bytes_ = read_buffer_.Length();
  grpc::ProtoBufferReader reader(&read_buffer_);
  google::protobuf::io::CodedInputStream input(&reader);
  const bool parsed = request_->MergeFromCodedStream(&input) && input.ConsumedEntireMessage();
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
  Work();
}

void StreamCall::OnOver(bool) {
  over_ = true;
  if (context_.IsCancelled()) {
    Locked lock(mutex_);
    DropAnswersLocked();
    EndLocked(absl::CancelledError("the call was cancelled"));
  }
  Pump();
  LeaveIfLast();
}

void StreamCall::OnFinished(bool) {
  finish_done_ = true;
  LeaveIfLast();
}

// The last tag that is out has come back.
void StreamCall::LeaveIfLast() {
  {
    Locked lock(mutex_);
    if (!finish_done_ || !over_ || reading_) return;
  }
  if (stream_ != nullptr) {
    stream_->Detach(id_);
    parts_.metrics->StreamClosed();
  }
  Leave();
}

void StreamCall::Leave() {
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
      stream_io_.Finish(ToGrpcStatus(end), &finish_tag_);  // pumping_ stays set: nothing is started any more
      return;
    }
    if (step == Step::kWrite) Write(answer, more_follow);
    if (step == Step::kRead) stream_io_.Read(&read_buffer_, &read_tag_);
    mutex_.Lock();
  } while (step != Step::kNothing || pump_again_);
  pumping_ = false;
  mutex_.Unlock();
}

StreamCall::Step StreamCall::NextStepLocked() {
  if (finished_) return Step::kNothing;
  if (!end_.has_value() && read_end_.has_value() && !received_ && !working_) end_ = *read_end_;
  if (!writing_ && !unsent_.empty()) {
    writing_ = true;
    write_began_ = std::chrono::steady_clock::now();
    return Step::kWrite;
  }
  if (end_.has_value()) {
    finished_ = !writing_ && !working_;
    return finished_ ? Step::kFinish : Step::kNothing;
  }
  // Short of memory, a message is read only once nothing is left of the one before.
  const bool may_read = parts_.budget->reads_ahead() || (!working_ && unsent_.empty());
  if (may_read && !reading_ && !received_ && !read_end_.has_value()) {
    reading_ = true;
    return Step::kRead;
  }
  return Step::kNothing;
}

void StreamCall::Write(const Answer& answer, bool more_follow) {
  const grpc::Slice slice(answer.message != nullptr ? answer.message->SerializeAsString() : *answer.bytes);
  const grpc::ByteBuffer buffer(&slice, 1);
  grpc::WriteOptions options;
  // Not worth a packet of its own when the next message is at hand.
  if (more_follow) options.set_buffer_hint();
  stream_io_.Write(buffer, options, &write_tag_);
}

void StreamCall::Work() {
  bool work = false;
  {
    Locked lock(mutex_);
    work = working_ = received_ && ClientReadsLocked();
    if (work) received_ = false;
  }
  Pump();  // reads the next one meanwhile
  if (!work) return;
  const absl::Status status = Handle(*request_);
  if (request_bytes_ > kMaxSpareBytes) request_ = std::make_unique<v1::StreamRequest>();
  {
    Locked lock(mutex_);
    working_ = false;
    if (!status.ok()) EndLocked(status);
  }
  Pump();
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
  absl::Status status = CheckNodeMetadata(NodeMetadata(context_), open.node());
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
  opened->set_durable_through(stream_->durable_through());
  Locked lock(mutex_);
  opened_ = true;
  AddAnswerLocked({nullptr, Serialized(response)});
  return absl::OkStatus();
}

absl::Status StreamCall::HandleBatch(const v1::Batch& batch) {
  const auto begin = std::chrono::steady_clock::now();
  parts_.budget->Refresh(begin);
  std::vector<StateBytes> states;
  const auto apply = [&](core::EventStream* stream, std::vector<StateBytes>* given) {
    absl::Status status = ApplyBatch(node_->core(), stream, batch, &work_);
    if (absl::IsResourceExhausted(status))
      status =
          WithRetry(WithReason(std::move(status), "NO_ROOM", {{"node", node_->name()}}), kRoomRetryDelay);
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
  ack->set_durable_through(stream_->durable_through());
  if (applied) {
    AddToAck(sequence, work_.result, ack);
  } else {
    ack->set_applied_through(sequence);
  }
}

}  // namespace memcgd::server
