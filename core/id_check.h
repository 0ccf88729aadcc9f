// Whether every id in a state names something that is there: what a state that came from outside has to pass
// before anything follows its ids.
//
// Thread safety: one thread, at a cut.
#ifndef MEMCGD_CORE_ID_CHECK_H_
#define MEMCGD_CORE_ID_CHECK_H_

#include "core/machine.h"

namespace memcgd::core {

bool IdsHold(Machine& machine);

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_ID_CHECK_H_
