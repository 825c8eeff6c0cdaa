/// PortCounters in the making: written by the port's thread, read by any.
#pragma once

#include <atomic>
#include <cstdint>

#include "port/port.h"

namespace uroce::port {

/// One monotonic number.
///
/// Threads: add() by one, get() by any.
class Tally {
 public:
  void add(std::uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);  // single writer
  }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// The live form of PortCounters.
///
/// Threads: as Tally.
struct LivePortCounters {
  Tally rx_frames;
  Tally rx_bytes;
  Tally tx_frames;
  Tally tx_bytes;
  Tally rx_missed;
  Tally rx_malformed;
  Tally tx_dropped;
  Tally tx_no_room;
  Tally peer_restarts;

  [[nodiscard]] PortCounters snapshot() const noexcept {
    PortCounters counters;
    counters.rx_frames = rx_frames.get();
    counters.rx_bytes = rx_bytes.get();
    counters.tx_frames = tx_frames.get();
    counters.tx_bytes = tx_bytes.get();
    counters.rx_missed = rx_missed.get();
    counters.rx_malformed = rx_malformed.get();
    counters.tx_dropped = tx_dropped.get();
    counters.tx_no_room = tx_no_room.get();
    counters.peer_restarts = peer_restarts.get();
    return counters;
  }
};

}  // namespace uroce::port
