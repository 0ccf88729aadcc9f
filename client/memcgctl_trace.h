// What the commands that read traces share.
#ifndef MEMCGD_CLIENT_MEMCGCTL_TRACE_H_
#define MEMCGD_CLIENT_MEMCGCTL_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/replay.h"

namespace memcgd::client {

// The files that can be looked at beforehand: better to say now that the third is missing than in an hour.
absl::Status CheckFiles(const std::vector<std::string>& files);
// What the traces' heads tell, or kDefaultCpus.
uint32_t CpusOfTraces(const std::vector<std::string>& files);
// What a reader should know about the answers, on standard error.
void PrintCounts(const ReplayCounts& counts);

// Says what is wrong with a file; returns the exit code.
int FailInput(const absl::Status& status);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_TRACE_H_
