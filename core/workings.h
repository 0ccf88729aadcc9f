// A machine, its accounts, and what happens on it: faults, system calls, processes, compiled for one type of
// forms.
//
// Thread safety: each part's own.
#ifndef MEMCGD_CORE_WORKINGS_H_
#define MEMCGD_CORE_WORKINGS_H_

#include "core/accounts.h"
#include "core/address_space.h"
#include "core/fault.h"
#include "core/oom.h"
#include "core/process.h"

namespace memcgd::core {

template <class Forms>
struct Workings final : Accounts<Forms> {
  explicit Workings(const NodeConfig& node_config) : Accounts<Forms>(node_config) {}

  Faults<Forms> faults{*this};
  AddressSpaces<Forms> spaces{*this, faults};
  Processes<Forms> processes{*this, spaces, faults};
  OomKiller<Forms> oom{*this, processes};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_WORKINGS_H_
