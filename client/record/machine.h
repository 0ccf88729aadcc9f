// What a node has to be to be this machine.
//
// Thread safety: free functions.
#ifndef MEMCGD_CLIENT_RECORD_MACHINE_H_
#define MEMCGD_CLIENT_RECORD_MACHINE_H_

#include "memcgd/v1/node.pb.h"

namespace memcgd::client {

// CPUs that may ever run, memory, swap, page size, overcommit policy, and whether a read of untouched memory
// maps the zero page (tried out; taken as so where /proc/self/pagemap does not tell).
memcgd::v1::NodeSpec ThisMachine();

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_RECORD_MACHINE_H_
