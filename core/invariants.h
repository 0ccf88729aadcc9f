// Every total recomputed from the pages, and held against what the core counts.
//
// Thread safety: at a cut.
#ifndef MEMCGD_CORE_INVARIANTS_H_
#define MEMCGD_CORE_INVARIANTS_H_

#include <string>

#include "core/machine.h"

namespace memcgd::core {

// Empty, or the first thing that is wrong.
std::string FindBrokenInvariant(Machine& machine);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_INVARIANTS_H_
