#include "core/snapshot.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/archive.h"
#include "core/event_stream.h"
#include "core/id_check.h"
#include "core/invariants.h"
#include "core/machine.h"
#include "core/node_cut.h"
#include "core/stat_reader.h"

namespace memcgd::core {
namespace {

constexpr std::string_view kMagic = "memcgd-node\n";

template <typename Archive>
void WalkConfig(Archive& a, NodeConfig& config) {
  a(config.cpus);
  a(config.memory_bytes);
  a(config.swap_bytes);
  a(config.page_size);
  a(config.zero_page);
  a(config.overcommit);
  a(config.overcommit_ratio);
  a(config.overcommit_kbytes);
  a(config.reclaim);
  a(config.writeback_bytes_per_second);
  a(config.read_bytes_per_second);
  a(config.mechanisms.charge_order);
  a(config.mechanisms.commit_batch);
  a(config.mechanisms.css_refs);
  a(config.mechanisms.stats);
  a(config.mechanisms.lru_lock);
}

// A vector's elements by `walk`; a reader resizes first.
template <typename Archive, typename T, typename Fn>
void WalkVector(Archive& a, std::vector<T>& vector, Fn walk) {
  uint64_t size = a.Size(vector.size());
  if constexpr (Archive::kReads) vector.resize(size);
  for (T& element : vector) walk(element);
}

template <typename Archive>
void WalkCounter(Archive& a, PageCounter& counter) {
  int64_t usage = counter.usage_pages(), max = counter.max_pages();
  int64_t watermark = counter.watermark_pages(), failcnt = counter.failcnt();
  a(usage);
  a(max);
  a(watermark);
  a(failcnt);
  if constexpr (Archive::kReads) {
    counter.Restore(usage, watermark, failcnt);
    counter.set_max_pages(max);
  }
}

// Entries by page; a reader puts each where `place`(page) says, or fails where that is null.
template <typename Archive, typename Array, typename Place>
void WalkEntries(Archive& a, Array& array, Place place) {
  if constexpr (Archive::kForks) {
    a.Share(array);
  } else if constexpr (Archive::kReads) {
    uint64_t entries = a.Size(0);
    PageNumber page = 0;
    for (uint64_t i = 0; i < entries && a.ok(); ++i) {
      PageNumber step = 0;
      uint32_t entry = 0;
      a(step);
      a(entry);
      page += step;
      uint32_t* at = place(page);
      if (at == nullptr) return a.Fail();
      *at = entry;
    }
  } else {
    uint64_t entries = 0;
    array.ForEach({0, ~uint64_t{0}}, [&](PageNumber, uint32_t&) { ++entries; });
    a.Size(entries);
    PageNumber last = 0;
    array.ForEach({0, ~uint64_t{0}}, [&](PageNumber page, uint32_t& entry) {
      a(page - last);
      a(entry);
      last = page;
    });
  }
}

struct SavedTable {
  TableLevel level{};
  PageNumber first = 0;
  MemcgId memcg{};
};

// The tables, from the top level down, then the entries.
template <typename Archive>
void WalkPageTable(Archive& a, PageTable& table) {
  if constexpr (Archive::kForks) return a.Share(table);
  std::vector<SavedTable> tables;
  if constexpr (!Archive::kReads) {
    table.ForEachTable({0, ~uint64_t{0}}, [&tables](TableLevel level, PageRange span, MemcgId memcg) {
      tables.push_back({level, span.first, memcg});
    });
  }
  WalkVector(a, tables, [&a](SavedTable& saved) {
    a(saved.level);
    a(saved.first);
    a(saved.memcg);
  });
  if constexpr (Archive::kReads) {
    for (const SavedTable& saved : tables) {
      bool known = saved.level <= TableLevel::kPud && saved.first <= kMaxAddress &&
                   !table.Exists(saved.first, saved.level);
      for (TableLevel above : {TableLevel::kPmd, TableLevel::kPud}) {
        known = known && (saved.level >= above || table.Exists(saved.first, above));
      }
      if (!known) return a.Fail();
      table.Restore(saved.first, saved.level, saved.memcg);
    }
  }
  WalkEntries(a, table, [&table](PageNumber page) { return table.Find(page); });
}

template <typename Archive>
void WalkBatch(Archive& a, FolioBatch& batch) {
  a(batch.count);
  if (batch.count > FolioBatch::kSize) batch.count = 0;
  for (uint32_t i = 0; i < batch.count; ++i) a(batch.folios[i]);
}

template <typename Archive>
void WalkVma(Archive& a, Vma& vma) {
  a(vma.range.first);
  a(vma.range.end);
  a(vma.prot);
  a(vma.flags);
  a(vma.file);
  a(vma.file_index);
  a(vma.has_anon_vma);
  a(vma.accounted);
  a(vma.locked);
  a(vma.has_recency);
}

template <typename Archive>
void WalkHints(Archive& a, FaultHints& hints) {
  a(hints.fault_file);
  a(hints.fault_index);
  a(hints.fault_major);
  a(hints.fault_unseen);
  a(hints.map_file);
  a(hints.map_first);
  a(hints.map_end);
  a(hints.instruction);
}

}  // namespace

template <typename Archive>
void Snapshot::WalkTree(Archive& a, Machine& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  uint64_t size = a.Size(m.tree.all().size());
  if constexpr (Archive::kReads) {
    if (size == 0) return a.Fail();
    m.tree.RestoreEnd(size);
  }
  for (uint32_t id = 0; id < size && a.ok(); ++id) {
    Memcg* memcg = m.tree.all()[id].get();
    bool exists = memcg != nullptr;
    a(exists);
    if (!exists) continue;
    if (id > 0) {
      MemcgId parent = Archive::kReads ? MemcgId::kNone : memcg->parent->id;
      std::string path = Archive::kReads ? "" : memcg->path;
      bool online = Archive::kReads || memcg->online;
      a(parent);
      a(path);
      a(online);
      if constexpr (Archive::kReads) {
        if (Raw(parent) >= id || m.tree.all()[Raw(parent)] == nullptr ||
            (online && m.tree.Find(path) != nullptr)) {
          return a.Fail();
        }
        memcg = &m.tree.Restore(MemcgId{id}, &m.tree.Get(parent), path, online);
        m.AddCpuStats(MemcgId{id});
      }
    }
    uint64_t knobs = a.Size(memcg->knobs.size());
    auto knob = memcg->knobs.begin();
    for (uint64_t i = 0; i < knobs; ++i) {
      std::string name = Archive::kReads ? "" : knob->first;
      std::string value = Archive::kReads ? "" : knob->second;
      a(name);
      a(value);
      if constexpr (Archive::kReads) {
        memcg->knobs[name] = value;
      } else {
        ++knob;
      }
    }
    WalkCounter(a, memcg->memory);
    WalkCounter(a, memcg->swap);
    a(memcg->reclaim.min);
    a(memcg->reclaim.low);
    a(memcg->reclaim.high);
    a(memcg->reclaim.swap_high);
    a(memcg->reclaim.swappiness);
    a(memcg->reclaim.oom_group);
    for (auto& value : memcg->swap_events_local) a(value);
    for (auto& value : memcg->swap_events) a(value);
    a(memcg->high_delay_us);
    a(memcg->emin);
    a(memcg->elow);
    for (auto& value : memcg->cost) a(value);
    for (auto& value : memcg->activations) a(value);
    for (auto& value : memcg->refaults) a(value);
    for (auto& value : memcg->flushed.lru_pages) a(value);
    for (auto& value : memcg->flushed.activations) a(value);
    a(memcg->shadows_shrunk_age);
    a(memcg->walk_position);
    a(memcg->refs);
    for (auto& value : memcg->stats.local) a(value);
    for (auto& value : memcg->stats.recursive) a(value);
    for (auto& value : memcg->events_local) a(value);
    for (auto& value : memcg->events) a(value);
    for (Lruvec::List& list : memcg->lruvec.lists) {
      a(list.head);
      a(list.tail);
      a(list.pages);
    }
    a(memcg->lruvec.nonresident_age);
    for (auto& pages : memcg->lru_pages) a(pages);
  }
}

template <typename Archive>
void Snapshot::WalkCpus(Archive& a, Machine& m) {
  for (std::unique_ptr<CpuSlot>& slot : m.cpus) {
    for (Stock::Slot& stock : slot->stock.slots) {
      a(stock.memcg);
      a(stock.pages);
    }
    a(slot->stock.last);
    slot->stock.last %= Stock::kSlots;
    for (uint32_t id = 0; id < slot->stats.size(); ++id) {
      StatPending* stats = slot->stats[id].get();
      if (stats == nullptr) continue;
      for (auto& value : stats->pending) a(value);
      if constexpr (Archive::kReads) {  // the first read adds all of it up
        Locked lock(slot->touched_lock);
        stats->touched = true;
        slot->touched.push_back(MemcgId{id});
      }
    }
    a(slot->folios.in_use);
    a(slot->folios.count);
    if (slot->folios.count > FolioCache::kSize) slot->folios.count = 0;
    for (uint32_t i = 0; i < slot->folios.count; ++i) a(slot->folios.free[i]);
    WalkBatch(a, slot->lru_add);
    WalkBatch(a, slot->lru_activate);
    WalkBatch(a, slot->lru_lazyfree);
    std::ostringstream random;
    random << slot->random;
    std::string text = random.str();
    a(text);
    if constexpr (Archive::kReads) std::istringstream(text) >> slot->random;
  }
  PercpuCounter& committed = m.commit.counter();
  int64_t count = committed.Read();
  a(count);
  if constexpr (Archive::kReads) committed.Restore(count);
  for (uint32_t cpu = 0; cpu < m.config.cpus; ++cpu) {
    int64_t local = committed.Local(cpu);
    a(local);
    if constexpr (Archive::kReads) committed.RestoreLocal(cpu, local);
  }
}

template <typename Archive>
void Snapshot::WalkFolios(Archive& a, Machine& m) {
  if constexpr (Archive::kForks) return a.Share(m.arena);
  uint32_t end = m.arena.end();
  a(end);
  if constexpr (Archive::kReads) {
    if (end < 2 || end > FolioArena::kMaxFolios) return a.Fail();
    if (!a.Holds(end)) return;
    m.arena.Restore(end);
  }
  for (uint32_t order = 0; order <= FolioArena::kMaxOrder; ++order) {
    WalkVector(a, m.arena.free_list(order), [&a](FolioId& head) { a(head); });
  }
  if constexpr (Archive::kReads) m.arena.CountFree();
  for (uint32_t id = 2; id < end && a.ok(); ++id) {
    Folio& folio = m.arena.Get(FolioId{id});
    a(folio.next);
    a(folio.prev);
    a(folio.state);
    a(folio.flags);
    a(folio.index);
    // Anonymous pages and free descriptors have no file; to ask would make memory for one.
    if (folio.memcg() != MemcgId::kNone && !folio.anon()) a(m.arena.FileOf(FolioId{id}));
  }
}

template <typename Archive>
void Snapshot::WalkFiles(Archive& a, Machine& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  uint32_t size = m.files.size();
  a(size);
  if constexpr (Archive::kReads) {
    if (size > NodeLimits::kMostFiles) return a.Fail();
  }
  for (uint32_t id = 1; id < size && a.ok(); ++id) {
    uint32_t dev = 0;
    uint64_t ino = 0;
    bool shmem = false;
    if constexpr (!Archive::kReads) {
      const File& file = m.files.Get(FileId{id});
      dev = file.dev;
      ino = file.ino;
      shmem = file.shmem;
    }
    a(dev);
    a(ino);
    a(shmem);
    if constexpr (Archive::kReads) m.files.Restore(dev, ino, shmem);
    File& file = m.files.Get(FileId{id});
    a(file.cached_pages);
    a(file.area_pages);
    a(file.committed_pages);
    a(file.traced_pages);
    a(file.reading_until_ns);
    WalkVector(a, file.readings, [&a](Reading& reading) {
      a(reading.first);
      a(reading.end);
      a(reading.done_ns);
    });
    WalkEntries(a, file.pages, [&file](PageIndex index) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return &file.pages.Ensure(index);
    });
    if constexpr (Archive::kForks) {
      a.Share(file.shadows);
      continue;
    }
    std::vector<std::pair<uint64_t, Shadow>> shadows(file.shadows.begin(), file.shadows.end());
    std::sort(shadows.begin(), shadows.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    WalkVector(a, shadows, [&a](std::pair<uint64_t, Shadow>& shadow) {
      a(shadow.first);
      a(shadow.second.memcg);
      a(shadow.second.age);
      a(shadow.second.workingset);
      a(shadow.second.order);
    });
    if constexpr (Archive::kReads) file.shadows.insert(shadows.begin(), shadows.end());
  }
  WalkVector(a, m.files.free_anonymous(), [&a](FileId& id) { a(id); });
}

// The free lists of a table: their order decides which index is next.
template <typename Archive, typename Table>
void WalkTable(Archive& a, Table& table) {
  uint32_t end = table.end();
  std::vector<uint32_t> free = table.free();
  a(end);
  WalkVector(a, free, [&a](uint32_t& index) { a(index); });
  if constexpr (Archive::kReads) {
    if (end < 1 || end > (1u << 22)) return a.Fail();
    if (!a.Holds(end - 1)) return;
    table.Restore(end, std::move(free));
  }
}

template <typename Archive>
void Snapshot::WalkSpaces(Archive& a, Machine& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  WalkTable(a, m.mms);
  for (uint32_t id = 1; id < m.mms.end() && a.ok(); ++id) {
    Mm& mm = m.mms.Get(id);
    mm.id = MmId{id};
    a(mm.users);
    if (mm.users == 0) continue;
    a(mm.memcg);
    a(mm.owner);
    a(mm.entry);
    a(mm.brk);
    a(mm.total_pages);
    a(mm.committed_pages);
    a(mm.predates_stream);
    a(mm.pgd);
    a(mm.stack_unplaced);
    a(mm.tables_predate);
    WalkVector(a, mm.unbound, [&a](FolioId& folio) { a(folio); });
    WalkVector(a, mm.implied, [&a](ImpliedArea& area) {
      a(area.file);
      a(area.delta);
      a(area.has_anon_vma);
    });
    uint64_t areas = a.Size(mm.vmas.size());
    if constexpr (Archive::kReads) {
      for (uint64_t i = 0; i < areas && a.ok(); ++i) {
        Vma vma;
        WalkVma(a, vma);
        if (!mm.vmas.Insert(vma)) return a.Fail();
      }
      MemcgId memcg = mm.memcg.load(std::memory_order_relaxed);
      if (Raw(memcg) >= m.tree.all().size() || m.tree.all()[Raw(memcg)] == nullptr) return a.Fail();
      ++m.tree.Get(memcg).spaces;
    } else {
      mm.vmas.ForEach([&a](Vma vma) { WalkVma(a, vma); });
    }
    WalkPageTable(a, mm.page_table);
  }
}

template <typename Archive>
void Snapshot::WalkProcesses(Archive& a, Machine& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  WalkTable(a, m.table.processes);
  a(m.table.alive);
  for (uint32_t id = 1; id < m.table.processes.end() && a.ok(); ++id) {
    Process& process = m.table.processes.Get(id);
    process.id = ProcessId{id};
    a(process.generation);
    a(process.tgid);
    a(process.threads);
    a(process.mm);
    a(process.memcg);
    a(process.exec_mm);
    a(process.oom_score_adj);
    a(process.comm);
    WalkVector(a, process.stacks, [&a](std::pair<MemcgId, uint32_t>& stacks) {
      a(stacks.first);
      a(stacks.second);
    });
    if constexpr (Archive::kReads) {
      MemcgId memcg = process.memcg.load(std::memory_order_relaxed);
      bool ended = std::find(m.table.processes.free().begin(), m.table.processes.free().end(), id) !=
                   m.table.processes.free().end();
      if (ended) continue;
      if (Raw(memcg) >= m.tree.all().size() || m.tree.all()[Raw(memcg)] == nullptr) return a.Fail();
      ++m.tree.Get(memcg).processes;
    }
  }
  std::vector<uint32_t> tids, killed;
  if constexpr (!Archive::kReads) {
    for (uint32_t tid = 1; tid <= kMaxTid; ++tid) {
      if (!m.table.threads.Exists(tid)) {
        tid |= 255;  // the rest of the chunk
        continue;
      }
      if (m.table.Find(tid) != nullptr) tids.push_back(tid);
      if (m.table.threads.Get(tid).oom_killed) killed.push_back(tid);
    }
  }
  WalkVector(a, killed, [&a](uint32_t& tid) { a(tid); });
  for (uint32_t tid : killed) {
    if constexpr (Archive::kReads) {
      if (tid > kMaxTid) return a.Fail();
    }
    m.table.Ensure(tid).oom_killed = true;
  }
  WalkVector(a, tids, [&a](uint32_t& tid) { a(tid); });
  for (uint32_t tid : tids) {
    if (tid > kMaxTid) return;
    Thread& thread = m.table.Ensure(tid);
    ProcessRef ref = thread.process.load(std::memory_order_relaxed);
    a(ref.id);
    a(ref.generation);
    if constexpr (Archive::kReads) thread.process.store(ref, std::memory_order_release);
    a(thread.stack);
    WalkHints(a, thread.hints);
    a(thread.in_reclaim);
    a(thread.next_read);
    for (ReadPosition& read : thread.reads) {
      a(read.file);
      a(read.first);
      a(read.last);
      a(read.done);
    }
  }
}

// What is dirty and on its way to disk.  Records of the OOM killer's calls are not kept, their number is.
template <typename Archive>
void Snapshot::WalkWriteback(Archive& a, Machine& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  m.swap.Walk(a);
  a(m.oom_calls);
  a(m.tree.next_flush_ns);
  a(m.reads.busy_until_ns);
  a(m.reads.awaited_ns);
  WritebackQueue& queue = m.writeback;
  for (std::deque<WritebackQueue::Entry>* entries : {&queue.dirty, &queue.in_flight}) {
    uint64_t size = a.Size(entries->size());
    if constexpr (Archive::kReads) entries->resize(size);
    for (WritebackQueue::Entry& entry : *entries) {
      a(entry.head);
      a(entry.time_ns);
      if constexpr (Archive::kReads) {
        if (Raw(entry.head) >= m.arena.end()) return a.Fail();
      }
    }
  }
  a(queue.dirty_pages);
  a(queue.woken_pages);
  a(queue.busy_until_ns);
  a(queue.advanced_ns);
  a(queue.waited_ns);
}

template <typename Archive>
void Snapshot::WalkStreams(Archive& a, Node& node) {
  uint64_t size = a.Size(node.streams_.size());
  auto next = node.streams_.begin();
  for (uint64_t i = 0; i < size && a.ok(); ++i) {
    std::string name = Archive::kReads ? "" : next->first;
    a(name);
    if constexpr (Archive::kReads)
      next = node.streams_.emplace(name, std::make_unique<EventStream>(name)).first;
    EventStream& stream = *next->second;
    WalkVector(a, stream.paths_, [&a](std::string& path) { a(path); });
    WalkVector(a, stream.files_, [&a](FileId& file) { a(file); });
    if constexpr (Archive::kReads) {
      for (const FileId file : stream.files_) {
        if (Raw(file) >= node.machine_->files.size()) return a.Fail();
      }
    }
    WalkVector(a, stream.names_, [&a](std::string& text) { a(text); });
    if constexpr (!Archive::kReads) ++next;
  }
}

template <typename Archive>
void Snapshot::Walk(Archive& a, Node& node) {
  Machine& m = *node.machine_;
  a(m.time_ns);
  a(node.events_);
  WalkTree(a, m);
  WalkCpus(a, m);
  WalkFolios(a, m);
  WalkFiles(a, m);
  WalkSpaces(a, m);
  WalkProcesses(a, m);
  WalkWriteback(a, m);
  WalkStreams(a, node);
}

std::string Snapshot::Save(Node& node) {
  FlushForSave(*node.machine_);
  Writer writer;
  WalkConfig(writer, node.machine_->config);
  Walk(writer, node);
  std::string payload = writer.Take();
  std::string bytes(kMagic);
  bytes.push_back(static_cast<char>(kFormatVersion));
  bytes.append(payload);
  uint64_t checksum = HashBytes(payload);
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return bytes;
}

absl::StatusOr<std::unique_ptr<Node>> Snapshot::Load(std::string_view bytes) {
  if (bytes.size() < kMagic.size() + 1 || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError("not a snapshot of a node");
  }
  bytes.remove_prefix(kMagic.size());
  uint32_t version = static_cast<uint8_t>(bytes[0]);
  if (version != kFormatVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a snapshot of format version ", version, "; this server reads ", kFormatVersion));
  }
  bytes.remove_prefix(1);
  uint64_t checksum = 0;
  if (bytes.size() < sizeof(checksum)) return absl::DataLossError("the snapshot is cut short");
  std::string_view payload = bytes.substr(0, bytes.size() - sizeof(checksum));
  std::memcpy(&checksum, bytes.data() + payload.size(), sizeof(checksum));
  if (checksum != HashBytes(payload))
    return absl::DataLossError("the snapshot is cut short or damaged: its checksum differs");
  Reader reader(payload);
  NodeConfig config;
  WalkConfig(reader, config);
  absl::StatusOr<std::unique_ptr<Node>> node = Node::Create(config);
  if (!node.ok())
    return absl::DataLossError(absl::StrCat("the snapshot is damaged: ", node.status().message()));
  Walk(reader, **node);
  if (!reader.ok() || !reader.at_end())
    return absl::DataLossError("the snapshot is damaged: it holds no state of a node");
  // The checksum keeps out damage, not malice; what follows an id or a list must not meet either.
  if (!IdsHold(*(*node)->machine_))
    return absl::DataLossError("the snapshot is damaged: an id names nothing");
  const std::string wrong = FindBrokenInvariant(*(*node)->machine_);
  if (!wrong.empty()) return absl::DataLossError(absl::StrCat("the snapshot is damaged: ", wrong));
  return node;
}

namespace {

// What modelled reclaim goes by, and a machine whose events told of reclaim has not kept.
void BeginToModelReclaim(Machine& m) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  m.tree.root().memory.set_max_pages(m.watermarks.min_usage);
  m.tree.root().swap.set_max_pages(static_cast<int64_t>(m.config.swap_bytes >> m.page_shift));
  for (const std::unique_ptr<Memcg>& memcg : m.tree.all()) {
    if (memcg == nullptr) continue;
    for (size_t list = 0; list < kLruLists; ++list) {
      if (static_cast<LruList>(list) == LruList::kActiveFile) continue;  // those are always kept
      for (Memcg* level = memcg.get(); level != nullptr; level = level->parent)
        level->lru_pages[list].fetch_add(memcg->lruvec.lists[list].pages, std::memory_order_relaxed);
    }
  }
  m.tree.Flush();
  for (uint32_t id = 1; id < m.files.size(); ++id)
    m.files.Get(FileId{id}).traced_pages = static_cast<int64_t>(m.files.Get(FileId{id}).cached_pages);
  for (uint32_t id = 2; id < m.arena.end(); ++id) {
    Folio& folio = m.arena.Get(FolioId{id});
    const bool held = (folio.state.load(std::memory_order_relaxed) & Folio::kHolds) != 0;
    if (!held || folio.dead() || folio.Has(kFolioTail | kFolioSwapBacked) || !folio.Has(kFolioDirty))
      continue;
    folio.Get();
    m.writeback.dirty.push_back({FolioId{id}, m.time_ns.load(std::memory_order_relaxed)});
    m.writeback.dirty_pages += folio.pages();
  }
}

}  // namespace

std::unique_ptr<Node> Snapshot::Fork(Node& node, Reclaim reclaim) {
  FlushForSave(*node.machine_);
  Lender lender;
  Walk(lender, node);
  NodeConfig config = node.machine_->config;
  config.reclaim = reclaim;
  std::unique_ptr<Node> fork(new Node(config));
  const std::string bytes = lender.Take();
  Borrower borrower(lender, bytes);
  Walk(borrower, *fork);
  MEMCG_CHECK(borrower.ok() && borrower.at_end());
  if (reclaim == Reclaim::kModelled && node.machine_->config.reclaim != Reclaim::kModelled)
    BeginToModelReclaim(*fork->machine_);
  return fork;
}

// Eight bytes at a time: multiply and fold, as in wyhash's mixing step.
uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15 ^ bytes.size();
  auto mix = [&hash](uint64_t word) {
    unsigned __int128 product = static_cast<unsigned __int128>(hash ^ word) * 0xa0761d6478bd642f;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  uint64_t last = 0;
  std::memcpy(&last, bytes.data() + i, bytes.size() - i);
  mix(last);
  mix(0x2545f4914f6cdd1d);
  return hash;
}

std::string Node::Save() {
  Locked cut(cut_->lock);
  FreeDyingAtCut();
  return Snapshot::Save(*this);
}

absl::StatusOr<std::unique_ptr<Node>> Node::Load(std::string_view bytes) { return Snapshot::Load(bytes); }

std::unique_ptr<Node> Node::Fork(std::optional<core::Reclaim> reclaim) {
  Locked cut(cut_->lock);
  FreeDyingAtCut();
  return Snapshot::Fork(*this, reclaim.value_or(machine_->config.reclaim));
}

uint64_t Node::StateHash() { return HashBytes(Save()); }

std::string Node::CheckInvariants() {
  Locked cut(cut_->lock);
  return FindBrokenInvariant(*machine_);
}

}  // namespace memcgd::core
