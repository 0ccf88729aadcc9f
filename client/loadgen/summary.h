// What several measurements say together: harmonic means of rates, paired ratios with their spread, and the
// order in which two forms take turns.
//
// Thread safety: plain values and free functions.
#ifndef MEMCGD_CLIENT_LOADGEN_SUMMARY_H_
#define MEMCGD_CLIENT_LOADGEN_SUMMARY_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "client/loadgen/experiment.h"
#include "client/loadgen/turn.h"

namespace memcgd::client::loadgen {

// Of rates, as the original experiments print them: n / Σ 1/x.  0 where there are none or one is 0.
double HarmonicMean(const std::vector<double>& rates);
// The middle one, or the mean of the middle two; 0 where there are none.
double Median(std::vector<double> values);

// Old (A) and new (B) as A B B A A B B A …: `pairs` of each, so that what drifts with time meets both alike.
// True: new.
std::vector<bool> TurnOrder(size_t pairs);

struct Ratio {
  double median = 0, min = 0, max = 0;
  size_t pairs = 0;
};
// new[i] / old[i], each pair measured one after the other; pairs with a 0 are left out.
Ratio PairedRatio(const std::vector<double>& older, const std::vector<double>& newer);

// All turns of one form in one row of the table.
struct FormResult {
  std::string form;  // "walk"; empty where nothing is compared
  std::vector<TurnResult> turns;

  std::vector<double> UnitsPerSecond() const;
  // Empty where the server's CPU time is not known for each.
  std::vector<double> UnitsPerCpuSecond() const;
  Histogram Latency() const;
  Histogram Polls() const;
  uint64_t NotOk() const;
};

struct CaseResult {
  Case measured;
  std::vector<FormResult> forms;  // one, or the older and the newer

  // newer / older; nothing where there is no pair.
  std::optional<Ratio> PerSecond() const;
  std::optional<Ratio> PerCpuSecond() const;
};

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_SUMMARY_H_
