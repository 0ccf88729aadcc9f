#include "server/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

// Linux has no more; cpu_set_t has room for 1024.
constexpr uint32_t kMaxCpus = 8192;

class CpuSet {
 public:
  static constexpr size_t kBytes = CPU_ALLOC_SIZE(kMaxCpus);

  void Add(uint32_t cpu) { CPU_SET_S(cpu, kBytes, get()); }
  bool Has(uint32_t cpu) { return CPU_ISSET_S(cpu, kBytes, get()); }
  cpu_set_t* get() { return reinterpret_cast<cpu_set_t*>(words_.data()); }

 private:
  std::array<uint64_t, kBytes / sizeof(uint64_t)> words_{};
};

bool ParseCpu(std::string_view text, uint32_t* cpu) {
  return !text.empty() && absl::ascii_isdigit(text[0]) && absl::SimpleAtoi(Piece(text), cpu) &&
         *cpu < kMaxCpus;
}

// "3" or "0-3".
bool ParseRange(std::string_view text, uint32_t* first, uint32_t* last) {
  const size_t dash = text.find('-');
  if (dash == text.npos) {
    const bool parsed = ParseCpu(text, first);
    *last = *first;
    return parsed;
  }
  return ParseCpu(text.substr(0, dash), first) && ParseCpu(text.substr(dash + 1), last) && *first <= *last;
}

// "0-3,8"
std::string Text(CpuSet* set) {
  std::string text;
  for (uint32_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!set->Has(cpu)) continue;
    uint32_t last = cpu;
    while (last + 1 < kMaxCpus && set->Has(last + 1)) ++last;
    text += Cat(text.empty() ? "" : ",", cpu, last == cpu ? "" : Cat("-", last));
    cpu = last;
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text) {
  CpuSet usable;
  if (sched_getaffinity(0, CpuSet::kBytes, usable.get()) < 0) {
    return absl::InternalError(Cat("sched_getaffinity: ", std::strerror(errno)));
  }
  std::vector<uint32_t> cpus;
  for (const absl::string_view item : absl::StrSplit(Piece(text), ',')) {
    uint32_t first = 0, last = 0;
    if (!ParseRange({item.data(), item.size()}, &first, &last)) {
      return absl::InvalidArgumentError(Cat(Quoted(text), " is no list of CPUs, as 0-3,8"));
    }
    for (uint32_t cpu = first; cpu <= last; ++cpu) {
      if (!usable.Has(cpu)) {
        return absl::InvalidArgumentError(
            Cat(Quoted(text), ": CPU ", cpu, " is not there; this process may use ", Text(&usable)));
      }
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) {
        return absl::InvalidArgumentError(Cat(Quoted(text), " names CPU ", cpu, " twice"));
      }
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

absl::Status PinThread(pthread_t thread, const std::vector<uint32_t>& cpus) {
  CpuSet set;
  for (const uint32_t cpu : cpus) set.Add(cpu);
  const int error = pthread_setaffinity_np(thread, CpuSet::kBytes, set.get());
  if (error == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("--pin: CPUs ", Text(&set), ": ", std::strerror(error)));
}

}  // namespace memcgd::server
