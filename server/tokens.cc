#include "server/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "server/limits.h"
#include "server/regular_file.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

absl::Status Refuse(const YAML::Node& at, std::string_view why) {
  return absl::InvalidArgumentError(Cat("line ", at.Mark().line + 1, ": ", why));
}

bool HasPrefixOf(const std::vector<std::string>& prefixes, std::string_view node) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [node](const std::string& prefix) { return node.starts_with(prefix); });
}

absl::Status ReadPrefixes(const YAML::Node& value, std::vector<std::string>* prefixes) {
  if (!value.IsSequence()) return Refuse(value, "a list of prefixes of nodes' names is wanted, as [team-a-]");
  for (const YAML::Node& prefix : value) {
    if (!prefix.IsScalar()) return Refuse(prefix, "a prefix is not a text");
    prefixes->push_back(prefix.Scalar());
  }
  return absl::OkStatus();
}

absl::Status ReadHash(const YAML::Node& value, TokenHash* hash) {
  const std::string text = value.IsScalar() ? value.Scalar() : "";
  const auto is_hex = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  if (text.size() != 2 * hash->size() || !std::all_of(text.begin(), text.end(), is_hex)) {
    return Refuse(value, "sha256 is not 64 hexadecimal digits (printf %s TOKEN | sha256sum)");
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), hash->begin());
  return absl::OkStatus();
}

absl::Status ReadTenant(const YAML::Node& value, std::string* tenant) {
  *tenant = value.IsScalar() ? value.Scalar() : "";
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  };
  if (tenant->empty() || tenant->size() > kMaxTenantBytes ||
      !std::all_of(tenant->begin(), tenant->end(), allowed)) {
    return Refuse(value, Cat("a tenant's name is 1 … ", kMaxTenantBytes,
                             " letters, digits, '.', '-' and '_', not ", Quoted(*tenant)));
  }
  return absl::OkStatus();
}

absl::Status ReadExpiry(const YAML::Node& value, absl::Time* expires) {
  std::string why;
  if (value.IsScalar() && absl::ParseTime(absl::RFC3339_full, value.Scalar(), expires, &why))
    return absl::OkStatus();
  return Refuse(value, "expires is no time of RFC 3339, as 2027-01-01T00:00:00Z");
}

absl::Status ReadField(const std::string& key, const YAML::Node& value, Grant* grant) {
  if (key == "sha256") return ReadHash(value, &grant->hash);
  if (key == "tenant") return ReadTenant(value, &grant->tenant);
  if (key == "read") return ReadPrefixes(value, &grant->read_prefixes);
  if (key == "write") return ReadPrefixes(value, &grant->write_prefixes);
  if (key == "expires") return ReadExpiry(value, &grant->expires);
  return Refuse(value,
                Cat("key ", Quoted(key), " is unknown; there are sha256, tenant, read, write, expires"));
}

absl::Status ReadGrant(const YAML::Node& from, Grant* grant) {
  if (!from.IsMap()) return Refuse(from, "a token is a map with sha256, tenant, read or write");
  std::vector<std::string> seen;
  for (const auto& pair : from) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "";
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return Refuse(pair.first, Cat("key ", Quoted(key), " stands twice"));
    seen.push_back(key);
    const absl::Status status = ReadField(key, pair.second, grant);
    if (!status.ok()) return status;
  }
  const auto has = [&seen](std::string_view key) {
    return std::find(seen.begin(), seen.end(), key) != seen.end();
  };
  if (!has("sha256")) return Refuse(from, "a token without sha256");
  if (!has("tenant")) return Refuse(from, "a token without tenant");
  if (!has("read") && !has("write")) return Refuse(from, "a token that may neither read nor write");
  return absl::OkStatus();
}

absl::Status ReadGrants(const YAML::Node& root, std::vector<Grant>* grants) {
  const bool has_list = root.IsMap() && root.size() == 1 && root["tokens"].IsDefined();
  if (!has_list || !root["tokens"].IsSequence()) {
    return absl::InvalidArgumentError("line 1: one key is wanted, tokens, with a list");
  }
  for (const YAML::Node& node : root["tokens"]) {
    if (grants->size() == kMaxTokens) return Refuse(node, Cat("more than ", kMaxTokens, " tokens"));
    Grant grant;
    const absl::Status status = ReadGrant(node, &grant);
    if (!status.ok()) return status;
    const bool twice = std::any_of(grants->begin(), grants->end(),
                                   [&grant](const Grant& one) { return one.hash == grant.hash; });
    if (twice) return Refuse(node, "the same sha256 stands twice");
    grants->push_back(std::move(grant));
  }
  return absl::OkStatus();
}

}  // namespace

bool Grant::MayWrite(std::string_view node) const { return HasPrefixOf(write_prefixes, node); }
bool Grant::MayRead(std::string_view node) const {
  return MayWrite(node) || HasPrefixOf(read_prefixes, node);
}

absl::StatusOr<std::shared_ptr<const Tokens>> Tokens::Read(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadRegularFile("token file", file);
  if (!text.ok()) return text.status();
  auto tokens = std::make_shared<Tokens>();
  absl::Status status;
  // yaml-cpp throws where the text is not YAML; exceptions end at this edge.
  try {
    status = ReadGrants(YAML::Load(*text), &tokens->grants_);
  } catch (const YAML::Exception& error) {
    std::string why = error.msg;
    std::replace(why.begin(), why.end(), '\n', ' ');
    status = absl::InvalidArgumentError(Cat("line ", error.mark.line + 1, ": ", why));
  }
  if (!status.ok()) {
    return absl::InvalidArgumentError(Cat("token file ", file, ", ", std::string(status.message())));
  }
  return tokens;
}

const Grant* Tokens::Find(std::string_view token) const {
  TokenHash hash;
  SHA256(reinterpret_cast<const uint8_t*>(token.data()), token.size(), hash.data());
  const Grant* found = nullptr;
  for (const Grant& grant : grants_) {
    if (CRYPTO_memcmp(grant.hash.data(), hash.data(), hash.size()) == 0) found = &grant;
  }
  return found;
}

}  // namespace memcgd::server
