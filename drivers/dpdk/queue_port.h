/// A Port over one rx and one tx queue of an ethdev.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "drivers/dpdk/device.h"
#include "port/port.h"

struct rte_mbuf;

namespace uroce::drivers::dpdk {

/// See port::Port. Received frames are shown in their mbufs, sent ones are written into mbufs.
class QueuePort final : public port::Port {
 public:
  QueuePort(std::shared_ptr<Device> device, std::uint16_t queue);
  ~QueuePort() override;

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return device_->info(); }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override;
  void rx_release() noexcept override;
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override;
  void tx_commit() noexcept override;
  void tx_flush() noexcept override;
  void enter_thread() noexcept override;
  [[nodiscard]] int rx_fd() const noexcept override { return device_->rx_fd(queue_); }
  /// What waits for room tells nobody when there is some.
  bool arm_rx() noexcept override { return !holds_back(); }
  [[nodiscard]] bool holds_back() const noexcept override { return pending_ != 0; }
  void disarm_rx() noexcept override;
  [[nodiscard]] port::LinkState link_state() noexcept override;
  void listen(std::span<const MacAddress> groups) noexcept override { device_->listen(groups); }
  void keep_from_kernel(std::span<const Gid> addresses) noexcept override {
    device_->keep_from_kernel(addresses);
  }
  [[nodiscard]] port::PortCounters counters() const noexcept override;
  [[nodiscard]] port::PortCounters known_counters() const noexcept override;

 private:
  /// Written by the polling thread alone.
  struct Counter {
    std::atomic<std::uint64_t> value{0};
    void add(std::uint64_t n) noexcept {
      value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t get() const noexcept { return value.load(std::memory_order_relaxed); }
  };

  void service_link() noexcept;
  void set_link(bool is_up) noexcept;
  /// Hands pending frames to the device. @return whether there is room for another.
  bool send_pending() noexcept;
  /// Offers frames to whoever sends them. @return how many are gone
  unsigned offer(std::span<rte_mbuf*> frames) noexcept;
  void drop_pending() noexcept;

  static constexpr unsigned kClaimCache = 32;

  std::shared_ptr<Device> device_;
  MemifLink* memif_;
  RxLosses* losses_;  ///< of the whole device, hence told by its first port; else nullptr
  PacketSender* sender_;
  rte_mempool* pool_;
  std::uint16_t id_;
  std::uint16_t queue_;
  bool is_up_;               ///< frames can be carried; always so but with memif
  bool was_up_ = false;      ///< ever
  std::uint32_t max_frame_;  ///< bytes

  unsigned polls_to_service_ = 0;
  std::uint64_t last_service_ = 0;  ///< TSC
  std::uint64_t service_period_;    ///< TSC ticks
  std::uint64_t stuck_since_ = 0;   ///< TSC; 0: tx makes progress
  std::uint64_t stuck_limit_;       ///< TSC ticks

  unsigned shown_ = 0;    ///< frames in rx_ that are not yet released
  unsigned pending_ = 0;  ///< frames in tx_ that are committed
  unsigned free_ = 0;     ///< mbufs in claims_; the last one is lent
  std::array<rte_mbuf*, port::kBurst> rx_{};
  std::array<rte_mbuf*, port::kBurst> tx_{};
  std::array<rte_mbuf*, kClaimCache> claims_{};

  Counter rx_frames_;
  Counter rx_bytes_;
  Counter rx_malformed_;
  Counter tx_frames_;
  Counter tx_bytes_;
  Counter tx_dropped_;
  Counter tx_no_room_;
  Counter peer_restarts_;
};

}  // namespace uroce::drivers::dpdk
