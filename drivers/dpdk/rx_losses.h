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
  /// @param is_slow  the ethdev may take a millisecond to answer
  RxLosses(std::uint16_t id, std::span<const int> sockets, bool is_slow) noexcept
      : id_(id), sockets_(sockets), looks_an_answer_(is_slow ? kLooksOfSlow : 1) {}

  /// Asks the device and the system now.
  void ask() noexcept;
  /// For a loop, some times a second: likewise, but it does not wait while others ask, and asks a slow device
  /// in one look of ten. Threads: one at a time.
  void look() noexcept;
  /// As it was told last; grows only.
  [[nodiscard]] std::uint64_t known() const noexcept { return known_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kLooksOfSlow = 10;

  void update() noexcept;

  std::uint16_t id_;
  std::span<const int> sockets_;
  unsigned looks_an_answer_;
  unsigned looks_ = 0;  ///< since the last answer
  std::mutex asking_;
  std::uint64_t by_sockets_ = 0;
  std::uint64_t by_ethdev_ = 0;
  std::atomic<std::uint64_t> known_{0};
};

}  // namespace uroce::drivers::dpdk
