// The areas of an address space that map files, as its mmaps told of them: what turns a page of a file into
// the address at which a call that faults pages in (mlock, MADV_POPULATE_READ …) maps it.
//
// Kernel counterpart: the vm_area_structs of an mm that have a vm_file (mm/vma.c).  Differs: areas from
// before the trace, and those that exec makes, are not known; of more than kMaxAreas the oldest are
// forgotten.  What is not known is not told of, never guessed.
//
// Memory: kMaxAreas areas at most.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_FILE_AREAS_H_
#define MEMCGD_CLIENT_FILE_AREAS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memcgd::client {

struct FileArea {
  uint64_t address = 0;  // bytes, of whole pages
  uint64_t end = 0;
  uint64_t first_index = 0;  // page of the file at `address`
  uint32_t file = 0;         // handle; 0: not known yet
  bool shared = false;
  bool writable = false;
};

class FileAreas {
 public:
  static constexpr size_t kMaxAreas = 128;

  explicit FileAreas(uint64_t page_size = 4096) : page_size_(page_size) {}

  // A new area; what was there is gone.
  void Map(const FileArea& area);
  void Unmap(uint64_t address, uint64_t end);
  void Protect(uint64_t address, uint64_t end, bool writable);
  void Move(uint64_t old_address, uint64_t old_end, uint64_t new_address, uint64_t new_end);
  void Clear() { areas_.clear(); }

  // A fault at `address` showed that page `index` of the file is there.
  void Learn(uint64_t address, uint32_t file, uint64_t index);

  // Where address … end maps page `index` of the file, not below `from` if there is a choice.  False where it
  // is not known: no area has it, or several do of which none is known to be the file's.
  bool Find(uint32_t file, uint64_t index, uint64_t address, uint64_t end, uint64_t from,
            FileArea* area) const;

  // Address of a page of the area's file.  REQUIRES: the area has it.
  uint64_t AddressOf(const FileArea& area, uint64_t index) const {
    return area.address + (index - area.first_index) * page_size_;
  }

 private:
  // Takes address … end out, and returns what was there.
  std::vector<FileArea> Cut(uint64_t address, uint64_t end);
  FileArea Part(const FileArea& area, uint64_t address, uint64_t end) const;
  bool Has(const FileArea& area, uint64_t index) const {
    return index >= area.first_index && index - area.first_index < (area.end - area.address) / page_size_;
  }

  uint64_t page_size_;
  std::vector<FileArea> areas_;  // the oldest first; they do not overlap
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_FILE_AREAS_H_
