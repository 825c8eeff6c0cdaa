/// What the requester and the responder of one QP share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/counters.h"
#include "base/time.h"
#include "base/timer_wheel.h"
#include "mem/key_table.h"
#include "port/port.h"
#include "transport/address_handles.h"
#include "transport/congestion.h"
#include "transport/cq_ring.h"
#include "transport/faults.h"
#include "transport/path.h"
#include "transport/qp_counters.h"
#include "transport/receives.h"
#include "transport/wqe_ring.h"
#include "uroce/qp_attr.h"
#include "wire/frame_template.h"
#include "wire/opcode.h"

namespace uroce::transport {

class JointAcks;
class QueuePair;
class XrcDomain;

/// P_Key of the default partition, full member. IBA 10.9.2.
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

/// What a requester has in flight, by the message that was started when nothing was.
enum class InFlight : std::uint8_t { kShort, kLong, kAsksForLong };

/// Shared state of a QP's two halves. Its base is the QP's place in the loop's timer wheel.
///
/// Threads: loop, except `state` and what concerns credits, which application threads read, and the
/// application sides of the rings.
struct alignas(64) QpContext : TimerNode {
  QpContext(Qpn number, std::uint32_t pd_number, const QpInitAttr& capacities, mem::KeyTable& key_table,
            Counters& count, CqRing& send, CqRing& recv, SharedReceives* shared = nullptr)
      : keys(key_table),
        counters(count),
        send_cq(send),
        pd(pd_number),
        qpn(number),
        sq(capacities.max_send_wr, capacities.max_send_sge, capacities.max_inline_data, capacities.type,
           capacities.sq_sig_all ? send_flag::kSignaled : std::uint8_t{0}),
        recv_cq(&recv),
        is_sharing(shared != nullptr || capacities.type == QpType::kXrcRecv),
        type(capacities.type),
        opcode_base(capacities.type == QpType::kXrcSend || capacities.type == QpType::kXrcRecv
                        ? raw(wire::Opcode::kXrcSendFirst)
                        : std::uint8_t{0}),
        init(capacities),
        receives(capacities.max_recv_wr, capacities.max_recv_sge, shared),
        recv_pd(shared == nullptr ? pd_number : shared->pd) {}

  // What a packet needs of this are two cache lines: the first one, with the base, and what lies behind the
  // index that the send queue keeps for the loop.
  mem::KeyTable& keys;
  Counters& counters;
  CqRing& send_cq;
  Path* path = nullptr;  ///< to the peer; set by the loop
  std::uint32_t pd;      ///< protection domain; of an XRC target: that of the receives in use
  const Qpn qpn;

  [[no_unique_address]] SendQueue sq;
  std::uint32_t mtu = 1024;         ///< bytes(attr.path_mtu)
  QueuePair* next_ready = nullptr;  ///< of the loop: its list of QPs with packets to send
  CqRing* recv_cq;                  ///< of an XRC target: that of the receives in use
  Qpn dest_qpn{};                   ///< of `attr`, like those below
  std::uint32_t access_flags = 0;
  std::uint32_t max_unacked = 256;  ///< packets in flight
  std::uint32_t events = 0;         ///< QueuePair::take_events()
  /// Of an XRC target: one step used more than one queue of its domain.
  static constexpr std::uint32_t kManyQueues = 1U << 30;
  /// What others are shown of the QP has changed.
  static constexpr std::uint32_t kHasNews = 1U << 29;
  std::uint16_t udp_src_port = 0xc000;
  std::uint8_t max_rd_atomic = 1;
  std::uint8_t max_dest_rd_atomic = 1;
  std::uint8_t min_rnr_timer = 0;
  std::uint8_t timeout = 0;
  std::uint8_t retry_cnt = 0;
  std::uint8_t rnr_retry = 0;
  std::uint8_t hardened = 0;  ///< bad packets in a row that are dropped before one is believed
  bool is_ready = false;      ///< in the list of next_ready
  bool only_answers = false;  ///< there because of responses alone: the requester need not be looked at
  const bool is_sharing;      ///< receives, now or later
  std::atomic<bool> credits{false};  ///< end-to-end credits are in use; RC only
  const QpType type;
  const std::uint8_t opcode_base;  ///< of the transport, where it has the operations of RC
  std::atomic<QpState> state{QpState::kReset};
  Fault fatal = Fault::kNone;             ///< why the QP is in Error
  Fault send_fault = Fault::kNone;        ///< why an unreliable QP is in SQE
  bool resolved = false;                  ///< the peer's Ethernet address is known: `path` has it
  bool heard = false;                     ///< a packet has come since the keepalive looked last
  bool awaits_reply = false;              ///< a message has come since the newest request was started
  std::uint8_t signaled = 0;              ///< requests that were started, the newest in bit 0: it is signaled
  InFlight in_flight = InFlight::kShort;  ///< or nothing
  bool answers_bulk : 1 = false;          ///< so are responses that may still be on their way
  bool joins_acks : 1 = false;            ///< its ACKs may share packets with those of others, both ways
  bool is_controlled : 1 = false;         ///< `congestion` is there: this need not be in the cache to know
  bool keeps_house : 1 = false;           ///< likewise: `housekeeping_due` is set

  alignas(64) QpAttr attr;
  std::unique_ptr<Congestion> congestion;  ///< connections only; nullptr: none is controlled
  Ticks housekeeping_due;                  ///< when QueuePair::housekeeping() has something to do
  std::uint32_t remote_srq = 0;            ///< XRC initiator: of the request that is being sent
  AddressHandles* handles = nullptr;       ///< of the loop; UD only
  const XrcDomain* domain = nullptr;       ///< XRC target only
  CqSize full_cq;                   ///< of the first CQ that had no room for a completion; no entries: none
  std::uint32_t lost_bytes = 0;     ///< payload of the packet of which the QP failed, if none as large was
                                    ///< acknowledged, but smaller ones were; else 0
  std::uint32_t carried_bytes = 0;  ///< the largest of these
  std::uint32_t ece = 0;            ///< options of ece::kVendor that are switched on
  bool fatal_blames_wr = false;     ///< a work request carries the reason
  const QpInitAttr init;
  std::uint64_t rnr_cap_ns = 0;      ///< longest wait granted to an RNR NAK; 0: none
  std::uint64_t probe_floor_ns = 0;  ///< least margin over the round trip before a probe; 0: no probes
  /// The peer may send nothing more that takes a receive: a post of receives must ring the doorbell.
  std::atomic<bool> is_peer_out_of_credits{false};

  [[no_unique_address]] Receives receives;
  std::uint32_t recv_pd;  ///< protection domain of the receives' memory

  std::uint32_t shown_at = 0;  ///< of the loop: where its display has the QP; 0: nowhere
  QpCounters own_counters;     ///< since the QP was made or reset last

  /// Its application has its sends signaled: not one of many.
  [[nodiscard]] bool is_signaling() const noexcept { return (signaled & 3U) == 3; }

  /// Takes from `attr` what packets need of it.
  void take_attributes() noexcept {
    mtu = bytes(attr.path_mtu);
    dest_qpn = attr.dest_qpn;
    access_flags = attr.access_flags;
    max_rd_atomic = attr.max_rd_atomic;
    max_dest_rd_atomic = attr.max_dest_rd_atomic;
    min_rnr_timer = attr.min_rnr_timer;
    timeout = attr.timeout;
    retry_cnt = attr.retry_cnt;
    rnr_retry = attr.rnr_retry;
    udp_src_port = wire::udp_source_port(attr.flow_label, qpn, dest_qpn);
  }

  /// Memory that the peer names.
  [[nodiscard]] std::byte* resolve_remote(std::uint32_t rkey, std::uint32_t access, std::uint64_t va,
                                          std::uint64_t length, mem::KeyFault& fault) const noexcept {
    return keys.resolve_remote(rkey, user(), access, va, length, fault);
  }
  [[nodiscard]] mem::KeyUser user() const noexcept { return {.pd = pd, .qpn = qpn}; }

  /// Requests are answered, by NAKs too.
  [[nodiscard]] bool is_reliable() const noexcept { return type != QpType::kUc && type != QpType::kUd; }
  [[nodiscard]] bool is_bulk() const noexcept { return in_flight == InFlight::kLong; }
  [[nodiscard]] bool sends_bulk() const noexcept { return is_bulk() || answers_bulk; }

  /// Adds the completion of a receive.
  void complete_receive(const Wc& wc, bool solicited = false) noexcept {
    counters.add(Count::kCompletions);
    if (!recv_cq->push(wc, solicited)) [[unlikely]]
      put_off_receive(wc, solicited);
  }

  // What a CQ has no room for comes later; one that is too small for its QPs moves this one to Error. IBA
  // 11.6.3.3 ?  Copies, so that who has room keeps all in registers.
  void put_off_receive(Wc wc, bool solicited) noexcept;
  void put_off_send(Wc wc, std::uint32_t end) noexcept;
  /// The slots before `end` are free behind what the send CQ had no room for.
  void retire_late(std::uint32_t end) noexcept;
  /// The QP goes away, or is reset.
  void forget_late() noexcept;

  /// The receive in use completes with `fault`.
  void fail_receive(Fault fault) noexcept;
  /// Completes every posted receive with WR_FLUSH_ERR.
  void flush_receives() noexcept;

  /// Counts one of kQpCounters, for the loop and for the QP.
  void count(Count what) noexcept;
  /// What counts a fault for which the QP goes to Error.
  [[nodiscard]] Count counter_of(Fault fault) const noexcept;

  /// Notes the first fatal fault. The QP itself moves to Error and flushes once the present step is over.
  void fail(Fault fault, bool blames_wr = false) noexcept {
    if (fatal != Fault::kNone) return;
    fatal = fault;
    fatal_blames_wr = blames_wr;
    counters.add(counter_of(fault));
  }
  [[nodiscard]] bool has_failed() const noexcept { return fatal != Fault::kNone; }

 private:
  void overflow(const CqRing& cq) noexcept;
};

/// Messages longer than that, in bytes, are bulk: on a link that knows the difference they do not hold up
/// others. A half of a QP changes over only with nothing on its way, so its packets stay in order.
inline constexpr std::uint32_t kLongestPrompt = 1024;

/// What one transmit step needs besides the QP.
struct TxContext {
  port::FrameSink& port;
  port::FrameSink& bulk;  ///< for bulk transfers
  Ticks now;
  unsigned budget;                  ///< packets left in this turn
  bool no_room = false;             ///< the port refused a claim: no use in trying further QPs now
  bool may_wait = true;             ///< false: it is the QP's last turn, or somebody waits for its end
  JointAcks* joint_acks = nullptr;  ///< where its ACK finds others to leave with; nullptr: nowhere

  [[nodiscard]] port::FrameSink& lane(bool is_bulk) const noexcept { return is_bulk ? bulk : port; }
};

}  // namespace uroce::transport
