#include "core/id_check.h"

namespace memcgd::core {
namespace {

class IdCheck {
 public:
  explicit IdCheck(Machine& machine) : m_(machine) {}

  bool Run() {
    CheckMemcgs();
    CheckCpus();
    CheckFreeFolios();
    CheckSwap();  // before the folios, whose places in it are followed
    CheckFiles();
    CheckFolios();
    CheckSpaces();
    CheckProcesses();
    return holds_;
  }

 private:
  void Expect(bool condition) { holds_ &= condition; }
  void Expect(MemcgId id) { Expect(Raw(id) < m_.tree.all().size() && m_.tree.all()[Raw(id)] != nullptr); }
  void ExpectOrNone(MemcgId id) {
    if (id != MemcgId::kNone) Expect(id);
  }
  // A descriptor, or none.
  void Expect(FolioId id) { Expect(Raw(id) < m_.arena.end()); }
  void ExpectReal(FolioId id) { Expect(Raw(id) >= 2 && Raw(id) < m_.arena.end()); }
  void Expect(FileId id) { Expect(Raw(id) < m_.files.size()); }
  void Expect(MmId id) { Expect(Raw(id) < m_.mms.end()); }
  void Expect(ProcessId id) { Expect(Raw(id) < m_.table.processes.end()); }
  void ExpectFree(uint32_t index, uint32_t end) { Expect(index >= 1 && index < end); }

  void CheckMemcgs() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const std::unique_ptr<Memcg>& memcg : m_.tree.all()) {
      if (memcg == nullptr) continue;
      for (const Lruvec::List& list : memcg->lruvec.lists) {
        Expect(list.head);
        Expect(list.tail);
      }
    }
  }

  void CheckCpus() {
    for (const std::unique_ptr<CpuSlot>& slot : m_.cpus) {
      for (const Stock::Slot& stock : slot->stock.slots) ExpectOrNone(stock.memcg);
      for (uint32_t i = 0; i < slot->folios.count; ++i) ExpectReal(slot->folios.free[i]);
      for (const FolioBatch* batch : {&slot->lru_add, &slot->lru_activate, &slot->lru_lazyfree}) {
        for (uint32_t i = 0; i < batch->count; ++i) ExpectReal(batch->folios[i]);
      }
    }
  }

  void CheckFreeFolios() {
    for (uint32_t order = 0; order <= FolioArena::kMaxOrder; ++order) {
      for (const FolioId head : m_.arena.free_list(order))
        Expect(Raw(head) >= 2 && uint64_t{Raw(head)} + (1u << order) <= m_.arena.end());
    }
  }

  void CheckFolios() {
    for (uint32_t id = 2; id < m_.arena.end() && holds_; ++id) {
      const Folio& folio = m_.arena.Get(FolioId{id});
      if (folio.Has(kFolioTail)) {
        const uint32_t distance = Raw(folio.next);
        Expect(distance >= 1 && distance < 1u << FolioArena::kMaxOrder && id >= 2 + distance);
        if (!holds_) return;
        const Folio& head = m_.arena.Get(FolioId{id - distance});
        Expect(!head.Has(kFolioTail) && distance < head.pages());
        continue;
      }
      Expect(folio.order() <= FolioArena::kMaxOrder && uint64_t{id} + folio.pages() <= m_.arena.end());
      const MemcgId memcg = folio.memcg();
      ExpectOrNone(memcg);
      if (memcg != MemcgId::kNone && !folio.anon()) Expect(m_.arena.FileOf(FolioId{id}));
      if (folio.lru()) {
        Expect(folio.next);
        Expect(folio.prev);
      }
      if (folio.Has(kFolioSwapped | kFolioSwapCache)) Expect(SwapSlotOf(folio) < m_.swap.end());
    }
  }

  void CheckFiles() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (uint32_t id = 1; id < m_.files.size(); ++id) {
      m_.files.Get(FileId{id}).pages.ForEach({0, ~uint64_t{0}}, [this](PageIndex, uint32_t& entry) {
        if ((entry & File::kAbsent) == 0) ExpectReal(FolioId{entry});
      });
    }
    for (const FileId id : m_.files.free_anonymous()) ExpectFree(Raw(id), m_.files.size());
  }

  void CheckSpaces() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const uint32_t id : m_.mms.free()) ExpectFree(id, m_.mms.end());
    for (uint32_t id = 1; id < m_.mms.end(); ++id) {
      Mm& mm = m_.mms.Get(id);
      if (mm.users == 0) continue;
      Expect(mm.owner);
      ExpectOrNone(mm.pgd);
      for (const FolioId page : mm.unbound) ExpectReal(page);
      for (const ImpliedArea& area : mm.implied) Expect(area.file);
      mm.vmas.ForEach([this](const Vma& vma) {
        Expect(vma.file);
        Expect(vma.range.first < vma.range.end && vma.range.end - 1 <= kMaxAddress >> m_.page_shift);
      });
      mm.page_table.ForEach({0, ~uint64_t{0}}, [this](PageNumber, Pte& pte) { Expect(PteFolio(pte)); });
      mm.page_table.ForEachTable({0, ~uint64_t{0}},
                                 [this](TableLevel, PageRange, MemcgId memcg) { ExpectOrNone(memcg); });
    }
  }

  void CheckProcesses() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const uint32_t id : m_.table.processes.free()) ExpectFree(id, m_.table.processes.end());
    for (uint32_t id = 1; id < m_.table.processes.end(); ++id) {
      const Process& process = m_.table.processes.Get(id);
      Expect(process.mm.load(std::memory_order_relaxed));
      Expect(process.exec_mm.load(std::memory_order_relaxed));
      for (const auto& [memcg, count] : process.stacks) ExpectOrNone(memcg);
    }
    for (uint32_t tid = 1; tid <= kMaxTid; ++tid) {
      if (!m_.table.threads.Exists(tid)) {
        tid |= 255;  // the rest of the chunk
        continue;
      }
      const Thread& thread = m_.table.threads.Get(tid);
      Expect(thread.process.load(std::memory_order_relaxed).id);
      ExpectOrNone(thread.stack);
      Expect(thread.hints.fault_file);
      Expect(thread.hints.map_file);
      Expect(thread.next_read < thread.reads.size());
      for (const ReadPosition& read : thread.reads) Expect(read.file);
    }
  }

  void CheckSwap() {
    for (uint64_t slot = 0; slot < m_.swap.end(); ++slot) {
      const SwapSpace::Entry entry = m_.swap.Get(static_cast<uint32_t>(slot));
      if (entry.folio == FolioId::kNone) continue;
      ExpectReal(entry.folio);
      Expect(entry.owner);
    }
  }

  Machine& m_;
  bool holds_ = true;
};

}  // namespace

bool IdsHold(Machine& machine) { return IdCheck(machine).Run(); }

}  // namespace memcgd::core
