#include "client/populate_run.h"

#include <utility>

namespace memcgd::client {

void PopulateRun::Add(const FileEvent& event, Slot hint, Slot fault) {
  const Line line{.event = event, .hint = hint, .fault = fault};
  if (event.file != file_) {
    has_page_ = tried_again_ = false;
    window_ = {};
    next_page_ = 0;
    file_ = event.file;
  }
  if (event.kind == WordKind::kFileFault) {
    AddFault(line);
  } else {
    AddMapPages(line);
  }
}

void PopulateRun::AddFault(Line line) {
  const uint64_t index = line.event.index;
  const bool in_window = window_.Has(index);
  if (has_page_ && index != page_ && tried_again_ && in_window && !lines_.empty()) {
    // What was taken for the second try was the next page's fault.
    lines_.back().ends = false;
    if (lines_.size() > 1) lines_[lines_.size() - 2].ends = true;
  } else if (!lines_.empty() && (has_page_ ? index == page_ : in_window)) {
    lines_.back().ends = false;
  } else {
    window_ = {};
  }
  has_page_ = line.has_page = true;
  tried_again_ = false;
  page_ = line.page = index;
  next_page_ = index + 1;
  lines_.push_back(line);
}

void PopulateRun::AddMapPages(Line line) {
  const Window window{line.event.index, line.event.index + line.event.count};
  if (has_page_ && !tried_again_ && window.Has(page_) && !lines_.empty()) {
    lines_.back().ends = false;
    tried_again_ = true;
    line.has_page = true;
    line.page = page_;
  } else {
    has_page_ = tried_again_ = false;
    line.page = window.Has(next_page_) ? next_page_ : window.first;
    next_page_ = line.page + 1;
  }
  window_ = window;
  lines_.push_back(line);
}

std::vector<PopulateRun::Line> PopulateRun::Take(bool all) {
  constexpr size_t kUndecided = 2;
  if (all) return std::exchange(lines_, {});
  if (lines_.size() <= kUndecided) return {};
  const auto end = lines_.end() - kUndecided;
  std::vector<Line> taken(lines_.begin(), end);
  lines_.erase(lines_.begin(), end);
  return taken;
}

}  // namespace memcgd::client
