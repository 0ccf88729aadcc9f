#include "client/record/machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "client/record/proc_file.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

constexpr uint64_t kFrameMask = (uint64_t{1} << 55) - 1;

uint64_t NumberIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  uint64_t value = 0;
  return text.ok() && absl::SimpleAtoi(*text, &value) ? value : 0;
}

// Two pages that were read and never written to are in one frame, the zero page's, or in one each.
bool HasZeroPage() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return true;
  const volatile char* const bytes = static_cast<const char*>(memory);
  [[maybe_unused]] const char read_both = static_cast<char>(bytes[0] + bytes[page]);
  std::array<uint64_t, 2> frames{};
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const auto offset = static_cast<off_t>(reinterpret_cast<uintptr_t>(memory) / page * sizeof(uint64_t));
  const bool told = fd >= 0 && pread(fd, frames.data(), sizeof frames, offset) == sizeof frames;
  if (fd >= 0) close(fd);
  munmap(memory, 2 * page);
  const uint64_t first = frames[0] & kFrameMask, second = frames[1] & kFrameMask;
  return !told || first == second;  // both 0 without the right to see them
}

}  // namespace

v1::NodeSpec ThisMachine() {
  v1::NodeSpec spec;
  spec.set_cpus(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  spec.set_page_size(static_cast<uint32_t>(sysconf(_SC_PAGESIZE)));
  const absl::StatusOr<std::string> memory = ReadSmallFile("/proc/meminfo");
  if (memory.ok()) {
    spec.set_memory_bytes(NumberOfLine(*memory, "MemTotal", 0) * 1024);
    spec.set_swap_bytes(NumberOfLine(*memory, "SwapTotal", 0) * 1024);
  }
  spec.set_no_zero_page(!HasZeroPage());
  const uint64_t policy = NumberIn("/proc/sys/vm/overcommit_memory");
  spec.set_overcommit(policy == 2   ? v1::OVERCOMMIT_POLICY_NEVER
                      : policy == 1 ? v1::OVERCOMMIT_POLICY_ALWAYS
                                    : v1::OVERCOMMIT_POLICY_GUESS);
  spec.set_overcommit_ratio(static_cast<uint32_t>(NumberIn("/proc/sys/vm/overcommit_ratio")));
  spec.set_overcommit_kbytes(NumberIn("/proc/sys/vm/overcommit_kbytes"));
  return spec;
}

}  // namespace memcgd::client
