// What `whatif` and `advise` share: the flags that say what is swept, and the sweep with its trace loaded.
#ifndef MEMCGD_CLIENT_MEMCGCTL_SWEEP_H_
#define MEMCGD_CLIENT_MEMCGCTL_SWEEP_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/memcgctl_app.h"
#include "client/memcgctl_spec.h"
#include "client/sweep_client.h"

namespace memcgd::client {

// What bounds every answer of a sweep.
inline constexpr char kSweepBound[] =
    "touches of mapped pages leave no event in a trace: such pages look idle to reclaim, and the refaults "
    "and major "
    "faults that their loss would cause are not counted (docs/whatif.md)";

struct SweepFlags {
  SweepFlags() { spec.reclaim = "modelled"; }
  void AddTo(CLI::App* app);

  std::vector<std::string> files;
  std::string node;  // to fork; empty: a new one
  SpecFlags spec;
  uint32_t root = 0;
  uint32_t jobs = 0;
  bool strict = false;
};

class TraceSweep {
 public:
  TraceSweep(Context* context, const Server& server, const SweepFlags& flags)
      : context_(*context), server_(server), flags_(flags) {}

  // Sends the traces.  `see` is shown each batch.  An exit code where it failed, and was told.
  std::optional<int> Load(const std::function<void(const memcgd::v1::Batch&)>& see);
  // A point of nothing but what the flags say of all points.
  memcgd::v1::Point Base() const;
  // The points' results, in order.  The same.
  std::optional<int> Run(const memcgd::v1::SweepPoints& points,
                         std::vector<memcgd::v1::PointResult>* results);

  uint64_t events() const { return client_->loaded().events(); }
  double seconds() const { return static_cast<double>(client_->loaded().duration_ns()) / 1e9; }

 private:
  int Fail(const absl::Status& status) const;

  Context& context_;
  const Server server_;
  const SweepFlags& flags_;
  std::unique_ptr<SweepClient> client_;
};

// A change of that knob.
void AddKnob(const std::string& path, const std::string& knob, const std::string& value,
             memcgd::v1::Point* point);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_SWEEP_H_
