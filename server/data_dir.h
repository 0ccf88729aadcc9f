// The directory in which nodes outlive the server: saved when it stops, loaded when it starts.
//
//   DIR/lock      held (flock) by the one server that uses the directory; has its process id
//   DIR/nodes/N   node N (node_file.h)
//   DIR/tmp/N     the same while it is written; what is found here at the start is removed
//   DIR/clean     stands while every node is saved as it is: made last of all, removed before anything is
//   served
//
// A file appears whole or not at all: written to tmp/, fsync, rename, fsync of the directory.  Where `clean`
// is missing the server before did not get to save everything: nodes are then as they were saved last, and
// have other incarnations, so that each client learns it.
//
// Thread safety: Open(), Load(), Begin() and Save() by one thread, in that order; Remove() by any, in
// between.
#ifndef MEMCGD_SERVER_DATA_DIR_H_
#define MEMCGD_SERVER_DATA_DIR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/node_registry.h"

namespace memcgd::server {

class DataDir {
 public:
  // Takes the directory, made where only its last part is missing.  UNAVAILABLE names what is wrong with it:
  // another server uses it, it cannot be written to.
  static absl::StatusOr<std::unique_ptr<DataDir>> Open(const std::string& path);
  ~DataDir();
  DataDir(const DataDir&) = delete;
  DataDir& operator=(const DataDir&) = delete;

  // Adds every node that was saved.  FAILED_PRECONDITION names a file that cannot be read, and what to do;
  // then no file was changed.
  absl::Status Load(NodeRegistry* registry);
  // Before anything is served: from here on nodes may differ from what is saved.
  absl::Status Begin();
  // Saves every node.  REQUIRES: each is retired.  UNAVAILABLE names the first that could not be; what was
  // saved of it before stays, and all others are tried.
  absl::Status Save(NodeRegistry* registry);
  // The node is deleted for good.  UNAVAILABLE: it is not.
  absl::Status Remove(const std::string& name);

 private:
  explicit DataDir(std::string path) : path_(std::move(path)) {}

  absl::Status Lock();
  absl::Status MarkClean();
  absl::Status LoadNode(const std::string& name, bool clean, NodeRegistry* registry);
  absl::StatusOr<size_t> SaveNode(ServedNode* node);
  std::string PathOf(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string NodePath(std::string_view name) const { return PathOf("nodes/") + std::string(name); }

  const std::string path_;
  int lock_ = -1;       // descriptor
  bool clean_ = false;  // every node is as it was saved
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_DATA_DIR_H_
