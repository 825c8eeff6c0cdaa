/// Bytes written as hexadecimal text, for expected frames in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::test {

using Bytes = std::vector<std::byte>;

/// Reads pairs of digits; blanks between pairs are skipped. Throws on anything else.
inline Bytes hex(std::string_view text) {
  const auto digit = [](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    throw std::invalid_argument("not a hexadecimal digit");
  };
  Bytes out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    while (i < text.size() && text[i] == ' ') ++i;
    if (i == text.size()) break;
    if (i + 1 == text.size()) throw std::invalid_argument("odd number of digits");
    out.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return out;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : bytes) {
    out += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    out += kDigits[std::to_integer<std::size_t>(byte & std::byte{0xf})];
  }
  return out;
}

}  // namespace uroce::test
