#include "server/data_dir.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "server/limits.h"
#include "server/node_file.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;

absl::Status Failed(std::string_view what, const std::string& path) {
  return absl::UnavailableError(Cat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), kDirectoryMode) == 0 || errno == EEXIST) return absl::OkStatus();
  return Failed("make directory", path);
}

// What was made, renamed or removed in the directory stays so.
absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open", path);
  const bool synced = fsync(fd) == 0;
  absl::Status status = synced ? absl::OkStatus() : Failed("sync", path);
  close(fd);
  return status;
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

// At `path` when it is whole and on the disk, and not before.
absl::Status WriteWhole(const std::string& unfinished, const std::string& path,
                        std::initializer_list<std::string_view> parts) {
  const int fd = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (fd < 0) return Failed("write", unfinished);
  absl::Status status;
  for (std::string_view part : parts) {
    if (status.ok()) status = WriteAll(fd, part, unfinished);
  }
  if (status.ok() && fsync(fd) != 0) status = Failed("sync", unfinished);
  if (close(fd) != 0 && status.ok()) status = Failed("write", unfinished);
  if (status.ok() && rename(unfinished.c_str(), path.c_str()) != 0) status = Failed("make", path);
  if (!status.ok()) unlink(unfinished.c_str());
  return status;
}

// A file's bytes, mapped: the larger ones are not held twice.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path) {
    // Without O_NONBLOCK a FIFO would hold the start of the server for ever.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return absl::UnavailableError(std::strerror(errno));
    const absl::Cleanup close_it = [fd] { close(fd); };
    struct stat status = {};
    if (fstat(fd, &status) != 0) return absl::UnavailableError(std::strerror(errno));
    if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError("is no regular file");
    const auto size = static_cast<size_t>(status.st_size);
    if (size > kMaxNodeFileBytes) {
      return absl::InvalidArgumentError(
          Cat("has ", size, " bytes, more than a node's can have (", kMaxNodeFileBytes, ")"));
    }
    MappedFile file;
    if (size == 0) return file;
    void* const at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return absl::UnavailableError(std::strerror(errno));
    file.bytes_ = {static_cast<const char*>(at), size};
    return file;
  }
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  std::string_view bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::string_view bytes_;
};

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) return absl::UnavailableError(Cat("cannot read ", directory, ": ", error.message()));
  return names;
}

int64_t MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDir>> DataDir::Open(const std::string& path) {
  std::unique_ptr<DataDir> directory(new DataDir(path));
  absl::Status status = MakeDirectory(path);
  if (status.ok()) status = directory->Lock();
  for (const char* below : {"nodes", "tmp"}) {
    if (status.ok()) status = MakeDirectory(directory->PathOf(below));
  }
  if (!status.ok()) return status;
  const auto unfinished = NamesIn(directory->PathOf("tmp"));
  if (!unfinished.ok()) return unfinished.status();
  for (const std::string& name : *unfinished) {
    const std::string file = directory->PathOf("tmp/") + name;
    if (unlink(file.c_str()) != 0) return Failed("remove", file);
  }
  status = SyncDirectory(path);
  if (!status.ok()) return status;
  return directory;
}

DataDir::~DataDir() {
  if (lock_ >= 0) close(lock_);
}

absl::Status DataDir::Lock() {
  const std::string file = PathOf("lock");
  lock_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode);
  if (lock_ < 0) return Failed("open", file);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failed("lock", file);
    char pid[24] = {};
    const ssize_t got = pread(lock_, pid, sizeof(pid) - 1, 0);
    const std::string_view who(pid, got > 0 ? strcspn(pid, "\n") : 0);
    return absl::UnavailableError(Cat("data directory ", path_, " is used by another memcgd (process ",
                                      who.empty() ? "unknown" : who,
                                      "): stop it, or give this one a directory of its own"));
  }
  const std::string pid = Cat(getpid(), "\n");
  if (ftruncate(lock_, 0) != 0 ||
      pwrite(lock_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return Failed("write", file);
  return absl::OkStatus();
}

absl::Status DataDir::Load(NodeRegistry* registry) {
  const auto begin = std::chrono::steady_clock::now();
  const bool clean = access(PathOf("clean").c_str(), F_OK) == 0;
  const auto names = NamesIn(PathOf("nodes"));
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const absl::Status status = LoadNode(name, clean, registry);
    if (status.ok()) continue;
    return absl::FailedPreconditionError(Cat(
        "data directory ", path_, ": ", NodePath(name), " ", std::string(status.message()),
        "; nothing was changed: put a good copy in its place, or move it away to start without that node"));
  }
  clean_ = clean;
  if (names->empty()) return absl::OkStatus();
  if (clean) {
    spdlog::info("loaded {} nodes from {} in {} ms", names->size(), path_, MillisecondsSince(begin));
  } else {
    spdlog::warn(
        "loaded {} nodes from {} in {} ms, as they were saved last: memcgd did not stop in order since, "
        "clients send again what came after",
        names->size(), path_, MillisecondsSince(begin));
  }
  return absl::OkStatus();
}

absl::Status DataDir::Begin() {
  if (!clean_) return absl::OkStatus();
  const std::string marker = PathOf("clean");
  if (unlink(marker.c_str()) != 0) return Failed("remove", marker);
  return SyncDirectory(path_);
}

absl::Status DataDir::MarkClean() {
  const absl::Status status = WriteWhole(PathOf("tmp/clean"), PathOf("clean"), {});
  return status.ok() ? SyncDirectory(path_) : status;
}

absl::Status DataDir::LoadNode(const std::string& name, bool clean, NodeRegistry* registry) {
  if (!CheckNodeName(name).ok())
    return absl::InvalidArgumentError("is no node's file: no node has such a name");
  const absl::StatusOr<MappedFile> file = MappedFile::Open(NodePath(name));
  if (!file.ok()) return file.status();
  auto node = ReadNodeFile(name, file->bytes(), clean);
  return node.ok() ? registry->Add(*std::move(node)) : node.status();
}

absl::Status DataDir::Save(NodeRegistry* registry) {
  const auto begin = std::chrono::steady_clock::now();
  absl::Status status;
  size_t nodes = 0, failed = 0, bytes = 0;
  for (const auto& node : registry->List("", SIZE_MAX, [](std::string_view) { return true; })) {
    const absl::StatusOr<size_t> saved = SaveNode(node.get());
    ++nodes;
    if (saved.ok()) {
      bytes += *saved;
      continue;
    }
    ++failed;
    spdlog::error("node {} is not saved, what was saved of it before stays: {}", node->name(),
                  std::string(saved.status().message()));
    status.Update(saved.status());
  }
  status.Update(SyncDirectory(PathOf("nodes")));
  if (status.ok()) status = MarkClean();
  if (!status.ok()) {
    return absl::UnavailableError(Cat(
        "data directory ", path_, ": ", failed, " of ", nodes,
        " nodes could not be saved, what was saved of them before stays: ", std::string(status.message())));
  }
  spdlog::info("saved {} nodes, {} bytes, to {} in {} ms", nodes, bytes, path_, MillisecondsSince(begin));
  return status;
}

absl::StatusOr<size_t> DataDir::SaveNode(ServedNode* node) {
  const NodeFileBytes file = WriteNodeFile(node);
  const absl::Status status =
      WriteWhole(PathOf("tmp/") + node->name(), NodePath(node->name()), {file.head, file.snapshot});
  if (!status.ok()) return status;
  return file.size();
}

absl::Status DataDir::Remove(const std::string& name) {
  const std::string file = NodePath(name);
  if (unlink(file.c_str()) != 0) return errno == ENOENT ? absl::OkStatus() : Failed("remove", file);
  return SyncDirectory(PathOf("nodes"));
}

}  // namespace memcgd::server
