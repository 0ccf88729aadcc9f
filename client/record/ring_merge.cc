#include "client/record/ring_merge.h"

extern "C" {
#include <kbuffer.h>
}
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

namespace memcgd::client {
// One CPU's buffer of one instance: the sub-buffers read and not handed out yet.
class RingMerge::Source {
 public:
  Source(int fd, uint32_t cpu, size_t sub_buffer_bytes)
      : fd_(fd),
        cpu_(cpu),
        sub_buffer_bytes_(sub_buffer_bytes),
        parser_(kbuffer_alloc(KBUFFER_LSIZE_SAME_AS_HOST, KBUFFER_ENDIAN_SAME_AS_HOST)) {}
  ~Source() {
    kbuffer_free(parser_);
    close(fd_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  absl::Status ReadAll() {
    for (;;) {
      std::vector<char> page = TakeSpare();
      const ssize_t got = read(fd_, page.data(), page.size());
      if (got <= 0) {
        spare_.push_back(std::move(page));
        if (got == 0 || errno == EAGAIN || errno == EINTR) break;
        return absl::ErrnoToStatus(errno, absl::StrCat("reading the trace buffer of CPU ", cpu_));
      }
      pages_.push_back(std::move(page));
      if (pages_.size() == 1) LoadFront();
    }
    return absl::OkStatus();
  }

  bool has_event() const { return event_.data != nullptr; }
  const RawEvent& event() const { return event_; }
  // True where events are missing before this one; `lost` of them, 0: not known.
  bool TakeMissed(uint64_t* lost) {
    if (missed_ == 0) return false;
    *lost = missed_ > 0 ? static_cast<uint64_t>(missed_) : 0;
    missed_ = 0;
    return true;
  }
  void Next() {
    SetEvent(kbuffer_next_event(parser_, &time_));
    if (!has_event()) DropFront();
  }
  uint32_t cpu() const { return cpu_; }

 private:
  std::vector<char> TakeSpare() {
    if (spare_.empty()) return std::vector<char>(sub_buffer_bytes_);
    std::vector<char> page = std::move(spare_.back());
    spare_.pop_back();
    return page;
  }
  void DropFront() {
    spare_.push_back(std::move(pages_.front()));
    pages_.pop_front();
    if (!pages_.empty()) LoadFront();
  }
  void LoadFront() {
    kbuffer_load_subbuffer(parser_, pages_.front().data());
    if (const int missed = kbuffer_missed_events(parser_); missed != 0) missed_ = missed;
    SetEvent(kbuffer_read_event(parser_, &time_));
    if (!has_event()) DropFront();
  }
  void SetEvent(void* data) {
    event_.data = static_cast<const char*>(data);
    event_.size = data == nullptr ? 0 : static_cast<size_t>(kbuffer_event_size(parser_));
    event_.cpu = cpu_;
    event_.time_ns = static_cast<int64_t>(time_);
  }

  const int fd_;
  const uint32_t cpu_;
  const size_t sub_buffer_bytes_;
  kbuffer* const parser_;
  std::deque<std::vector<char>> pages_;
  std::vector<std::vector<char>> spare_;
  RawEvent event_;  // the next one
  unsigned long long time_ = 0;
  int missed_ = 0;  // before it; negative: an unknown number
};

RingMerge::RingMerge() = default;
RingMerge::~RingMerge() = default;

absl::Status RingMerge::Add(const TraceInstance& instance) {
  for (const uint32_t cpu : instance.Cpus()) {
    absl::StatusOr<int> fd = instance.OpenRaw(cpu);
    if (!fd.ok()) return fd.status();
    sources_.push_back(std::make_unique<Source>(*fd, cpu, instance.SubBufferBytes()));
  }
  return absl::OkStatus();
}

absl::Status RingMerge::Poll(bool all, const Taker& take) {
  const int64_t now_ns = TraceClockNs();
  for (const auto& source : sources_) {
    absl::Status status = source->ReadAll();
    if (!status.ok()) return status;
  }
  horizon_ns_ = all ? std::numeric_limits<int64_t>::max() : last_poll_ns_;
  last_poll_ns_ = now_ns;
  return HandOut(horizon_ns_, take);
}

absl::Status RingMerge::HandOut(int64_t before_ns, const Taker& take) {
  using Entry = std::pair<int64_t, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i]->has_event()) next.emplace(sources_[i]->event().time_ns, i);
  }
  while (!next.empty() && next.top().first < before_ns) {
    Source& source = *sources_[next.top().second];
    const size_t at = next.top().second;
    next.pop();
    // As long as no other CPU has an earlier one, the queue is not asked.
    const int64_t limit = std::min(before_ns, next.empty() ? before_ns : next.top().first + 1);
    do {
      RawEvent event = source.event();
      if (uint64_t lost = 0; source.TakeMissed(&lost)) {
        ++counts_.lost_places;
        counts_.lost_events += lost;
        absl::Status status = take({nullptr, 0, event.cpu, event.time_ns}, lost);
        if (!status.ok()) return status;
      }
      ++counts_.events;
      counts_.late += event.time_ns < last_time_ns_ ? 1 : 0;
      last_time_ns_ = std::max(last_time_ns_, event.time_ns);
      absl::Status status = take(event, 0);
      if (!status.ok()) return status;
      source.Next();
    } while (source.has_event() && source.event().time_ns < limit);
    if (source.has_event()) next.emplace(source.event().time_ns, at);
  }
  return absl::OkStatus();
}

}  // namespace memcgd::client
