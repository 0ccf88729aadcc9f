#include "client/loadgen/summary.h"

#include <algorithm>

namespace memcgd::client::loadgen {

double HarmonicMean(const std::vector<double>& rates) {
  double sum = 0;
  for (double rate : rates) {
    if (rate <= 0) return 0;
    sum += 1 / rate;
  }
  return rates.empty() ? 0 : static_cast<double>(rates.size()) / sum;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<bool> TurnOrder(size_t pairs) {
  std::vector<bool> order;
  for (size_t pair = 0; pair < pairs; ++pair) {
    const bool newer_first = pair % 2 == 1;
    order.push_back(newer_first);
    order.push_back(!newer_first);
  }
  return order;
}

Ratio PairedRatio(const std::vector<double>& older, const std::vector<double>& newer) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(older.size(), newer.size()); ++i) {
    if (older[i] > 0 && newer[i] > 0) ratios.push_back(newer[i] / older[i]);
  }
  if (ratios.empty()) return {};
  const auto [min, max] = std::minmax_element(ratios.begin(), ratios.end());
  return {Median(ratios), *min, *max, ratios.size()};
}

std::vector<double> FormResult::UnitsPerSecond() const {
  std::vector<double> rates;
  for (const TurnResult& turn : turns) rates.push_back(turn.UnitsPerSecond());
  return rates;
}

std::vector<double> FormResult::UnitsPerCpuSecond() const {
  std::vector<double> rates;
  for (const TurnResult& turn : turns) {
    const std::optional<double> rate = turn.UnitsPerCpuSecond();
    if (!rate.has_value()) return {};
    rates.push_back(*rate);
  }
  return rates;
}

Histogram FormResult::Latency() const {
  Histogram merged;
  for (const TurnResult& turn : turns) merged.Merge(turn.latency_ns);
  return merged;
}

Histogram FormResult::Polls() const {
  Histogram merged;
  for (const TurnResult& turn : turns) merged.Merge(turn.poll_ns);
  return merged;
}

uint64_t FormResult::NotOk() const {
  uint64_t sum = 0;
  for (const TurnResult& turn : turns) sum += turn.NotOk();
  return sum;
}

std::optional<Ratio> CaseResult::PerSecond() const {
  if (forms.size() != 2) return std::nullopt;
  const Ratio ratio = PairedRatio(forms[0].UnitsPerSecond(), forms[1].UnitsPerSecond());
  return ratio.pairs == 0 ? std::nullopt : std::optional(ratio);
}

std::optional<Ratio> CaseResult::PerCpuSecond() const {
  if (forms.size() != 2) return std::nullopt;
  const Ratio ratio = PairedRatio(forms[0].UnitsPerCpuSecond(), forms[1].UnitsPerCpuSecond());
  return ratio.pairs == 0 ? std::nullopt : std::optional(ratio);
}

}  // namespace memcgd::client::loadgen
