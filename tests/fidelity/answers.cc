// answers TRACE TIMES: the states at those times, as `memcgctl replay TRACE --stat-at TIMES -o json` prints them, but
// in one process.  For finding where a model leaves the kernel; the tests use fidelity_test.cc.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/support/in_process_replay.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: answers TRACE TIMES\n");
    return 2;
  }
  std::ifstream file(argv[2]);
  std::vector<std::string> times;
  std::vector<int64_t> times_ns;
  for (std::string line; std::getline(file, line);) {
    times.push_back(line);
    times_ns.push_back(static_cast<int64_t>(std::stold(line) * 1e9L + 0.5L));
  }
  memcgd::core::NodeConfig config;
  config.cpus = 2;
  config.memory_bytes = 25276026880;
  config.zero_page = false;
  auto node = memcgd::core::Node::Create(config);
  auto batches = memcgd::tests::TranslateTrace(argv[1], times_ns, 8192);
  auto states = memcgd::tests::ApplyBatches(**node, "answers", batches);
  auto names = memcgd::core::MemoryStatNames();
  std::cout << "[";
  for (size_t i = 0; i < states.size(); ++i) {
    std::cout << (i ? ",\n" : "") << "{\"time\": " << times[states[i].id] << ", \"committed_as\": "
              << states[i].committed_as_bytes << ", \"cgroups\": {";
    bool first = true;
    for (const auto& cgroup : states[i].cgroups) {
      std::cout << (first ? "" : ", ") << "\"" << cgroup.path << "\": {";
      first = false;
      for (size_t s = 0; s < names.size(); ++s) {
        std::cout << (s ? ", " : "") << "\"" << names[s] << "\": " << cgroup.stat[s];
      }
      std::cout << "}";
    }
    std::cout << "}}";
  }
  std::cout << "]\n";
}
