/// A set of PSNs near each other.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "uroce/types.h"

namespace uroce::transport {

/// PSNs from a base on, which moves forward. Those outside of the span are in no set.
///
/// Threads: loop.
class PsnBitmap {
 public:
  static constexpr std::uint32_t kSpan = 512;  // PSNs
  static constexpr std::uint32_t kWordBits = 64;
  static constexpr std::uint32_t kWords = kSpan / kWordBits;

  void restart(Psn base) noexcept {
    base_ = base;
    words_ = {};
  }
  [[nodiscard]] Psn base() const noexcept { return base_; }
  /// Forgets what lies before `base`; one that is not ahead changes nothing.
  void advance(Psn base) noexcept {
    if (!before(base_, base)) return;
    const std::uint32_t by = span_from(base, base_);
    base_ = base;
    if (by >= kSpan) {
      words_ = {};
      return;
    }
    const std::uint32_t words = by / kWordBits;
    const std::uint32_t bits = by % kWordBits;
    for (std::uint32_t i = 0; i < kWords; ++i) {
      const std::uint64_t low = word(i + words);
      words_[i] = bits == 0 ? low : low >> bits | word(i + words + 1) << (kWordBits - bits);
    }
  }

  [[nodiscard]] bool has(Psn psn) const noexcept {
    const std::uint32_t at = span_from(psn, base_);
    return at < kSpan && (words_[at / kWordBits] >> at % kWordBits & 1) != 0;
  }
  void set(Psn psn, bool to = true) noexcept {
    const std::uint32_t at = span_from(psn, base_);
    if (at >= kSpan) return;
    const std::uint64_t bit = std::uint64_t{1} << at % kWordBits;
    std::uint64_t& in = words_[at / kWordBits];
    in = to ? in | bit : in & ~bit;
  }

  [[nodiscard]] bool is_empty() const noexcept {
    return std::all_of(words_.begin(), words_.end(), [](std::uint64_t bits) { return bits == 0; });
  }
  [[nodiscard]] std::optional<Psn> first() const noexcept {
    for (std::uint32_t i = 0; i < kWords; ++i) {
      if (words_[i] != 0)
        return base_ + (i * kWordBits + static_cast<std::uint32_t>(std::countr_zero(words_[i])));
    }
    return std::nullopt;
  }

  /// PSNs from base() + 64 * i on, the first in the lowest bit.
  [[nodiscard]] std::uint64_t word(std::uint32_t i) const noexcept { return i < kWords ? words_[i] : 0; }
  void set_word(std::uint32_t i, std::uint64_t bits) noexcept { words_[i] = bits; }
  /// Word `i` of the set of all PSNs from base() up to and without `end`.
  [[nodiscard]] std::uint64_t word_before(std::uint32_t i, Psn end) const noexcept {
    const std::int32_t left = distance(end, base_) - static_cast<std::int32_t>(i * kWordBits);
    if (left <= 0) return 0;
    return left >= static_cast<std::int32_t>(kWordBits) ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
  }

 private:
  Psn base_;
  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace uroce::transport
