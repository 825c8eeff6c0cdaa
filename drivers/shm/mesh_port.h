/// A link that more than two processes on one machine have ends of.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "drivers/shm/shm_port.h"

namespace uroce::drivers {

/// One queue of one end of a mesh: a link of two ends to each of the others.
///
/// What is known to be for one end goes there by way_to(), and costs what it costs on a link of two ends.
/// What is written to the port itself (ARP, datagrams, all that a decorator hands down) is copied to whom it
/// is for. Of that a frame waits until there is room for it, and what comes after it waits, too; but a
/// millisecond at most, and no more for an end that it was in vain for, until that reads again: it is dropped
/// there.
class MeshPort final : public port::Port {
 public:
  /// @param others  the ways to the other ends, in their order
  /// @param info    `side` is this end
  MeshPort(std::vector<std::unique_ptr<ShmPort>> others, port::PortInfo info);
  ~MeshPort() override;

  /// One descriptor for all bells. Before anything else. @return kSystem
  Status watch_bells();

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override;
  void rx_release() noexcept override;
  [[nodiscard]] bool shows_more() const noexcept override;
  [[nodiscard]] unsigned bursts_to_see_all() const noexcept override;
  [[nodiscard]] std::span<const std::byte> next_frame() const noexcept override;
  void leave_fetching_to(FetchAhead* ahead) noexcept override;
  void leave_ringing_to(DueBell* bell) noexcept override;
  void spare_others(bool yes) noexcept override;
  [[nodiscard]] bool has_lanes() const noexcept override { return true; }
  [[nodiscard]] port::Port& way_to(const MacAddress& mac) noexcept override;
  [[nodiscard]] bool has_ways() const noexcept override { return true; }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override;
  void tx_commit() noexcept override;
  [[nodiscard]] bool takes_pieces() const noexcept override { return true; }
  void tx_flush() noexcept override;
  [[nodiscard]] int rx_fd() const noexcept override { return bells_; }
  bool arm_rx() noexcept override;
  bool arm_rx_beside() noexcept override;
  void disarm_rx() noexcept override;
  void keep_awake() noexcept override;
  [[nodiscard]] bool holds_back() const noexcept override { return waits_ != 0; }
  /// Up while a process holds any of the other ends.
  [[nodiscard]] port::LinkState link_state() noexcept override;
  [[nodiscard]] port::PortCounters counters() const noexcept override;

 private:
  using Clock = std::chrono::steady_clock;

  /// To one of the others.
  struct Way {
    std::unique_ptr<ShmPort> port;
    std::uint32_t idle = 0;  // looks in a row that showed nothing
  };

  unsigned look(std::size_t at, std::span<port::RxFrame> frames) noexcept;
  [[nodiscard]] std::byte* room() noexcept {
    return static_cast<std::byte*>(static_cast<void*>(room_.data()));
  }
  [[nodiscard]] std::uint64_t ways_to(const MacAddress& mac) const noexcept;
  void lie_down(bool (ShmPort::*go)() noexcept) noexcept;
  bool put(port::Port& way) noexcept;
  void pass_on() noexcept;
  void give_up(std::uint64_t ways) noexcept;

  std::vector<Way> others_;
  port::PortInfo info_;
  port::LivePortCounters counters_;  // of what is written to the port itself and came to no end
  std::vector<std::uint64_t> room_;  // for one frame
  std::uint32_t len_ = 0;
  Clock::time_point deadline_;
  // Bits of others_: the ends
  std::uint64_t waits_ = 0;    // that the frame, which is complete, is still to go to,
  std::uint64_t stuck_ = 0;    // that others have waited for in vain,
  std::uint64_t shown_ = 0;    // that the frames which are shown are from,
  std::uint64_t talking_ = 0;  // that have sent something lately.
  std::size_t last_ = 0;       // that the last frame which was shown is from
  std::size_t turn_ = 0;       // of others_: who is looked at first, or even though it is silent
  int bells_ = -1;             // epoll
};

}  // namespace uroce::drivers
