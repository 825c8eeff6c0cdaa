/// What is counted of each QP, besides by its loop.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/counters.h"

namespace uroce::transport {

/// In the order in which they are shown. All are rare: none is of a packet that is sent for the first time,
/// arrives in order or is acknowledged in order.
inline constexpr std::array kQpCounters = {
    Count::kRequesterRepeatedPackets,  //
    Count::kRequesterTimeouts,         //
    Count::kRequesterProbes,           //
    Count::kRequesterImpliedNaks,      //
    Count::kRequesterSeqNaks,          //
    Count::kRequesterRnrNaks,          //
    Count::kRequesterFatalNaks,        //
    Count::kCnpsHandled,               //
    Count::kCnpsSent,                  //
    Count::kResponderDuplicateRequests,
    Count::kResponderOutOfSequence,
    Count::kResponderSeqNaks,
    Count::kResponderRnrNaks,
    Count::kResponderFatalNaks,
    Count::kResponderDroppedMessages,
    Count::kDropNoReceive,
};

/// Threads: add() and clear() by the loop, get() by any.
class QpCounters {
 public:
  [[nodiscard]] static constexpr bool has(Count what) noexcept { return place_of(what) < kQpCounters.size(); }
  /// @param what  one of kQpCounters
  void add(Count what) noexcept {
    const std::size_t place = place_of(what);
    put(place, get(place) + 1);  // single writer
  }
  void clear() noexcept {
    for (std::size_t i = 0; i < values_.size(); ++i) put(i, 0);
  }
  /// Of kQpCounters[place].
  [[nodiscard]] std::uint64_t get(std::size_t place) const noexcept {
    return values_[place].load(std::memory_order_relaxed);
  }
  /// In kQpCounters; its size: it is none of them.
  [[nodiscard]] static constexpr std::size_t place_of(Count what) noexcept {
    return static_cast<std::size_t>(std::ranges::find(kQpCounters, what) - kQpCounters.begin());
  }

 private:
  void put(std::size_t place, std::uint64_t value) noexcept {
    values_[place].store(value, std::memory_order_relaxed);
  }

  std::array<std::atomic<std::uint64_t>, kQpCounters.size()> values_{};
};

}  // namespace uroce::transport
