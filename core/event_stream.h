// One stream's handles: names that travelled once.
//
// Thread safety: one thread at a time, the one that applies the stream's batches.
#ifndef MEMCGD_CORE_EVENT_STREAM_H_
#define MEMCGD_CORE_EVENT_STREAM_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/event.h"
#include "core/node.h"
#include "core/units.h"

namespace memcgd::core {

class EventStream {
 public:
  explicit EventStream(std::string name) : name_(std::move(name)) {}

  // OK, or what is wrong with which event; handles that the batch itself defines are taken into account.
  absl::Status Check(const Batch& batch, const NodeConfig& config) const;

  void DefinePath(std::string path) { paths_.push_back(std::move(path)); }
  void DefineFile(FileId file) { files_.push_back(file); }
  void DefineName(std::string name) { names_.push_back(std::move(name)); }
  const std::string& Path(uint32_t handle) const { return paths_[handle]; }
  FileId File(uint32_t handle) const { return files_[handle]; }
  const std::string& Name(uint32_t handle) const { return names_[handle]; }

  const std::string& name() const { return name_; }

 private:
  friend class Snapshot;

  const std::string name_;
  // By handle; 0 is none.
  std::vector<std::string> paths_{""};
  std::vector<FileId> files_{FileId::kNone};
  std::vector<std::string> names_{""};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_EVENT_STREAM_H_
