#include "uroce/raw_port.h"

#include <random>
#include <utility>

#include "drivers/registry.h"
#include "port/port.h"

namespace uroce {

struct RawPort::Impl {
  std::unique_ptr<port::Port> port;
};

RawPort::RawPort(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
RawPort::RawPort(RawPort&&) noexcept = default;
RawPort& RawPort::operator=(RawPort&&) noexcept = default;
RawPort::~RawPort() = default;

Result<RawPort> RawPort::open(const Config& config) {
  const std::uint64_t seed = config.seed != 0 ? config.seed : std::random_device{}();
  auto ports = drivers::open_ports({.spec = config.port,
                                    .link_mtu = config.mtu,
                                    .queues = 1,
                                    .no_huge = config.no_huge,
                                    .fault = config.fault,
                                    .seed = seed,
                                    .pcap = config.pcap});
  if (!ports) return ports.error();
  auto impl = std::make_unique<Impl>();
  impl->port = std::move(ports->front());
  impl->port->enter_thread();
  return RawPort(std::move(impl));
}

MacAddress RawPort::mac() const noexcept {
  return impl_->port->info().mac;
}

std::uint32_t RawPort::link_mtu() const noexcept {
  return impl_->port->info().link_mtu;
}

void RawPort::keep_from_kernel(std::span<const Gid> addresses) noexcept {
  impl_->port->keep_from_kernel(addresses);
}

std::byte* RawPort::claim(std::uint32_t len) noexcept {
  return impl_->port->tx_claim(len);
}

void RawPort::commit() noexcept {
  impl_->port->tx_commit();
}

void RawPort::flush() noexcept {
  impl_->port->tx_flush();
}

unsigned RawPort::show(std::span<std::span<const std::byte>> frames) noexcept {
  port::RxFrame shown[port::kBurst];
  const unsigned count = impl_->port->rx_burst(std::span(shown).first(frames.size()));
  for (unsigned i = 0; i < count; ++i) frames[i] = {shown[i].data, shown[i].len};
  return count;
}

void RawPort::release() noexcept {
  impl_->port->rx_release();
}

}  // namespace uroce
