/// Work completions: what a completion queue hands out. Numbers equal those of <infiniband/verbs.h>.
#pragma once

#include <cstdint>
#include <string_view>

#include "uroce/types.h"

namespace uroce {

/// Same values as enum ibv_wc_status. IBA 11.6.2.
enum class WcStatus : std::uint8_t {
  kSuccess = 0,
  kLocLenErr = 1,
  kLocQpOpErr = 2,
  kLocEecOpErr = 3,
  kLocProtErr = 4,
  kWrFlushErr = 5,
  kMwBindErr = 6,
  kBadRespErr = 7,
  kLocAccessErr = 8,
  kRemInvReqErr = 9,
  kRemAccessErr = 10,
  kRemOpErr = 11,
  kRetryExcErr = 12,
  kRnrRetryExcErr = 13,
  kLocRddViolErr = 14,
  kRemInvRdReqErr = 15,
  kRemAbortErr = 16,
  kInvEecnErr = 17,
  kInvEecStateErr = 18,
  kFatalErr = 19,
  kRespTimeoutErr = 20,
  kGeneralErr = 21,
};

/// Same values as enum ibv_wc_opcode.
enum class WcOpcode : std::uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInv = 6,
  kFlush = 8,
  kAtomicWrite = 9,
  kMaskedCompSwap = 11,  ///< these two as in the kernel's enum ib_wc_opcode
  kMaskedFetchAdd = 12,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
};

/// What the network header is that a UD receive has before its payload: the last 20 of its 40 bytes if
/// kIpv4, else all of them.
enum class NetworkHeader : std::uint8_t {
  kGrh = 0,
  kIpv6 = 1,
  kIpv4 = 2,
};

/// Bits of Wc::flags. Same values as enum ibv_wc_flags.
namespace wc_flag {
inline constexpr std::uint8_t kGrh = 1;
inline constexpr std::uint8_t kWithImm = 2;
inline constexpr std::uint8_t kWithInv = 8;
}  // namespace wc_flag

/// Work completion. With a status other than kSuccess only wr_id, timestamp_ns, status, qpn and vendor_err
/// are valid.
struct Wc {
  std::uint64_t wr_id = 0;
  /// When the loop began the iteration that made it, on Device::now_ns(); 0 unless CqAttr::timestamps. A
  /// time of arrival from a port's hardware would be a second field.
  std::uint64_t timestamp_ns = 0;
  std::uint32_t byte_len = 0;  ///< bytes received or read
  std::uint32_t imm_data = 0;  ///< network byte order (kWithImm), or the invalidated rkey (kWithInv)
  Qpn qpn{};                   ///< local QP
  Qpn src_qpn{};               ///< remote QP
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  std::uint8_t flags = 0;                       ///< wc_flag bits
  std::uint8_t vendor_err = 0;                  ///< the transport's Fault number; see describe_vendor_err()
  std::uint8_t sl = 0;                          ///< UD receive: priority in the VLAN tag
  NetworkHeader network = NetworkHeader::kGrh;  ///< UD receive
  std::uint16_t vlan = 0;                       ///< UD receive: VLAN it came in; 0: none

  [[nodiscard]] bool ok() const noexcept { return status == WcStatus::kSuccess; }
};

/// "success", "transport retry counter exceeded", ...
[[nodiscard]] std::string_view to_string(WcStatus status) noexcept;
/// One sentence saying why a completion failed, from Wc::vendor_err.
[[nodiscard]] std::string_view describe_vendor_err(std::uint8_t vendor_err) noexcept;

}  // namespace uroce
