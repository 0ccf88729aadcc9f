// One measurement: fresh nodes, their streams, a worker for each, pinned; set up, warm up, measure, tear
// down.
//
// Closed loop: each worker keeps `window` batches on their way and sends the next when one is acknowledged.
// Open loop: batches have times at which they are to be sent, whatever became of those before them (Poisson
// arrivals).  A batch's latency counts from that time, not from when it could be sent: a server that stands
// still for a second shows in every batch that should have gone out within it.
//
// Throughput counts what was acknowledged between the end of the warm-up and the end; latency is that of the
// batches that were due between the two, whose last acknowledgements are waited for.
//
// Thread safety: RunTurn() is called by one thread at a time; it starts its own and joins them.
#ifndef MEMCGD_CLIENT_LOADGEN_TURN_H_
#define MEMCGD_CLIENT_LOADGEN_TURN_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/loadgen/cpu_time.h"
#include "client/loadgen/experiment.h"
#include "client/loadgen/histogram.h"
#include "client/node_client.h"

namespace memcgd::client::loadgen {

struct TurnOptions {
  std::string server;  // its address; each worker connects for itself
  Credentials credentials;
  double timeout_seconds = 30;
  std::vector<uint32_t> cpus;  // workers in turn
  uint32_t nodes = 1;
  uint32_t batch_events = 8192;
  uint32_t window = 8;  // closed loop: batches on their way, each worker
  double rate = 0;      // events a second of all workers together; 0: closed loop
  double warmup_seconds = 1;
  double duration_seconds = 5;
  uint64_t seed = 1;
  ServerCpu server_cpu;
  const std::atomic<bool>* cancelled = nullptr;
  // What to do should the process end before its nodes are removed; null again when they are.
  std::function<void(std::function<void()>)> set_last_resort;
  // A few times a second, from the calling thread: "warming up", or how far it is.
  std::function<void(double seconds_measured, uint64_t events)> on_progress;
};

struct WorkerPlace {
  uint32_t worker = 0;
  uint32_t cpu = 0;
  int numa_node = -1;
};

struct TurnResult {
  absl::Status status;                          // CANCELLED with what was measured until then
  double seconds = 0;                           // that were measured
  uint64_t events = 0, units = 0, batches = 0;  // acknowledged within them
  Histogram latency_ns;
  std::array<uint64_t, memcgd::v1::Outcome_ARRAYSIZE> outcomes{};  // of the whole turn
  std::optional<double> server_cpu_seconds;
  double own_cpu_seconds = 0;
  // Reads of memory.stat beside it.
  uint64_t polls = 0;
  Histogram poll_ns;        // from when they were due
  double poll_seconds = 0;  // from when they were asked, of all
  std::vector<WorkerPlace> places;
  // The mechanisms' counters for each unit, the warm-up included; empty where the server has none.
  std::map<std::string, double> counters_per_unit;

  double EventsPerSecond() const { return seconds > 0 ? static_cast<double>(events) / seconds : 0; }
  double UnitsPerSecond() const { return seconds > 0 ? static_cast<double>(units) / seconds : 0; }
  // Of the server's CPU; nothing where that is not known.
  std::optional<double> UnitsPerCpuSecond() const;
  uint64_t NotOk() const;
};

TurnResult RunTurn(const TurnOptions& options, const Case& measured, const Forms& forms);

}  // namespace memcgd::client::loadgen

#endif  // MEMCGD_CLIENT_LOADGEN_TURN_H_
