// What the server counts about itself; docs/metrics.md lists it.
//
// Nothing is counted per event: a batch brings its counts and adds them once.  prometheus-cpp is known only
// to metrics_exposer.cc.
//
// Thread safety: all of it.  The counters are relaxed atomics: each is right by itself, and a scrape may see
// one batch in some of them and not yet in others.
#ifndef MEMCGD_SERVER_METRICS_H_
#define MEMCGD_SERVER_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/node.h"
#include "server/server_limits.h"

namespace memcgd::server {

// What became of a batch.
enum class BatchOutcome { kApplied, kRepeated, kMalformed, kGap, kContentDiffers, kRefused };
inline constexpr size_t kBatchOutcomes = 6;

// Names as the label values show them.
std::string_view NameOf(BatchOutcome outcome);
std::string_view NameOf(core::EventKind kind);
std::string_view NameOf(core::Outcome outcome);
// By index in core::WideBody.
std::string_view WideKindName(size_t index);
inline constexpr size_t kWideKindNames = 33;

class ServerMetrics {
 public:
  // Upper bounds of the histogram of batch times, nanoseconds.
  static constexpr std::array<uint64_t, 16> kBoundsNs = {
      10'000,    25'000,     50'000,     100'000,    250'000,     500'000,     1'000'000,     2'500'000,
      5'000'000, 10'000'000, 25'000'000, 50'000'000, 100'000'000, 250'000'000, 1'000'000'000, 5'000'000'000};

  // A batch that was applied, which took that long.
  void RecordApplied(const core::BatchResult& result, std::span<const uint64_t, kWideKindNames> wide_kinds,
                     uint64_t duration_ns);
  // Any other.
  void RecordNotApplied(BatchOutcome outcome);

  void StreamOpened() { streams_.fetch_add(1, std::memory_order_relaxed); }
  void StreamClosed() { streams_.fetch_sub(1, std::memory_order_relaxed); }

  // Who tells how near each limit is; before a scrape.
  void SetLimitUses(std::function<std::vector<LimitUse>()> uses) { limit_uses_ = std::move(uses); }
  std::vector<LimitUse> LimitUses() const {
    return limit_uses_ == nullptr ? std::vector<LimitUse>() : limit_uses_();
  }

  void RecordCallRefused() { calls_refused_.fetch_add(1, std::memory_order_relaxed); }

  void RecordStreamClosed() { streams_closed_.fetch_add(1, std::memory_order_relaxed); }

  uint64_t Events(core::EventKind kind) const { return Read(events_[static_cast<size_t>(kind)]); }
  uint64_t WideEvents(size_t kind) const { return Read(wide_events_[kind]); }
  uint64_t Outcomes(core::Outcome outcome) const { return Read(outcomes_[static_cast<size_t>(outcome)]); }
  uint64_t Batches(BatchOutcome outcome) const { return Read(batches_[static_cast<size_t>(outcome)]); }
  // Batches that took at most kBoundsNs[i] and more than the bound before; the last: more than all bounds.
  uint64_t Durations(size_t i) const { return Read(durations_[i]); }
  uint64_t DurationSumNs() const { return Read(duration_sum_ns_); }
  // By the check of access.
  uint64_t StreamsClosed() const { return Read(streams_closed_); }
  uint64_t CallsRefused() const { return Read(calls_refused_); }
  int64_t OpenStreams() const { return streams_.load(std::memory_order_relaxed); }

 private:
  static uint64_t Read(const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  }

  std::function<std::vector<LimitUse>()> limit_uses_;
  std::array<std::atomic<uint64_t>, core::kEventKinds> events_{};
  std::array<std::atomic<uint64_t>, kWideKindNames> wide_events_{};
  std::array<std::atomic<uint64_t>, core::kOutcomes> outcomes_{};
  std::array<std::atomic<uint64_t>, kBatchOutcomes> batches_{};
  std::array<std::atomic<uint64_t>, kBoundsNs.size() + 1> durations_{};
  std::atomic<uint64_t> duration_sum_ns_{0};
  std::atomic<uint64_t> calls_refused_{0};
  std::atomic<uint64_t> streams_closed_{0};  // idle or stalled
  std::atomic<int64_t> streams_{0};
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_METRICS_H_
