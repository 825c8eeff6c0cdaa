/// What the ports of all simulated links have in common: they read from one channel.
#pragma once

#include <utility>

#include "drivers/loopback/channel.h"
#include "port/port_counters.h"

namespace uroce::drivers::loopback {

/// Threads: loop. Lifetime: the link or switch outlives it.
class EndPort : public port::Port {
 public:
  EndPort(port::PortInfo info, Channel& rx, const std::uint64_t& now_ns, bool lends_lines)
      : Port(lends_lines), info_(std::move(info)), rx_(rx), now_ns_(now_ns) {}

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    const unsigned count = rx_.show(frames, now_ns_);
    counters_.rx_frames.add(count);
    for (unsigned i = 0; i < count; ++i) counters_.rx_bytes.add(frames[i].len);
    return count;
  }
  void rx_release() noexcept override { rx_.release(); }
  [[nodiscard]] bool shows_more() const noexcept override {
    const auto next = rx_.next_arrival_ns();
    return next && *next <= now_ns_;
  }
  void tx_flush() noexcept override {}
  bool arm_rx() noexcept override { return !shows_more(); }
  [[nodiscard]] port::PortCounters counters() const noexcept override { return counters_.snapshot(); }

 protected:
  void count_sent(std::uint32_t len) noexcept {
    counters_.tx_frames.add();
    counters_.tx_bytes.add(len);
  }

  port::PortInfo info_;
  Channel& rx_;
  const std::uint64_t& now_ns_;
  port::LivePortCounters counters_;
};

}  // namespace uroce::drivers::loopback
