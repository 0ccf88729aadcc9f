// Traces of a real kernel under a limit, replayed with the model's own reclaim: held against what that
// kernel's reclaim, swap and OOM killer came to.
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

class ModelledTest : public testing::Test {
 protected:
  void Replay(const std::string& trace, size_t batch_events = 8192) {
    const std::string folder = std::string(MEMCGD_FIDELITY_DIR) + "/traces/" + trace;
    std::ifstream file(folder + "/kernel.json");
    kernel_ = Json::parse(file);
    page_ = kernel_["meta"]["page_size"];
    cgroup_ = kernel_["meta"]["cgroup"];
    limit_pages_ = int64_t{24} * 1024 * 1024 / page_;
    ASSERT_EQ(kernel_["meta"]["limit"], "24M");
    core::NodeConfig config;
    config.cpus = kernel_["meta"]["cpus"];
    config.memory_bytes = kernel_["meta"]["MemTotal"];
    config.swap_bytes = kernel_["meta"]["SwapTotal"];
    config.zero_page = kernel_["meta"]["zero_page"];
    config.reclaim = core::Reclaim::kModelled;
    node_ = *core::Node::Create(config);
    for (const auto& path : {cgroup_.substr(0, cgroup_.rfind('/')), cgroup_})
      ASSERT_TRUE(node_->CreateCgroup(path).ok());
    ASSERT_TRUE(node_->SetKnobs(cgroup_, {{"memory.max", "24M"}}).ok());
    std::vector<int64_t> times_ns;
    for (const Json& sample : kernel_["samples"])
      times_ns.push_back(static_cast<int64_t>(std::llround(sample["t1"].get<double>() * 1e9)));
    marks_ = tests::ApplyBatches(*node_, "test",
                                 tests::TranslateTrace(folder + "/trace.txt.zst", times_ns, batch_events));
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
  void Print(std::initializer_list<const char*> keys) const {
    for (size_t i = 0; i < marks_.size(); ++i) {
      std::string line = kernel_["samples"][i]["t1"].dump();
      for (const char* key : keys) {
        line += std::string("  ") + key + " " + std::to_string(Kernel(i, key)) + "/" +
                std::to_string(Model(i, key));
      }
      puts(line.c_str());
    }
  }

  Json kernel_;
  int64_t page_ = 4096;
  int64_t limit_pages_ = 0;
  std::string cgroup_;
  std::unique_ptr<core::Node> node_;
  std::vector<core::MarkState> marks_;
};

TEST_F(ModelledTest, Stream) {
  Replay("reclaim-stream");
  Print({"anon", "file", "inactive_file", "active_file", "pgscan_direct", "pgsteal_direct",
         "workingset_refault_file", "pgactivate"});
}
TEST_F(ModelledTest, Oom) {
  Replay("oom");
  Print({"anon", "file", "pgscan_direct", "pgsteal_direct", "workingset_refault_file", "pgfault",
         "pgmajfault"});
  for (const auto& record : node_->OomRecords(0, 100)) {
    printf("oom %s %s tid %u %s\n", record.breached.c_str(), record.charged.c_str(), record.tid,
           record.comm.c_str());
    for (const auto& v : record.victims)
      printf("  %u %s points %ld rss %ld killed %d\n", v.tgid, v.comm.c_str(), v.points, v.rss_pages,
             v.killed);
    for (const auto& c : record.consumers)
      printf("  %s anon %ld file %ld\n", c.path.c_str(), c.anon_pages, c.file_pages);
  }
}
TEST_F(ModelledTest, Swap) {
  Replay("swap");
  Print({"anon", "file", "swapcached", "pgscan_direct", "pgsteal_direct", "pswpin", "pswpout", "pgmajfault",
         "workingset_refault_anon"});
  printf("swap now %lu\n", node_->ReadCgroup(cgroup_, false, false)->swap_current_bytes);
}

}  // namespace
}  // namespace memcgd
