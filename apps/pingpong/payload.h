/// What `pingpong -c` sends and expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace uroce::apps {

/// ibv_rc_pingpong fills its buffer with 0x7b and, with -c, puts 0 at the start of each 4 KiB page; its
/// server checks those at the end, and sends back what it received. So the client here puts 0 there too, and
/// a pattern that depends on the iteration elsewhere, and wants it back; a server accepts a message that is
/// wholly this or wholly the stock tool's, with or without its -c.
class Payload {
 public:
  /// @param breathe  called now and then while there is much to do
  Payload(
      std::uint32_t bytes, bool is_client, std::function<void()> breathe = [] {})
      : bytes_(bytes), is_client_(is_client), breathe_(std::move(breathe)) {}

  /// What the client sends in this iteration (a server: what it starts with).
  void fill(std::span<std::byte> memory, std::uint32_t iteration) const;
  void check(std::span<const std::byte> memory, std::uint32_t received, std::uint32_t iteration);
  /// Bytes found wrong in all messages checked.
  [[nodiscard]] std::uint64_t errors() const noexcept { return errors_; }

 private:
  std::uint32_t bytes_;
  bool is_client_;
  std::function<void()> breathe_;
  std::uint64_t errors_ = 0;
};

}  // namespace uroce::apps
