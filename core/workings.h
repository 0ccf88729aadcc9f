// A machine with what works on it, compiled for one type of forms.
//
// Thread safety: each part's own.
#ifndef MEMCGD_CORE_WORKINGS_H_
#define MEMCGD_CORE_WORKINGS_H_

#include "core/address_space.h"
#include "core/fault.h"
#include "core/forms.h"
#include "core/lru.h"
#include "core/machine.h"
#include "core/page_cache.h"
#include "core/process.h"

namespace memcgd::core {

template <class Forms>
struct Workings final : Machine {
  explicit Workings(const NodeConfig& node_config) : Machine(node_config) {}

  [[no_unique_address]] const Forms forms{config.mechanisms};
  Charges<Forms> charges{*this};
  Lru<Forms> lru{tree, arena, charges};
  PageCache<Forms> cache{tree, arena, charges, lru};
  Faults<Forms> faults{*this};
  AddressSpaces<Forms> spaces{*this, faults};
  Processes<Forms> processes{*this, spaces, faults};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_WORKINGS_H_
