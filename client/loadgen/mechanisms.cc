#include "client/loadgen/mechanisms.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace memcgd::client::loadgen {
namespace {

namespace pb = google::protobuf;

const MechanismNames* Find(std::string_view name) {
  for (const MechanismNames& mechanism : MechanismList()) {
    if (mechanism.name == name) return &mechanism;
  }
  return nullptr;
}

std::vector<std::string> FormsOf(const MechanismNames& mechanism) {
  std::vector<std::string> forms = {std::string(mechanism.newer)};
  for (std::string_view older : mechanism.older) forms.emplace_back(older);
  return forms;
}

absl::Status NoMechanism(std::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(name), "\" is no mechanism: ", MechanismNamesText(), " are wanted"));
}

}  // namespace

const std::array<MechanismNames, 5>& MechanismList() {
  static const std::array<MechanismNames, 5> list = {{
      {"charge_order", "charge_first", {"uptodate_first"}},
      {"commit_batch", "by_policy", {"small"}},
      {"css_refs", "coalesced", {"per_page"}},
      {"stats", "spill", {"walk", "rstat"}},
      {"lru_lock", "per_memcg", {"per_node"}},
  }};
  return list;
}

std::string MechanismNamesText() {
  std::vector<std::string> names;
  for (const MechanismNames& mechanism : MechanismList()) names.emplace_back(mechanism.name);
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<std::pair<std::string, std::string>> ParseForm(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const MechanismNames* mechanism = Find(name);
  if (mechanism == nullptr) return NoMechanism(name);
  const std::string form(equals == std::string_view::npos ? "" : text.substr(equals + 1));
  const std::vector<std::string> forms = FormsOf(*mechanism);
  if (std::find(forms.begin(), forms.end(), form) == forms.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", form, "\" is no form of ", std::string(name), ": ",
                                                   absl::StrJoin(forms, ", "), " are"));
  }
  return std::make_pair(std::string(name), form);
}

absl::StatusOr<Comparison> ParseComparison(std::string_view text) {
  if (text == "none") return Comparison{"none", "first", "second"};
  const MechanismNames* mechanism = Find(text.substr(0, text.find('=')));
  if (mechanism == nullptr) return NoMechanism(text.substr(0, text.find('=')));
  Comparison comparison{std::string(mechanism->name), std::string(mechanism->older.front()),
                        std::string(mechanism->newer)};
  if (text == mechanism->name) return comparison;
  auto form = ParseForm(text);
  if (!form.ok()) return form.status();
  if (form->second == mechanism->newer) {
    return absl::InvalidArgumentError(
        absl::StrCat(form->second, " is the newer form of ", form->first, " itself: name the older one"));
  }
  comparison.older = form->second;
  return comparison;
}

// An enum's values are its name and the form's, in capitals.
void SetForms(const Forms& forms, memcgd::v1::NodeSpec* spec) {
  memcgd::v1::Mechanisms* mechanisms = spec->mutable_mechanisms();
  const pb::Reflection* reflection = mechanisms->GetReflection();
  for (const auto& [name, form] : forms) {
    const pb::FieldDescriptor* choice = mechanisms->GetDescriptor()->FindFieldByName(name);
    if (choice == nullptr) continue;  // "none"
    for (int i = 0; i < choice->enum_type()->value_count(); ++i) {
      const pb::EnumValueDescriptor* value = choice->enum_type()->value(i);
      if (absl::EndsWith(value->name(), absl::StrCat("_", absl::AsciiStrToUpper(form)))) {
        reflection->SetEnum(mechanisms, choice, value);
      }
    }
  }
}

std::map<std::string, uint64_t> CountersOf(const memcgd::v1::Node& node) {
  std::map<std::string, uint64_t> counters;
  const memcgd::v1::MechanismCounters& message = node.mechanism_counters();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor* counter = message.GetDescriptor()->field(i);
    counters[counter->name()] = message.GetReflection()->GetUInt64(message, counter);
  }
  return counters;
}

}  // namespace memcgd::client::loadgen
