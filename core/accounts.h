// A machine with its accounts: charges and statistics, lists, page cache, kernel memory, reclaim, compiled
// for one type of forms.
//
// Thread safety: each part's own.
#ifndef MEMCGD_CORE_ACCOUNTS_H_
#define MEMCGD_CORE_ACCOUNTS_H_

#include "core/charge.h"
#include "core/forms.h"
#include "core/kernel_memory.h"
#include "core/lru.h"
#include "core/machine.h"
#include "core/page_cache.h"
#include "core/reclaim.h"

namespace memcgd::core {

template <class Forms>
struct Accounts : Machine {
  explicit Accounts(const NodeConfig& node_config) : Machine(node_config) {}

  [[no_unique_address]] const Forms forms{config.mechanisms};
  Charges<Forms> charges{*this};
  Lru<Forms> lru{tree, arena, charges};
  Writeback<Forms> writeback_device{*this, charges, lru};
  PageCache<Forms> cache{tree, arena, charges, lru, writeback_device, reads};
  Reclaimer<Forms> reclaimer{*this, charges, lru, cache, writeback_device};
  KernelMemory<Forms> kernel{config, charges};
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_ACCOUNTS_H_
