/// Simulated links inside one process, in virtual time: deterministic, for the simulator and for tests.
///
///   LoopbackLink link({.delay_ns = 1000, .bandwidth_bps = 100'000'000'000});
///   std::unique_ptr<port::Port> a = link.open_end(0), b = link.open_end(1);
///   ... a->tx_claim(), a->tx_commit() ...
///   if (auto next = link.next_arrival_ns()) link.advance_to(*next);
///   ... b->rx_burst() ...
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "drivers/loopback/channel.h"
#include "port/port.h"

namespace uroce::drivers {

/// Two ports back to back. A full direction makes tx_claim() answer nullptr; nothing is lost.
///
/// Threads: one, together with its ports. Lifetime: outlives its ports.
class LoopbackLink {
 public:
  explicit LoopbackLink(const LoopbackConfig& config);

  /// The port of end 0 or 1. One port per end at a time.
  [[nodiscard]] std::unique_ptr<port::Port> open_end(unsigned side);
  /// Moves the clock; it never goes back.
  void advance_to(std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return now_ns_; }
  /// What both ports say from now on; frames travel all the same.
  void set_link_state(port::LinkState state) noexcept { state_ = state; }
  /// When the next frame that nobody has seen yet arrives, at either end; nothing if the link is empty.
  [[nodiscard]] std::optional<std::uint64_t> next_arrival_ns() const noexcept;

 private:
  LoopbackConfig config_;
  std::uint64_t now_ns_ = 0;
  port::LinkState state_ = port::LinkState::kUp;
  std::vector<loopback::Channel> channels_;  // [d]: from end d to the other
};

/// Ports around an output-queued switch: by destination MAC; group and unknown addresses go to all others. A
/// full output queue drops (rx_missed of its port). Bandwidth, delay, bound and ECN thresholds are those of
/// each output. With input_bps the way from a port to the switch has that bandwidth, the same delay and
/// bound.
///
/// Threads: one, together with its ports. Lifetime: outlives its ports.
class LoopbackSwitch {
 public:
  LoopbackSwitch(const LoopbackConfig& config, unsigned ports);
  ~LoopbackSwitch();

  /// Port `index`, whose MAC is mac(index). One port per index at a time.
  [[nodiscard]] std::unique_ptr<port::Port> open_port(unsigned index);
  [[nodiscard]] static MacAddress mac(unsigned index) noexcept;
  void advance_to(std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::uint64_t now_ns() const noexcept { return now_ns_; }
  /// When the next frame that nobody has seen yet arrives, at a port or at the switch.
  [[nodiscard]] std::optional<std::uint64_t> next_arrival_ns() const noexcept;
  /// Frames that wait at the output to a port.
  [[nodiscard]] std::uint32_t queued(unsigned index) noexcept;

 private:
  class SwitchPort;
  struct Output;
  void forward_inputs(std::uint64_t now_ns) noexcept;
  void forward(unsigned from, std::span<const std::byte> frame) noexcept;

  LoopbackConfig config_;
  std::uint64_t now_ns_ = 0;
  std::vector<std::unique_ptr<Output>> outputs_;
  std::vector<std::unique_ptr<loopback::Channel>> inputs_;  // none: what is sent is at the switch at once
};

}  // namespace uroce::drivers
