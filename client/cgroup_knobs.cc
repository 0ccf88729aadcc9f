#include "client/cgroup_knobs.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/amount.h"
#include "client/cgroup_table.h"

namespace memcgd::client {
namespace {

constexpr char kShareSign = '%';

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Refuse(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(View(text)), "\" ", View(why)));
}

// "max", bytes, or a share, which the server knows the whole of.
absl::StatusOr<std::string> ParseLimit(const std::string& text) {
  if (text == "max") return text;
  if (!text.empty() && text.back() == kShareSign) {
    uint32_t percent = 0;
    const std::string digits = text.substr(0, text.size() - 1);
    const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !absl::SimpleAtoi(digits, &percent) || percent > 100)
      return Refuse(text, "is no share: 0% to 100% are wanted");
    return text;
  }
  absl::StatusOr<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(bytes.status().message(), ", or max, or a share as 50%"));
  }
  return absl::StrCat(*bytes);
}

absl::StatusOr<std::string> ParseWithin(const std::string& text, uint32_t most) {
  uint32_t number = 0;
  if (text.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(text, &number) ||
      number > most) {
    return Refuse(text, absl::StrCat("is not wanted: 0 to ", most, " are"));
  }
  return absl::StrCat(number);
}

// Levenshtein's: how many bytes are to be changed, put in or taken out.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::StatusOr<CgroupKnob> ParseCgroupKnob(const std::string& knob, std::string_view text) {
  const size_t equals = text.rfind('=');  // a path may have some, a value none
  if (equals == std::string_view::npos) return Refuse(text, "has no value: PATH=VALUE is wanted");
  CgroupKnob result{std::string(text.substr(0, equals)), knob, std::string(text.substr(equals + 1))};
  if (!IsCgroupPath(result.path)) return Refuse(result.path, "is no cgroup's path: as /a/b is wanted");
  if (result.path == "/") return absl::InvalidArgumentError(absl::StrCat("the root cgroup has no ", knob));
  absl::StatusOr<std::string> value = knob == "memory.swappiness"  ? ParseWithin(result.value, 200)
                                      : knob == "memory.oom.group" ? ParseWithin(result.value, 1)
                                                                   : ParseLimit(result.value);
  if (!value.ok()) return value.status();
  result.value = *std::move(value);
  return result;
}

CgroupKnobs::CgroupKnobs(const std::vector<CgroupKnob>& knobs) {
  for (const CgroupKnob& knob : knobs) {
    Entry& entry = entries_.emplace_back();
    entry.knob = knob;
    entry.exists = entry.appeared = knob.present;
  }
}

void CgroupKnobs::Remove(std::string_view path) {
  for (Entry& entry : entries_) {
    if (entry.knob.path == path) entry.exists = false;
  }
}

bool CgroupKnobs::IsAtOrAbove(std::string_view path, std::string_view other) {
  return other.substr(0, path.size()) == path && (other.size() == path.size() || other[path.size()] == '/');
}

void CgroupKnobs::Compare(std::string_view path, Entry* entry) {
  const size_t distance = EditDistance(path, entry->knob.path);
  if (distance >= entry->distance) return;
  entry->distance = distance;
  entry->nearest = std::string(path);
}

std::vector<CgroupKnobs::Missed> CgroupKnobs::missed() const {
  std::vector<Missed> result;
  for (const Entry& entry : entries_) {
    const bool told = std::any_of(result.begin(), result.end(),
                                  [&entry](const Missed& missed) { return missed.path == entry.knob.path; });
    if (!entry.appeared && !told) result.push_back({entry.knob.path, entry.nearest});
  }
  return result;
}

}  // namespace memcgd::client
