#include "client/memcgctl_trace.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_output.h"
#include "client/memcgctl_spec.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

const char* OutcomeMeaning(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_NO_AREA:
      return "faults outside every known area";
    case v1::OUTCOME_UNKNOWN_THREAD:
      return "of threads that began before the trace";
    case v1::OUTCOME_UNSEEN_PAGE:
      return "on pages that existed before the trace";
    case v1::OUTCOME_ENOMEM:
      return "refused by the overcommit policy";
    case v1::OUTCOME_LIMIT:
      return "charges that hit a limit";
    case v1::OUTCOME_NO_CGROUP:
      return "about cgroups that are not there, are there already, or are not empty";
    case v1::OUTCOME_CACHE_MISMATCH:
      return "deleted pages that were not in the page cache, or added ones that were";
    case v1::OUTCOME_DROPPED:
      return "of processes that the model killed";
    case v1::OUTCOME_INVALID:
      return "knobs or policies that were refused";
    default:
      return "of a later version";
  }
}

}  // namespace

absl::Status CheckFiles(const std::vector<std::string>& files) {
  if (std::count(files.begin(), files.end(), "-") > 1) {
    return absl::InvalidArgumentError("standard input (-) can be read once only");
  }
  for (const std::string& file : files) {
    struct stat info {};
    // A pipe loses what is read from it.
    if (file == "-" || (stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
      continue;
    absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(file, {});
    if (!reader.ok()) return reader.status();
  }
  return absl::OkStatus();
}

uint32_t CpusOfTraces(const std::vector<std::string>& files) {
  uint32_t cpus = 0;
  for (const std::string& file : files) cpus = std::max(cpus, CpusOfTrace(file));
  return cpus == 0 ? kDefaultCpus : std::min<uint32_t>(cpus, 1024);
}

void PrintCounts(const ReplayCounts& counts) {
  const TraceReader::Counts& read = counts.read;
  if (read.malformed != 0) {
    PrintWarning(absl::StrCat(read.malformed, " of ", read.lines, " lines were not understood"));
  }
  if (read.lost_places != 0) {
    PrintWarning(absl::StrCat(read.lost_events, " events were lost while recording (at ", read.lost_places,
                              " places): the answers may be off"));
  }
  if (read.time_backwards != 0) {
    PrintWarning(absl::StrCat(read.time_backwards, " times went back: the file's order was kept"));
  }
  if (counts.translated.no_address != 0) {
    PrintWarning(
        absl::StrCat(counts.translated.no_address, " faults had a symbol for an address and were left out"));
  }
  if (read.records == 0) PrintWarning("there is no event in the trace");
  for (size_t outcome = v1::OUTCOME_OK + 1; outcome < EventStream::kOutcomes; ++outcome) {
    const uint64_t events = counts.sent.outcomes[outcome];
    if (events == 0) continue;
    const std::string& name = v1::Outcome_Name(static_cast<v1::Outcome>(outcome));
    PrintNote(absl::StrCat(events, " of ", counts.sent.events,
                           " events: ", name.substr(sizeof("OUTCOME_") - 1), " (",
                           OutcomeMeaning(static_cast<v1::Outcome>(outcome)), ")"));
  }
  if (counts.sent.high_delay_us != 0) {
    PrintNote(absl::StrCat("memory.high would have held the tasks up for ",
                           HumanTime(counts.sent.high_delay_us), " in all"));
  }
  if (counts.sent.reconnects != 0) {
    PrintNote(absl::StrCat("the connection was made again ", counts.sent.reconnects,
                           " times; nothing was lost, but these counts of outcomes and delays may be low"));
  }
}

int FailInput(const absl::Status& status) {
  PrintError(std::string(status.message()));
  return kExitBadInput;
}

}  // namespace memcgd::client
