#include "abi/rdmacm/kernel.h"

#include <endian.h>
#include <netinet/in.h>

namespace uroce::abi {

std::optional<CmAddress> address_of(const sockaddr_in6& from) noexcept {
  CmAddress address;
  address.port = be16toh(from.sin6_port);  // where that of sockaddr_in is
  if (from.sin6_family == AF_INET6) {
    std::memcpy(address.ip.raw.data(), &from.sin6_addr, sizeof from.sin6_addr);
    return address;
  }
  if (from.sin6_family != AF_INET) return std::nullopt;
  sockaddr_in v4{};
  std::memcpy(&v4, &from, sizeof v4);
  std::array<std::uint8_t, 4> ip{};
  std::memcpy(ip.data(), &v4.sin_addr, sizeof ip);
  address.ip = Gid::from_v4(ip);
  return address;
}

sockaddr_in6 sockaddr_of(const std::optional<CmAddress>& address) noexcept {
  sockaddr_in6 out{};
  if (!address.has_value()) return out;
  out.sin6_port = htobe16(address->port);
  if (!address->ip.is_v4()) {
    out.sin6_family = AF_INET6;
    std::memcpy(&out.sin6_addr, address->ip.raw.data(), sizeof out.sin6_addr);
    return out;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = out.sin6_port;
  std::memcpy(&v4.sin_addr, &address->ip.raw[12], sizeof v4.sin_addr);
  std::memcpy(&out, &v4, sizeof v4);
  return out;
}

}  // namespace uroce::abi
