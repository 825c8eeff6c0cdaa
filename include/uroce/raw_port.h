/// The bare link below a device: Ethernet frames without any protocol. The yardstick for benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "uroce/config.h"
#include "uroce/types.h"

namespace uroce {

/// A port opened without transport.
///
/// Threads: one at a time. Lifetime: a frame given to the callback of receive() is valid during the call
/// only.
class RawPort {
 public:
  /// Uses Config::port, mtu, no_huge, fault and pcap.
  static Result<RawPort> open(const Config& config);
  RawPort(RawPort&&) noexcept;
  RawPort& operator=(RawPort&&) noexcept;
  ~RawPort();

  [[nodiscard]] MacAddress mac() const noexcept;
  [[nodiscard]] std::uint32_t link_mtu() const noexcept;
  /// The addresses whose RoCE v2 frames, in no VLAN, are for this port alone: a kernel that has the
  /// interface, too, need not look at them. A Device says so of its own.
  void keep_from_kernel(std::span<const Gid> addresses) noexcept;
  /// Room for a frame of exactly `len` bytes, or nullptr when there is none now.
  [[nodiscard]] std::byte* claim(std::uint32_t len) noexcept;
  /// The claimed frame is complete.
  void commit() noexcept;
  /// Sends everything committed.
  void flush() noexcept;
  /// Hands every frame of one burst to `on_frame`, which may claim and commit. @return frames seen.
  template <typename F>
  unsigned receive(F&& on_frame) {
    std::span<const std::byte> frames[kBurst];
    const unsigned count = show(frames);
    for (unsigned i = 0; i < count; ++i) on_frame(frames[i]);
    if (count > 0) release();
    return count;
  }

 private:
  static constexpr unsigned kBurst = 32;
  struct Impl;
  explicit RawPort(std::unique_ptr<Impl> impl) noexcept;
  unsigned show(std::span<std::span<const std::byte>> frames) noexcept;
  void release() noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce
