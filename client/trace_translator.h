// Makes events of trace records: pairs a page fault with what backed it, a system call's entry with its
// return, an exec with the address space that it ends, a clone with what the child shares.
// docs/translation.md has the rules, with an example of each.
//
// What a record means shows sometimes only in what the same thread does next.  Records wait in a window, in
// the trace's order, until they are understood; the window is bounded (Options::window), and what leaves it
// unresolved is taken at its face value.
//
// Memory: the window, a table of the threads that live and of the last few thousand that died, and the names
// of live cgroups; beside them what grows with the number of distinct files, paths and names (the builder's
// handles, and one number a file).
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CLIENT_TRACE_TRANSLATOR_H_
#define MEMCGD_CLIENT_TRACE_TRANSLATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/batch_builder.h"
#include "client/cgroup_knobs.h"
#include "client/trace_record.h"

namespace memcgd::client {

class Translation;  // the rules: client/translation.h

class TraceTranslator {
 public:
  struct Options {
    uint32_t root = 0;     // the memory hierarchy's number on v1 machines; 0: the first one seen
    size_t window = 8192;  // records
    uint32_t page_size = 4096;
    uint32_t cpus = 0;  // of the node; records of higher CPUs are put on cpu % cpus.  0: as they say
    // The disk's readahead window (its read_ahead_kb in pages).  It tells where readahead left its mark;
    // where it is larger than the machine's, fewer marks are found, never wrong ones.
    uint32_t readahead_pages = 2048;
    std::vector<CgroupKnob> knobs = {};  // set right after their cgroup's creation
  };
  struct Counts {
    uint64_t events = 0;           // given to the builder
    uint64_t unresolved = 0;       // left the window before they were understood
    uint64_t other_hierarchy = 0;  // cgroup records of another root
    uint64_t no_address = 0;       // faults whose address was a symbol
    uint64_t dropped_faults = 0;   // faults that the kernel refused, or where no area can be
    uint64_t bad_paths = 0;        // cgroup records with a path that no cgroup can have
  };

  TraceTranslator(const Options& options, BatchBuilder* builder);
  ~TraceTranslator();
  TraceTranslator(const TraceTranslator&) = delete;
  TraceTranslator& operator=(const TraceTranslator&) = delete;

  void Add(const TraceRecord& record);
  // Asks for the state after all records added so far and before any later one.
  void Mark(uint64_t id);
  // What a thread did before that moment and has not gone on from (it sleeps, mostly) is taken at its face
  // value, so that what came after it goes out.  For traces that are read as they happen.
  void SettleBefore(int64_t time_ns);
  // Resolves what waits; call at the end of the trace.
  void Finish();

  const Counts& counts() const;
  // Of Options::knobs, those whose cgroup has not appeared.
  std::vector<CgroupKnobs::Missed> missed_knobs() const;

 private:
  std::unique_ptr<Translation> translation_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TRACE_TRANSLATOR_H_
