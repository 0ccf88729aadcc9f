#include "client/event_stream.h"

#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;
using std::chrono::milliseconds;

// How soon a cancelled stream notices.
constexpr milliseconds kSlice{50};

// Failures of the way rather than of the request: the same may work on another connection.
bool MayWorkLater(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:           // the server ended the call before we did
    case grpc::StatusCode::UNAVAILABLE:  // connection lost, or the server drains
    case grpc::StatusCode::CANCELLED:    // by the server, or by us as it was silent
    case grpc::StatusCode::ABORTED:      // the server still holds our call of before
    case grpc::StatusCode::INTERNAL:     // how gRPC shows RST_STREAM
    case grpc::StatusCode::UNKNOWN:      // and "Stream removed"
      return true;
    default:
      return false;
  }
}

// What the server said.  A balancer that breaks the stream right behind the server's error (HAProxy, where
// the client has not half-closed) takes its code away: only the details still have it.
grpc::Status AsTheServerSaid(const grpc::Status& status) {
  google::rpc::Status said;
  if (!said.ParseFromString(status.error_details()) || said.code() == 0) return status;
  return grpc::Status(static_cast<grpc::StatusCode>(said.code()), said.message(), status.error_details());
}

// Events [*word, …) and side events [*side, …) of `whole`: at least one, and as many as the limits let.
v1::Batch TakePart(v1::Batch* whole, const BatchLimits& limits, int* word, int* side) {
  constexpr size_t kWordsBytes = 16;
  constexpr size_t kSideFrameBytes = 8;  // tag, length, and a position that may need more digits
  v1::Batch part;
  part.set_base_time_ns(whole->base_time_ns());
  const int first = *word;
  const int words = whole->words_size() / 2;
  size_t bytes = 0;
  size_t marks = 0;
  for (size_t count = 0; count < limits.events && (*word < words || *side < whole->side_size()); ++count) {
    const bool side_is_next =
        *side < whole->side_size() &&
        (*word == words || whole->side(*side).position() <= static_cast<uint32_t>(*word));
    bytes += side_is_next ? whole->side(*side).ByteSizeLong() + kSideFrameBytes : kWordsBytes;
    marks += side_is_next && whole->side(*side).has_mark() ? 1 : 0;
    if (count != 0 && (bytes > limits.bytes || marks > limits.marks)) break;
    if (!side_is_next) {
      ++*word;
      continue;
    }
    v1::SideEvent* event = part.add_side();
    event->Swap(whole->mutable_side((*side)++));
    event->set_position(static_cast<uint32_t>(*word - first));
  }
  const auto begin = whole->words().begin();
  part.mutable_words()->Add(begin + 2 * first, begin + 2 * *word);
  return part;
}

size_t MarksOf(const v1::Batch& batch) {
  return static_cast<size_t>(std::count_if(batch.side().begin(), batch.side().end(),
                                           [](const auto& event) { return event.has_mark(); }));
}

size_t EventsOf(const v1::Batch& batch) {
  return static_cast<size_t>(batch.words_size()) / 2 + static_cast<size_t>(batch.side_size());
}

}  // namespace

std::vector<v1::Batch> SplitBatch(v1::Batch batch, const BatchLimits& limits) {
  std::vector<v1::Batch> parts;
  if (EventsOf(batch) <= limits.events && MarksOf(batch) <= limits.marks &&
      batch.ByteSizeLong() <= limits.bytes) {
    parts.push_back(std::move(batch));
    return parts;
  }
  int word = 0;
  int side = 0;
  while (word < batch.words_size() / 2 || side < batch.side_size()) {
    parts.push_back(TakePart(&batch, limits, &word, &side));
  }
  return parts;
}

// One connection.  gRPC's threads run the reactions, which only move messages between queues; the stream's
// thread looks at the queues and waits for them to change.
class EventStream::Call final : public grpc::ClientBidiReactor<v1::StreamRequest, v1::StreamResponse> {
 public:
  Call(v1::IngestService::Stub* stub, const std::string& node, v1::StreamRequest open) {
    context_.AddMetadata(kNodeMetadata, node);
    stub->async()->Stream(&context_, this);
    AddHold();  // until Close(): writes and reads are started from outside the reactions
    StartRead(&incoming_);
    StartCall();
    Write(std::make_shared<const v1::StreamRequest>(std::move(open)));
  }

  ~Call() override {
    context_.TryCancel();
    Close();
  }

  void Write(std::shared_ptr<const v1::StreamRequest> request) {
    const v1::StreamRequest* const starting = request.get();
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (writes_done_ || read_ended_ || write_failed_) return;  // it goes out on the next connection
      if (writing_ != nullptr) {
        to_write_.push_back(std::move(request));
        return;
      }
      writing_ = std::move(request);
    }
    StartWrite(starting);
  }

  void WritesDone() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (writes_done_ || read_ended_ || write_failed_) return;
      writes_done_ = true;
      if (writing_ != nullptr) return;  // OnWriteDone() will
    }
    StartWritesDone();
  }

  // False where there is none.
  bool Take(v1::StreamResponse* response) {
    bool resume = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (received_.empty()) return false;
      *response = std::move(received_.front());
      received_.pop_front();
      resume = std::exchange(reading_paused_, false);
    }
    if (resume) StartRead(&incoming_);
    return true;
  }

  // True once no more answers come.
  bool Ended() {
    std::lock_guard<std::mutex> lock(mu_);
    return read_ended_ && received_.empty();
  }

  // Waits until there is something to take, or the end, at most that long.
  void Wait(milliseconds most) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait_for(lock, most, [this] { return read_ended_ || !received_.empty(); });
  }

  // Ends a call whose server is silent.
  void GiveUp() {
    given_up_ = true;
    context_.TryCancel();
  }
  bool given_up() const { return given_up_; }

  // Waits for gRPC to let go of the call.  REQUIRES: it ended or was cancelled.
  grpc::Status Close() {
    if (!std::exchange(hold_removed_, true)) RemoveHold();
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return done_; });
    return final_status_;
  }

  void OnReadDone(bool ok) override {
    bool more = false;
    bool going_away = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (ok) {
        going_away = incoming_.has_go_away();
        received_.push_back(std::move(incoming_));
        incoming_.Clear();
        more = received_.size() < kMaxReceived;
        reading_paused_ = !more;
      } else {
        read_ended_ = true;
      }
      changed_.notify_all();
    }
    // At once: the stream's thread may be waiting for its trace, and the server for the call to end.
    if (going_away) WritesDone();
    if (more) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    bool finish = false;
    const v1::StreamRequest* next = nullptr;
    {
      std::lock_guard<std::mutex> lock(mu_);
      writing_ = nullptr;
      write_failed_ = write_failed_ || !ok;
      if (write_failed_) {
        to_write_.clear();
      } else if (!to_write_.empty()) {
        writing_ = std::move(to_write_.front());
        to_write_.pop_front();
        next = writing_.get();
      } else {
        finish = writes_done_;
      }
    }
    if (next != nullptr) StartWrite(next);
    if (finish) StartWritesDone();
  }

  void OnDone(const grpc::Status& status) override {
    std::lock_guard<std::mutex> lock(mu_);
    final_status_ = status;
    done_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr size_t kMaxReceived = 16;

  grpc::ClientContext context_;
  v1::StreamResponse incoming_;  // gRPC's while a read is under way
  bool hold_removed_ = false;    // the stream's thread only, as the next one
  bool given_up_ = false;

  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::deque<v1::StreamResponse> received_;
  std::shared_ptr<const v1::StreamRequest> writing_;  // under way; gRPC reads it until OnWriteDone()
  std::deque<std::shared_ptr<const v1::StreamRequest>> to_write_;  // bounded by the stream's window
  bool reading_paused_ = false;
  bool read_ended_ = false;
  bool write_failed_ = false;
  bool writes_done_ = false;
  bool done_ = false;
  grpc::Status final_status_;
};

EventStream::EventStream(Options options)
    : options_(std::move(options)),
      stub_(v1::IngestService::NewStub(options_.server.channel)),
      limits_(options_.limits),
      backoff_(options_.first_backoff),
      next_attempt_(Clock::now()) {}

EventStream::~EventStream() = default;

absl::Status EventStream::Open() {
  return PumpUntil([this] { return opened_; });
}

absl::Status EventStream::Send(v1::Batch batch) {
  if (!status_.ok()) return status_;
  for (v1::Batch& part : SplitBatch(std::move(batch), limits_)) {
    Enqueue(std::move(part));
    absl::Status status =
        PumpUntil([this] { return kept_.size() < window_ && next_to_write_ == next_sequence_; });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status EventStream::Finish() {
  absl::Status status = PumpUntil([this] { return kept_.empty(); });
  if (!status.ok() || call_ == nullptr) return status;
  // Everything was applied and acknowledged; how the call ends no longer matters.
  call_->WritesDone();
  for (milliseconds waited{}; !call_->Ended() && waited < milliseconds{1000}; waited += kSlice) {
    call_->Wait(kSlice);
    v1::StreamResponse late;
    while (call_->Take(&late)) {
      if (late.has_ack()) status.Update(HandleAck(late.ack()));
    }
  }
  call_.reset();
  opened_ = false;
  return status;
}

void EventStream::Enqueue(v1::Batch batch) {
  Kept kept;
  kept.sequence = next_sequence_++;
  ++counts_.batches;
  counts_.events += EventsOf(batch);
  for (const v1::SideEvent& event : batch.side()) {
    const bool waits = event.has_mark() && event.mark().id() > options_.last_answered_mark;
    if (waits) kept.marks.push_back(event.mark().id());
  }
  if (kept.sequence <= applied_through_ && kept.marks.empty() && kept_.empty()) {  // Options::again
    next_to_write_ = next_sequence_;
    return;
  }
  auto request = std::make_shared<v1::StreamRequest>();
  batch.set_sequence(kept.sequence);
  *request->mutable_batch() = std::move(batch);
  kept.request = std::move(request);
  kept_.push_back(std::move(kept));
}

// The one loop of the stream: takes answers, writes, and opens the connection again, until the goal is
// reached.
template <typename Goal>
absl::Status EventStream::PumpUntil(Goal goal) {
  if (!status_.ok()) return status_;
  while (true) {
    if (options_.cancelled != nullptr && *options_.cancelled)
      return Fail(absl::CancelledError("interrupted"));
    v1::StreamResponse response;
    bool moved = false;
    while (call_ != nullptr && call_->Take(&response)) {
      moved = true;
      absl::Status status = Handle(response);
      if (!status.ok()) return Fail(std::move(status));
    }
    if (WriteMore()) moved = true;
    if (goal()) return absl::OkStatus();
    if (moved) continue;
    absl::Status status = call_ != nullptr && call_->Ended() ? EndCall() : Wait();
    if (!status.ok()) return Fail(std::move(status));
  }
}

absl::Status EventStream::Fail(absl::Status status) {
  status_ = std::move(status);
  call_.reset();
  return status_;
}

void EventStream::StartCall() {
  v1::StreamRequest open;
  open.mutable_open()->set_node(options_.node);
  open.mutable_open()->set_stream_id(options_.stream_id);
  open.mutable_open()->set_incarnation(incarnation_);
  call_silent_ = {};
  going_away_ = false;
  call_ = std::make_unique<Call>(stub_.get(), options_.node, std::move(open));
}

// The connection is at its end: says why, where it is no use to try again.
absl::Status EventStream::EndCall() {
  grpc::Status status = AsTheServerSaid(call_->Close());
  if (call_->given_up()) status = grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "it was silent");
  const bool retry = call_->given_up() || MayWorkLater(status.error_code());
  call_.reset();
  opened_ = false;
  // A first attempt that fails is told at once; one that comes after others may meet a server that is just
  // leaving.
  if (incarnation_ == 0 && !options_.again && !status.ok()) return StatusFromGrpc(status, options_.server);
  if (!retry) {
    const bool gone = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
                      status.error_code() == grpc::StatusCode::NOT_FOUND;
    return gone ? StateGone(status.error_message()) : StatusFromGrpc(status, options_.server);
  }
  last_failure_ = status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the stream") : status;
  next_attempt_ = Clock::now() + backoff_;
  backoff_ = std::min(2 * backoff_, options_.longest_backoff);
  return absl::OkStatus();
}

// Waits for an answer, or for the time of the next attempt to connect.
absl::Status EventStream::Wait() {
  const Clock::time_point start = Clock::now();
  if (call_ != nullptr) {
    call_->Wait(kSlice);
  } else if (start >= next_attempt_) {
    StartCall();
  } else {
    std::this_thread::sleep_for(std::min<Clock::duration>(kSlice, next_attempt_ - start));
  }
  const Clock::duration waited = Clock::now() - start;
  silent_ += waited;
  call_silent_ += waited;
  const milliseconds patience = options_.patience.count() != 0 ? options_.patience : options_.server.timeout;
  if (silent_ >= patience) {
    const bool silent = last_failure_.ok() || (call_ != nullptr && opened_) ||
                        last_failure_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return StatusFromGrpc(silent ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "")
                                 : grpc::Status(grpc::StatusCode::UNAVAILABLE, last_failure_.error_message()),
                          options_.server);
  }
  // A connection whose other end is gone without a word looks like a slow server; half of the time is given
  // to this one, the rest to another.
  if (call_ != nullptr && incarnation_ != 0 && call_silent_ >= options_.server.timeout / 2) call_->GiveUp();
  return absl::OkStatus();
}

bool EventStream::WriteMore() {
  if (call_ == nullptr || !opened_ || going_away_) return false;
  bool wrote = false;
  while (next_to_write_ < next_sequence_) {
    const uint64_t oldest = kept_.front().sequence;
    if (next_to_write_ - oldest >= window_) break;
    call_->Write(kept_[next_to_write_ - oldest].request);
    ++next_to_write_;
    wrote = true;
  }
  return wrote;
}

absl::Status EventStream::Handle(const v1::StreamResponse& response) {
  call_silent_ = {};
  switch (response.response_case()) {
    case v1::StreamResponse::kOpened:
      return HandleOpened(response.opened());
    case v1::StreamResponse::kAck:
      return HandleAck(response.ack());
    case v1::StreamResponse::kState:
      return HandleState(response.state());
    case v1::StreamResponse::kGoAway:
      // The call was half-closed when this came in.  What was written is still acknowledged; then the server
      // ends the call, and another one begins.
      going_away_ = true;
      return absl::OkStatus();
    case v1::StreamResponse::RESPONSE_NOT_SET:
      return absl::OkStatus();  // of a later version of the protocol
  }
  return absl::OkStatus();
}

absl::Status EventStream::HandleOpened(const v1::Opened& opened) {
  if (incarnation_ == 0 && opened.next_sequence() != 1 && !options_.again) {
    return absl::FailedPreconditionError(absl::StrCat("stream ", options_.stream_id, " of node ",
                                                      options_.node, " is in use already (it is at batch ",
                                                      opened.next_sequence(), ")"));
  }
  if (incarnation_ != 0 && incarnation_ != opened.incarnation())
    return StateGone("its incarnation is another");
  const uint64_t oldest = kept_.empty() ? next_sequence_ : kept_.front().sequence;
  const bool unknown = opened.next_sequence() < oldest || opened.next_sequence() > next_sequence_;
  if (unknown && incarnation_ != 0) {
    return StateGone(absl::StrCat("it expects batch ", opened.next_sequence(), " and ", oldest, " … ",
                                  next_sequence_, " can be had"));
  }
  opened_ = true;
  if (incarnation_ != 0) ++counts_.reconnects;
  if (incarnation_ == 0) silent_ = {};
  incarnation_ = opened.incarnation();
  window_ = std::clamp<size_t>(opened.window_batches(), 1, options_.max_window_batches);
  if (opened.max_batch_events() != 0) {
    limits_.events = std::min<size_t>(options_.limits.events, opened.max_batch_events());
  }
  applied_through_ = std::max(applied_through_, opened.next_sequence() - 1);
  Forget();
  // From the oldest that is kept: batches that were applied and whose answers may have been lost are sent
  // again, which applies nothing twice and brings the answers where the server still has them.
  next_to_write_ = kept_.empty() ? next_sequence_ : kept_.front().sequence;
  return absl::OkStatus();
}

absl::Status EventStream::HandleAck(const v1::Ack& ack) {
  if (ack.applied_through() >= next_sequence_) {
    return absl::InternalError(
        absl::StrCat("memcgd acknowledged batch ", ack.applied_through(), " which does not exist yet"));
  }
  applied_through_ = std::max(applied_through_, ack.applied_through());
  for (const v1::OutcomeCount& count : ack.outcomes()) {
    const auto outcome = static_cast<size_t>(count.outcome());
    counts_.outcomes[outcome < kOutcomes ? outcome : 0] += count.count();
  }
  counts_.high_delay_us += ack.high_delay_us();
  if (options_.on_notable) {
    for (const v1::Notable& notable : ack.notables()) options_.on_notable(notable);
  }
  silent_ = {};
  backoff_ = options_.first_backoff;
  Forget();
  // A batch's answers come before its acknowledgement.  Where they do not, as the connection broke between
  // the two and the server has not kept them, nobody can say any more what the state was there.
  if (!kept_.empty() && kept_.front().sequence <= ack.applied_through() && !kept_.front().marks.empty()) {
    return StateLost(
        absl::StrCat("the answer to mark ", kept_.front().marks.front(), " was lost with the connection"));
  }
  return absl::OkStatus();
}

absl::Status EventStream::HandleState(const v1::State& state) {
  const auto waiting =
      std::find_if(kept_.begin(), kept_.end(), [](const Kept& kept) { return !kept.marks.empty(); });
  // An answer that came before the connection broke, and again after.
  if (waiting == kept_.end() || waiting->marks.front() != state.id()) return absl::OkStatus();
  waiting->marks.pop_front();
  silent_ = {};
  ++counts_.states;
  Forget();
  return options_.on_state ? options_.on_state(state) : absl::OkStatus();
}

// Lets go of the batches that are applied and have every mark answered.  What a server that was killed loses
// of them is not kept here but made anew from its source (Options::again), which no window bounds.
void EventStream::Forget() {
  while (!kept_.empty() && kept_.front().sequence <= applied_through_ && kept_.front().marks.empty())
    kept_.pop_front();
}

absl::Status EventStream::StateGone(const std::string& why) {
  state_is_gone_ = true;
  return StateLost(why);
}

absl::Status EventStream::StateLost(const std::string& why) const {
  return absl::DataLossError(
      absl::StrCat("memcgd at ", options_.server.address, " no longer has the state of node ", options_.node,
                   " that was fed (was it restarted?): ", why, "; start again from the beginning"));
}

}  // namespace memcgd::client
