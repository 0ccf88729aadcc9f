// A plain LRU of N pages made of the core's parts (index, descriptors, one cgroup's list), on zipf requests:
// what a request costs, and how many missed.
//
//   lru_bench [DIRECTORY]
//
// With a directory it leaves the requests there too, zipf-OBJECTS.u32 (32-bit ids in the machine's byte
// order), to be fed to another LRU: misses must be the same.  The core's own lists are the kernel's, active
// and inactive, and no plain LRU: this is what its decisions cost, not what it decides; nothing is charged
// and no statistics change.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/folio.h"
#include "core/lruvec.h"
#include "core/mm.h"

namespace memcgd {
namespace {

double CpuNs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

class PlainLru {
 public:
  explicit PlainLru(int64_t pages) : most_pages_(pages), lruvec_(nullptr) {}

  void Request(const std::vector<uint32_t>& objects) {
    core::Locked lock(lruvec_.lock);
    constexpr int64_t kCachedPages = 1 << 15;  // descriptors that a core's own caches hold
    if (most_pages_ > kCachedPages) return RequestAhead(objects);
    for (uint32_t object : objects) Request(object);
  }
  uint64_t misses() const { return misses_; }

 private:
  static constexpr core::LruList kList = core::LruList::kInactiveFile;

  // Looks up a batch ahead, so that misses of the processor's caches overlap; what requests do, they do in
  // order.
  void RequestAhead(const std::vector<uint32_t>& objects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lruvec_.lock) {
    constexpr size_t kBatch = 32;
    for (size_t begin = 0; begin < objects.size(); begin += kBatch) {
      const size_t end = std::min(objects.size(), begin + kBatch);
      for (size_t i = end; i < std::min(objects.size(), end + kBatch); ++i) index_.Prefetch(objects[i]);
      for (size_t i = begin; i < end; ++i) arena_.Prefetch(core::FolioId{index_.Ensure(objects[i])});
      for (size_t i = begin; i < end; ++i) {
        const core::Folio& folio = arena_.Get(core::FolioId{index_.Ensure(objects[i])});
        arena_.Prefetch(folio.prev);
        arena_.Prefetch(folio.next);
      }
      for (size_t i = begin; i < end; ++i) Request(objects[i]);
    }
  }
  void Request(uint32_t object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lruvec_.lock) {
    core::Lruvec::List& list = lruvec_.lists[static_cast<size_t>(kList)];
    uint32_t& entry = index_.Ensure(object);
    core::FolioId id{entry};
    if (id == list.head && entry != 0) return;
    if (entry != 0) {
      core::Folio& folio = arena_.Get(id);
      lruvec_.Unlink(arena_, kList, id, folio);
      lruvec_.PushFront(arena_, kList, id, folio);
      return;
    }
    ++misses_;
    if (list.pages == most_pages_) Evict(list.tail);
    id = arena_.AllocatePage(cache_, core::MemcgId::kRoot, 0, core::Folio::kOneRef);
    entry = core::Raw(id);
    core::Folio& folio = arena_.Get(id);
    folio.index = object;
    lruvec_.PushFront(arena_, kList, id, folio);
  }
  void Evict(core::FolioId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lruvec_.lock) {
    core::Folio& folio = arena_.Get(id);
    index_.Ensure(folio.index) = 0;
    lruvec_.Unlink(arena_, kList, id, folio);
    arena_.Free(cache_, id, folio);
  }

  const int64_t most_pages_;
  core::FolioArena arena_;
  core::FolioCache cache_;
  core::Lruvec lruvec_;
  core::PageTable index_;
  uint64_t misses_ = 0;
};

// Ranks 1 … objects with probability ~ 1/rank, in a shuffled order of ids.
std::vector<uint32_t> ZipfRequests(uint32_t objects, size_t count) {
  std::mt19937_64 random(1);
  std::vector<double> sums(objects);
  double sum = 0;
  for (uint32_t rank = 0; rank < objects; ++rank) sums[rank] = sum += 1.0 / (rank + 1);
  std::vector<uint32_t> ids(objects);
  for (uint32_t rank = 0; rank < objects; ++rank) ids[rank] = rank;
  std::shuffle(ids.begin(), ids.end(), random);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<uint32_t> requests(count);
  for (uint32_t& request : requests) {
    const auto found = std::lower_bound(sums.begin(), sums.end(), uniform(random));
    request = ids[static_cast<size_t>(std::min(found, sums.end() - 1) - sums.begin())];
  }
  return requests;
}

int Main(int argc, char** argv) {
  constexpr size_t kRequests = 10'000'000;
  constexpr int kTurns = 5;
  for (uint32_t objects : {10'000u, 100'000u, 1'000'000u}) {
    const std::vector<uint32_t> requests = ZipfRequests(objects, kRequests);
    if (argc > 1) {
      const std::string name = std::string(argv[1]) + "/zipf-" + std::to_string(objects) + ".u32";
      std::ofstream file(name, std::ios::binary);
      file.write(reinterpret_cast<const char*>(requests.data()),
                 static_cast<std::streamsize>(requests.size() * sizeof(uint32_t)));
      file.close();
      if (!file.good()) {
        std::fprintf(stderr, "lru_bench: cannot write %s\n", name.c_str());
        return 1;
      }
    }
    std::vector<double> ns;
    uint64_t misses = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      PlainLru lru(objects / 10);
      const double before = CpuNs();
      lru.Request(requests);
      ns.push_back((CpuNs() - before) / kRequests);
      misses = lru.misses();
    }
    std::sort(ns.begin(), ns.end());
    std::printf("%u objects, %zu requests, cache of %u: %llu misses, %.1f ns a request (%.1f to %.1f)\n",
                objects, kRequests, objects / 10, static_cast<unsigned long long>(misses), ns[kTurns / 2],
                ns.front(), ns.back());
  }
  return 0;
}

}  // namespace
}  // namespace memcgd

int main(int argc, char** argv) {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  return memcgd::Main(argc, argv);
}
