// MEMCG_CHECK: a broken invariant ends the process, in release builds too: a model that has lost count must
// not go on answering.
#ifndef MEMCGD_CORE_CHECK_H_
#define MEMCGD_CORE_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define MEMCG_CHECK(condition)                               \
  (__builtin_expect(!!(condition), 1) ? static_cast<void>(0) \
                                      : ::memcgd::core::CheckFailed(#condition, __FILE__, __LINE__))

namespace memcgd::core {

[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  std::abort();
}

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_CHECK_H_
