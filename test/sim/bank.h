/// Registered memory and what it should hold.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "mem/key_table.h"
#include "uroce/wr.h"

namespace uroce::sim {

/// A promise was broken.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

/// Bytes that depend on `seed` only.
inline void fill(std::span<std::byte> out, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e37'79b9'7f4a'7c15U + 0xd1b5'4a32'd192'ed03U;
  std::size_t i = 0;
  for (; i < out.size(); i += 8) {
    state ^= state >> 29;
    state *= 0xbf58'476d'1ce4'e5b9U;
    state += 0x9e37'79b9'7f4a'7c15U;
    const std::uint64_t word = state ^ state >> 32;
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, out.size() - i));
  }
}

/// Place of bytes inside a bank.
struct Piece {
  std::size_t at = 0;
  std::uint32_t len = 0;
};

/// One memory region of an endpoint: the bytes that the transport works on, and the image of what they should
/// be.
class Bank {
 public:
  explicit Bank(std::uint32_t access) : access_(access) {}

  /// Before open(): sets bytes aside, with a gap that nobody may write.
  [[nodiscard]] std::size_t reserve(std::size_t bytes, Random& random) {
    const std::size_t at = size_ + random.below(32);
    size_ = at + bytes + 8;
    return at;
  }
  [[nodiscard]] std::size_t reserve_aligned(std::size_t bytes) {
    const std::size_t at = (size_ + 7) & ~std::size_t{7};
    size_ = at + bytes + 8;
    return at;
  }

  /// Fills and registers all that was reserved.
  void open(mem::KeyTable& keys, std::uint32_t pd, std::uint64_t seed) {
    bytes_.resize(size_ + 64);
    fill(bytes_, seed);
    image_ = bytes_;
    key_ = keys.insert({.addr = addr(0), .length = bytes_.size(), .pd = pd, .access = access_}).value();
  }

  [[nodiscard]] std::uint64_t addr(std::size_t at) const noexcept {
    return std::bit_cast<std::uint64_t>(bytes_.data() + at);
  }
  [[nodiscard]] std::uint32_t key() const noexcept { return key_; }
  [[nodiscard]] std::span<std::byte> bytes(std::size_t at, std::size_t len) noexcept {
    return std::span(bytes_).subspan(at, len);
  }
  [[nodiscard]] std::span<std::byte> image(std::size_t at, std::size_t len) noexcept {
    return std::span(image_).subspan(at, len);
  }
  /// The application writes: both change.
  void store(std::size_t at, std::span<const std::byte> data) noexcept {
    if (data.empty()) return;
    std::memcpy(bytes_.data() + at, data.data(), data.size());
    std::memcpy(image_.data() + at, data.data(), data.size());
  }
  [[nodiscard]] bool is_right(std::size_t at, std::size_t len) const noexcept {
    return len == 0 || std::memcmp(bytes_.data() + at, image_.data() + at, len) == 0;
  }
  /// First byte that is not as it should be; size() if all are.
  [[nodiscard]] std::size_t first_wrong() const noexcept {
    if (is_right(0, bytes_.size())) return bytes_.size();
    return static_cast<std::size_t>(std::mismatch(bytes_.begin(), bytes_.end(), image_.begin()).first -
                                    bytes_.begin());
  }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

 private:
  std::uint32_t access_;
  std::size_t size_ = 64;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> image_;
  std::uint32_t key_ = 0;
};

}  // namespace uroce::sim
