#include "drivers/pcap/pcap_port.h"

#include <utility>

namespace uroce::drivers {

PcapPort::PcapPort(std::unique_ptr<port::Port> inner, std::shared_ptr<pcap::CaptureFile> file)
    : Port(inner->lends_lines()),
      inner_(std::move(inner)),
      file_(std::move(file)),
      interface_(file_->add_interface(inner_->info())) {}

PcapPort::~PcapPort() {
  file_->flush();
}

unsigned PcapPort::rx_burst(std::span<port::RxFrame> frames) noexcept {
  const unsigned count = inner_->rx_burst(frames);
  for (const port::RxFrame& frame : frames.first(count)) {
    file_->add(interface_, pcap::Heading::kInbound, {frame.data, frame.len});
  }
  file_->poll();
  return count;
}

std::byte* PcapPort::tx_claim(std::uint32_t len) noexcept {
  std::byte* room = inner_->tx_claim(len);
  claimed_ = room != nullptr ? std::span<const std::byte>(room, len) : std::span<const std::byte>{};
  return room;
}

void PcapPort::tx_commit() noexcept {
  // Before the inner port has it: afterwards the room is no longer ours.
  if (!claimed_.empty()) file_->add(interface_, pcap::Heading::kOutbound, claimed_);
  claimed_ = {};
  inner_->tx_commit();
}

bool PcapPort::arm_rx() noexcept {
  file_->flush();  // nobody may poll for long
  return inner_->arm_rx();
}

port::PortCounters PcapPort::counters() const noexcept {
  if (interface_ == 0) file_->flush();  // what waits for room may be lost, too
  return with_losses(inner_->counters());
}

/// The first queue speaks for the file.
port::PortCounters PcapPort::with_losses(port::PortCounters counters) const noexcept {
  if (interface_ == 0) counters.capture_lost += file_->lost_frames();
  return counters;
}

}  // namespace uroce::drivers
