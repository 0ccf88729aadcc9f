#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "client/loadgen/cpu_time.h"
#include "client/loadgen/mechanisms.h"
#include "client/loadgen/pinning.h"
#include "client/loadgen/plot.h"
#include "client/loadgen/summary.h"
#include "client/svg_plot.h"

namespace memcgd::client::loadgen {
namespace {

TEST(SummaryTest, TurnsAreABBA) {
  const std::vector<bool> expected = {false, true, true, false, false, true};
  EXPECT_EQ(TurnOrder(3), expected);
  EXPECT_TRUE(TurnOrder(0).empty());
}

TEST(SummaryTest, HarmonicMean) {
  EXPECT_DOUBLE_EQ(HarmonicMean({1, 2, 4}), 3 / 1.75);
  EXPECT_EQ(HarmonicMean({}), 0);
  EXPECT_EQ(HarmonicMean({5, 0}), 0);
}

TEST(SummaryTest, RatiosArePairedAndHaveTheirSpread) {
  const Ratio ratio = PairedRatio({10, 20, 40}, {20, 30, 44});
  EXPECT_DOUBLE_EQ(ratio.median, 1.5);
  EXPECT_DOUBLE_EQ(ratio.min, 1.1);
  EXPECT_DOUBLE_EQ(ratio.max, 2);
  EXPECT_EQ(ratio.pairs, 3u);
  EXPECT_EQ(PairedRatio({1, 2}, {3}).pairs, 1u) << "the last pair is not whole";
}

TEST(MechanismsTest, ComparisonsByName) {
  const auto stats = ParseComparison("stats");
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->older, "walk");
  EXPECT_EQ(stats->newer, "spill");
  EXPECT_EQ(ParseComparison("stats=rstat")->older, "rstat");
  EXPECT_FALSE(ParseComparison("stats=spill").ok()) << "with itself";
  EXPECT_FALSE(ParseComparison("statistics").ok());
  EXPECT_FALSE(ParseForm("lru_lock").ok());
  EXPECT_FALSE(ParseForm("lru_lock=walk").ok());
}

TEST(MechanismsTest, ASpecTellsTheFormsThatWereChosen) {
  for (const MechanismNames& mechanism : MechanismList()) {
    for (std::string_view form : mechanism.older) {
      memcgd::v1::NodeSpec spec;
      SetForms({{std::string(mechanism.name), std::string(form)}, {"none", "first"}}, &spec);
      EXPECT_THAT(spec.mechanisms().ShortDebugString(),
                  testing::AllOf(testing::StartsWith(std::string(mechanism.name) + ": "),
                                 testing::EndsWith("_" + absl::AsciiStrToUpper(std::string(form)))));
    }
  }
}

TEST(PinningTest, CpuLists) {
  EXPECT_EQ(*ParseCpuList("0-2,8"), (std::vector<uint32_t>{0, 1, 2, 8}));
  EXPECT_EQ(*ParseCpuList("3,1"), (std::vector<uint32_t>{3, 1}));
  for (const char* wrong : {"", "a", "1-", "-1", "2-1", "1,1", "0-3,2", "1;2", "99999"}) {
    EXPECT_FALSE(ParseCpuList(wrong).ok()) << wrong;
  }
  EXPECT_EQ(CpuListText({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(PinningTest, ACpuThatIsNotThereIsNamed) {
  EXPECT_TRUE(CheckCpus(UsableCpus()).ok());
  const absl::Status status = CheckCpus({8191});
  EXPECT_NE(status.message().find("CPU 8191 is not there"), std::string::npos) << status;
}

TEST(CpuTimeTest, FoundInMetrics) {
  EXPECT_EQ(
      CpuSecondsInMetrics("# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 12.5\nother 1\n"),
      12.5);
  EXPECT_EQ(CpuSecondsInMetrics("a 1\nprocess_cpu_seconds_total{server=\"a b\"} 3\n"), 3.0);
  EXPECT_FALSE(
      CpuSecondsInMetrics("my_process_cpu_seconds_total 1\nprocess_cpu_seconds_total_x 2\n").has_value());
}

TEST(PlotTest, TicksAreRoundAndReachTheTop) {
  EXPECT_EQ(NiceTicks(9.3), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  for (double top : {0.0, 1e-3, 1.0, 7.7e6, 9.9e9}) {
    const std::vector<double> ticks = NiceTicks(top);
    EXPECT_GE(ticks.back(), top);
    EXPECT_LE(ticks.size(), 6u);
  }
}

TEST(PlotTest, HasAxesWithUnitsAndALegend) {
  std::vector<CaseResult> results;
  for (const Case& measured : CasesOf(ExperimentKind::kPft, {}, "stats", {})) {
    TurnResult turn;
    turn.seconds = 1;
    turn.units = turn.events = 1'000'000 * measured.streams;
    turn.latency_ns.Record(2'000'000);
    results.push_back({measured, {{"walk", {turn}}, {"spill", {turn}}}});
  }
  const std::string svg = PlotSvg(InfoOf(ExperimentKind::kPft), results);
  for (const char* part :
       {">threads<", ">faults a second<", ">walk<", ">spill<", ">p99.9<", ">2 ms<", "</svg>"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace memcgd::client::loadgen
