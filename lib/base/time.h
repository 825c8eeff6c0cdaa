/// Points in time. Below engine, time is always an argument: nothing here reads a clock.
#pragma once

#include <compare>
#include <cstdint>

namespace uroce {

/// A point in time in nanoseconds since an arbitrary start; zero means "never" where a deadline is optional.
class Ticks {
 public:
  constexpr Ticks() noexcept = default;
  constexpr explicit Ticks(std::uint64_t ns) noexcept : ns_(ns) {}

  [[nodiscard]] constexpr std::uint64_t ns() const noexcept { return ns_; }
  [[nodiscard]] constexpr bool is_set() const noexcept { return ns_ != 0; }
  friend constexpr auto operator<=>(Ticks, Ticks) noexcept = default;
  friend constexpr Ticks operator+(Ticks t, std::uint64_t ns) noexcept { return Ticks{t.ns_ + ns}; }

 private:
  std::uint64_t ns_ = 0;
};

/// The earlier of two deadlines, where unset means never.
[[nodiscard]] constexpr Ticks earlier(Ticks a, Ticks b) noexcept {
  if (!a.is_set()) return b;
  if (!b.is_set()) return a;
  return a < b ? a : b;
}

}  // namespace uroce
