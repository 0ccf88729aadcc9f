// The five mechanisms by the names that people give them, and the one place where a node's specification is
// told which form it shall have.
//
// Thread safety: free functions and plain values.
#ifndef MEMCGD_CLIENT_LOADGEN_MECHANISMS_H_
#define MEMCGD_CLIENT_LOADGEN_MECHANISMS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memcgd/v1/node.pb.h"

namespace memcgd::client::loadgen {

struct MechanismNames {
  std::string_view name;
  std::string_view newer;               // the default
  std::vector<std::string_view> older;  // the first is what it is compared with unless told otherwise
};
const std::array<MechanismNames, 5>& MechanismList();

// "charge_order, commit_batch, …", for messages.
std::string MechanismNamesText();

// The forms chosen, by mechanism; one that is missing has its default.
using Forms = std::map<std::string, std::string>;

// "stats=walk".  The error lists what there is.
absl::StatusOr<std::pair<std::string, std::string>> ParseForm(std::string_view text);

// Two forms of one mechanism, to be measured in turns.
struct Comparison {
  std::string mechanism;  // "none": both sides are the same, which shows the noise
  std::string older, newer;
};
// "stats" (its first older form), "stats=rstat", or "none".
absl::StatusOr<Comparison> ParseComparison(std::string_view text);

// Names that are no mechanism's are left out.
void SetForms(const Forms& forms, memcgd::v1::NodeSpec* spec);

// The mechanisms' counters of a node by name.
std::map<std::string, uint64_t> CountersOf(const memcgd::v1::Node& node);

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_MECHANISMS_H_
