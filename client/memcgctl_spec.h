// The flags that say what a node is, shared by `node create` and `replay`, and the names of its policies and
// forms.
#ifndef MEMCGD_CLIENT_MEMCGCTL_SPEC_H_
#define MEMCGD_CLIENT_MEMCGCTL_SPEC_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memcgd/v1/node.pb.h"

namespace memcgd::client {

// Where nothing tells how many CPUs there are.  More than a trace has cost little memory and change no exact
// total; fewer would fold CPUs together.
inline constexpr uint32_t kDefaultCpus = 64;

// `guess`, `always`, `never`; anything else is taken for guess.
memcgd::v1::OvercommitPolicy OvercommitPolicyOf(std::string_view name);
// The option's value is one of `names`, which --help and completion show as "a|b".
CLI::Option* AddChoice(CLI::App* app, const std::string& flag, std::string* value,
                       const std::vector<std::string>& names, const std::string& help);

struct SpecFlags {
  void AddTo(CLI::App* app);
  // `cpus` where --cpus was not given.
  memcgd::v1::NodeSpec Spec(uint32_t cpus_otherwise) const;
  // The flags that were given, "--cpus, --swap"; empty: none.
  std::string Given() const;
  bool reclaim_given() const;

  uint32_t cpus = 0;
  uint64_t memory_bytes = 0;
  uint64_t swap_bytes = 0;
  uint64_t page_size = 0;
  uint64_t writeback_bytes_per_second = 0;
  uint64_t read_bytes_per_second = 0;
  std::string overcommit = "guess";
  std::string reclaim = "recorded";
  bool no_zero_page = false;
  // Forms of the mechanisms; empty: the default.
  std::string charge_order, commit_batch, css_refs, stats, lru_lock;
  std::vector<const CLI::Option*> options;
  const CLI::Option* reclaim_option = nullptr;
  const CLI::Option* writeback_option = nullptr;
  const CLI::Option* read_option = nullptr;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_SPEC_H_
