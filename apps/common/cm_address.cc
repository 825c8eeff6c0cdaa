#include "apps/common/cm_address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "apps/common/endpoint.h"

namespace uroce::apps {

namespace {

Result<CmAddress> resolved(const std::string& host, std::uint16_t port) {
  if (const auto gid = Gid::parse(host)) return CmAddress{.ip = *gid, .port = port};
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error != 0) {
    return Error{.code = Errc::kNotFound,
                 .text = fmt::format("{} is neither an address nor the name of a host: {}", host,
                                     ::gai_strerror(error))};
  }
  CmAddress address{.port = port};
  if (found->ai_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, found->ai_addr, sizeof in);
    std::array<std::uint8_t, 4> v4{};
    std::memcpy(v4.data(), &in.sin_addr, v4.size());
    address.ip = Gid::from_v4(v4);
  } else {
    sockaddr_in6 in{};
    std::memcpy(&in, found->ai_addr, sizeof in);
    std::memcpy(address.ip.raw.data(), &in.sin6_addr, address.ip.raw.size());
  }
  ::freeaddrinfo(found);
  return address;
}

}  // namespace

Result<CmAddress> cm_address(const std::string& host, std::uint16_t port) {
  if (host.empty()) return CmAddress{.port = port};
  auto address = resolved(host, port);
  if (!address || !address->ip.is_loopback()) return address;
  return Error{.code = Errc::kInvalid,
               .text = fmt::format(
                   "{} is the kernel's: links have addresses of their own, which servers print", host)};
}

std::string own_host(const Device& device) {
  Gid own;
  for (const GidEntry& entry : device.gids()) {
    if (entry.gid.is_zero() || (!own.is_zero() && entry.gid.is_link_local())) continue;
    if (own.is_zero() || own.is_link_local()) own = entry.gid;
  }
  return own.is_zero() ? "" : host_text(own);
}

Error no_server(Error error, const Device& device, const std::string& command) {
  if (error.code != Errc::kTimeout && error.code != Errc::kPeer) return error;
  const bool is_unheard = error.text.find("; ") != std::string::npos;  // and it says why
  if (const std::string trouble = link_trouble(device); !trouble.empty()) error.text += "; " + trouble;
  if (is_unheard) return error;
  error.text += fmt::format("; is `{}` running there, and its address one of this link?", command);
  return error;
}

}  // namespace uroce::apps
