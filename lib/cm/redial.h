/// When a client whose connection has ended dials again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/random.h"
#include "base/time.h"

namespace uroce {

/// Pauses between attempts to connect. Each is twice as long as the one before, until a connection has proved
/// itself: it has brought an answer, or has lived as long as the longest pause. Who is never served so dials
/// once in the longest pause, after a while. Each pause is a random part longer, up to a half, lest clients
/// of one server come all at once.
class Redial {
 public:
  /// Between attempts to connect, but for the first.
  static constexpr std::chrono::milliseconds kShortest{1};

  /// @param longest  not below `first`, and an hour at most
  constexpr Redial(std::chrono::milliseconds first, std::chrono::milliseconds longest,
                   std::uint64_t seed) noexcept
      : first_(first), longest_(longest), pause_(first), random_(seed) {}

  constexpr void on_connected(Ticks now) noexcept { connected_ = now; }

  /// The connection has ended, or the attempt to make it.
  /// @param has_answered  the connection has brought something that was asked for
  /// @return when to dial again
  [[nodiscard]] constexpr Ticks on_ended(Ticks now, bool has_answered) noexcept {
    const bool has_lived = connected_.is_set() && now >= connected_ + ns(longest_);
    connected_ = {};
    if (has_answered || has_lived) pause_ = first_;
    const Ticks next = now + ns(pause_) + random_.below(ns(pause_) / 2 + 1);
    pause_ = std::clamp(pause_ * 2, std::min(kShortest, longest_), longest_);
    return next;
  }

 private:
  static constexpr std::uint64_t ns(std::chrono::nanoseconds time) noexcept {
    return static_cast<std::uint64_t>(time.count());
  }

  std::chrono::milliseconds first_;
  std::chrono::milliseconds longest_;
  std::chrono::milliseconds pause_;
  Random random_;
  Ticks connected_;
};

}  // namespace uroce
