#include "server/node_file.h"

#include <cstring>
#include <utility>

#include "core/archive.h"
#include "core/snapshot.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

constexpr std::string_view kMagic = "memcgd-file\n";
constexpr size_t kFixedBytes = kMagic.size() + 1 + 2 * sizeof(uint64_t);

void AppendWord(uint64_t word, std::string* to) {
  for (int shift = 0; shift < 64; shift += 8) to->push_back(static_cast<char>(word >> shift));
}

uint64_t WordAt(std::string_view bytes, size_t at) {
  uint64_t word = 0;
  for (size_t i = 0; i < sizeof(word); ++i) word |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << 8 * i;
  return word;
}

}  // namespace

NodeFileBytes WriteNodeFile(ServedNode* node) {
  core::Writer writer;
  writer(node->name());
  writer(node->incarnation());
  node->SaveStreams(&writer);
  const std::string head = writer.Take();
  NodeFileBytes file;
  file.head.assign(kMagic);
  file.head.push_back(static_cast<char>(kNodeFileVersion));
  AppendWord(head.size(), &file.head);
  AppendWord(core::HashBytes(head), &file.head);
  file.head.append(head);
  file.snapshot = node->core()->Save();
  return file;
}

absl::StatusOr<std::shared_ptr<ServedNode>> ReadNodeFile(std::string_view name, std::string_view bytes,
                                                         bool same_state) {
  if (bytes.substr(0, kMagic.size()) != kMagic.substr(0, bytes.size()))
    return absl::InvalidArgumentError("is no file of memcgd");
  if (bytes.size() < kFixedBytes) return absl::DataLossError("is cut short");
  const uint8_t version = static_cast<uint8_t>(bytes[kMagic.size()]);
  if (version != kNodeFileVersion) {
    return absl::InvalidArgumentError(
        Cat("has format version ", int{version}, ", and this memcgd reads ", int{kNodeFileVersion}));
  }
  const uint64_t head_size = WordAt(bytes, kMagic.size() + 1);
  const uint64_t checksum = WordAt(bytes, kMagic.size() + 1 + sizeof(uint64_t));
  bytes.remove_prefix(kFixedBytes);
  if (head_size > bytes.size()) return absl::DataLossError("is cut short");
  const std::string_view head = bytes.substr(0, head_size);
  if (core::HashBytes(head) != checksum) return absl::DataLossError("is damaged: its checksum differs");
  bytes.remove_prefix(head_size);

  core::Reader reader(head);
  std::string saved_name;
  uint64_t incarnation = 0;
  reader(saved_name);
  reader(incarnation);
  if (reader.ok() && saved_name != name)
    return absl::InvalidArgumentError(Cat("holds node ", Quoted(saved_name), ": it was renamed"));
  absl::StatusOr<std::unique_ptr<core::Node>> core = core::Node::Load(bytes);
  if (!core.ok())
    return absl::Status(core.status().code(), Cat("cannot be read: ", std::string(core.status().message())));
  auto node = std::make_shared<ServedNode>(saved_name, same_state ? incarnation : RandomIncarnation(),
                                           *std::move(core));
  node->LoadStreams(&reader);
  if (!reader.ok() || !reader.at_end() || incarnation == 0)
    return absl::DataLossError("is damaged: its head holds no node");
  return node;
}

}  // namespace memcgd::server
