/// Decorator that writes every frame of a port, both ways, to a capture file.
#pragma once

#include <memory>

#include "drivers/pcap/capture_file.h"
#include "port/port.h"

namespace uroce::drivers {

/// A debugging tool: it copies each frame, takes a lock and reads clocks.
///
/// Threads: as Port. Lifetime: shares the file with the ports of the other queues.
class PcapPort final : public port::Port {
 public:
  PcapPort(std::unique_ptr<port::Port> inner, std::shared_ptr<pcap::CaptureFile> file);
  ~PcapPort() override;

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return inner_->info(); }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override;
  void rx_release() noexcept override { inner_->rx_release(); }
  [[nodiscard]] bool shows_more() const noexcept override { return inner_->shows_more(); }
  [[nodiscard]] unsigned bursts_to_see_all() const noexcept override { return inner_->bursts_to_see_all(); }
  void leave_fetching_to(FetchAhead* ahead) noexcept override { inner_->leave_fetching_to(ahead); }
  void leave_ringing_to(DueBell* bell) noexcept override { inner_->leave_ringing_to(bell); }
  void spare_others(bool yes) noexcept override { inner_->spare_others(yes); }
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override;
  void tx_commit() noexcept override;
  [[nodiscard]] bool takes_pieces() const noexcept override { return inner_->takes_pieces(); }
  void tx_flush() noexcept override { inner_->tx_flush(); }
  [[nodiscard]] int rx_fd() const noexcept override { return inner_->rx_fd(); }
  bool arm_rx() noexcept override;
  bool arm_rx_beside() noexcept override { return inner_->arm_rx_beside(); }
  void disarm_rx() noexcept override { inner_->disarm_rx(); }
  void keep_awake() noexcept override { inner_->keep_awake(); }
  [[nodiscard]] bool holds_back() const noexcept override { return inner_->holds_back(); }
  void enter_thread() noexcept override { inner_->enter_thread(); }
  [[nodiscard]] port::LinkState link_state() noexcept override { return inner_->link_state(); }
  void listen(std::span<const MacAddress> groups) noexcept override { inner_->listen(groups); }
  void keep_from_kernel(std::span<const Gid> addresses) noexcept override {
    inner_->keep_from_kernel(addresses);
  }
  [[nodiscard]] port::PortCounters counters() const noexcept override;
  [[nodiscard]] port::PortCounters known_counters() const noexcept override {
    return with_losses(inner_->known_counters());
  }

 private:
  [[nodiscard]] port::PortCounters with_losses(port::PortCounters counters) const noexcept;

  std::unique_ptr<port::Port> inner_;
  std::shared_ptr<pcap::CaptureFile> file_;
  std::uint32_t interface_;
  std::span<const std::byte> claimed_;
};

}  // namespace uroce::drivers
