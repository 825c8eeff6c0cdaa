/// A port that keeps what is sent through it, and what it is told.
#pragma once

#include <deque>
#include <vector>

#include "port/port.h"
#include "support/hex.h"

namespace uroce::test {

class CapturePort final : public port::Port {
 public:
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame>) noexcept override { return 0; }
  void rx_release() noexcept override {}
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    claimed_.clear();
    if (frames.size() >= room) return nullptr;
    claimed_.resize(len);
    return claimed_.data();
  }
  void tx_commit() noexcept override { frames.push_back(std::move(claimed_)); }
  void tx_flush() noexcept override {}
  void keep_from_kernel(std::span<const Gid> addresses) noexcept override {
    kept.assign(addresses.begin(), addresses.end());
  }
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  std::deque<Bytes> frames;
  std::vector<Gid> kept;         ///< from the kernel
  std::size_t room = 1'000'000;  ///< frames that it keeps; further claims are refused

 private:
  port::PortInfo info_{.name = "capture", .mac = {{2, 0, 0, 0, 0, 1}}, .link_mtu = 4200};
  Bytes claimed_;
};

}  // namespace uroce::test
