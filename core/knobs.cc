#include "core/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/page_counter.h"

namespace memcgd::core {
namespace {

enum class KnobKind : uint8_t { kMemory, kSwap, kFlag, kSwappiness };
struct Knob {
  std::string_view name;
  KnobKind kind;
  std::string_view initial;
};
constexpr std::array<Knob, 8> kKnobs = {{{"memory.min", KnobKind::kMemory, "0"},
                                         {"memory.low", KnobKind::kMemory, "0"},
                                         {"memory.high", KnobKind::kMemory, "max"},
                                         {"memory.max", KnobKind::kMemory, "max"},
                                         {"memory.swap.high", KnobKind::kSwap, "max"},
                                         {"memory.swap.max", KnobKind::kSwap, "max"},
                                         {"memory.oom.group", KnobKind::kFlag, "0"},
                                         {"memory.swappiness", KnobKind::kSwappiness, "60"}}};

absl::Status Refuse(std::string_view knob, std::string_view value, absl::string_view takes) {
  return absl::InvalidArgumentError(absl::StrCat(
      absl::CHexEscape(absl::string_view(knob.data(), knob.size())), " takes ", takes, ", not \"",
      absl::CHexEscape(absl::string_view(value.data(), std::min<size_t>(value.size(), 64))), "\""));
}

bool ParseNumber(std::string_view text, uint64_t* number, std::string_view* rest) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  *rest = text.substr(static_cast<size_t>(end - text.data()));
  return error == std::errc() && end != text.data();
}

// memparse(), but that nothing is passed over or wraps: below 2^63.
bool ParseAmount(std::string_view text, uint64_t* bytes) {
  std::string_view rest;
  if (!ParseNumber(text, bytes, &rest) || rest.size() > 1) return false;
  if (!rest.empty()) {
    const size_t power = std::string_view("KMGTPE").find(static_cast<char>(rest[0] & ~0x20));
    if (power == std::string_view::npos) return false;
    const unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
    if (*bytes > UINT64_MAX >> shift) return false;
    *bytes <<= shift;
  }
  return *bytes <= INT64_MAX;
}

// "50%".
bool ParseShare(std::string_view text, uint64_t whole, uint64_t* bytes) {
  uint64_t percent = 0;
  std::string_view rest;
  if (!ParseNumber(text, &percent, &rest) || rest != "%" || percent > 100) return false;
  *bytes = whole / 100 * percent + whole % 100 * percent / 100;
  return true;
}

}  // namespace

absl::StatusOr<std::string> CheckKnob(std::string_view knob, std::string_view value, const KnobSizes& sizes) {
  auto found = std::find_if(kKnobs.begin(), kKnobs.end(), [&](const Knob& k) { return k.name == knob; });
  if (found == kKnobs.end()) {
    std::string names;
    for (const Knob& k : kKnobs)
      absl::StrAppend(&names, names.empty() ? "" : ", ", absl::string_view(k.name.data(), k.name.size()));
    return absl::InvalidArgumentError(absl::StrCat(
        "no knob \"", absl::CHexEscape(absl::string_view(knob.data(), std::min<size_t>(knob.size(), 64))),
        "\"; there are ", names));
  }
  uint64_t number = 0;
  std::string_view rest;
  if (found->kind == KnobKind::kFlag) {
    if (value != "0" && value != "1") return Refuse(knob, value, "0 or 1");
    return std::string(value);
  }
  if (found->kind == KnobKind::kSwappiness) {
    if (!ParseNumber(value, &number, &rest) || !rest.empty() || number > 200)
      return Refuse(knob, value, "0 … 200");
    return absl::StrCat(number);
  }
  if (value == "max") return std::string("max");
  const uint64_t whole = found->kind == KnobKind::kSwap ? sizes.swap : sizes.memory;
  if (!ParseAmount(value, &number) && !ParseShare(value, whole, &number)) {
    return Refuse(
        knob, value,
        absl::StrCat("\"max\" or bytes with an optional suffix K, M, G, T, P or E, below 2^63, or a "
                     "share of the node's ",
                     found->kind == KnobKind::kSwap ? "swap" : "memory", ", 0% … 100%"));
  }
  if (number / sizes.page >= static_cast<uint64_t>(PageCounter::kMax)) return std::string("max");
  return absl::StrCat(number / sizes.page * sizes.page);
}

absl::StatusOr<ReclaimRequest> ParseReclaimRequest(std::string_view request, uint32_t page_size) {
  constexpr absl::string_view kTakes =
      "bytes (K, M, G, T, P or E), below 2^63, and, after a space, swappiness=0 … 200 or max";
  constexpr std::string_view kSwappiness = "swappiness=";
  const size_t space = request.find(' ');
  uint64_t number = 0;
  if (!ParseAmount(request.substr(0, space), &number)) return Refuse("memory.reclaim", request, kTakes);
  ReclaimRequest parsed{static_cast<int64_t>(number / page_size), {}};
  if (space == std::string_view::npos) return parsed;
  std::string_view rest = request.substr(space + 1);
  if (!rest.starts_with(kSwappiness)) return Refuse("memory.reclaim", request, kTakes);
  rest.remove_prefix(kSwappiness.size());
  if (rest == "max") {
    parsed.swappiness = 201;
    return parsed;
  }
  if (!ParseNumber(rest, &number, &rest) || !rest.empty() || number > 200)
    return Refuse("memory.reclaim", request, kTakes);
  parsed.swappiness = static_cast<uint32_t>(number);
  return parsed;
}

std::map<std::string, std::string> DefaultKnobs() {
  std::map<std::string, std::string> knobs;
  for (const Knob& knob : kKnobs) knobs.emplace(knob.name, knob.initial);
  return knobs;
}

int64_t KnobPages(std::string_view checked, uint32_t page_size) {
  if (checked == "max") return PageCounter::kMax;
  uint64_t bytes = 0;
  std::from_chars(checked.data(), checked.data() + checked.size(), bytes);
  return static_cast<int64_t>(bytes / page_size);
}

}  // namespace memcgd::core
