/// What wr_ids of `uroce perf` mean: they come back in completions, which say no more.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "apps/perf/spec.h"

namespace uroce::apps::perf {

/// Of receives; the rest of theirs is the QP and the slot.
inline constexpr std::uint64_t kReceiveFlag = 1ULL << 63U;

/// Of operations of a stream: when this one is done, so are that many of the QP.
struct SentId {
  std::size_t qp = 0;
  std::uint64_t up_to = 0;

  [[nodiscard]] constexpr std::uint64_t packed() const noexcept {
    return std::uint64_t{qp} << kCountBits | up_to;
  }
  [[nodiscard]] static constexpr SentId of(std::uint64_t wr_id) noexcept {
    return {.qp = static_cast<std::size_t>(wr_id >> kCountBits), .up_to = wr_id & (kCounts - 1)};
  }
  friend constexpr bool operator==(const SentId&, const SentId&) = default;

 private:
  static constexpr unsigned kCountBits = 48;
  static constexpr std::uint64_t kCounts = 1ULL << kCountBits;
  static constexpr std::uint64_t kMostASecond = 1'000'000'000;  // more than any QP ever does
  static_assert(kCounts > most::kSeconds * kMostASecond && kCounts > most::kIterations);
  static_assert(kCountBits + std::bit_width(most::kQps - 1) < std::bit_width(kReceiveFlag));
};

}  // namespace uroce::apps::perf
