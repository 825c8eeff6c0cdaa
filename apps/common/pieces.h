/// Much memory written or looked at, while the device goes on: in Mode::kApp nobody answers its peers
/// meanwhile.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "apps/common/pattern.h"
#include "uroce/device.h"

namespace uroce::apps {

/// Calls handle(piece, its offset) for all of `data`, and lets the device look at its port in between.
template <typename Byte, typename F>
void in_pieces(Device& device, std::span<Byte> data, F&& handle) {
  constexpr std::size_t kPiece = 16U << 20U;  // some 10 ms
  constexpr std::size_t kFew = 64U << 10U;    // no time to speak of
  for (std::size_t at = 0; at < data.size(); at += kPiece) {
    handle(data.subspan(at, std::min(kPiece, data.size() - at)), at);
    if (data.size() > kFew) device.progress();
  }
}

inline void fill_all(Device& device, std::span<std::byte> out, std::byte value) {
  in_pieces(device, out, [&](std::span<std::byte> piece, std::size_t) {
    std::memset(piece.data(), std::to_integer<int>(value), piece.size());
  });
}

/// fill_pattern() and pattern_errors().
inline void fill_with_pattern(Device& device, std::span<std::byte> out, std::uint64_t seed) {
  in_pieces(device, out,
            [&](std::span<std::byte> piece, std::size_t at) { fill_pattern(piece, seed, at / sizeof seed); });
}

[[nodiscard]] inline std::uint64_t errors_in_pattern(Device& device, std::span<const std::byte> in,
                                                     std::uint64_t seed) {
  std::uint64_t errors = 0;
  in_pieces(device, in, [&](std::span<const std::byte> piece, std::size_t at) {
    errors += pattern_errors(piece, seed, at / sizeof seed);
  });
  return errors;
}

}  // namespace uroce::apps
