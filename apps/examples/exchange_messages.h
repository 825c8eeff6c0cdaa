/// What a feed says and what a trader asks for, as Nasdaq lays them out: ITCH 5.0 Add Order, OUCH 5.0 Enter
/// Order. Integers are big-endian, text is padded with blanks, prices have four decimals.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// Writes `Bytes` bytes of `value`, most significant first.
template <std::size_t Bytes>
constexpr void put(std::span<std::byte> out, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < Bytes; ++i)
    out[at + i] = static_cast<std::byte>(value >> (8 * (Bytes - 1 - i)) & 0xff);
}

template <std::size_t Bytes>
constexpr std::uint64_t get(std::span<const std::byte> in, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < Bytes; ++i) value = value << 8 | std::to_integer<std::uint64_t>(in[at + i]);
  return value;
}

/// `count` characters, with blanks behind.
constexpr void put_text(std::span<std::byte> out, std::size_t at, std::size_t count, std::string_view text) {
  for (std::size_t i = 0; i < count; ++i)
    out[at + i] = static_cast<std::byte>(i < text.size() ? text[i] : ' ');
}

/// ITCH 5.0, type 'A': 36 bytes.
struct AddOrder {
  static constexpr std::size_t kSize = 36;

  std::uint16_t stock_locate = 0;
  std::uint64_t timestamp_ns = 0;  ///< since midnight, 48 bits
  std::uint64_t order_ref = 0;
  char side = 'B';
  std::uint32_t shares = 0;
  std::uint32_t price = 0;

  constexpr void emit(std::span<std::byte, kSize> out, std::string_view stock) const {
    put_text(out, 0, 1, "A");
    put<2>(out, 1, stock_locate);
    put<2>(out, 3, 0);  // tracking number
    put<6>(out, 5, timestamp_ns);
    put<8>(out, 11, order_ref);
    put<1>(out, 19, static_cast<unsigned char>(side));
    put<4>(out, 20, shares);
    put_text(out, 24, 8, stock);
    put<4>(out, 32, price);
  }
  [[nodiscard]] static constexpr AddOrder parse(std::span<const std::byte, kSize> in) {
    return {.stock_locate = static_cast<std::uint16_t>(get<2>(in, 1)),
            .timestamp_ns = get<6>(in, 5),
            .order_ref = get<8>(in, 11),
            .side = static_cast<char>(get<1>(in, 19)),
            .shares = static_cast<std::uint32_t>(get<4>(in, 20)),
            .price = static_cast<std::uint32_t>(get<4>(in, 32))};
  }
};

/// OUCH 5.0, type 'O' without appendage: 47 bytes.
struct EnterOrder {
  static constexpr std::size_t kSize = 47;

  std::uint32_t user_ref = 0;  ///< from 1, strictly increasing
  char side = 'B';
  std::uint32_t shares = 0;
  std::uint64_t price = 0;

  constexpr void emit(std::span<std::byte, kSize> out, std::string_view stock) const {
    put_text(out, 0, 1, "O");
    put<4>(out, 1, user_ref);
    put<1>(out, 5, static_cast<unsigned char>(side));
    put<4>(out, 6, shares);
    put_text(out, 10, 8, stock);
    put<8>(out, 18, price);
    put_text(out, 26, 5, "3YPNN");  // immediate or cancel, visible, principal, no sweep, no cross
    put_text(out, 31, 14, "");      // the client's own name for it
    put<2>(out, 45, 0);             // length of the appendage
  }
  [[nodiscard]] static constexpr EnterOrder parse(std::span<const std::byte, kSize> in) {
    return {.user_ref = static_cast<std::uint32_t>(get<4>(in, 1)),
            .side = static_cast<char>(get<1>(in, 5)),
            .shares = static_cast<std::uint32_t>(get<4>(in, 6)),
            .price = get<8>(in, 18)};
  }
};

static_assert([] {  // the layouts, and that both ways agree
  std::array<std::byte, AddOrder::kSize> tick{};
  AddOrder{.stock_locate = 0x102, .order_ref = 0x0a0b, .side = 'S', .shares = 100, .price = 1'234'500}.emit(
      tick, "UROC");
  const AddOrder read = AddOrder::parse(tick);
  std::array<std::byte, EnterOrder::kSize> order{};
  EnterOrder{.user_ref = 7, .side = 'B', .shares = 100, .price = 1'234'500}.emit(order, "UROC");
  return tick[0] == std::byte{'A'} && tick[2] == std::byte{2} && tick[18] == std::byte{0x0b} &&
         tick[19] == std::byte{'S'} && tick[24] == std::byte{'U'} && tick[31] == std::byte{' '} &&
         read.shares == 100 && read.price == 1'234'500 && order[0] == std::byte{'O'} &&
         order[4] == std::byte{7} && order[10] == std::byte{'U'} && order[26] == std::byte{'3'} &&
         EnterOrder::parse(order).price == 1'234'500;
}());
