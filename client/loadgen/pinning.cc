#include "client/loadgen/pinning.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace memcgd::client::loadgen {
namespace {

constexpr uint32_t kMaxCpus = 8192;

bool ParseNumber(std::string_view text, uint32_t* number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *number);
  return result.ec == std::errc() && result.ptr == end && *number < kMaxCpus;
}

// A set for more CPUs than cpu_set_t has.
struct CpuSet {
  CpuSet() : set(CPU_ALLOC(kMaxCpus), [](cpu_set_t* freed) { CPU_FREE(freed); }) {
    CPU_ZERO_S(kBytes, set.get());
  }
  static constexpr size_t kBytes = CPU_ALLOC_SIZE(kMaxCpus);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set;
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text) {
  const auto bad = [text](std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(text), "\" ", std::string(why), ": CPUs are wanted, as 0-3,8"));
  };
  std::vector<uint32_t> cpus;
  const std::vector<std::string> items = absl::StrSplit(std::string(text), ',');
  for (const std::string& item : items) {
    const size_t dash = item.find('-');
    uint32_t first = 0, last = 0;
    if (!ParseNumber(std::string_view(item).substr(0, dash), &first)) return bad("is no list of CPUs");
    last = first;
    if (dash != std::string::npos && !ParseNumber(std::string_view(item).substr(dash + 1), &last)) {
      return bad("is no list of CPUs");
    }
    if (last < first) return bad("has a range that goes down");
    for (uint32_t cpu = first; cpu <= last; ++cpu) {
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) {
        return bad(absl::StrCat("names CPU ", cpu, " twice"));
      }
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

std::string CpuListText(const std::vector<uint32_t>& cpus) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    parts.push_back(end == i + 1 ? absl::StrCat(cpus[i]) : absl::StrCat(cpus[i], "-", cpus[end - 1]));
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

std::vector<uint32_t> UsableCpus() {
  CpuSet set;
  std::vector<uint32_t> cpus;
  if (sched_getaffinity(0, CpuSet::kBytes, set.set.get()) != 0) return cpus;
  for (uint32_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, CpuSet::kBytes, set.set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

absl::Status CheckCpus(const std::vector<uint32_t>& cpus) {
  const std::vector<uint32_t> usable = UsableCpus();
  for (uint32_t cpu : cpus) {
    if (!std::binary_search(usable.begin(), usable.end(), cpu)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "CPU ", cpu, " is not there, or not for this process: it may run on ", CpuListText(usable)));
    }
  }
  return absl::OkStatus();
}

int NumaNodeOf(uint32_t cpu) {
  std::error_code error;
  const std::string directory = absl::StrCat("/sys/devices/system/cpu/cpu", cpu);
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    uint32_t node = 0;
    if (name.rfind("node", 0) == 0 && ParseNumber(std::string_view(name).substr(4), &node)) {
      return static_cast<int>(node);
    }
  }
  return -1;
}

absl::Status PinThisThread(uint32_t cpu) {
  CpuSet set;
  CPU_SET_S(cpu, CpuSet::kBytes, set.set.get());
  if (sched_setaffinity(0, CpuSet::kBytes, set.set.get()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot run on CPU ", cpu, ": ", std::strerror(errno)));
}

}  // namespace memcgd::client::loadgen
