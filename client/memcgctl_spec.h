// The flags that say what a node is, shared by `node create` and `replay`.
#ifndef MEMCGD_CLIENT_MEMCGCTL_SPEC_H_
#define MEMCGD_CLIENT_MEMCGCTL_SPEC_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "memcgd/v1/node.pb.h"

namespace memcgd::client {

// Where nothing tells how many CPUs there are.  More than a trace has cost little memory and change no exact
// total; fewer would fold CPUs together.
inline constexpr uint32_t kDefaultCpus = 64;

struct SpecFlags {
  void AddTo(CLI::App* app);
  // `cpus` where --cpus was not given.
  memcgd::v1::NodeSpec Spec(uint32_t cpus_otherwise) const;
  // The flags that were given, "--cpus, --swap"; empty: none.
  std::string Given() const;

  uint32_t cpus = 0;
  uint64_t memory_bytes = 0;
  uint64_t swap_bytes = 0;
  uint64_t page_size = 0;
  std::string overcommit = "guess";
  bool no_zero_page = false;
  std::vector<const CLI::Option*> options;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_SPEC_H_
