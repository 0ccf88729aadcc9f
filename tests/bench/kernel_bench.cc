// The model against the kernel that this runs on, five cgroups deep: first touch against memfd's fallocate,
// and a pair of mmap and munmap; CPU time, in turns.
//
//   kernel_bench [CGROUP_DIRECTORY]
//
// It needs to make cgroups that are charged for memory: below the root of the memory controller's hierarchy
// (v1) or of the unified one (v2), or below the directory that is named.  A child of its own goes into them;
// they are removed however it ends.  Where it may not, it says what is missing and exits with 77.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/node.h"

namespace memcgd {
namespace {

constexpr int kSkipped = 77;
constexpr int kLevels = 5;
constexpr int kTurns = 11;
constexpr uint64_t kPages = 1 << 14;
constexpr uint64_t kFewPages = 16;  // of a mapping that is made and removed
constexpr uint64_t kPairs = 1 << 13;
constexpr uint64_t kPageBytes = 4096;

double CpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "kernel_bench: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}
[[noreturn]] void Skip(const std::string& why) {
  std::printf("kernel_bench: skipped: %s\n", why.c_str());
  std::exit(kSkipped);
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}
bool HasWord(const std::string& text, const std::string& wanted) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

// Where cgroups of the memory controller can be made, and whether that is v2.
struct Hierarchy {
  std::string root;
  bool unified = false;
};

Hierarchy FindHierarchy(const char* named) {
  if (named != nullptr) {
    const std::string root = named;
    if (access((root + "/cgroup.procs").c_str(), F_OK) != 0)
      Skip(root + " is no cgroup: it has no cgroup.procs");
    return {root, access((root + "/cgroup.controllers").c_str(), F_OK) == 0};
  }
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, at, type, flags, dump, pass;
       mounts >> device >> at >> type >> flags >> dump >> pass;) {
    std::replace(flags.begin(), flags.end(), ',', ' ');
    if (type == "cgroup" && HasWord(flags, "memory")) return {at, false};
    if (type == "cgroup2" && HasWord(FirstLine(at + "/cgroup.controllers"), "memory")) return {at, true};
  }
  Skip("no cgroup file system with the memory controller is mounted");
}

// Five cgroups, each in the one before, charged for memory.  Removed by the destructor of the process that
// made them.
class Levels {
 public:
  explicit Levels(const Hierarchy& hierarchy) {
    std::string path = hierarchy.root + "/memcgd-kernel-bench-" + std::to_string(getpid());
    for (int level = 1; level <= kLevels; ++level) {
      const std::string parent = level == 1 ? hierarchy.root : made_.back();
      if (hierarchy.unified && !HasWord(FirstLine(parent + "/cgroup.subtree_control"), "memory")) {
        if (level == 1) {
          Skip(parent + "/cgroup.subtree_control does not have \"memory\": its cgroups are not charged");
        }
        Write(parent + "/cgroup.subtree_control", "+memory");
      }
      if (level > 1) path += "/level" + std::to_string(level);
      if (mkdir(path.c_str(), 0755) != 0) {
        const std::string why = std::strerror(errno);
        Remove();
        Skip("cannot make the cgroup " + path + ": " + why);
      }
      made_.push_back(path);
    }
  }
  ~Levels() { Remove(); }
  Levels(const Levels&) = delete;
  Levels& operator=(const Levels&) = delete;

  // Empty, or why not.
  std::string Enter() const {
    std::ofstream procs(made_.back() + "/cgroup.procs");
    procs << getpid() << std::flush;
    return procs.good() ? "" : "cannot enter the cgroup " + made_.back() + ": " + std::strerror(errno);
  }

 private:
  void Write(const std::string& path, const char* text) {
    std::ofstream file(path);
    file << text << std::flush;
    if (file.good()) return;
    const std::string why = std::strerror(errno);
    Remove();
    Skip("cannot write \"" + std::string(text) + "\" to " + path + ": " + why);
  }
  // Its processes have been waited for; the kernel may still be about to let go of the last.
  void Remove() {
    for (; !made_.empty(); made_.pop_back()) {
      int tries = 100;
      while (rmdir(made_.back().c_str()) != 0 && errno == EBUSY && --tries > 0) usleep(10'000);
      if (tries == 0) std::fprintf(stderr, "kernel_bench: %s stays: it is busy\n", made_.back().c_str());
    }
  }
  std::vector<std::string> made_;
};

// The kernel's side.
double FallocateNs() {
  const int file = memfd_create("kernel_bench", 0);
  if (file < 0) Fail("memfd_create");
  const double before = CpuNs();
  if (fallocate(file, 0, 0, static_cast<off_t>(kPages * kPageBytes)) != 0) Fail("fallocate");
  const double ns = CpuNs() - before;
  close(file);
  return ns / kPages;
}
double KernelTouchNs() {
  char* memory = static_cast<char*>(
      mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) Fail("mmap");
  madvise(memory, kPages * kPageBytes, MADV_NOHUGEPAGE);
  const double before = CpuNs();
  for (uint64_t at = 0; at < kPages * kPageBytes; at += kPageBytes)
    static_cast<volatile char*>(memory)[at] = 1;
  const double ns = CpuNs() - before;
  munmap(memory, kPages * kPageBytes);
  return ns / kPages;
}
double KernelPairNs() {
  const double before = CpuNs();
  for (uint64_t i = 0; i < kPairs; ++i) {
    void* memory =
        mmap(nullptr, kFewPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || munmap(memory, kFewPages * kPageBytes) != 0) Fail("mmap and munmap");
  }
  return (CpuNs() - before) / kPairs;
}

// The model's side: one node, a process in a cgroup five levels deep.
class Model {
 public:
  Model() {
    core::NodeConfig config;
    config.memory_bytes = uint64_t{24} << 30;
    node_ = *core::Node::Create(config);
    stream_ = node_->OpenStream("kernel_bench");
    std::string path;
    for (int level = 1; level <= kLevels; ++level) path += "/level" + std::to_string(level);
    Apply({}, {Wide(core::wide::DefinePath{1, path}), Wide(core::wide::CgroupCreate{1}),
               Wide(core::wide::BaselineProcess{kTid, 1, 0})});
    for (uint64_t page = 0; page < kPages; ++page) {
      touches_.push_back(
          {core::Event::Head(core::EventKind::kFault, 0, kTid, 0),
           core::Event::AddressBody((kFirstPage + page) * kPageBytes, core::kFaultWrite | core::kFaultUser)});
    }
    for (uint64_t i = 0; i < kPairs; ++i) {
      for (core::EventKind kind : {core::EventKind::kMmapAnon, core::EventKind::kMunmap}) {
        pairs_.push_back(
            {core::Event::Head(kind, 0, kTid, 0), core::Event::RangeBody(kFirstPage, kFewPages)});
      }
    }
  }
  double TouchNs() {
    Apply({}, {Wide(core::wide::Mmap{kFirstPage * kPageBytes, kPages * kPageBytes,
                                     core::kProtRead | core::kProtWrite,
                                     core::kMapPrivate | core::kMapAnonymous, 0, 0})});
    const double before = CpuNs();
    Apply(touches_, {});
    const double ns = CpuNs() - before;
    Apply({}, {Wide(core::wide::Munmap{kFirstPage * kPageBytes, kPages * kPageBytes})});
    return ns / kPages;
  }
  double PairNs() {
    const double before = CpuNs();
    Apply(pairs_, {});
    return (CpuNs() - before) / kPairs;
  }

 private:
  static constexpr uint32_t kTid = 7;
  static constexpr uint64_t kFirstPage = 0x7f0000000;

  static core::WideEvent Wide(core::WideBody body) { return {0, 0, kTid, 0, std::move(body)}; }
  void Apply(const std::vector<core::Event>& events, const std::vector<core::WideEvent>& wide) {
    core::BatchResult result;
    const absl::Status status = node_->Apply(stream_, {0, events, wide}, &result);
    result.outcomes[static_cast<size_t>(core::Outcome::kOk)] = 0;
    for (uint64_t others : result.outcomes) {
      if (status.ok() && others == 0) continue;
      std::fprintf(stderr, "kernel_bench: the model refused an event: %s\n", status.ToString().c_str());
      std::exit(1);
    }
  }

  std::unique_ptr<core::Node> node_;
  core::EventStream* stream_ = nullptr;
  std::vector<core::Event> touches_, pairs_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Both sides in turns, A B B A …
void Compare(const char* what, double (*kernel)(), double (Model::*model)(), Model& modelled, double wanted) {
  std::vector<double> kernel_ns, model_ns, ratios;
  kernel();  // neither is cold
  (modelled.*model)();
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn % 2 == 0) kernel_ns.push_back(kernel());
    model_ns.push_back((modelled.*model)());
    if (turn % 2 != 0) kernel_ns.push_back(kernel());
    ratios.push_back(kernel_ns.back() / model_ns.back());
  }
  std::printf("%-38s kernel %7.1f ns, model %6.1f ns: %6.1f x (%.1f to %.1f)", what, Median(kernel_ns),
              Median(model_ns), Median(ratios), *std::min_element(ratios.begin(), ratios.end()),
              *std::max_element(ratios.begin(), ratios.end()));
  std::printf(wanted > 0 ? ", wanted %.0f\n" : "\n", wanted);
}

void MeasureAll() {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);  // as the server does
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  Model model;
  Compare("first touch against memfd fallocate", FallocateNs, &Model::TouchNs, model, 35);
  Compare("first touch against first touch", KernelTouchNs, &Model::TouchNs, model, 0);
  Compare("mmap + munmap of 16 pages", KernelPairNs, &Model::PairNs, model, 80);
}

// Runs in the child: it goes away with its parent.
int Measured(const Levels& levels) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string why = levels.Enter();
  if (!why.empty()) {
    std::printf("kernel_bench: skipped: %s\n", why.c_str());
    return kSkipped;
  }
  MeasureAll();
  return 0;
}

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
volatile pid_t child = -1;  // for the signals' handler

int Main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: kernel_bench [CGROUP_DIRECTORY]\n");
    return 2;
  }
  const Hierarchy hierarchy = FindHierarchy(argc == 2 ? argv[1] : nullptr);
  // Ctrl-C and the like end the child, also where only this process is told; the cgroups are removed then.
  sigset_t ending, before;
  sigemptyset(&ending);
  for (int number : kEndingSignals) sigaddset(&ending, number);
  sigprocmask(SIG_BLOCK, &ending, &before);
  Levels levels(hierarchy);
  child = fork();
  if (child < 0) {
    std::fprintf(stderr, "kernel_bench: fork: %s\n", std::strerror(errno));
    return 1;
  }
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const int code = Measured(levels);
    std::fflush(stdout);
    _exit(code);  // the cgroups are the parent's to remove
  }
  for (int number : kEndingSignals) signal(number, [](int received) { kill(child, received); });
  sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace
}  // namespace memcgd

int main(int argc, char** argv) { return memcgd::Main(argc, argv); }
