/// Messages of the communication manager. IBA 12.6.
#pragma once

#include "uroce/types.h"
#include "wire/mad.h"

namespace uroce::wire {

/// Class, version and method of every message of the communication manager. IBA 16.7 ?
inline constexpr std::uint8_t kCmClass = 7;
inline constexpr std::uint8_t kCmVersion = 2;
inline constexpr std::uint8_t kCmSend = 3;

enum class CmAttribute : std::uint16_t {
  kReq = 0x10,  ///< request for communication
  kMra = 0x11,  ///< message receipt acknowledgment
  kRej = 0x12,  ///< reject
  kRep = 0x13,  ///< reply to REQ
  kRtu = 0x14,  ///< ready to use
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,  ///< service id resolution
  kSidrRep = 0x18,
  kLap = 0x19,  ///< load alternate path
  kApr = 0x1a,
};

using CmBody = std::span<const std::byte, kMadBytes - MadHeader::kSize>;
using CmBodyOut = std::span<std::byte, kMadBytes - MadHeader::kSize>;

template <std::size_t Offset, std::size_t Bytes>
[[nodiscard]] constexpr std::array<std::byte, Bytes> load_bytes(CmBody in) noexcept {
  std::array<std::byte, Bytes> out{};
  for (std::size_t i = 0; i < Bytes; ++i) out[i] = in[Offset + i];
  return out;
}
template <std::size_t Offset, std::size_t Bytes>
constexpr void store_bytes(CmBodyOut out, const std::array<std::byte, Bytes>& bytes) noexcept {
  static_assert(Offset + Bytes <= CmBodyOut::extent);
  for (std::size_t i = 0; i < Bytes; ++i) out[Offset + i] = bytes[i];
}
template <std::size_t Offset>
[[nodiscard]] constexpr Gid load_gid(CmBody in) noexcept {
  Gid gid;
  for (std::size_t i = 0; i < gid.raw.size(); ++i) gid.raw[i] = std::to_integer<std::uint8_t>(in[Offset + i]);
  return gid;
}
template <std::size_t Offset>
constexpr void store_gid(CmBodyOut out, const Gid& gid) noexcept {
  for (std::size_t i = 0; i < gid.raw.size(); ++i) out[Offset + i] = std::byte{gid.raw[i]};
}

/// Request for communication. IBA 12.6.5. No alternate path: it goes out as zero and is not looked at.
struct CmReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kReq;
  static constexpr std::size_t kPrivateBytes = 92;

  std::uint32_t local_comm_id = 0;
  std::uint32_t vendor_id = 0;  ///< 24 bits: whose options the attribute modifier holds
  std::uint64_t service_id = 0;
  std::uint64_t ca_guid = 0;
  std::uint32_t qkey = 0;
  Qpn qpn{};
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t remote_cm_timeout = 0;  ///< 4.096 us << code
  std::uint8_t service = 0;            ///< 0 RC, 1 UC, 3 the extended transport
  bool flow_control = false;           ///< end-to-end
  Psn psn{};
  std::uint8_t local_cm_timeout = 0;
  std::uint8_t retry_cnt = 0;
  std::uint16_t pkey = 0xffff;
  std::uint8_t path_mtu = 0;  ///< code
  std::uint8_t rnr_retry = 0;
  std::uint8_t max_cm_retries = 0;
  bool srq = false;
  std::uint8_t extended_transport = 0;  ///< 1 XRC
  std::uint16_t local_lid = 0;
  std::uint16_t remote_lid = 0;
  Gid local_gid{};
  Gid remote_gid{};
  std::uint32_t flow_label = 0;
  std::uint8_t packet_rate = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t sl = 0;
  bool subnet_local = false;
  std::uint8_t ack_timeout = 0;  ///< code
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const CmReq&, const CmReq&) = default;
  [[nodiscard]] static constexpr CmReq parse(CmBody in) noexcept;
  constexpr void emit(CmBodyOut out) const noexcept;
};

constexpr CmReq CmReq::parse(CmBody in) noexcept {
  const auto timeouts = load_be<43, 1>(in);
  const auto retries = load_be<47, 1>(in);
  const auto path = load_be<50, 1>(in);
  const auto more = load_be<51, 1>(in);
  const auto label = load_be<88, 4>(in);
  const auto sl = load_be<94, 1>(in);
  return {.local_comm_id = load_be<0, 4>(in),
          .vendor_id = load_be<5, 3>(in),
          .service_id = load_be<8, 8>(in),
          .ca_guid = load_be<16, 8>(in),
          .qkey = load_be<28, 4>(in),
          .qpn = Qpn{load_be<32, 3>(in)},
          .responder_resources = load_be<35, 1>(in),
          .initiator_depth = load_be<39, 1>(in),
          .remote_cm_timeout = static_cast<std::uint8_t>(timeouts >> 3),
          .service = static_cast<std::uint8_t>(timeouts >> 1 & 3),
          .flow_control = (timeouts & 1) != 0,
          .psn = Psn{load_be<44, 3>(in)},
          .local_cm_timeout = static_cast<std::uint8_t>(retries >> 3),
          .retry_cnt = static_cast<std::uint8_t>(retries & 7),
          .pkey = load_be<48, 2>(in),
          .path_mtu = static_cast<std::uint8_t>(path >> 4),
          .rnr_retry = static_cast<std::uint8_t>(path & 7),
          .max_cm_retries = static_cast<std::uint8_t>(more >> 4),
          .srq = (more & 8) != 0,
          .extended_transport = static_cast<std::uint8_t>(more & 7),
          .local_lid = load_be<52, 2>(in),
          .remote_lid = load_be<54, 2>(in),
          .local_gid = load_gid<56>(in),
          .remote_gid = load_gid<72>(in),
          .flow_label = label >> 12,
          .packet_rate = static_cast<std::uint8_t>(label & 0x3f),
          .traffic_class = load_be<92, 1>(in),
          .hop_limit = load_be<93, 1>(in),
          .sl = static_cast<std::uint8_t>(sl >> 4),
          .subnet_local = (sl & 8) != 0,
          .ack_timeout = static_cast<std::uint8_t>(load_be<95, 1>(in) >> 3),
          .private_data = load_bytes<140, kPrivateBytes>(in)};
}

/// Fills all of `out`, which is zero before.
constexpr void CmReq::emit(CmBodyOut out) const noexcept {
  store_be<0, 4>(out, local_comm_id);
  store_be<5, 3>(out, vendor_id);
  store_be<8, 8>(out, service_id);
  store_be<16, 8>(out, ca_guid);
  store_be<28, 4>(out, qkey);
  store_be<32, 3>(out, raw(qpn));
  store_be<35, 1>(out, responder_resources);
  store_be<39, 1>(out, initiator_depth);
  store_be<43, 1>(out, static_cast<std::uint8_t>(remote_cm_timeout << 3 | (service & 3) << 1 | flow_control));
  store_be<44, 3>(out, psn.value());
  store_be<47, 1>(out, static_cast<std::uint8_t>(local_cm_timeout << 3 | (retry_cnt & 7)));
  store_be<48, 2>(out, pkey);
  store_be<50, 1>(out, static_cast<std::uint8_t>(path_mtu << 4 | (rnr_retry & 7)));
  store_be<51, 1>(out,
                  static_cast<std::uint8_t>(max_cm_retries << 4 | at_bit<3>(srq) | (extended_transport & 7)));
  store_be<52, 2>(out, local_lid);
  store_be<54, 2>(out, remote_lid);
  store_gid<56>(out, local_gid);
  store_gid<72>(out, remote_gid);
  store_be<88, 4>(out, flow_label << 12 | (packet_rate & 0x3fU));
  store_be<92, 1>(out, traffic_class);
  store_be<93, 1>(out, hop_limit);
  store_be<94, 1>(out, static_cast<std::uint8_t>(sl << 4 | at_bit<3>(subnet_local)));
  store_be<95, 1>(out, static_cast<std::uint8_t>(ack_timeout << 3));
  store_bytes<140>(out, private_data);
}

/// Reply to a request. IBA 12.6.8.
struct CmRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kRep;
  static constexpr std::size_t kPrivateBytes = 196;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t qkey = 0;
  Qpn qpn{};
  std::uint32_t vendor_id = 0;  ///< 24 bits
  std::uint32_t eecn = 0;       ///< XRC: the target's QPN
  Psn psn{};
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;  ///< 4.096 us << code
  std::uint8_t failover = 0;
  bool flow_control = false;
  std::uint8_t rnr_retry = 0;
  bool srq = false;
  std::uint64_t ca_guid = 0;
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const CmRep&, const CmRep&) = default;

  [[nodiscard]] static constexpr CmRep parse(CmBody in) noexcept {
    const auto delay = load_be<26, 1>(in);
    const auto rnr = load_be<27, 1>(in);
    const auto vendor =
        std::uint32_t{load_be<15, 1>(in)} << 16 | std::uint32_t{load_be<19, 1>(in)} << 8 | load_be<23, 1>(in);
    return {.local_comm_id = load_be<0, 4>(in),
            .remote_comm_id = load_be<4, 4>(in),
            .qkey = load_be<8, 4>(in),
            .qpn = Qpn{load_be<12, 3>(in)},
            .vendor_id = vendor,
            .eecn = load_be<16, 3>(in),
            .psn = Psn{load_be<20, 3>(in)},
            .responder_resources = load_be<24, 1>(in),
            .initiator_depth = load_be<25, 1>(in),
            .target_ack_delay = static_cast<std::uint8_t>(delay >> 3),
            .failover = static_cast<std::uint8_t>(delay >> 1 & 3),
            .flow_control = (delay & 1) != 0,
            .rnr_retry = static_cast<std::uint8_t>(rnr >> 5),
            .srq = (rnr & 0x10) != 0,
            .ca_guid = load_be<28, 8>(in),
            .private_data = load_bytes<36, kPrivateBytes>(in)};
  }

  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
    store_be<8, 4>(out, qkey);
    store_be<12, 3>(out, raw(qpn));
    store_be<15, 1>(out, static_cast<std::uint8_t>(vendor_id >> 16));
    store_be<16, 3>(out, eecn);
    store_be<19, 1>(out, static_cast<std::uint8_t>(vendor_id >> 8));
    store_be<20, 3>(out, psn.value());
    store_be<23, 1>(out, static_cast<std::uint8_t>(vendor_id));
    store_be<24, 1>(out, responder_resources);
    store_be<25, 1>(out, initiator_depth);
    store_be<26, 1>(out,
                    static_cast<std::uint8_t>(target_ack_delay << 3 | (failover & 3) << 1 | flow_control));
    store_be<27, 1>(out, static_cast<std::uint8_t>(rnr_retry << 5 | at_bit<4>(srq)));
    store_be<28, 8>(out, ca_guid);
    store_bytes<36>(out, private_data);
  }
};

/// RTU and DREP: nothing but who speaks to whom. IBA 12.6.9, 12.6.11.
template <CmAttribute Attribute>
struct CmPair {
  static constexpr CmAttribute kAttribute = Attribute;
  static constexpr std::size_t kPrivateBytes = 224;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const CmPair&, const CmPair&) = default;

  [[nodiscard]] static constexpr CmPair parse(CmBody in) noexcept {
    return {.local_comm_id = load_be<0, 4>(in),
            .remote_comm_id = load_be<4, 4>(in),
            .private_data = load_bytes<8, kPrivateBytes>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
    store_bytes<8>(out, private_data);
  }
};

using CmRtu = CmPair<CmAttribute::kRtu>;
using CmDrep = CmPair<CmAttribute::kDrep>;

/// Request to release communication. IBA 12.6.10.
struct CmDreq {
  static constexpr CmAttribute kAttribute = CmAttribute::kDreq;
  static constexpr std::size_t kPrivateBytes = 220;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  Qpn remote_qpn{};
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const CmDreq&, const CmDreq&) = default;

  [[nodiscard]] static constexpr CmDreq parse(CmBody in) noexcept {
    return {.local_comm_id = load_be<0, 4>(in),
            .remote_comm_id = load_be<4, 4>(in),
            .remote_qpn = Qpn{load_be<8, 3>(in)},
            .private_data = load_bytes<12, kPrivateBytes>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
    store_be<8, 3>(out, raw(remote_qpn));
    store_bytes<12>(out, private_data);
  }
};

/// Which message a REJ or an MRA is about. IBA 12.6.6, 12.6.7.
enum class CmAbout : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

/// Reject. IBA 12.6.7.
struct CmRej {
  static constexpr CmAttribute kAttribute = CmAttribute::kRej;
  static constexpr std::size_t kPrivateBytes = 148;
  static constexpr std::size_t kInfoBytes = 72;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  CmAbout about = CmAbout::kReq;
  std::uint8_t info_len = 0;  ///< bytes of `info`
  std::uint16_t reason = 0;
  std::array<std::byte, kInfoBytes> info{};
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const CmRej&, const CmRej&) = default;

  [[nodiscard]] static constexpr CmRej parse(CmBody in) noexcept {
    return {.local_comm_id = load_be<0, 4>(in),
            .remote_comm_id = load_be<4, 4>(in),
            .about = static_cast<CmAbout>(load_be<8, 1>(in) >> 6),
            .info_len = static_cast<std::uint8_t>(load_be<9, 1>(in) >> 1),
            .reason = load_be<10, 2>(in),
            .info = load_bytes<12, kInfoBytes>(in),
            .private_data = load_bytes<84, kPrivateBytes>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
    store_be<8, 1>(out, static_cast<std::uint8_t>(static_cast<unsigned>(about) << 6));
    store_be<9, 1>(out, static_cast<std::uint8_t>(info_len << 1));
    store_be<10, 2>(out, reason);
    store_bytes<12>(out, info);
    store_bytes<84>(out, private_data);
  }
};

/// Message receipt acknowledgment: the answer takes longer. IBA 12.6.6.
struct CmMra {
  static constexpr CmAttribute kAttribute = CmAttribute::kMra;
  static constexpr std::size_t kPrivateBytes = 222;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  CmAbout about = CmAbout::kReq;
  std::uint8_t service_timeout = 0;  ///< 4.096 us << code
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const CmMra&, const CmMra&) = default;

  [[nodiscard]] static constexpr CmMra parse(CmBody in) noexcept {
    return {.local_comm_id = load_be<0, 4>(in),
            .remote_comm_id = load_be<4, 4>(in),
            .about = static_cast<CmAbout>(load_be<8, 1>(in) >> 6),
            .service_timeout = static_cast<std::uint8_t>(load_be<9, 1>(in) >> 3),
            .private_data = load_bytes<10, kPrivateBytes>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
    store_be<8, 1>(out, static_cast<std::uint8_t>(static_cast<unsigned>(about) << 6));
    store_be<9, 1>(out, static_cast<std::uint8_t>(service_timeout << 3));
    store_bytes<10>(out, private_data);
  }
};

/// Load alternate path: only who asks is of interest, since it is always refused. IBA 12.8.1.
struct CmLap {
  static constexpr CmAttribute kAttribute = CmAttribute::kLap;

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;

  friend constexpr bool operator==(const CmLap&, const CmLap&) = default;

  [[nodiscard]] static constexpr CmLap parse(CmBody in) noexcept {
    return {.local_comm_id = load_be<0, 4>(in), .remote_comm_id = load_be<4, 4>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
  }
};

/// Its answer. IBA 12.8.2.
struct CmApr {
  static constexpr CmAttribute kAttribute = CmAttribute::kApr;
  static constexpr std::uint8_t kUnsupported = 1;  // IBA table 117 ?

  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint8_t status = 0;

  friend constexpr bool operator==(const CmApr&, const CmApr&) = default;

  [[nodiscard]] static constexpr CmApr parse(CmBody in) noexcept {
    return {
        .local_comm_id = load_be<0, 4>(in), .remote_comm_id = load_be<4, 4>(in), .status = load_be<9, 1>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, local_comm_id);
    store_be<4, 4>(out, remote_comm_id);
    store_be<9, 1>(out, status);
  }
};

/// Which QP serves a service id? IBA 12.11.1.
struct SidrReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrReq;
  static constexpr std::size_t kPrivateBytes = 216;

  std::uint32_t request_id = 0;
  std::uint16_t pkey = 0xffff;
  std::uint64_t service_id = 0;
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const SidrReq&, const SidrReq&) = default;

  [[nodiscard]] static constexpr SidrReq parse(CmBody in) noexcept {
    return {.request_id = load_be<0, 4>(in),
            .pkey = load_be<4, 2>(in),
            .service_id = load_be<8, 8>(in),
            .private_data = load_bytes<16, kPrivateBytes>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, request_id);
    store_be<4, 2>(out, pkey);
    store_be<8, 8>(out, service_id);
    store_bytes<16>(out, private_data);
  }
};

/// Its answer. IBA 12.11.2.
struct SidrRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrRep;
  static constexpr std::size_t kPrivateBytes = 136;

  std::uint32_t request_id = 0;
  std::uint8_t status = 0;  ///< 0 valid, 1 unsupported, 2 rejected, 3 no QP, 4 redirected, 5 version
  Qpn qpn{};
  std::uint64_t service_id = 0;
  std::uint32_t qkey = 0;
  std::array<std::byte, kPrivateBytes> private_data{};

  friend constexpr bool operator==(const SidrRep&, const SidrRep&) = default;

  [[nodiscard]] static constexpr SidrRep parse(CmBody in) noexcept {
    return {.request_id = load_be<0, 4>(in),
            .status = load_be<4, 1>(in),
            .qpn = Qpn{load_be<8, 3>(in)},
            .service_id = load_be<12, 8>(in),
            .qkey = load_be<20, 4>(in),
            .private_data = load_bytes<96, kPrivateBytes>(in)};
  }
  constexpr void emit(CmBodyOut out) const noexcept {
    store_be<0, 4>(out, request_id);
    store_be<4, 1>(out, status);
    store_be<8, 3>(out, raw(qpn));
    store_be<12, 8>(out, service_id);
    store_be<20, 4>(out, qkey);
    store_bytes<96>(out, private_data);
  }
};

/// A whole MAD with `message` in it.
template <typename Message>
[[nodiscard]] constexpr Mad make_cm_mad(std::uint64_t transaction_id, const Message& message,
                                        std::uint32_t modifier = 0) noexcept {
  Mad mad{};
  MadHeader{.mgmt_class = kCmClass,
            .class_version = kCmVersion,
            .method = kCmSend,
            .transaction_id = transaction_id,
            .attribute_id = static_cast<std::uint16_t>(Message::kAttribute),
            .attribute_modifier = modifier}
      .emit(std::span{mad}.first<MadHeader::kSize>());
  message.emit(std::span{mad}.last<CmBodyOut::extent>());
  return mad;
}

[[nodiscard]] constexpr CmBody cm_body(std::span<const std::byte, kMadBytes> mad) noexcept {
  return mad.last<CmBody::extent>();
}

}  // namespace uroce::wire
