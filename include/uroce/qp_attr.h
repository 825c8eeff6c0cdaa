/// Attributes and states of queue pairs. Standard library only.
#pragma once

#include <cstdint>
#include <string_view>

#include "uroce/ah_attr.h"
#include "uroce/types.h"

namespace uroce {

/// Same values as enum ibv_qp_state.
enum class QpState : std::uint8_t {
  kReset = 0,
  kInit = 1,
  kRtr = 2,
  kRts = 3,
  kSqd = 4,
  kSqe = 5,
  kError = 6
};

[[nodiscard]] std::string_view to_string(QpState state) noexcept;

/// Transport service of a QP. Same values as enum ibv_qp_type.
enum class QpType : std::uint8_t {
  kRc = 2,  ///< reliable connection: in order, exactly once
  kUc = 3,  ///< unreliable connection: SEND and WRITE, whole messages or none
  kUd = 4,  ///< unreliable datagram: SENDs of one packet, to anybody
  kXrcSend =
      9,  ///< sending end of an extended reliable connection: as RC, into the Srq that each request names
  kXrcRecv = 10,  ///< its receiving end; see Xrcd
};

[[nodiscard]] std::string_view to_string(QpType type) noexcept;

/// Capacities asked for at creation; attr() tells those granted.
struct QpInitAttr {
  QpType type = QpType::kRc;
  std::uint32_t max_send_wr = 64;
  std::uint32_t max_recv_wr = 64;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_inline_data = 0;  ///< bytes
  bool sq_sig_all = false;            ///< every send completes, flags or not
  /// UD: an attached QP gets no copy of what it sends to a group itself; IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.
  bool block_own_multicast = false;
};

/// Attributes of a live QP. Same meaning as struct ibv_qp_attr.
struct QpAttr {
  QpState state = QpState::kReset;
  PathMtu path_mtu = PathMtu::k1024;
  bool en_sqd_async_notify = true;  ///< with its bit, to SQD: AsyncEventType::kSqDrained is wanted
  Qpn dest_qpn{};
  Psn rq_psn{};                    ///< first PSN expected from the peer
  Psn sq_psn{};                    ///< first PSN sent
  std::uint32_t access_flags = 0;  ///< access::kRemote* allowed on this QP
  Gid dgid{};                      ///< the peer
  std::uint32_t sgid_index = 1;
  std::uint8_t traffic_class = 0;       ///< DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;          ///< 0 and 1 mean 64
  std::uint32_t flow_label = 0;         ///< 20 bits; 0: from the QP numbers
  std::uint8_t sl = 0;                  ///< 0..7: priority in the VLAN tag; a GID without VLAN sends none
  std::uint8_t max_rd_atomic = 1;       ///< READs and atomics this side may have in flight
  std::uint8_t max_dest_rd_atomic = 1;  ///< those it will serve
  std::uint8_t min_rnr_timer = 12;      ///< code 0..31 it asks the peer to wait after RNR, IBA table 45
  std::uint8_t timeout = 14;            ///< ack timeout code: 4.096 us << code, 0: for ever
  std::uint8_t retry_cnt = 7;           ///< 0..7
  std::uint8_t rnr_retry = 7;           ///< 0..6, 7: for ever
  bool sq_draining = false;             ///< of query(): in SQD, and sends that have begun are not done
  std::uint32_t qkey = 0;               ///< UD: what a sender must know, IBA 3.5.3 ?

  /// The address vector among them.
  [[nodiscard]] constexpr AhAttr path() const noexcept {
    return {.dgid = dgid,
            .sgid_index = sgid_index,
            .traffic_class = traffic_class,
            .hop_limit = hop_limit,
            .flow_label = flow_label,
            .sl = sl};
  }
};

/// Which fields of QpAttr a modify() sets. Same values as enum ibv_qp_attr_mask.
namespace qp_attr {
inline constexpr std::uint32_t kState = 1U << 0;
inline constexpr std::uint32_t kCurState = 1U << 1;
inline constexpr std::uint32_t kEnSqdAsyncNotify = 1U << 2;
inline constexpr std::uint32_t kAccessFlags = 1U << 3;
inline constexpr std::uint32_t kPkeyIndex = 1U << 4;
inline constexpr std::uint32_t kPort = 1U << 5;
inline constexpr std::uint32_t kQkey = 1U << 6;
inline constexpr std::uint32_t kAv = 1U << 7;
inline constexpr std::uint32_t kPathMtu = 1U << 8;
inline constexpr std::uint32_t kTimeout = 1U << 9;
inline constexpr std::uint32_t kRetryCnt = 1U << 10;
inline constexpr std::uint32_t kRnrRetry = 1U << 11;
inline constexpr std::uint32_t kRqPsn = 1U << 12;
inline constexpr std::uint32_t kMaxQpRdAtomic = 1U << 13;
inline constexpr std::uint32_t kMinRnrTimer = 1U << 15;
inline constexpr std::uint32_t kSqPsn = 1U << 16;
inline constexpr std::uint32_t kMaxDestRdAtomic = 1U << 17;
inline constexpr std::uint32_t kDestQpn = 1U << 20;
inline constexpr std::uint32_t kInitMask = kState | kPkeyIndex | kPort | kAccessFlags;
inline constexpr std::uint32_t kRtrMask =
    kState | kAv | kPathMtu | kDestQpn | kRqPsn | kMaxDestRdAtomic | kMinRnrTimer;
inline constexpr std::uint32_t kRtsMask = kState | kSqPsn | kTimeout | kRetryCnt | kRnrRetry | kMaxQpRdAtomic;
inline constexpr std::uint32_t kUcRtrMask = kState | kAv | kPathMtu | kDestQpn | kRqPsn;
inline constexpr std::uint32_t kXrcRecvRtsMask = kState | kSqPsn | kTimeout;
inline constexpr std::uint32_t kUdInitMask = kState | kPkeyIndex | kPort | kQkey;
inline constexpr std::uint32_t kUnreliableRtsMask = kState | kSqPsn;
}  // namespace qp_attr

}  // namespace uroce
