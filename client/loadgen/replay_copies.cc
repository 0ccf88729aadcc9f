#include "client/loadgen/replay_copies.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/batch_builder.h"
#include "client/event_stream.h"
#include "client/loadgen/event_words.h"
#include "client/loadgen/side_batches.h"
#include "client/replay.h"
#include "client/trace_reader.h"
#include "client/trace_translator.h"

namespace memcgd::client::loadgen {
namespace {

namespace v1 = memcgd::v1;

constexpr uint64_t kTidMask = uint64_t{kMaxWordTid} << 16;

WordKind KindOf(uint64_t head) { return static_cast<WordKind>(head & 63); }

bool HasFile(WordKind kind) {
  return (kind >= WordKind::kFileFault && kind <= WordKind::kFileDirty) || kind == WordKind::kReadahead;
}

// Calls visit(&number) for every thread id of a side event, its own included.
template <typename Visit>
void ForThreads(v1::SideEvent* side, Visit visit) {
  const auto change = [&visit](uint32_t tid, auto set) {
    if (tid != 0) set(visit(tid));
  };
  change(side->tid(), [side](uint32_t tid) { side->set_tid(tid); });
  switch (side->event_case()) {
    case v1::SideEvent::kClone:
      return change(side->clone().child_tid(),
                    [side](uint32_t tid) { side->mutable_clone()->set_child_tid(tid); });
    case v1::SideEvent::kCgroupAttach:
      return change(side->cgroup_attach().moved_tid(),
                    [side](uint32_t tid) { side->mutable_cgroup_attach()->set_moved_tid(tid); });
    case v1::SideEvent::kMarkVictim:
      return change(side->mark_victim().victim_tid(),
                    [side](uint32_t tid) { side->mutable_mark_victim()->set_victim_tid(tid); });
    case v1::SideEvent::kBaselineProcess:
      return change(side->baseline_process().tgid(),
                    [side](uint32_t tid) { side->mutable_baseline_process()->set_tgid(tid); });
    default:
      return;
  }
}

// Follows a trace: what there is at its end is to be ended.
class Follower {
 public:
  void See(const v1::Batch& batch) {
    int side = 0;
    for (int word = 0; word <= batch.words_size() / 2; ++word) {
      for (; side < batch.side_size() && batch.side(side).position() <= static_cast<uint32_t>(word); ++side) {
        SeeSide(batch.side(side));
      }
      if (word < batch.words_size() / 2) SeeWord(batch.words(2 * word), batch.words(2 * word + 1));
    }
  }

  // The events that end it all.
  void End(SideBatches* batches) {
    for (const auto& [process, threads] : processes_) {
      for (auto thread = threads.begin(); thread != threads.end(); ++thread) {
        std::next(thread) == threads.end() ? batches->EndProcess(*thread) : batches->EndThread(*thread);
      }
    }
    for (uint32_t tid : ended_) batches->Add(0, tid)->mutable_exit_mmap();
    for (const auto& [place, order] : cached_) {
      v1::FileRange* gone = batches->Add(0, 0)->mutable_file_range();
      gone->set_op(v1::FileRange::OP_DELETE);
      gone->set_file(place.first);
      gone->set_index(place.second);
      gone->set_count(uint64_t{1} << order);
      gone->set_order(order);
    }
    // Children first: their paths are longer.
    std::vector<std::pair<std::string, uint32_t>> left(cgroups_.begin(), cgroups_.end());
    std::sort(left.begin(), left.end(),
              [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    for (const auto& [path, handle] : left) {
      if (path == "/") continue;
      if (handle == 0) batches->DefinePath(++paths_, path);
      batches->RemoveCgroup(handle == 0 ? paths_ : handle);
    }
  }

  uint32_t paths() const { return paths_; }
  uint32_t files() const { return files_; }
  uint32_t names() const { return names_; }
  uint32_t cpus() const { return cpus_; }
  int64_t last_ns() const { return last_ns_; }
  void set_base_ns(int64_t base_ns) { base_ns_ = base_ns; }

 private:
  void SeeThread(uint32_t tid) {
    if (tid == 0 || process_of_.count(tid) != 0 || ended_.count(tid) != 0) return;
    process_of_[tid] = tid;
    processes_[tid].insert(tid);
  }

  void SeeWord(uint64_t head, uint64_t body) {
    const WordKind kind = KindOf(head);
    cpus_ = std::max(cpus_, static_cast<uint32_t>(head >> 6 & 1023) + 1);
    last_ns_ = std::max(last_ns_, base_ns_ + static_cast<int64_t>(head >> 38) * 1000);
    if (!HasFile(kind) || kind == WordKind::kFileFault)
      SeeThread(static_cast<uint32_t>((head & kTidMask) >> 16));
    const auto file = static_cast<uint32_t>(body & kMaxHandle);
    const auto index = static_cast<uint32_t>(body >> 24);
    if (kind == WordKind::kFileAdd)
      cached_.emplace(std::pair(file, index), static_cast<uint32_t>(body >> 56));
    if (kind == WordKind::kFileDelete) cached_.erase({file, index});
  }

  void SeeSide(const v1::SideEvent& side) {
    cpus_ = std::max(cpus_, side.cpu() + 1);
    last_ns_ = std::max(last_ns_, base_ns_ + side.time_offset_ns());
    switch (side.event_case()) {
      case v1::SideEvent::kDefinePath:
        paths_ = side.define_path().handle();
        path_[paths_] = side.define_path().path();
        return;
      case v1::SideEvent::kDefineFile:
        files_ = side.define_file().handle();
        return;
      case v1::SideEvent::kDefineName:
        names_ = side.define_name().handle();
        return;
      case v1::SideEvent::kCgroupCreate:
        return SeeCgroup(side.cgroup_create().path());
      case v1::SideEvent::kCgroupRemove:
        cgroups_.erase(path_[side.cgroup_remove().path()]);
        return;
      case v1::SideEvent::kFileRange:
        return SeeRange(side.file_range());
      default:
        SeeThread(side.tid());
        return SeeLife(side);
    }
  }

  void SeeLife(const v1::SideEvent& side) {
    switch (side.event_case()) {
      case v1::SideEvent::kClone: {
        const uint32_t child = side.clone().child_tid();
        Forget(child);
        ended_.erase(child);
        const uint32_t process = side.clone().thread() ? process_of_[side.tid()] : child;
        process_of_[child] = process;
        processes_[process].insert(child);
        return;
      }
      case v1::SideEvent::kExit:
        if (side.exit().group_dead()) ended_.insert(side.tid());
        return Forget(side.tid());
      case v1::SideEvent::kExitMmap:
        ended_.erase(side.tid());
        return;
      default:
        return;
    }
  }

  void Forget(uint32_t tid) {
    const auto known = process_of_.find(tid);
    if (known == process_of_.end()) return;
    const auto process = processes_.find(known->second);
    process->second.erase(tid);
    if (process->second.empty()) processes_.erase(process);
    process_of_.erase(known);
  }

  // Missing ancestors are made with it; those that have no handle get one at the end.
  void SeeCgroup(uint32_t handle) {
    std::string path = path_[handle];
    cgroups_[path] = handle;
    for (path.resize(path.rfind('/')); !path.empty(); path.resize(path.rfind('/'))) cgroups_.emplace(path, 0);
  }

  void SeeRange(const v1::FileRange& range) {
    const uint64_t step = uint64_t{1} << range.order();
    for (uint64_t index = range.index(); index < range.index() + std::max(range.count(), step);
         index += step) {
      const std::pair place(range.file(), static_cast<uint32_t>(index));
      if (range.op() == v1::FileRange::OP_ADD) cached_.emplace(place, range.order());
      if (range.op() == v1::FileRange::OP_DELETE) cached_.erase(place);
    }
  }

  std::map<uint32_t, std::set<uint32_t>> processes_;  // live threads, by process
  std::map<uint32_t, uint32_t> process_of_;
  std::set<uint32_t> ended_;                                  // whose address space still is there
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> cached_;  // order, by file and index
  std::map<std::string, uint32_t> cgroups_;
  std::map<uint32_t, std::string> path_;
  uint32_t paths_ = 0, files_ = 0, names_ = 0, cpus_ = 1;
  int64_t base_ns_ = 0, last_ns_ = INT64_MIN;
};

// Threads as 1, 2, 3 … in order of appearance; returns how many there are.
uint32_t CountThreads(std::vector<v1::Batch>* batches) {
  absl::flat_hash_map<uint32_t, uint32_t> numbers;
  const auto number = [&numbers](uint32_t tid) {
    return numbers.try_emplace(tid, static_cast<uint32_t>(numbers.size() + 1)).first->second;
  };
  for (v1::Batch& batch : *batches) {
    for (int i = 0; i < batch.words_size(); i += 2) {
      const uint64_t head = batch.words(i);
      const auto tid = static_cast<uint32_t>((head & kTidMask) >> 16);
      if (tid != 0) batch.set_words(i, (head & ~kTidMask) | uint64_t{number(tid)} << 16);
    }
    for (v1::SideEvent& side : *batch.mutable_side()) ForThreads(&side, number);
  }
  return static_cast<uint32_t>(numbers.size());
}

}  // namespace

Recording MakeRecording(std::vector<v1::Batch> batches, uint32_t batch_events) {
  Recording recording;
  recording.threads = CountThreads(&batches);
  Follower follower;
  for (const v1::Batch& batch : batches) {
    follower.set_base_ns(batch.base_time_ns());
    follower.See(batch);
  }
  const int64_t first_ns = batches.empty() ? 0 : batches.front().base_time_ns();
  const int64_t last_ns = std::max(first_ns, follower.last_ns());
  // Path 1 of a copy is the cgroup that stands for the root; the trace's own follow (ReplayCopies adds 1).
  SideBatches end(batch_events, last_ns);
  follower.End(&end);
  recording.paths = follower.paths() + 1;
  recording.files = follower.files();
  recording.names = follower.names();
  recording.cpus = std::min<uint32_t>(follower.cpus(), kMaxWordCpu + 1);
  recording.duration_ns = last_ns - first_ns + kNsPerEvent;
  recording.batches = std::move(batches);
  for (v1::Batch& batch : end.Take()) recording.batches.push_back(std::move(batch));
  for (const v1::Batch& batch : recording.batches) recording.events += EventsOf(batch);
  return recording;
}

absl::StatusOr<Recording> ReadRecording(const std::string& path, uint32_t batch_events) {
  absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(path, {});
  if (!reader.ok()) return reader.status();
  BatchBuilder builder;
  TraceTranslator translator({}, &builder);
  std::vector<v1::Batch> batches;
  // Room for the three events that ReplayCopies adds.
  const size_t events = std::max<size_t>(batch_events, 4) - 3;
  const auto take = [&](size_t at_least) {
    if (builder.size() < at_least && !builder.full()) return;
    if (builder.size() == 0) return;
    for (v1::Batch& part : SplitBatch(builder.Take(0), {.events = events, .bytes = 16 << 20})) {
      batches.push_back(std::move(part));
    }
  };
  TraceRecord record;
  while (true) {
    absl::StatusOr<bool> more = (*reader)->Next(&record);
    if (!more.ok()) return more.status();
    if (!*more) break;
    translator.Add(record);
    take(events);
  }
  translator.Finish();
  take(1);
  Recording recording = MakeRecording(std::move(batches), static_cast<uint32_t>(events));
  if (recording.events == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": there is no event in it"));
  recording.cpus = std::max(recording.cpus, std::min<uint32_t>(CpusOfTrace(path), kMaxWordCpu + 1));
  return recording;
}

ReplayCopies::ReplayCopies(std::shared_ptr<const Recording> recording, const Part& part)
    : recording_(std::move(recording)), part_(part) {
  offsets_.copy = part.stream;
  const uint32_t most = kMaxWordTid / std::max(recording_->threads, 1u);
  offsets_.thread = offsets_.copy % most * recording_->threads;
}

uint64_t ReplayCopies::Fill(v1::Batch* batch) {
  batch->Clear();
  if (used_up_) return 0;
  FillOne(batch);
  return EventsOf(*batch);
}

std::vector<v1::Batch> ReplayCopies::TearDown() {
  std::vector<v1::Batch> batches;
  while (next_ != 0) FillOne(&batches.emplace_back());
  return batches;
}

void ReplayCopies::FillOne(v1::Batch* batch) {
  const v1::Batch& from = recording_->batches[next_];
  batch->Clear();
  batch->set_base_time_ns(from.base_time_ns() + offsets_.time_ns);
  if (next_ == 0) {  // the cgroup that stands for the root
    v1::DefinePath* define = batch->add_side()->mutable_define_path();
    define->set_handle(offsets_.path + 1);
    define->set_path(absl::StrCat("/copy-", offsets_.copy));
    batch->add_side()->mutable_cgroup_create()->set_path(offsets_.path + 1);
  }
  for (const v1::SideEvent& side : from.side()) {
    v1::SideEvent* to = batch->add_side();
    *to = side;
    Rewrite(to);
  }
  const int words = from.words_size();
  batch->mutable_words()->Reserve(words);
  uint64_t* to = batch->mutable_words()->AddNAlreadyReserved(words);
  for (int i = 0; i < words; i += 2) {
    const uint64_t head = from.words(i);
    to[i] = (head & kTidMask) == 0 ? head : head + (uint64_t{offsets_.thread} << 16);
    to[i + 1] = from.words(i + 1) + (HasFile(KindOf(head)) ? offsets_.file : 0);
  }
  if (++next_ < recording_->batches.size()) return;
  v1::SideEvent* remove = batch->add_side();
  remove->set_position(static_cast<uint32_t>(words / 2));
  remove->mutable_cgroup_remove()->set_path(offsets_.path + 1);
  NextCopy();
}

void ReplayCopies::NextCopy() {
  next_ = 0;
  ++round_;
  offsets_.copy = round_ * part_.streams + part_.stream;
  offsets_.thread = offsets_.copy % (kMaxWordTid / std::max(recording_->threads, 1u)) * recording_->threads;
  offsets_.path += recording_->paths;
  offsets_.file += recording_->files;
  offsets_.name += recording_->names;
  offsets_.time_ns += recording_->duration_ns;
  used_up_ = std::max({offsets_.path + recording_->paths, offsets_.file + recording_->files,
                       offsets_.name + recording_->names}) > kMaxHandle;
}

void ReplayCopies::Rewrite(v1::SideEvent* side) const {
  ForThreads(side, [this](uint32_t tid) { return tid + offsets_.thread; });
  const uint32_t path = offsets_.path + 1;
  const auto file = [this](uint32_t handle) { return handle == 0 ? 0 : handle + offsets_.file; };
  const auto name = [this](uint32_t handle) { return handle == 0 ? 0 : handle + offsets_.name; };
  switch (side->event_case()) {
    case v1::SideEvent::kDefinePath: {
      v1::DefinePath* define = side->mutable_define_path();
      define->set_handle(define->handle() + path);
      define->set_path(
          absl::StrCat("/copy-", offsets_.copy, define->path() == "/" ? std::string() : define->path()));
      return;
    }
    case v1::SideEvent::kDefineFile: {
      v1::DefineFile* define = side->mutable_define_file();
      define->set_handle(file(define->handle()));
      define->set_ino(define->ino() + (uint64_t{offsets_.copy} << 40));
      return;
    }
    case v1::SideEvent::kDefineName:
      side->mutable_define_name()->set_handle(name(side->define_name().handle()));
      return;
    case v1::SideEvent::kExec:
      side->mutable_exec()->set_name(name(side->exec().name()));
      return;
    case v1::SideEvent::kComm:
      side->mutable_comm()->set_name(name(side->comm().name()));
      return;
    case v1::SideEvent::kMmap:
      side->mutable_mmap()->set_file(file(side->mmap().file()));
      return;
    case v1::SideEvent::kFileRange:
      side->mutable_file_range()->set_file(file(side->file_range().file()));
      return;
    case v1::SideEvent::kCgroupCreate:
      side->mutable_cgroup_create()->set_path(side->cgroup_create().path() + path);
      return;
    case v1::SideEvent::kCgroupRemove:
      side->mutable_cgroup_remove()->set_path(side->cgroup_remove().path() + path);
      return;
    case v1::SideEvent::kCgroupAttach:
      side->mutable_cgroup_attach()->set_path(side->cgroup_attach().path() + path);
      return;
    case v1::SideEvent::kSetKnob:
      side->mutable_set_knob()->set_path(side->set_knob().path() + path);
      return;
    default:
      return;  // baselines do not come out of traces
  }
}

}  // namespace memcgd::client::loadgen
