/// <rdma/rdma_user_cm.h>, and how its structs are taken from a program and given to it.
#pragma once

#include <rdma/rdma_user_cm.h>
#include "abi/ibverbs/addresses.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "uroce/cm_types.h"

namespace uroce::abi {

/// Same values as enum rdma_cm_event_type, which is declared in a header that this one cannot stand beside.
enum class UcmEventType : std::uint32_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kMulticastJoin = 12,
  kTimewaitExit = 15,
};

/// The body of a command, zero where the program's is shorter.
template <typename T>
[[nodiscard]] T body_of(std::span<const std::byte> in) noexcept {
  T body{};
  std::memcpy(&body, in.data(), std::min(in.size(), sizeof body));
  return body;
}

/// Stores a response where the program wants it.
/// @param room   bytes there
/// @param least  bytes that each librdmacm has room for: what came later is left out for older ones
/// @return 0, ENOSPC.
template <typename T>
[[nodiscard]] int respond(std::uint64_t address, std::size_t room, const T& response,
                          std::size_t least = sizeof(T)) noexcept {
  if (room < least) return ENOSPC;
  std::memcpy(reinterpret_cast<void*>(address), &response, std::min(room, sizeof response));
  return 0;
}

/// @return nothing for families other than IPv4 and IPv6.
[[nodiscard]] std::optional<CmAddress> address_of(const sockaddr_in6& from) noexcept;
/// All zero if there is none.
[[nodiscard]] sockaddr_in6 sockaddr_of(const std::optional<CmAddress>& address) noexcept;

/// Bytes of private data in a command, of those that the message has room for.
[[nodiscard]] inline std::span<const std::byte> private_data(const __u8 (&bytes)[RDMA_MAX_PRIVATE_DATA],
                                                             std::uint8_t len) noexcept {
  return std::as_bytes(std::span{bytes}).first(len);
}

}  // namespace uroce::abi
