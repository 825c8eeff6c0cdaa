/// What clients and servers of calls agree on: what stands before each request and reply in its message, the
/// channel of their messages, and how they know each other.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/endian.h"
#include "uroce/cm_types.h"
#include "uroce/device.h"
#include "uroce/message_channel.h"

namespace uroce {

enum class RpcKind : std::uint8_t { kRequest = 1, kNotice = 2, kReply = 3, kRefusal = 4 };

/// 16 bytes, most significant first: kind, 0, method (2), time left in microseconds (4), call (8).
struct RpcFrame {
  static constexpr std::size_t kBytes = 16;
  static constexpr std::uint32_t kForEver = 0xffff'ffff;

  RpcKind kind = RpcKind::kRequest;
  std::uint16_t method = 0;
  std::uint32_t left_us = kForEver;
  std::uint64_t call = 0;

  constexpr void store(std::span<std::byte, kBytes> to) const noexcept {
    store_be<0, 1>(to, static_cast<std::uint8_t>(kind));
    store_be<1, 1>(to, 0);
    store_be<2, 2>(to, method);
    store_be<4, 4>(to, left_us);
    store_be<8, 8>(to, call);
  }
  /// @return nothing if it is none.
  [[nodiscard]] static constexpr std::optional<RpcFrame> load(std::span<const std::byte> message) noexcept {
    if (message.size() < kBytes) return std::nullopt;
    const auto from = message.first<kBytes>();
    const auto kind = load_be<0, 1>(from);
    if (kind < static_cast<std::uint8_t>(RpcKind::kRequest) ||
        kind > static_cast<std::uint8_t>(RpcKind::kRefusal))
      return std::nullopt;
    return RpcFrame{.kind = static_cast<RpcKind>(kind),
                    .method = load_be<2, 2>(from),
                    .left_us = load_be<4, 4>(from),
                    .call = load_be<8, 8>(from)};
  }
};

/// Bytes of a message with its frame; more than any message may have where they cannot be counted.
[[nodiscard]] constexpr std::size_t framed(std::size_t bytes) noexcept {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() - RpcFrame::kBytes;
  return std::min(bytes, kMost) + RpcFrame::kBytes;
}

/// What a message of `bytes` has room for beside its frame.
[[nodiscard]] constexpr std::uint32_t without_frame(std::uint32_t bytes) noexcept {
  return bytes > RpcFrame::kBytes ? bytes - static_cast<std::uint32_t>(RpcFrame::kBytes) : 0;
}

/// A time as it is told, rounded up: what is left is never nothing.
[[nodiscard]] constexpr std::uint32_t rpc_left_us(std::chrono::nanoseconds left) noexcept {
  const auto us = std::chrono::ceil<std::chrono::microseconds>(left).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(us, 1, RpcFrame::kForEver));
}
[[nodiscard]] constexpr std::chrono::nanoseconds rpc_time_left(std::uint32_t left_us) noexcept {
  if (left_us == RpcFrame::kForEver) return std::chrono::nanoseconds::max();
  return std::chrono::microseconds(left_us);
}

static_assert(rpc_left_us(std::chrono::nanoseconds(0)) == 1);
static_assert(rpc_left_us(std::chrono::nanoseconds(1000)) == 1);
static_assert(rpc_left_us(std::chrono::nanoseconds(1001)) == 2);
static_assert(rpc_left_us(std::chrono::hours(2)) == RpcFrame::kForEver);
static_assert(rpc_time_left(rpc_left_us(std::chrono::hours(1))) == std::chrono::hours(1));
static_assert(rpc_time_left(RpcFrame::kForEver) == std::chrono::nanoseconds::max());

/// The channel of an end that has `calls` messages on their way and as many to be read. A third more send
/// slots, since that many may be free again without being known to be.
[[nodiscard]] constexpr MessageChannelAttr rpc_channel(std::uint32_t message_bytes, std::uint32_t calls,
                                                       unsigned loop) noexcept {
  constexpr std::uint32_t kSpare = 4;
  return {.message_bytes = message_bytes + static_cast<std::uint32_t>(RpcFrame::kBytes),
          .sends = calls + calls / 3 + kSpare,
          .receives = calls,
          .loop = loop};
}

/// @param calls  of RpcClientAttr, or requests of RpcServerAttr
[[nodiscard]] inline Status check_rpc_channel(std::uint32_t message_bytes, std::uint32_t calls,
                                              const Limits& limits) {
  const auto most_bytes = static_cast<std::uint32_t>(limits.max_msg_bytes - RpcFrame::kBytes);
  const std::uint32_t most_calls = limits.max_qp_wr / 2;
  if (message_bytes <= most_bytes && calls > 0 && calls <= most_calls) return {};
  return Error{Errc::kInvalid, "1 to " + std::to_string(most_calls) + " calls can be under way, of at most " +
                                   std::to_string(most_bytes) + " bytes"};
}

/// Private data of the connection, of both ends: what they speak, and which version of it.
inline constexpr std::string_view kRpcGreeting = "uroce rpc 1";

[[nodiscard]] constexpr bool is_rpc_greeting(std::span<const std::byte> private_data) noexcept {
  return private_data.size() >= kRpcGreeting.size() &&
         std::equal(kRpcGreeting.begin(), kRpcGreeting.end(), private_data.begin(),
                    [](char a, std::byte b) { return std::byte(a) == b; });
}

/// Private data of a server that refuses: the greeting, and behind it why, in words.
[[nodiscard]] constexpr std::array<std::byte, kCmRejectBytes> rpc_refusal(std::string_view why) noexcept {
  std::array<std::byte, kCmRejectBytes> data{};
  const auto to_byte = [](char letter) { return std::byte(letter); };
  const auto end = std::ranges::transform(kRpcGreeting, data.begin(), to_byte).out;
  std::ranges::transform(why.substr(0, static_cast<std::size_t>(data.end() - end)), end, to_byte);
  return data;
}

/// @return why, as far as it is text; nothing where no server of calls refuses.
[[nodiscard]] inline std::string rpc_refusal_text(std::span<const std::byte> private_data) {
  std::string why;
  if (!is_rpc_greeting(private_data)) return why;
  for (const std::byte one : private_data.subspan(kRpcGreeting.size())) {
    if (one < std::byte{' '} || one > std::byte{'~'}) break;
    why += static_cast<char>(one);
  }
  return why;
}

}  // namespace uroce
