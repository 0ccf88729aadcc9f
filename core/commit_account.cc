#include "core/commit_account.h"

#include <algorithm>

namespace memcgd::core {

CommitAccount::CommitAccount(uint32_t cpus, int64_t ram_pages, int64_t swap_pages, uint32_t page_size,
                             CommitBatch form, const Policy& policy)
    : cpus_(cpus),
      ram_pages_(ram_pages),
      swap_pages_(swap_pages),
      page_size_(page_size),
      form_(form),
      policy_(policy),
      committed_(cpus) {
  committed_.set_batch(BatchFor(policy.mode));
}

bool CommitAccount::TryCommit(uint32_t cpu, int64_t pages, int64_t process_pages) {
  committed_.Add(cpu, pages);
  switch (policy_.mode) {
    case OvercommitPolicy::kAlways:
      return true;
    case OvercommitPolicy::kGuess:
      if (pages <= ram_pages_ + swap_pages_) return true;
      break;
    case OvercommitPolicy::kNever: {
      constexpr int64_t kAdminReserveBytes = int64_t{8} << 20;
      constexpr int64_t kUserReserveBytes = int64_t{128} << 20;
      int64_t allowed = LimitPages() - kAdminReserveBytes / page_size_;
      allowed -= std::min(process_pages / 32, kUserReserveBytes / page_size_);
      if (committed_.Read() < allowed) return true;
      break;
    }
  }
  committed_.Add(cpu, -pages);
  return false;
}

void CommitAccount::SetPolicy(const Policy& policy) {
  committed_.set_batch(BatchFor(policy.mode));
  if (policy.mode == OvercommitPolicy::kNever) committed_.Sync();
  policy_ = policy;
}

int64_t CommitAccount::CommittedAsPages() const { return std::max<int64_t>(committed_.Sum(), 0); }

int64_t CommitAccount::LimitPages() const {
  constexpr int64_t kMostPages = INT64_MAX / 65536 / 2;  // so that bytes of any page size fit
  unsigned __int128 allowed = policy_.kbytes != 0
                                  ? policy_.kbytes / (static_cast<uint64_t>(page_size_) / 1024)
                                  : static_cast<unsigned __int128>(ram_pages_) * policy_.ratio_percent / 100;
  return std::min(static_cast<int64_t>(std::min<unsigned __int128>(allowed, kMostPages)) + swap_pages_,
                  kMostPages);
}

int64_t CommitAccount::BatchFor(OvercommitPolicy mode) const {
  bool small = form_ == CommitBatch::kSmall || mode == OvercommitPolicy::kNever;
  int64_t share = ram_pages_ / cpus_ / (small ? 256 : 4);
  return std::max({share, 2 * cpus_, int64_t{32}});
}

}  // namespace memcgd::core
