// A cursor over one line of text: the few steps the trace parsers are made of, with no allocation, no locale
// and no exception.  Every step either succeeds and moves on, or fails; after a failure the place is
// unspecified and the line is given up, so nothing needs to be put back.
//
// Numbers are checked for overflow, as a damaged line may hold any number of digits.
//
// Thread safety: a plain value.
#ifndef MEMCGD_CLIENT_TEXT_SCANNER_H_
#define MEMCGD_CLIENT_TEXT_SCANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

namespace memcgd::client {

class TextScanner {
 public:
  explicit TextScanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool AtEnd() const { return at_ == end_; }
  // The character here, NUL at the end (a NUL within the text fits no step either).
  char Peek() const { return at_ != end_ ? *at_ : '\0'; }
  const char* at() const { return at_; }
  std::string_view rest() const { return std::string_view(at_, static_cast<size_t>(end_ - at_)); }
  void Advance(size_t count) { at_ += count; }

  // True where a value may end: at the end of the line, a blank, or the punctuation between values.
  bool AtValueEnd() const {
    const char c = Peek();
    return AtEnd() || c == ' ' || c == '\t' || c == ',' || c == ')' || c == ':';
  }

  void SkipBlanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t')) ++at_;
  }

  bool Skip(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  // `literal` is a string literal, so that its length is known where this is compiled.
  template <size_t kSize>
  bool Skip(const char (&literal)[kSize]) {
    constexpr size_t kLength = kSize - 1;
    if (static_cast<size_t>(end_ - at_) < kLength || std::memcmp(at_, literal, kLength) != 0) return false;
    at_ += kLength;
    return true;
  }

  // Moves to just behind the next `c`.
  bool SkipPast(char c) {
    const void* found = at_ == end_ ? nullptr : std::memchr(at_, c, static_cast<size_t>(end_ - at_));
    if (found == nullptr) return false;
    at_ = static_cast<const char*>(found) + 1;
    return true;
  }

  // One or more decimal digits, at most `max`.
  bool ReadDecimal(uint64_t* value, uint64_t max = std::numeric_limits<uint64_t>::max()) {
    const char* start = at_;
    uint64_t sum = 0;
    while (at_ != end_ && static_cast<unsigned char>(*at_ - '0') < 10) {
      const uint64_t digit = static_cast<uint64_t>(*at_ - '0');
      // 19 digits always fit, so the exact check is needed for the twentieth only.
      if (at_ - start >= 19 && sum > (std::numeric_limits<uint64_t>::max() - digit) / 10) return false;
      sum = sum * 10 + digit;
      ++at_;
    }
    *value = sum;
    return at_ != start && sum <= max;
  }

  // As ReadDecimal(), where the kernel prints with %lld: "-1" is the largest number.
  bool ReadSignedDecimal(uint64_t* value) {
    const bool negative = Skip('-');
    if (!ReadDecimal(value)) return false;
    if (negative) *value = ~*value + 1;
    return true;
  }

  // One or more hex digits, with or without a leading 0x.
  bool ReadHex(uint64_t* value) {
    if (end_ - at_ > 2 && at_[0] == '0' && at_[1] == 'x') at_ += 2;
    const char* start = at_;
    uint64_t sum = 0;
    while (at_ != end_) {
      const uint8_t digit = kHexDigit[static_cast<unsigned char>(*at_)];
      if (digit > 15) break;
      if ((sum >> 60) != 0) return false;
      sum = sum << 4 | digit;
      ++at_;
    }
    *value = sum;
    return at_ != start;
  }

  // 0x… as hex, anything else as decimal.
  bool ReadNumber(uint64_t* value) {
    return end_ - at_ > 2 && at_[0] == '0' && at_[1] == 'x' ? ReadHex(value) : ReadDecimal(value);
  }

  // A process or thread number as the kernel prints it with %d: -1 and 0 occur.
  bool ReadPid(int32_t* pid) {
    const bool negative = Skip('-');
    uint64_t value = 0;
    if (!ReadDecimal(&value, std::numeric_limits<int32_t>::max())) return false;
    *pid = negative ? -static_cast<int32_t>(value) : static_cast<int32_t>(value);
    return true;
  }

  // seconds.fraction with one to nine digits of fraction, in nanoseconds.
  bool ReadTime(int64_t* time_ns) {
    constexpr uint64_t kMaxSeconds = 9'000'000'000;  // within int64_t nanoseconds; 285 years
    uint64_t seconds = 0;
    if (!ReadDecimal(&seconds, kMaxSeconds) || !Skip('.')) return false;
    uint64_t fraction = 0;
    const char* start = at_;
    if (!ReadDecimal(&fraction)) return false;
    const auto digits = static_cast<size_t>(at_ - start);
    if (digits >= kNanosecondsPerUnit.size()) return false;
    *time_ns = static_cast<int64_t>(seconds * 1'000'000'000 + fraction * kNanosecondsPerUnit[digits]);
    return true;
  }

 private:
  static constexpr std::array<uint64_t, 10> kNanosecondsPerUnit = {
      0, 100'000'000, 10'000'000, 1'000'000, 100'000, 10'000, 1'000, 100, 10, 1};

  static constexpr std::array<uint8_t, 256> kHexDigit = [] {
    std::array<uint8_t, 256> digits{};
    for (auto& digit : digits) digit = 0xff;
    for (size_t i = 0; i < 10; ++i) digits['0' + i] = static_cast<uint8_t>(i);
    for (size_t i = 0; i < 6; ++i) digits['a' + i] = digits['A' + i] = static_cast<uint8_t>(10 + i);
    return digits;
  }();

  const char* at_;
  const char* end_;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_TEXT_SCANNER_H_
