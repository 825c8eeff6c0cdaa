/// How two programs tell each other their QPs over TCP: the text that ibv_rc_pingpong of rdma-core 44 sends.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apps/common/tcp.h"
#include "uroce/qp.h"

namespace uroce::apps {

/// Address of one end of a connection.
struct QpAddress {
  std::uint32_t lid = 0;  ///< always 0 on Ethernet
  Qpn qpn{};
  Psn psn;
  Gid gid;

  friend bool operator==(const QpAddress&, const QpAddress&) = default;
};

/// "0000:000011:a5b6c7:00000000000000000000ffff0a000001": LID, QPN, PSN and GID in hexadecimal.
[[nodiscard]] std::string to_wire(const QpAddress& address);
[[nodiscard]] std::optional<QpAddress> from_wire(std::string_view text);
/// "LID 0x0000, QPN 0x000011, PSN 0xa5b6c7, GID ::ffff:10.0.0.1"
[[nodiscard]] std::string to_string(const QpAddress& address);

/// Sends to_wire() with its terminating zero, in one piece: the stock tool reads once.
Status send_address(const Socket& socket, const QpAddress& address, std::uint64_t until_ns);
/// @param may_be_none  all zero will do: a peer may fill up its list of addresses
/// @return kPeer if the text is no address, or names no GID (the peer was started without -g).
Result<QpAddress> receive_address(const Socket& socket, std::uint64_t until_ns, bool may_be_none = false);

/// The client's last word: "done" with its zero.
Status send_done(const Socket& socket, std::uint64_t until_ns);
Status receive_done(const Socket& socket, std::uint64_t until_ns);

/// 24 random bits.
[[nodiscard]] Psn random_psn();

}  // namespace uroce::apps
