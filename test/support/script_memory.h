/// Registered memory of a test, with guards around it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mem/key_table.h"
#include "support/script_packet.h"
#include "uroce/wr.h"

namespace uroce::test {

/// A region of memory with a key, filled with a pattern. 64 bytes on each side are guards.
///
/// Lifetime: the key table outlives it.
class Area {
 public:
  static constexpr std::size_t kGuard = 64;

  Area(mem::KeyTable& keys, std::uint32_t pd, std::size_t size, std::uint32_t access, std::uint8_t tag)
      : tag_(tag), memory_(size + 2 * kGuard) {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = Pattern{tag_}[i];
    key_ = keys.insert({.addr = addr(), .length = size, .pd = pd, .access = access}).value();
  }

  [[nodiscard]] std::span<std::byte> bytes() noexcept {
    return std::span(memory_).subspan(kGuard, memory_.size() - 2 * kGuard);
  }
  [[nodiscard]] std::uint64_t addr(std::size_t at = 0) noexcept {
    return std::bit_cast<std::uint64_t>(memory_.data() + kGuard + at);
  }
  [[nodiscard]] std::uint32_t key() const noexcept { return key_; }
  [[nodiscard]] Rkey rkey() const noexcept { return Rkey{key_}; }
  [[nodiscard]] Sge sge(std::size_t at, std::size_t len) noexcept {
    return {.addr = addr(at), .length = static_cast<std::uint32_t>(len), .lkey = Lkey{key_}};
  }
  /// What bytes [at, ...) held at first.
  [[nodiscard]] Pattern initial(std::size_t at = 0) const noexcept { return {tag_, kGuard + at}; }

  [[nodiscard]] bool holds(std::size_t at, std::size_t len, const Pattern& pattern) noexcept {
    for (std::size_t i = 0; i < len; ++i) {
      if (bytes()[at + i] != pattern[i]) return false;
    }
    return true;
  }
  /// Whether nothing, guards included, has changed outside [at, at + len).
  [[nodiscard]] bool is_untouched_but(std::size_t at, std::size_t len) const noexcept {
    const std::size_t from = kGuard + at;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (i >= from && i < from + len) continue;
      if (memory_[i] != Pattern{tag_}[i]) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_untouched() const noexcept { return is_untouched_but(0, 0); }

 private:
  std::uint8_t tag_;
  Bytes memory_;
  std::uint32_t key_ = 0;
};

}  // namespace uroce::test
