// Knobs that a user sets on cgroups of a trace: each is set when its cgroup appears.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_CGROUP_KNOBS_H_
#define MEMCGD_CLIENT_CGROUP_KNOBS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace memcgd::client {

struct CgroupKnob {
  std::string path;
  std::string knob;   // memory.max
  std::string value;  // as the server takes it
  // The cgroup is there before the trace begins.
  bool present = false;
};

// The value of a flag, "PATH=VALUE", for that knob.  The error names what is wrong and what is wanted.
absl::StatusOr<CgroupKnob> ParseCgroupKnob(const std::string& knob, std::string_view text);

class CgroupKnobs {
 public:
  // A cgroup that never appeared, and the one of the trace whose path is most like its ("": there was none).
  struct Missed {
    std::string path;
    std::string nearest;
  };

  explicit CgroupKnobs(const std::vector<CgroupKnob>& knobs);

  // A cgroup comes to exist, with those of its ancestors that did not.  Calls set(knob) for each knob that is
  // due; the reference holds as long as this does.
  template <typename Fn>
  void Appear(std::string_view path, Fn set) {
    for (Entry& entry : entries_) {
      if (!entry.appeared) Compare(path, &entry);
      if (entry.exists || !IsAtOrAbove(entry.knob.path, path)) continue;
      entry.exists = entry.appeared = true;
      set(entry.knob);
    }
  }
  // Those of cgroups that are there from the beginning.
  template <typename Fn>
  void Begin(Fn set) {
    for (Entry& entry : entries_) {
      if (entry.exists) set(entry.knob);
    }
  }
  void Remove(std::string_view path);
  // In the order of the knobs, each path once.
  std::vector<Missed> missed() const;

 private:
  struct Entry {
    CgroupKnob knob;
    bool exists = false;    // now
    bool appeared = false;  // at any time
    std::string nearest;
    size_t distance = SIZE_MAX;  // of it
  };

  static bool IsAtOrAbove(std::string_view path, std::string_view other);
  static void Compare(std::string_view path, Entry* entry);

  std::vector<Entry> entries_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_CGROUP_KNOBS_H_
