// The server's fixed limits, in one place.  Those that the settings give are in server_limits.h;
// docs/limits.md has all.
#ifndef MEMCGD_SERVER_LIMITS_H_
#define MEMCGD_SERVER_LIMITS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace memcgd::server {

// Told to the client in Opened.
inline constexpr uint32_t kMaxBatchEvents = 65536;
inline constexpr uint32_t kWindowBatches = 64;

// A mark is answered with the statistics of every cgroup: many in one batch would be a small request for a
// huge answer.
inline constexpr size_t kMaxBatchMarks = 1024;

// Answers that wait to be written, and their bytes.  Past either, and where kWindowBatches batches were
// applied whose Ack could not be written, no batch is applied until the client reads.
inline constexpr size_t kMaxUnsentAnswers = 64;
inline constexpr size_t kMaxUnsentBytes = size_t{16} << 20;
// A message that was larger than that is not kept to be filled again.
inline constexpr size_t kMaxSpareBytes = size_t{2} << 20;

// A stream remembers the content hashes of its last batches, and the States of the window that a client may
// not have received when its connection broke.
inline constexpr size_t kRememberedBatches = 1024;
inline constexpr size_t kMaxRememberedStateBytes = size_t{16} << 20;

inline constexpr size_t kMaxStreamsPerNode = 65536;
inline constexpr size_t kMaxNodeNameBytes = 253;
inline constexpr size_t kMaxStreamIdBytes = 128;
inline constexpr size_t kMaxNotablesPerAck = 16;

inline constexpr size_t kDefaultNodesPerPage = 100;
inline constexpr size_t kMaxNodesPerPage = 1000;
inline constexpr size_t kDefaultCgroupsPerPage = 1000;
inline constexpr size_t kMaxCgroupsPerPage = 10000;

// Of WhatIfService: sweeps at a time, bytes of events that one holds, points run at a time, and what they may
// answer.
inline constexpr size_t kMaxSweeps = 4;
inline constexpr size_t kMaxSweepBytes = size_t{1} << 30;
inline constexpr size_t kMaxSweepPoints = 4096;
inline constexpr size_t kMaxSweepCgroups = 1024;
inline constexpr size_t kMaxPointChanges = 1024;
inline constexpr size_t kMaxSweepResults = 65536;  // points × cgroups

inline constexpr size_t kDefaultOomsPerPage = 100;
inline constexpr size_t kMaxOomsPerPage = 1024;
inline constexpr int kMaxOomsPerAck = 1024;
inline constexpr size_t kMaxOomWatches = 1000;

inline constexpr size_t kMaxPeakCalls = 1000;

inline constexpr size_t kMaxHealthWatches = 1000;

inline constexpr int kMaxReceiveMessageBytes = 64 << 20;
// A client's default limit for all trailing metadata is 8 KiB; an error must fit, or it arrives as another
// one.
inline constexpr size_t kMaxErrorMessageBytes = 1000;
inline constexpr size_t kMaxErrorDetailBytes = 3000;

// Of the token file, and the lines about refused calls.
inline constexpr size_t kMaxTokens = 1000;
inline constexpr size_t kMaxTenantBytes = 128;
inline constexpr uint32_t kMaxAuditLinesPerSecond = 20;

// 2^28 pages take at most some 5 GiB.
inline constexpr size_t kMaxNodeFileBytes = size_t{16} << 30;

// What a call of Stream gets to say what it opens.
inline constexpr std::chrono::seconds kOpenTimeout{10};

inline constexpr size_t kMaxConfigFileBytes = size_t{1} << 20;

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_LIMITS_H_
