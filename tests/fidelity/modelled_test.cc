// Traces of a real kernel under a limit, replayed with the model's own reclaim: held against what that
// kernel's reclaim, swap and OOM killer came to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/node.h"
#include "tests/support/in_process_replay.h"

namespace memcgd {
namespace {

using Json = nlohmann::json;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

class ModelledTest : public testing::Test {
 protected:
  // `slab_pages`: of the limit, what the kernel's slab takes, of which no event tells.
  void Replay(const std::string& trace, int64_t slab_pages = 0) {
    const std::string folder = std::string(MEMCGD_FIDELITY_DIR) + "/traces/" + trace;
    std::ifstream file(folder + "/kernel.json");
    kernel_ = Json::parse(file);
    page_ = kernel_["meta"]["page_size"];
    cgroup_ = kernel_["meta"]["cgroup"];
    const std::string limit = kernel_["meta"]["limit"];
    limit_pages_ = std::stoll(limit) * 1024 * 1024 / page_;
    ASSERT_EQ(limit, std::to_string(limit_pages_ * page_ / 1024 / 1024) + "M");
    core::NodeConfig config;
    config.cpus = kernel_["meta"]["cpus"];
    config.memory_bytes = kernel_["meta"]["MemTotal"];
    config.swap_bytes = kernel_["meta"]["SwapTotal"];
    config.zero_page = kernel_["meta"]["zero_page"];
    config.reclaim = core::Reclaim::kModelled;
    node_ = *core::Node::Create(config);
    for (const auto& path : {cgroup_.substr(0, cgroup_.rfind('/')), cgroup_})
      ASSERT_TRUE(node_->CreateCgroup(path).ok());
    ASSERT_TRUE(
        node_->SetKnobs(cgroup_, {{"memory.max", std::to_string((limit_pages_ - slab_pages) * page_)}}).ok());
    std::vector<int64_t> times_ns;
    for (const Json& sample : kernel_["samples"])
      times_ns.push_back(static_cast<int64_t>(std::llround(sample["t1"].get<double>() * 1e9)));
    marks_ =
        tests::ApplyBatches(*node_, "test", tests::TranslateTrace(folder + "/trace.txt.zst", times_ns, 8192));
    ASSERT_EQ(marks_.size(), times_ns.size());
    EXPECT_EQ(node_->CheckInvariants(), "");
  }

  // Pages or counts, at a moment.
  int64_t Kernel(size_t moment, const std::string& key) const {
    const Json& cgroups = kernel_["samples"][moment]["cgroups"];
    if (!cgroups.contains(cgroup_) || !cgroups[cgroup_].contains(key)) return 0;
    int64_t value = cgroups[cgroup_][key];
    return InBytes(key) ? value / page_ : value;
  }
  int64_t Model(size_t moment, const std::string& key) const {
    auto names = core::MemoryStatNames();
    size_t line = static_cast<size_t>(std::find(names.begin(), names.end(), key) - names.begin());
    for (const core::CgroupState& cgroup : marks_[moment].cgroups) {
      if (cgroup.path == cgroup_) return InBytes(key) ? cgroup.stat[line] / page_ : cgroup.stat[line];
    }
    return 0;
  }
  int64_t Reading(const std::string& name) const {
    auto reading = node_->ReadCgroup(cgroup_, false, false);
    for (const auto& [line, value] : reading->stat) {
      if (line == name) return InBytes(name) ? value / page_ : value;
    }
    for (const auto& [line, value] : reading->events) {
      if (line == name) return value;
    }
    return -1;
  }
  static bool InBytes(const std::string& key) {
    return !key.starts_with("pg") && !key.starts_with("ps") && !key.starts_with("workingset");
  }
  // Moments at which a sum of keys is further off than so many percent of the limit, beyond the kernel memory
  // that the trace shows: slab, which no event tells of, takes room from pages.
  std::vector<double> Off(const std::vector<std::string>& keys, int64_t percent = 3) const {
    std::vector<double> off;
    for (size_t i = 0; i < marks_.size(); ++i) {
      int64_t difference = 0;
      for (const std::string& key : keys) difference += Model(i, key) - Kernel(i, key);
      int64_t allowed = limit_pages_ * percent / 100 + Kernel(i, "kernel");
      if (std::abs(difference) > allowed) off.push_back(kernel_["samples"][i]["t1"]);
    }
    return off;
  }
  // At the last moment, against the kernel's count.
  double Ratio(const std::string& key) const {
    size_t last = marks_.size() - 1;
    return static_cast<double>(Model(last, key)) / static_cast<double>(Kernel(last, key));
  }

  Json kernel_;
  int64_t page_ = 4096;
  int64_t limit_pages_ = 0;
  std::string cgroup_;
  std::unique_ptr<core::Node> node_;
  std::vector<core::MarkState> marks_;
};

TEST_F(ModelledTest, StreamsOfAFileUnderALimit) {
  Replay("reclaim-stream");
  // At two moments the kernel has just freed a folio of 512 pages, which the model does a few pages later:
  // what slab takes is in no event.
  EXPECT_THAT(Off({"file"}), ElementsAre(DoubleNear(7739.7211, 1e-4), DoubleNear(7739.9925, 1e-4)));
  EXPECT_THAT(Off({"anon"}), IsEmpty());
  EXPECT_NEAR(Ratio("workingset_refault_file"), 1, 0.01);
  EXPECT_NEAR(Ratio("pgsteal_direct"), 1, 0.01);
  EXPECT_NEAR(Ratio("pgscan_direct"), 1, 0.01);
}

TEST_F(ModelledTest, OneVictimAtTheSamePage) {
  Replay("oom");
  EXPECT_THAT(Off({"file"}), IsEmpty());
  EXPECT_THAT(Off({"anon"}), IsEmpty());
  std::vector<core::OomRecord> records = node_->OomRecords(0, 100);
  ASSERT_EQ(records.size(), 1u);
  const core::OomRecord& record = records[0];
  EXPECT_EQ(record.breached, cgroup_);
  std::vector<uint32_t> killed;
  for (const core::OomRecord::Victim& victim : record.victims) {
    if (victim.killed) killed.push_back(victim.tgid);
  }
  // What the kernel killed, and how much it had: the trace's own mark_victim.
  EXPECT_THAT(killed, ElementsAre(4510u));
  ASSERT_FALSE(record.consumers.empty());
  EXPECT_NEAR(static_cast<double>(record.consumers[0].anon_pages), 6081.0, 0.01 * 6081);
  EXPECT_EQ(Reading("oom_kill"), 1);
}

// Half of the memory is in swap at any time.  What is written to make room for pages that are read waits
// until all of these are asked for: so one reclaim writes every page there is, where it falls on the second
// to last page of a read of eight, and some where it falls on the first.  Which of them it is, the kernel's
// slab decides.
TEST_F(ModelledTest, TwiceTheLimitWithSwap) {
  Replay("swap");
  EXPECT_THAT(Off({"anon", "swapcached"}), IsEmpty());
  EXPECT_THAT(Off({"file"}), IsEmpty());
  // The first time both write all pages at the same swap-in.  Later the model does it in two steps.
  std::vector<double> off = Off({"anon"});
  ASSERT_FALSE(off.empty());
  EXPECT_GT(off.front(), 7938.62);
  for (const char* count :
       {"pswpin", "pswpout", "pgmajfault", "pgscan_direct", "pgsteal_direct", "workingset_refault_anon"}) {
    EXPECT_NEAR(Ratio(count), 1, 0.02) << count;
  }
}

// Recorded after the model was written, so that nothing of it was made for them; what they taught it is in
// docs/fidelity.md.

// The same job over another file, under another limit.
TEST_F(ModelledTest, GrepsOverAFileOfTextThreeTimes) {
  Replay("limited-grep");
  EXPECT_THAT(Off({"file"}), IsEmpty());
  EXPECT_THAT(Off({"anon"}), IsEmpty());
  EXPECT_NEAR(Ratio("workingset_refault_file"), 1, 0.01);
  EXPECT_NEAR(Ratio("pgsteal_direct"), 1, 0.01);
  EXPECT_NEAR(Ratio("pgscan_direct"), 1, 0.01);
}

// Single pages at random: what is read twice becomes active, and what the kernel's statistics show of that is
// two seconds late.
TEST_F(ModelledTest, PagesReadAtRandom) {
  Replay("limited-random");
  EXPECT_THAT(Off({"file"}), IsEmpty());
  EXPECT_NEAR(Ratio("workingset_refault_file"), 1, 0.05);
  EXPECT_NEAR(Ratio("pgsteal_direct"), 1, 0.03);
  EXPECT_NEAR(Ratio("pgactivate"), 1, 0.03);
}

// Readahead of 8 MiB at a time where anonymous memory leaves 12 of 24 MiB: most pages are on their way from
// the disk when reclaim looks for some.
TEST_F(ModelledTest, ReadaheadThatFillsWhatAnonymousMemoryLeaves) {
  Replay("limited-mixed");
  EXPECT_LE(Off({"file"}).size(), 2u);
  EXPECT_THAT(Off({"file"}, 4), IsEmpty());
  EXPECT_THAT(Off({"anon"}), IsEmpty());
  EXPECT_NEAR(Ratio("workingset_refault_file"), 1, 0.1);
  EXPECT_NEAR(Ratio("pgsteal_direct"), 1, 0.1);
}

// 100 MiB written under 32 MiB, then unlinked: nothing of it is left, whatever the model had kept longer.
TEST_F(ModelledTest, AFileWrittenAndUnlinked) {
  Replay("limited-write");
  EXPECT_THAT(Off({"file"}), IsEmpty());
  EXPECT_NEAR(Ratio("pgsteal_direct"), 1, 0.05);
  EXPECT_LE(Model(marks_.size() - 1, "file"), 3);
}

// Three children, one after the other, each until it is killed, a few pages below the limit: the kernel's
// slab has 12 at the last of them.
TEST_F(ModelledTest, EachChildIsKilledAndNobodyElse) {
  Replay("limited-ooms", 24);
  EXPECT_THAT(Off({"anon"}), IsEmpty());
  EXPECT_THAT(Off({"file"}), IsEmpty());
  EXPECT_EQ(Reading("oom_kill"), 3);
  std::vector<uint32_t> killed;
  for (const core::OomRecord& record : node_->OomRecords(0, 100)) {
    for (const core::OomRecord::Victim& victim : record.victims) {
      if (victim.killed) killed.push_back(victim.tgid);
    }
  }
  EXPECT_THAT(killed, ElementsAre(3323u, 3324u, 3325u));  // the trace's own mark_victim
}

// An interpreter that allocates and frees and reads at random.
TEST_F(ModelledTest, AnInterpreterAtWork) {
  Replay("limited-python");
  EXPECT_THAT(Off({"anon"}), IsEmpty());
  EXPECT_THAT(Off({"file"}), IsEmpty());
  EXPECT_NEAR(Ratio("workingset_refault_file"), 1, 0.01);
  EXPECT_NEAR(Ratio("pgsteal_direct"), 1, 0.01);
  EXPECT_NEAR(Ratio("pgactivate"), 1, 0.01);
}

}  // namespace
}  // namespace memcgd
