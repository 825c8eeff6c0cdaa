/// Posts that left without a look at the clock of their own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "base/time.h"
#include "transport/queue_pair.h"

namespace uroce::engine {

/// A look at the clock takes 7 to 25 ns, and an application that serves many QPs posts to one behind the
/// other. The first post behind an iteration looks, and the next ones count as having left then; with the
/// next look it shows whether that was right. Where it was not, each post looks for a while.
///
/// Threads: loop.
class UndatedPosts {
 public:
  static constexpr std::uint64_t kApartNs = 10'000;  ///< a tenth of the least margin before a probe
  static constexpr std::uint32_t kMost = 7;          ///< between two looks

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// A post to `qp` has left. @return false if the clock must tell when
  [[nodiscard]] bool take(transport::QueuePair& qp) noexcept {
    if (count_ == room_) return false;
    qps_[count_++] = &qp;
    return true;
  }
  /// A post has looked: others may follow it.
  void open() noexcept {
    if (to_look_ == 0) [[likely]] {
      room_ = kMost;
    } else {
      --to_look_;
    }
  }
  /// None may follow. @pre empty()
  void close() noexcept { room_ = 0; }
  /// Takes those that left since `last`, if that is not what the clock tells `now`.
  [[nodiscard]] std::span<transport::QueuePair* const> settle(Ticks last, Ticks now) noexcept {
    const std::uint32_t count = std::exchange(count_, 0);
    if (now <= last + kApartNs) return {};
    to_look_ = kLooks;
    return std::span{qps_}.first(count);
  }

 private:
  static constexpr std::uint32_t kLooks = 256;  // posts in a row

  std::uint32_t count_ = 0;
  std::uint32_t room_ = 0;
  std::uint32_t to_look_ = 0;  // posts
  std::array<transport::QueuePair*, kMost> qps_{};
};

}  // namespace uroce::engine
