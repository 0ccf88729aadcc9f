#include "client/loadgen/file_generator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/loadgen/side_batches.h"

namespace memcgd::client::loadgen {

namespace v1 = memcgd::v1;

namespace {

uint32_t WholeChunks(uint64_t pages) {
  const uint64_t chunks = std::max<uint64_t>(pages / FileCycle::kChunkPages, 1);
  return static_cast<uint32_t>(std::min<uint64_t>(chunks * FileCycle::kChunkPages, uint64_t{1} << 30));
}

}  // namespace

bool FileCycle::Step(WordWriter* words, uint64_t* read) {
  const auto readers = static_cast<uint32_t>(readers_.size());
  const uint32_t events = kChunkPages + (dropping_ ? 0 : readers);
  for (; event_ < events; ++event_) {
    if (words->left() == 0) return false;
    if (event_ < kChunkPages) {
      words->Add(dropping_ ? WordKind::kFileDelete : WordKind::kFileAdd, cpu_, readers_[0],
                 FileBody(file_, page_ + event_, 0));
    } else {
      words->Add(WordKind::kFileRead, cpu_, readers_[event_ - kChunkPages],
                 FileBody(file_, page_, kChunkPages - 1));
      *read += kChunkPages;
    }
  }
  event_ = 0;
  page_ += kChunkPages;
  if (page_ == pages_) {
    page_ = 0;
    dropping_ = !dropping_;
  }
  return true;
}

void FileCycle::Drop(std::vector<v1::Batch>* batches, size_t batch_events, int64_t* time_ns) {
  // Pages [0, page_ + added) are cached, or, while it is being dropped, those from page_ + dropped on.
  const uint32_t begin = dropping_ ? page_ + event_ : 0;
  const uint32_t end = dropping_ ? pages_ : page_ + std::min(event_, kChunkPages);
  for (uint32_t page = begin; page < end;) {
    WordWriter words(&batches->emplace_back(), batch_events, time_ns);
    for (; page < end && words.left() > 0; ++page) {
      words.Add(WordKind::kFileDelete, cpu_, readers_[0], FileBody(file_, page, 0));
    }
    words.Finish();
  }
  dropping_ = false;
  page_ = event_ = 0;
}

FileGenerator::FileGenerator(uint64_t pages, uint32_t idle_cgroups, uint32_t cpus, const Part& part)
    : idle_cgroups_(idle_cgroups),
      part_(part),
      cycle_(part.stream == 0 ? 2 : 1, part.stream % cpus, {kFirstTid + part.stream}, WholeChunks(pages)) {}

// Paths: 1 the root of all, 2 that of the readers, then the readers' leaves, then the idle ones.  File 1 of
// stream 0 holds a page for each cgroup that dies.
std::vector<v1::Batch> FileGenerator::SetUpNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  batches.DefinePath(1, kRoot);
  batches.DefinePath(2, absl::StrCat(kRoot, "/b/c/d"));
  batches.CreateCgroup(1);
  batches.CreateCgroup(2);
  batches.DefineFile(1, 1);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) {
    const uint32_t leaf = kFirstLeaf + stream;
    batches.DefinePath(leaf, absl::StrCat(kRoot, "/b/c/d/reader-", stream));
    batches.CreateCgroup(leaf);
    batches.MakeThread(kFirstTid + stream, kFirstTid + stream, leaf);
  }
  const uint32_t first_idle = kFirstLeaf + part_.streams;
  for (uint32_t idle = 0; idle < idle_cgroups_; ++idle) {
    batches.DefinePath(first_idle + idle, absl::StrCat(kRoot, "/idle-", idle));
    batches.CreateCgroup(first_idle + idle);
  }
  for (uint32_t idle = 0; idle < idle_cgroups_; ++idle) {
    if (!Dies(idle)) continue;
    v1::BaselineCached* cached = batches.Add(0, 0)->mutable_baseline_cached();
    cached->set_file(1);
    cached->set_index(idle);
    cached->set_pages(1);
    cached->set_cgroup(first_idle + idle);
    batches.RemoveCgroup(first_idle + idle);
  }
  return batches.Take();
}

std::vector<v1::Batch> FileGenerator::SetUp() {
  SideBatches batches(part_.batch_events, time_ns_);
  batches.DefineFile(part_.stream == 0 ? 2 : 1, 2 + part_.stream);
  return batches.Take();
}

uint64_t FileGenerator::Fill(v1::Batch* batch) {
  WordWriter words(batch, part_.batch_events, &time_ns_);
  uint64_t read = 0;
  while (words.left() > 0) cycle_.Step(&words, &read);
  words.Finish();
  return read;
}

std::vector<v1::Batch> FileGenerator::TearDown() {
  std::vector<v1::Batch> batches;
  cycle_.Drop(&batches, part_.batch_events, &time_ns_);
  return batches;
}

std::vector<v1::Batch> FileGenerator::TearDownNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t stream = 0; stream < part_.streams; ++stream) {
    batches.EndProcess(kFirstTid + stream);
    batches.RemoveCgroup(kFirstLeaf + stream);
  }
  const uint32_t first_idle = kFirstLeaf + part_.streams;
  for (uint32_t idle = 0; idle < idle_cgroups_; ++idle) {
    if (!Dies(idle)) {
      batches.RemoveCgroup(first_idle + idle);
      continue;
    }
    v1::FileRange* gone = batches.Add(0, 0)->mutable_file_range();
    gone->set_op(v1::FileRange::OP_DELETE);
    gone->set_file(1);
    gone->set_index(idle);
    gone->set_count(1);
  }
  // Ancestors that were made on the way have no handle yet.
  uint32_t handle = first_idle + idle_cgroups_;
  batches.RemoveCgroup(2);
  for (const char* path : {"/b/c", "/b"}) {
    batches.DefinePath(handle, absl::StrCat(kRoot, path));
    batches.RemoveCgroup(handle++);
  }
  batches.RemoveCgroup(1);
  return batches.Take();
}

ReadTwiceGenerator::ReadTwiceGenerator(uint64_t pages, uint32_t cgroups, uint32_t cpus, const Part& part)
    : cgroups_(cgroups), part_(part) {
  for (uint32_t cgroup = part.stream; cgroup < cgroups; cgroup += part.streams) {
    cycles_.emplace_back(static_cast<uint32_t>(cycles_.size() + 1), cgroup % cpus,
                         std::vector<uint32_t>{Reader(cgroup, 0), Reader(cgroup, 1)}, WholeChunks(pages));
  }
}

std::vector<v1::Batch> ReadTwiceGenerator::SetUpNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t cgroup = 0; cgroup < cgroups_; ++cgroup) {
    batches.DefinePath(cgroup + 1, absl::StrCat("/readtwice-", cgroup));
    batches.CreateCgroup(cgroup + 1);
    for (uint32_t which : {0, 1})
      batches.MakeThread(Reader(cgroup, which), Reader(cgroup, which), cgroup + 1);
  }
  return batches.Take();
}

std::vector<v1::Batch> ReadTwiceGenerator::SetUp() {
  SideBatches batches(part_.batch_events, time_ns_);
  uint32_t handle = 1;
  for (uint32_t cgroup = part_.stream; cgroup < cgroups_; cgroup += part_.streams) {
    batches.DefineFile(handle++, 1 + cgroup);
  }
  return batches.Take();
}

uint64_t ReadTwiceGenerator::Fill(v1::Batch* batch) {
  WordWriter words(batch, part_.batch_events, &time_ns_);
  uint64_t read = 0;
  while (words.left() > 0) {
    if (cycles_[turn_].Step(&words, &read)) turn_ = turn_ + 1 == cycles_.size() ? 0 : turn_ + 1;
  }
  words.Finish();
  return read;
}

std::vector<v1::Batch> ReadTwiceGenerator::TearDown() {
  std::vector<v1::Batch> batches;
  for (FileCycle& cycle : cycles_) cycle.Drop(&batches, part_.batch_events, &time_ns_);
  return batches;
}

std::vector<v1::Batch> ReadTwiceGenerator::TearDownNode() {
  SideBatches batches(part_.batch_events, time_ns_);
  for (uint32_t cgroup = 0; cgroup < cgroups_; ++cgroup) {
    for (uint32_t which : {0, 1}) batches.EndProcess(Reader(cgroup, which));
    batches.RemoveCgroup(cgroup + 1);
  }
  return batches.Take();
}

}  // namespace memcgd::client::loadgen
