/// Values of connection management. Standard library only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "uroce/ah_attr.h"
#include "uroce/ece.h"
#include "uroce/qp_attr.h"
#include "uroce/result.h"
#include "uroce/types.h"

namespace uroce {

/// Which service ids stand for IP ports. Same values as enum rdma_port_space. IBA A11.
enum class PortSpace : std::uint16_t { kIb = 0x013f, kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111 };

/// Q_Key of UD QPs in port space UDP, and of the multicast groups that RDMA-CM joins.
inline constexpr std::uint32_t kCmQkey = 0x0123'4567;

/// An IP address and a port.
struct CmAddress {
  Gid ip{};  ///< zero: any
  std::uint16_t port = 0;

  friend constexpr bool operator==(const CmAddress&, const CmAddress&) = default;
  /// Reads "10.0.0.1:7471", "[fd00::1]:7471", "10.0.0.1", "fd00::1" or ":7471".
  static std::optional<CmAddress> parse(std::string_view text);
};

[[nodiscard]] std::string to_string(const CmAddress& address);

/// A listener, a connection or a resolution of a service, for as long as it is not closed. It is also the
/// communication id on the wire. IBA 12.9.
enum class CmId : std::uint32_t {};

/// Why a connection was refused. IBA 12.6.7.2.
enum class CmReject : std::uint16_t {
  kNone = 0,
  kNoQp = 1,
  kNoResources = 3,  ///< the listener's backlog is full
  kTimeout = 4,      ///< the other end no longer waits
  kUnsupported = 5,
  kInvalidCommId = 6,
  kInvalidServiceId = 8,  ///< nobody listens there
  kInvalidTransport = 9,
  kStaleConnection = 10,
  kInvalidGid = 12,
  kInvalidPathMtu = 26,
  kConsumer = 28,  ///< the application said no
};

[[nodiscard]] std::string_view to_string(CmReject reason) noexcept;

/// What one end says of its QP. Same meaning as struct rdma_conn_param.
struct CmTerms {
  QpType type = QpType::kRc;  ///< RC, UC or XRC: kXrcSend at who asks, kXrcRecv at who accepts
  Qpn qpn{};
  Psn psn{};  ///< first PSN that the other end sends; the manager chooses it. IBA 12.7 ?
  std::uint8_t responder_resources = 1;  ///< READs and atomics it will serve
  std::uint8_t initiator_depth = 1;      ///< those it wants to have in flight
  std::uint8_t retry_cnt = 7;            ///< 0..7; the active side says it for both
  std::uint8_t rnr_retry = 7;            ///< 0..7, that the other end uses
  bool srq = false;
  bool flow_control = false;  ///< end-to-end flow control, as it is said and told: nothing goes by it
  std::uint32_t qkey = 0;
  std::uint32_t vendor_id = 0;  ///< 24 bits: whose `options`; see Qp::set_ece()
  std::uint32_t options = 0;
};

/// Most bytes of private data that an application can give to each message.
inline constexpr std::size_t kCmConnectBytes = 56;
inline constexpr std::size_t kCmAcceptBytes = 196;
inline constexpr std::size_t kCmRejectBytes = 148;
inline constexpr std::size_t kCmServiceRequestBytes = 180;
inline constexpr std::size_t kCmServiceReplyBytes = 136;

/// How a connection is asked for.
struct CmConnect {
  PortSpace space = PortSpace::kTcp;
  CmAddress from{};  ///< zero IP: whichever reaches `to`; port 0: a free one
  CmAddress to{};
  CmTerms terms{};
  std::uint8_t traffic_class = 0;
  std::uint8_t ack_timeout = 0;               ///< of both QPs, code to 31; 0: 16, 0.27 s
  PathMtu path_mtu = PathMtu::k4096;          ///< at most; what the port allows and the peer takes
  std::span<const std::byte> private_data{};  ///< at most kCmConnectBytes
  std::chrono::milliseconds timeout{5000};    ///< for the answer
  /// For so long a peer that answers "nobody listens there" is asked again.
  std::chrono::milliseconds patience{0};
};

struct CmAccept {
  CmTerms terms{};
  std::span<const std::byte> private_data{};  ///< at most kCmAcceptBytes
};

/// Which QP serves a port of space UDP?
struct CmServiceQuery {
  CmAddress from{};
  CmAddress to{};
  std::uint8_t traffic_class = 0;
  std::span<const std::byte> private_data{};  ///< at most kCmServiceRequestBytes
  std::chrono::milliseconds timeout{5000};
  std::chrono::milliseconds patience{0};  ///< as of CmConnect
};

struct CmServiceReply {
  std::uint8_t status = 0;  ///< 0: valid, 2: rejected; IBA 12.11.2
  Qpn qpn{};
  std::uint32_t qkey = kCmQkey;
  std::span<const std::byte> private_data{};  ///< at most kCmServiceReplyBytes
};

enum class CmEventType : std::uint8_t {
  kConnectRequest,  ///< listener: `id` waits for accept() or reject()
  kConnectReply,    ///< active side without a QP of its own: move the QP to RTS, then establish()
  kEstablished,     ///< both ends are ready
  kRejected,        ///< by the peer: `reason`
  kUnreachable,     ///< no answer in time
  kDisconnected,    ///< by the peer, or done as disconnect() wanted it, or the peer is gone
  kTimewaitExit,    ///< no packet of the connection is on its way any more
  kServiceRequest,  ///< listener: `id` waits for reply_service()
  kServiceReply,    ///< `service_status`, `peer.qpn`, `peer.qkey`
};

[[nodiscard]] std::string_view to_string(CmEventType type) noexcept;

/// Something that happened to an id. After kRejected, kUnreachable or kDisconnected there is at most
/// kTimewaitExit.
struct CmEvent {
  CmEventType type{};
  CmId id{};
  CmId listener{};  ///< kConnectRequest, kServiceRequest
  CmReject reason = CmReject::kNone;
  std::uint8_t service_status = 0;
  CmAddress local;
  CmAddress remote;
  CmTerms peer;           ///< what it said: requests and replies
  AhAttr path;            ///< towards the peer
  bool is_uroce = false;  ///< the peer is a uroce engine too
  std::string text;       ///< kUnreachable, kDisconnected: one sentence, if more is known

  /// Private data as the message carried them: of its full size, zeros at the end.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return std::span{private_bytes}.first(private_len);
  }
  std::array<std::byte, 216> private_bytes{};
  std::uint8_t private_len = 0;
};

}  // namespace uroce
