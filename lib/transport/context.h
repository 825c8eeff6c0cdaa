/// What the requester and the responder of one QP share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/counters.h"
#include "base/time.h"
#include "mem/key_table.h"
#include "port/port.h"
#include "transport/address_handles.h"
#include "transport/congestion.h"
#include "transport/cq_ring.h"
#include "transport/faults.h"
#include "transport/receives.h"
#include "transport/wqe_ring.h"
#include "uroce/qp_attr.h"
#include "wire/frame_template.h"
#include "wire/opcode.h"

namespace uroce::transport {

class QueuePair;
class XrcDomain;

/// P_Key of the default partition, full member. IBA 10.9.2.
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

/// Shared state of a QP's two halves.
///
/// Threads: loop, except `state` and what concerns credits, which application threads read, and the
/// application sides of the rings.
struct QpContext {
  QpContext(Qpn number, std::uint32_t pd_number, const QpInitAttr& capacities, mem::KeyTable& key_table,
            Counters& count, CqRing& send, CqRing& recv, SharedReceives* shared = nullptr)
      : keys(key_table),
        counters(count),
        send_cq(send),
        recv_cq(&recv),
        pd(pd_number),
        qpn(number),
        type(capacities.type),
        opcode_base(capacities.type == QpType::kXrcSend || capacities.type == QpType::kXrcRecv
                        ? raw(wire::Opcode::kXrcSendFirst)
                        : std::uint8_t{0}),
        sq(capacities.max_send_wr, capacities.max_send_sge, capacities.max_inline_data, capacities.type,
           capacities.sq_sig_all ? send_flag::kSignaled : std::uint8_t{0}),
        init(capacities),
        receives(capacities.max_recv_wr, capacities.max_recv_sge, shared),
        recv_pd(shared == nullptr ? pd_number : shared->pd) {}

  // The first three cache lines, and what each ring keeps for the loop, are all that a packet needs of this.
  alignas(64) mem::KeyTable& keys;
  Counters& counters;
  CqRing& send_cq;
  CqRing* recv_cq;                         ///< of an XRC target: that of the receives in use
  port::FrameSink* sink = nullptr;         ///< where frames to the peer go; set by the loop
  std::unique_ptr<Congestion> congestion;  ///< connections only; nullptr: none is controlled
  std::uint32_t pd;  ///< protection domain; of an XRC target: that of the receives in use
  const Qpn qpn;
  std::uint32_t mtu = 1024;  ///< bytes(attr.path_mtu)
  const QpType type;
  const std::uint8_t opcode_base;   ///< of the transport, where it has the operations of RC
  Fault fatal = Fault::kNone;       ///< why the QP is in Error
  Fault send_fault = Fault::kNone;  ///< why an unreliable QP is in SQE

  QpAttr attr;
  std::atomic<QpState> state{QpState::kReset};
  bool resolved = false;      ///< the peer's Ethernet address is known
  bool heard = false;         ///< a packet has come since the keepalive looked last
  bool awaits_reply = false;  ///< a message has come since the newest request was started
  bool is_signaling = false;  ///< the newest request that was started is signaled
  bool is_bulk = false;       ///< what is in flight are long messages
  bool answers_bulk = false;  ///< so are responses that may still be on their way

  wire::FrameTemplate head;           ///< valid once `resolved`
  std::uint32_t remote_srq = 0;       ///< XRC initiator: of the request that is being sent
  AddressHandles* handles = nullptr;  ///< of the loop; UD only
  const XrcDomain* domain = nullptr;  ///< XRC target only
  const CqRing* full_cq = nullptr;    ///< the first CQ that had no room for a completion
  std::uint32_t lost_bytes = 0;       ///< payload of the packet of which the QP failed, if none as large was
                                      ///< acknowledged, but smaller ones were; else 0
  std::uint32_t carried_bytes = 0;    ///< the largest of these
  std::uint32_t ece = 0;              ///< options of ece::kVendor that are switched on
  bool fatal_blames_wr = false;       ///< a work request carries the reason

  [[no_unique_address]] SendQueue sq;
  QueuePair* posted_next = nullptr;      ///< of the loop: engine/posting_order.h
  QueuePair* posted_previous = nullptr;  ///< likewise
  std::uint32_t max_unacked = 256;       ///< packets in flight
  const QpInitAttr init;

  [[no_unique_address]] Receives receives;
  std::uint32_t recv_pd;             ///< protection domain of the receives' memory
  std::uint8_t hardened = 0;         ///< bad packets in a row that are dropped before one is believed
  std::uint64_t rnr_cap_ns = 0;      ///< longest wait granted to an RNR NAK; 0: none
  std::uint64_t probe_floor_ns = 0;  ///< least margin over the round trip before a probe; 0: no probes
  std::atomic<bool> credits{false};  ///< end-to-end credits are in use; RC only
  /// The peer may send nothing more that takes a receive: a post of receives must ring the doorbell.
  std::atomic<bool> is_peer_out_of_credits{false};

  /// Memory that the peer names.
  [[nodiscard]] std::byte* resolve_remote(std::uint32_t rkey, std::uint32_t access, std::uint64_t va,
                                          std::uint64_t length, mem::KeyFault& fault) const noexcept {
    return keys.resolve_remote(rkey, user(), access, va, length, fault);
  }
  [[nodiscard]] mem::KeyUser user() const noexcept { return {.pd = pd, .qpn = qpn}; }

  [[nodiscard]] bool sends_bulk() const noexcept { return is_bulk || answers_bulk; }

  /// Adds a completion; a full CQ moves the QP to Error. IBA 11.6.3.3 ?
  void complete(CqRing& cq, const Wc& wc, bool solicited = false) noexcept {
    counters.add(Count::kCompletions);
    if (cq.push(wc, solicited)) return;
    if (full_cq == nullptr) full_cq = &cq;
    fail(Fault::kCqOverflow);
  }

  /// Notes the first fatal fault. The QP itself moves to Error and flushes once the present step is over.
  void fail(Fault fault, bool blames_wr = false) noexcept {
    if (fatal != Fault::kNone) return;
    fatal = fault;
    fatal_blames_wr = blames_wr;
    counters.add(row(fault).counter);
  }
  [[nodiscard]] bool has_failed() const noexcept { return fatal != Fault::kNone; }
};

/// Messages longer than that, in bytes, are bulk: on a link that knows the difference they do not hold up
/// others. A half of a QP changes over only with nothing on its way, so its packets stay in order.
inline constexpr std::uint32_t kLongestPrompt = 1024;

/// What one transmit step needs besides the QP.
struct TxContext {
  port::FrameSink& port;
  port::FrameSink& bulk;  ///< for bulk transfers
  Ticks now;
  unsigned budget;       ///< packets left in this turn
  bool no_room = false;  ///< the port refused a claim: no use in trying further QPs now

  [[nodiscard]] port::FrameSink& lane(bool is_bulk) const noexcept { return is_bulk ? bulk : port; }
};

}  // namespace uroce::transport
