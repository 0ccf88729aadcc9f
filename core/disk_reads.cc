#include "core/disk_reads.h"

#include <algorithm>

namespace memcgd::core {

// Pages of one request come one after the other; what follows a pause is another.
void DiskReads::Begin(File& file, PageRange pages, int64_t now_ns) {
  int64_t idle_from_ns = busy_until_ns.load(std::memory_order_relaxed);
  int64_t done_ns = std::max(Seen(now_ns), idle_from_ns) + static_cast<int64_t>(pages.pages()) * page_ns_;
  busy_until_ns.store(done_ns, std::memory_order_relaxed);
  file.reading_until_ns.store(done_ns, std::memory_order_relaxed);
  std::erase_if(file.readings, [&](const Reading& reading) { return reading.done_ns <= Seen(now_ns); });
  if (!file.readings.empty() && file.readings.back().end == pages.first &&
      file.readings.back().done_ns == idle_from_ns) {
    file.readings.back().end = pages.end;
    file.readings.back().done_ns = done_ns;
    return;
  }
  file.readings.push_back({pages.first, pages.end, done_ns});
}

void DiskReads::End(File& file, PageIndex first, PageIndex last) {
  if (file.readings.empty()) return;
  for (Reading& reading : file.readings) {
    if (reading.first <= last && first < reading.end) reading.first = std::min(last + 1, reading.end);
  }
  std::erase_if(file.readings, [](const Reading& reading) { return reading.first == reading.end; });
}

bool DiskReads::Reads(const File& file, PageIndex index, int64_t now_ns) const {
  int64_t seen_ns = Seen(now_ns);
  return std::any_of(file.readings.begin(), file.readings.end(), [&](const Reading& reading) {
    return index >= reading.first && index < reading.end && reading.done_ns > seen_ns;
  });
}

}  // namespace memcgd::core
