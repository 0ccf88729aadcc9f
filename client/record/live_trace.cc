#include "client/record/live_trace.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "client/record/own_name.h"

namespace memcgd::client {
namespace {

// Kernel threads let go of pages too.
bool IsOfAnyone(const EventName& event) { return event.event == "mm_filemap_delete_from_page_cache"; }

}  // namespace

absl::StatusOr<std::unique_ptr<LiveTrace>> LiveTrace::Create(uint64_t buffer_bytes_per_cpu) {
  std::unique_ptr<LiveTrace> trace(new LiveTrace);
  const std::string name = OwnName();
  // A deletion is one event a folio, and few happen: a quarter will do.
  for (const auto& [instance, suffix, bytes] : {std::tuple{&trace->traced_, "", buffer_bytes_per_cpu},
                                                {&trace->anyone_, "-anyone", buffer_bytes_per_cpu / 4}}) {
    absl::StatusOr<std::unique_ptr<TraceInstance>> made =
        TraceInstance::Create(absl::StrCat(name, suffix), bytes);
    if (!made.ok()) return made.status();
    *instance = *std::move(made);
  }
  absl::Status status = trace->EnableEvents();
  if (!status.ok()) return status;
  trace->merge_ = std::make_unique<RingMerge>();
  for (const TraceInstance* instance : {trace->traced_.get(), trace->anyone_.get()}) {
    status = trace->merge_->Add(*instance);
    if (!status.ok()) return status;
  }
  return trace;
}

absl::Status LiveTrace::EnableEvents() {
  for (const EventName& event : EventDecoder::Events()) {
    if (!TraceInstance::HasEvent(event))
      continue;  // of a later kernel, or a file system that is not built in
    const absl::StatusOr<std::string> format = TraceInstance::EventFormat(event);
    if (!format.ok()) return format.status();
    absl::Status status = decoder_.AddEvent(event, *format);
    if (status.ok()) status = (IsOfAnyone(event) ? anyone_ : traced_)->Enable(event);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LiveTrace::Follow(const std::vector<int32_t>& tids) { return traced_->SetPids(tids); }

absl::Status LiveTrace::Start() {
  absl::Status status = anyone_->TurnOn();
  return status.ok() ? traced_->TurnOn() : status;
}

absl::Status LiveTrace::Stop() {
  stopped_ = true;
  absl::Status status = traced_->TurnOff();
  return status.ok() ? anyone_->TurnOff() : status;
}

absl::Status LiveTrace::Poll(const Taker& take) {
  TraceRecord record;
  return merge_->Poll(stopped_, [&](const RawEvent& event, uint64_t lost) {
    if (event.data == nullptr) {
      record = TraceRecord();
      record.op = TraceOp::kLost;
      record.cpu = event.cpu;
      record.time_ns = event.time_ns;
      record.lost_events = lost;
      return take(record);
    }
    if (!decoder_.Decode(event, &names_, &record)) return absl::OkStatus();
    ++records_;
    return take(record);
  });
}

LiveTrace::Counts LiveTrace::counts() const {
  return {records_, traced_->LostEvents() + anyone_->LostEvents(), merge_->counts().late};
}

}  // namespace memcgd::client
