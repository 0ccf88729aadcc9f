// A trace replayed without processes or sockets: reader → translator → wire batches → core.
#ifndef MEMCGD_TESTS_SUPPORT_IN_PROCESS_REPLAY_H_
#define MEMCGD_TESTS_SUPPORT_IN_PROCESS_REPLAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/node.h"
#include "memcgd/v1/ingest.pb.h"

namespace memcgd::tests {

// The trace as wire batches of at most `batch_events` events, with a mark with id i before the first record
// whose time is over times_ns[i].  Aborts with a message where the trace cannot be read.
std::vector<v1::Batch> TranslateTrace(const std::string& path, const std::vector<int64_t>& times_ns,
                                      size_t batch_events);

// Applies them to the node as one stream; the answers to the marks, in order.
std::vector<core::MarkState> ApplyBatches(core::Node& node, const std::string& stream,
                                          const std::vector<v1::Batch>& batches);

}  // namespace memcgd::tests

#endif  // MEMCGD_TESTS_SUPPORT_IN_PROCESS_REPLAY_H_
