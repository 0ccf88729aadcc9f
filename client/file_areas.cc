#include "client/file_areas.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace memcgd::client {

void FileAreas::Map(const FileArea& area) {
  Unmap(area.address, area.end);
  if (areas_.size() >= kMaxAreas) {
    areas_.erase(areas_.begin(), areas_.begin() + static_cast<ptrdiff_t>(areas_.size() - kMaxAreas + 1));
  }
  areas_.push_back(area);
}

void FileAreas::Unmap(uint64_t address, uint64_t end) {
  if (!areas_.empty()) Cut(address, end);
}

void FileAreas::Protect(uint64_t address, uint64_t end, bool writable) {
  for (FileArea& part : Cut(address, end)) {
    part.writable = writable;
    Map(part);
  }
}

void FileAreas::Move(uint64_t old_address, uint64_t old_end, uint64_t new_address, uint64_t new_end) {
  std::vector<FileArea> parts = Cut(old_address, old_end);
  Unmap(new_address, new_end);
  // One mremap is of one area; where the trace knows of parts, each keeps its distance from the beginning.
  for (FileArea& part : parts) {
    const uint64_t begin = new_address + (part.address - old_address);
    const bool last = part.end == old_end;
    const uint64_t end = last ? new_end : std::min(new_end, begin + (part.end - part.address));
    if (begin >= end) continue;
    part.address = begin;
    part.end = end;
    Map(part);
  }
}

void FileAreas::Learn(uint64_t address, uint32_t file, uint64_t index) {
  for (FileArea& area : areas_) {
    if (address < area.address || address >= area.end) continue;
    if (area.file == 0 && Has(area, index) && AddressOf(area, index) == address) area.file = file;
    return;
  }
}

bool FileAreas::Find(uint32_t file, uint64_t index, uint64_t address, uint64_t end, uint64_t from,
                     FileArea* area) const {
  const FileArea* best = nullptr;
  size_t unknown = 0;
  for (const FileArea& candidate : areas_) {
    if (candidate.end <= address || candidate.address >= end || !Has(candidate, index)) continue;
    const uint64_t at = AddressOf(candidate, index);
    if (at < address || at >= end) continue;
    if (candidate.file == 0) ++unknown;
    if (candidate.file != file && candidate.file != 0) continue;
    const auto rank = [&](const FileArea& one) {
      return std::tuple(one.file != file, AddressOf(one, index) < from, one.address);
    };
    if (best == nullptr || rank(candidate) < rank(*best)) best = &candidate;
  }
  if (best == nullptr || (best->file == 0 && unknown > 1)) return false;
  *area = *best;
  return true;
}

FileArea FileAreas::Part(const FileArea& area, uint64_t address, uint64_t end) const {
  FileArea part = area;
  part.address = std::max(area.address, address);
  part.end = std::min(area.end, end);
  part.first_index += (part.address - area.address) / page_size_;
  return part;
}

std::vector<FileArea> FileAreas::Cut(uint64_t address, uint64_t end) {
  std::vector<FileArea> taken, kept;
  for (const FileArea& area : areas_) {
    if (area.end <= address || area.address >= end) {
      kept.push_back(area);
      continue;
    }
    taken.push_back(Part(area, address, end));
    if (area.address < address) kept.push_back(Part(area, area.address, address));
    if (area.end > end) kept.push_back(Part(area, end, area.end));
  }
  if (taken.empty()) return taken;
  if (kept.size() > kMaxAreas) {
    kept.erase(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(kept.size() - kMaxAreas));
  }
  areas_ = std::move(kept);
  return taken;
}

}  // namespace memcgd::client
