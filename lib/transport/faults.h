/// What can go wrong with a request or a response, and what follows: the only place that says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/counters.h"
#include "uroce/async_event.h"
#include "uroce/wc.h"

namespace uroce::transport {

/// Every reason for which a QP goes to Error, and kRnr. The number travels in Wc::vendor_err.
enum class Fault : std::uint8_t {
  kNone,
  // Found by the responder. IBA 9.7.4, table 57.
  kRnr,
  kOpcodeSequence,
  kOpcodeForQp,
  kAccessDisabled,
  kReadDepth,
  kBadLength,
  kRemoteKey,
  kMisalignedAtomic,
  kReceiveTooSmall,
  kReceiveKey,
  kInvalidateRefused,
  kBadFlush,
  kNoSuchSrq,
  // Found by the requester. IBA 9.9.2.
  kLocalKey,
  kLocalLength,
  kLocalOpcode,
  kAddressHandle,
  kDatagramLength,
  kWindowBind,
  kLocalInvalidate,
  kRetryExceeded,
  kRnrRetryExceeded,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kRemoteInvalidRd,
  kReservedSyndrome,
  kUnexpectedResponse,
  kReadResponseLength,
  // Either side.
  kCqOverflow,
  kPeerSilent,
  kFlushed,
  kCount
};

/// Consequences of a fault.
struct FaultRow {
  std::uint8_t nak = 0;                     ///< AETH syndrome sent to the peer; 0: none
  WcStatus status = WcStatus::kGeneralErr;  ///< of the work request concerned
  Count counter = Count::kRequesterLocalErrors;
  AsyncEventType event = AsyncEventType::kQpFatal;  ///< raised when no work request takes the blame
  std::string_view text;
};

inline constexpr std::array<FaultRow, static_cast<std::size_t>(Fault::kCount)> kFaults = [] {
  using enum WcStatus;
  using Event = AsyncEventType;
  constexpr auto kNaks = Count::kResponderFatalNaks;
  constexpr auto kPeer = Count::kRequesterFatalNaks;
  constexpr auto kLocal = Count::kRequesterLocalErrors;
  return std::array<FaultRow, static_cast<std::size_t>(Fault::kCount)>{{
      {0, kSuccess, kLocal, Event::kQpFatal, "no fault"},
      {0x20, kGeneralErr, Count::kResponderRnrNaks, Event::kQpFatal, "no receive was posted"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr, "the peer's packets are in an illegal opcode order"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr,
       "the peer sent an opcode of an option that is not switched on"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr,
       "the peer used RDMA or atomics that this QP does not allow"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr,
       "the peer has more READs or atomics in flight than agreed"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr,
       "a request's length does not fit its headers or the path MTU"},
      {0x62, kRemAccessErr, kNaks, Event::kQpAccessErr, "the peer named a key or range it has no right to"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr,
       "the address of an atomic or ATOMIC WRITE is not a multiple of 8"},
      {0x61, kLocLenErr, kNaks, Event::kQpReqErr, "a message is longer than the receive posted for it"},
      {0x63, kLocProtErr, kNaks, Event::kQpFatal,
       "a posted receive names memory that is not registered for it"},
      {0x62, kRemAccessErr, kNaks, Event::kQpAccessErr, "the peer may not invalidate the key it named"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpReqErr,
       "a FLUSH asks for a placement or range that is not defined"},
      {0x61, kRemInvReqErr, kNaks, Event::kQpAccessErr,
       "a request names a shared receive queue that is not of this QP's XRC domain"},
      {0, kLocProtErr, kLocal, Event::kQpFatal, "an SGE names memory that is not registered for it"},
      {0, kLocLenErr, kLocal, Event::kQpFatal,
       "a message is longer than allowed (2^31 bytes; atomics and ATOMIC WRITE: 8)"},
      {0, kLocQpOpErr, kLocal, Event::kQpFatal,
       "a work request has an opcode that this QP does not take, or of an option that is not switched on"},
      {0, kLocQpOpErr, kLocal, Event::kQpFatal,
       "a work request names no address handle of this protection domain"},
      {0, kLocLenErr, kLocal, Event::kQpFatal, "a datagram is longer than the port's path MTU"},
      {0, kMwBindErr, kLocal, Event::kQpFatal,
       "a memory window is not free, or region, range or access do not allow it"},
      {0, kMwBindErr, kLocal, Event::kQpFatal, "the key cannot be invalidated locally, or not by this QP"},
      {0, kRetryExcErr, Count::kRequesterRetryExceeded, Event::kQpFatal,
       "the peer did not answer: transport retry counter exceeded"},
      {0, kRnrRetryExcErr, Count::kRequesterRnrRetryExceeded, Event::kQpFatal,
       "the peer had no receive posted: RNR retry counter exceeded"},
      {0, kRemInvReqErr, kPeer, Event::kQpFatal, "the peer refused the request as invalid (NAK 1)"},
      {0, kRemAccessErr, kPeer, Event::kQpFatal, "the peer refused access to its memory (NAK 2)"},
      {0, kRemOpErr, kPeer, Event::kQpFatal, "the peer could not complete the request (NAK 3)"},
      {0, kRemInvRdReqErr, kPeer, Event::kQpFatal,
       "the peer refused the request as an invalid RD request (NAK 4)"},
      {0, kBadRespErr, kPeer, Event::kQpFatal, "the peer answered with a syndrome that means nothing there"},
      {0, kBadRespErr, kPeer, Event::kQpFatal, "the peer answered with a response of another kind"},
      {0, kBadRespErr, kPeer, Event::kQpFatal, "a READ response has the wrong length"},
      {0, kGeneralErr, Count::kCqOverflows, Event::kCqErr, "a completion queue overflowed: create it larger"},
      {0, kRetryExcErr, Count::kPeersSilent, Event::kQpFatal,
       "nothing has been heard of the peer for the time of the keepalive"},
      {0, kWrFlushErr, Count::kFlushed, Event::kQpFatal, "flushed: the QP went to Error before"},
  }};
}();

[[nodiscard]] constexpr const FaultRow& row(Fault fault) noexcept {
  return kFaults[static_cast<std::size_t>(fault)];
}
static_assert(row(Fault::kFlushed).status == WcStatus::kWrFlushErr &&
              row(Fault::kRemoteAccess).text.ends_with("(NAK 2)"));
static_assert(row(Fault::kReceiveKey).nak == 0x63 && row(Fault::kCqOverflow).event == AsyncEventType::kCqErr);

}  // namespace uroce::transport
