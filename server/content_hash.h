// A 64-bit hash of a batch's content, to tell a repeated batch from another one under the same number.
//
// Stable across processes and machines, as a journal will need.  It guards against a client's mistake, not
// against one who looks for collisions: he could only harm his own node.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_SERVER_CONTENT_HASH_H_
#define MEMCGD_SERVER_CONTENT_HASH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace memcgd::server {

class ContentHash {
 public:
  void Add(uint64_t word) { state_ = Fold(state_ ^ word, kMultiplier); }

  // `count` words.  Two a multiplication, and four lanes, as the multiplications of one wait for each other.
  void AddWords(const uint64_t* words, size_t count) {
    Add(count);
    uint64_t lanes[4] = {state_, state_ ^ kSeed, ~state_, ~state_ ^ kSeed};
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      for (size_t lane = 0; lane < 4; ++lane) {
        lanes[lane] = Fold(lanes[lane] ^ words[i + 2 * lane], words[i + 2 * lane + 1] ^ kMultiplier);
      }
    }
    state_ = Fold(lanes[0] ^ kSeed, lanes[1]) ^ Fold(lanes[2] ^ kMultiplier, lanes[3]);
    for (; i < count; ++i) Add(words[i]);
  }

  void AddBytes(std::string_view bytes) {
    Add(bytes.size());
    while (!bytes.empty()) {
      uint64_t word = 0;
      const size_t taken = bytes.size() < sizeof(word) ? bytes.size() : sizeof(word);
      std::memcpy(&word, bytes.data(), taken);
      Add(word);
      bytes.remove_prefix(taken);
    }
  }

  uint64_t Value() const { return Fold(state_, kMultiplier); }

 private:
  static constexpr uint64_t kSeed = 0x2d358dccaa6c78a5;
  static constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

  // Both halves of the product, plus one operand so that a factor of 0 does not swallow the other.
  static uint64_t Fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + a;
  }

  uint64_t state_ = kSeed;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_CONTENT_HASH_H_
