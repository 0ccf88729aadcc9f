#include "client/trace_translator.h"

#include "client/translation.h"

namespace memcgd::client {

TraceTranslator::TraceTranslator(const Options& options, BatchBuilder* builder)
    : translation_(std::make_unique<Translation>(options, builder)) {}
TraceTranslator::~TraceTranslator() = default;

void TraceTranslator::Add(const TraceRecord& record) { translation_->Add(record); }
void TraceTranslator::Mark(uint64_t id) { translation_->Mark(id); }
void TraceTranslator::SettleBefore(int64_t time_ns) { translation_->SettleBefore(time_ns); }
void TraceTranslator::Finish() { translation_->Finish(); }
const TraceTranslator::Counts& TraceTranslator::counts() const { return translation_->counts(); }
std::vector<CgroupKnobs::Missed> TraceTranslator::missed_knobs() const {
  return translation_->missed_knobs();
}

}  // namespace memcgd::client
