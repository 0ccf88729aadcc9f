// What memcg-loadgen prints: tables for people, JSON for programs.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_MEMCG_LOADGEN_OUTPUT_H_
#define MEMCGD_CLIENT_MEMCG_LOADGEN_OUTPUT_H_

#include <string>
#include <vector>

#include "client/loadgen/summary.h"
#include "client/loadgen/turn.h"

namespace memcgd::client {

// A run: what was asked for and what came of it, as far as it got.
struct LoadgenRun {
  loadgen::ExperimentInfo experiment;
  loadgen::TurnOptions options;
  std::string compared;  // the mechanism; empty: none
  loadgen::Forms forms;  // of all nodes
  size_t repeats = 1;
  std::vector<loadgen::CaseResult> results;
  bool interrupted = false;
};

std::string LoadgenText(const LoadgenRun& run);
std::string LoadgenJson(const LoadgenRun& run);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCG_LOADGEN_OUTPUT_H_
