// The forms of the mechanisms, as the code that applies batches is compiled for them.
//
// Everything between a batch and the counters takes one of two types as its template argument: DefaultForms,
// whose answers are constants, so that what is not chosen costs nothing; and ChosenForms, which asks what the
// node was made with.  Node::Apply() picks one for the whole batch.
//
// Thread safety: plain values.
#ifndef MEMCGD_CORE_FORMS_H_
#define MEMCGD_CORE_FORMS_H_

#include "core/mechanisms.h"

namespace memcgd::core {

class DefaultForms {
 public:
  explicit DefaultForms(const Mechanisms&) {}
  static constexpr bool uptodate_first() { return false; }
  static constexpr bool per_page_refs() { return false; }
  static constexpr StatsForm stats() { return StatsForm::kSpill; }
};

class ChosenForms {
 public:
  explicit ChosenForms(const Mechanisms& mechanisms) : mechanisms_(mechanisms) {}
  bool uptodate_first() const { return mechanisms_.charge_order == ChargeOrder::kUptodateFirst; }
  bool per_page_refs() const { return mechanisms_.css_refs == CssRefs::kPerPage; }
  StatsForm stats() const { return mechanisms_.stats; }

 private:
  Mechanisms mechanisms_;
};

// The two others need no such choice: the batch of vm_committed_as is a number, the lock of an LRU list a
// reference.

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_FORMS_H_
