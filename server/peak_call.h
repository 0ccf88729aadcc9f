// Calls of CgroupService.WatchPeak: each has peaks of its own of one cgroup, for as long as it lasts.
//
// Kernel counterpart: an open file description of memory.peak (core/peak_watches.h).
//
// A call answers one request after the other: while one is read by nobody the next is not taken, so that
// nothing grows.  It does not hold its node: one that is deleted goes, and the next request is answered with
// NOT_FOUND.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_PEAK_CALL_H_
#define MEMCGD_SERVER_PEAK_CALL_H_

#include "memcgd/v1/cgroup.grpc.pb.h"
#include "server/access.h"
#include "server/limits.h"
#include "server/live_calls.h"
#include "server/node_registry.h"
#include "server/worker_pool.h"

namespace memcgd::server {

class PeakCall;

// Those of a server.
class PeakCalls {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::WatchPeakRequest, v1::WatchPeakResponse>;

  PeakCalls(NodeRegistry* registry, Access* access, WorkerPool* workers)
      : registry_(*registry), access_(*access), workers_(*workers) {}

  // RESOURCE_EXHAUSTED past kMaxPeakCalls.
  Reactor* Start(grpc::CallbackServerContext* context);
  // Ends the calls with UNAVAILABLE, and new ones from here on.
  void Drain();

 private:
  friend class PeakCall;

  NodeRegistry& registry_;
  Access& access_;
  WorkerPool& workers_;
  LiveCalls<PeakCall> calls_{kMaxPeakCalls, "watches of peaks"};
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_PEAK_CALL_H_
