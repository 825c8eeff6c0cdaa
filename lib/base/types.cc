#include "uroce/types.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace uroce {

std::optional<Gid> Gid::parse(std::string_view text) {
  // inet_pton() wants a terminated string: an embedded NUL would hide what follows it.
  std::array<char, INET6_ADDRSTRLEN> terminated{};
  if (text.size() >= terminated.size() || text.find('\0') != std::string_view::npos) return std::nullopt;
  std::copy(text.begin(), text.end(), terminated.begin());

  std::array<std::uint8_t, 4> v4{};
  if (inet_pton(AF_INET, terminated.data(), v4.data()) == 1) return from_v4(v4);
  Gid gid;
  if (inet_pton(AF_INET6, terminated.data(), gid.raw.data()) == 1) return gid;
  return std::nullopt;
}

std::string to_string(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.raw.data(), text.data(), static_cast<socklen_t>(text.size()));
  return text.data();
}

std::string host_text(const Gid& gid) {
  const std::string text = to_string(gid);
  return gid.is_v4() ? text.substr(text.rfind(':') + 1) : text;
}

std::string_view to_string(GidType type) noexcept {
  return type == GidType::kRoceV1 ? "RoCE v1" : "RoCE v2";
}

std::optional<MacAddress> MacAddress::parse(std::string_view text) {
  constexpr std::size_t kTextSize = 17;  // six pairs of digits, five colons
  if (text.size() != kTextSize) return std::nullopt;

  MacAddress mac;
  for (std::size_t i = 0; i < mac.raw.size(); ++i) {
    const char* first = text.data() + 3 * i;
    const char* last = first + 2;
    if (i > 0 && *(first - 1) != ':') return std::nullopt;
    const auto [end, error] = std::from_chars(first, last, mac.raw[i], 16);
    if (error != std::errc{} || end != last) return std::nullopt;
  }
  return mac;
}

std::string to_string(const MacAddress& mac) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : mac.raw) {
    if (!text.empty()) text += ':';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xf];
  }
  return text;
}

}  // namespace uroce
