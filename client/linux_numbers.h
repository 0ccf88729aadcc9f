// The numbers of Linux on x86-64 that lines of a trace carry: error codes, flags and advice.
//
// Kernel counterpart: include/uapi/linux/{mman,sched}.h, arch/x86/include/asm/trap_pf.h.
//
// Thread safety: constants and pure functions.
#ifndef MEMCGD_CLIENT_LINUX_NUMBERS_H_
#define MEMCGD_CLIENT_LINUX_NUMBERS_H_

#include <cstdint>

namespace memcgd::client {

inline constexpr uint8_t kFaultProtection = 1, kFaultWrite = 2, kFaultUser = 4;
inline constexpr uint64_t kProtReadWrite = 3, kProtWrite = 2;
inline constexpr uint64_t kMapShared = 1, kMapPrivate = 2, kMapTypeMask = 0xf, kMapAnonymous = 0x20;
// Flags with which private anonymous memory is no kMmapAnon: GROWSDOWN, LOCKED, NORESERVE, POPULATE, HUGETLB.
inline constexpr uint64_t kMapSpecial = 0x100 | 0x2000 | 0x4000 | 0x8000 | 0x40000;
inline constexpr uint64_t kMapFaultsIn = 0x2000 | 0x8000;  // LOCKED, POPULATE
inline constexpr uint64_t kMadvDontNeed = 4, kMadvFree = 8, kMadvRemove = 9, kMadvPopulateRead = 22,
                          kMadvPopulateWrite = 23, kMadvDontNeedLocked = 24;
inline constexpr uint64_t kCloneVm = 0x100, kCloneThread = 0x10000;
inline constexpr uint64_t kMlockOnFault = 1, kMclOnFault = 4;
inline constexpr int64_t kMaxErrno = 4095;
inline constexpr uint64_t kLowestAddress = 65536;  // vm.mmap_min_addr
inline constexpr int32_t kKthreadd = 2;            // parent of all kernel threads

inline bool IsError(int64_t ret) { return ret < 0 && ret >= -kMaxErrno; }

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_LINUX_NUMBERS_H_
