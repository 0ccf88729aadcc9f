// The lock of a node's cut: see node.h.
#ifndef MEMCGD_CORE_NODE_CUT_H_
#define MEMCGD_CORE_NODE_CUT_H_

#include "core/mutex.h"
#include "core/node.h"

namespace memcgd::core {

struct Node::Cut {
  SharedMutex lock;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_NODE_CUT_H_
