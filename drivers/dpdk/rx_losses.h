/// How many frames came to a device and found no room there.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

namespace uroce::drivers::dpdk {

/// Of all queues of an ethdev together: few drivers tell it by queue.
///
/// Threads: any. Lifetime: the ethdev and its sockets outlive it.
class RxLosses {
 public:
  /// @param sockets  packet sockets that the ethdev receives with: its driver does not ask them
  /// @param is_slow  the ethdev may take many milliseconds to answer, as a virtual function that asks another
  RxLosses(std::uint16_t id, std::span<const int> sockets, bool is_slow) noexcept
      : id_(id), sockets_(sockets), is_slow_(is_slow) {}

  /// Asks the device and the system now.
  void ask() noexcept;
  /// For a loop, some times a second: likewise, but it does not wait while others ask, nor for a slow device,
  /// of which known() is as ask() was told.
  void look() noexcept;
  /// As it was told last; grows only.
  [[nodiscard]] std::uint64_t known() const noexcept { return known_.load(std::memory_order_relaxed); }

 private:
  void update() noexcept;

  std::uint16_t id_;
  std::span<const int> sockets_;
  bool is_slow_;
  std::mutex asking_;
  std::uint64_t by_sockets_ = 0;
  std::uint64_t by_ethdev_ = 0;
  std::atomic<std::uint64_t> known_{0};
};

}  // namespace uroce::drivers::dpdk
