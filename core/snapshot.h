// A node's whole state as bytes, and back; its copy; its hash; its invariants.
//
// The bytes hold indices, never pointers: a loaded node goes on exactly as the saved one would have.  A
// format version stands first, a checksum last.
//
// Thread safety: at a cut.
#ifndef MEMCGD_CORE_SNAPSHOT_H_
#define MEMCGD_CORE_SNAPSHOT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/node.h"

namespace memcgd::core {

class Snapshot {
 public:
  static constexpr uint32_t kFormatVersion = 5;

  static std::string Save(Node& node);
  // INVALID_ARGUMENT: not a snapshot, or of another version.  DATA_LOSS: cut short or damaged.
  static absl::StatusOr<std::unique_ptr<Node>> Load(std::string_view bytes);
  // What Load() of what Save() gives would be, without the bytes; its reclaim may be another.
  static std::unique_ptr<Node> Fork(Node& node, Reclaim reclaim);

 private:
  template <typename Archive>
  static void Walk(Archive& a, Node& node);
  template <typename Archive>
  static void WalkTree(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkCpus(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkFolios(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkFiles(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkSpaces(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkProcesses(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkWriteback(Archive& a, Machine& m);
  template <typename Archive>
  static void WalkStreams(Archive& a, Node& node);
};

uint64_t HashBytes(std::string_view bytes);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_SNAPSHOT_H_
