// The directions of a snapshot and of a fork: one walk over the state writes it or reads it, so that they
// cannot part.
//
// Numbers are LEB128 (zigzag where signed), strings carry their length, the checksum stands last.  A fork's
// two walks do the same with what is small; what is large (page descriptors, sparse arrays) the first lends
// and the second copies as a whole.
//
// Thread safety: one thread at a time.
#ifndef MEMCGD_CORE_ARCHIVE_H_
#define MEMCGD_CORE_ARCHIVE_H_

#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/check.h"

namespace memcgd::core {

// Writes.
class Writer {
 public:
  static constexpr bool kReads = false;
  static constexpr bool kForks = false;

  template <typename T>
  requires std::integral<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      Put(static_cast<uint64_t>(static_cast<std::underlying_type_t<T>>(value)));
    } else if constexpr (std::is_signed_v<T>) {
      int64_t wide = value;
      Put(static_cast<uint64_t>(wide) << 1 ^ static_cast<uint64_t>(wide >> 63));
    } else {
      Put(value);
    }
  }
  template <typename T>
  void operator()(const std::atomic<T>& value) {
    (*this)(value.load(std::memory_order_relaxed));
  }
  void operator()(const std::string& text) {
    Put(text.size());
    bytes_.append(text);
  }
  // The number of elements that follow.
  uint64_t Size(uint64_t size) {
    Put(size);
    return size;
  }
  bool ok() const { return true; }
  std::string Take() { return std::move(bytes_); }

 private:
  void Put(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// Reads; after the bytes' end, or a number out of its type's range, everything is 0 and ok() is false.
class Reader {
 public:
  static constexpr bool kReads = true;
  static constexpr bool kForks = false;

  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::integral<T> || std::is_enum_v<T>
  void operator()(T& value) {
    uint64_t raw = Get();
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(raw);
      if (static_cast<uint64_t>(static_cast<std::underlying_type_t<T>>(value)) != raw) Fail();
    } else if constexpr (std::is_signed_v<T>) {
      int64_t wide = static_cast<int64_t>(raw >> 1 ^ (~(raw & 1) + 1));
      value = static_cast<T>(wide);
      if (value != wide) Fail();
    } else {
      value = static_cast<T>(raw);
      if (value != raw) Fail();
    }
  }
  template <typename T>
  void operator()(std::atomic<T>& value) {
    T plain{};
    (*this)(plain);
    value.store(plain, std::memory_order_relaxed);
  }
  void operator()(std::string& text) {
    uint64_t size = Size(0);
    text.assign(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
  }
  // At most what the bytes left can hold.
  uint64_t Size(uint64_t) {
    uint64_t size = Get();
    if (size > bytes_.size()) {
      Fail();
      return 0;
    }
    return size;
  }
  // Fails where the bytes left cannot hold so many elements, of a byte each at least.
  bool Holds(uint64_t elements) {
    if (elements > bytes_.size()) Fail();
    return ok_;
  }
  void Fail() {
    ok_ = false;
    bytes_ = {};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  uint64_t Get() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) {
        Fail();
        return 0;
      }
      uint64_t byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    Fail();
    return 0;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

// The first walk of a fork, over the original: writes what is small and notes where the rest is.
class Lender : public Writer {
 public:
  static constexpr bool kForks = true;

  template <typename T>
  void Share(const T& part) {
    parts_.push_back({&part, &typeid(T)});
  }

 private:
  friend class Borrower;
  struct Part {
    const void* object;
    const std::type_info* type;
  };
  std::vector<Part> parts_;
};

// The second, over the fork.  The original stands still until it is done.
class Borrower : public Reader {
 public:
  static constexpr bool kForks = true;

  // `bytes` are what the lender wrote.
  Borrower(const Lender& lender, std::string_view bytes) : Reader(bytes), parts_(lender.parts_) {}

  template <typename T>
  void Share(T& part) {
    MEMCG_CHECK(next_ < parts_.size() && *parts_[next_].type == typeid(T));
    part = *static_cast<const T*>(parts_[next_++].object);
  }

 private:
  const std::vector<Lender::Part>& parts_;
  size_t next_ = 0;
};

}  // namespace memcgd::core

#endif  // MEMCGD_CORE_ARCHIVE_H_
