/// Queue pairs of any type: the state machine, and what a poll loop asks of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/mpsc_list.h"
#include "base/timer_wheel.h"
#include "mem/blocks.h"
#include "transport/congestion.h"
#include "transport/context.h"
#include "transport/next_hop.h"
#include "uroce/async_event.h"
#include "uroce/result.h"
#include "wire/packet.h"

namespace uroce::transport {

/// What a modify() may hold up to, from the device and the port.
struct QpBounds {
  PathMtu active_mtu = PathMtu::k4096;
  std::uint32_t gid_count = 1;
  std::uint32_t max_rd_atomic = 128;
  std::uint32_t max_unacked = 256;
  std::uint32_t hardened = 0;        ///< Config::hardened
  std::uint64_t rnr_cap_ns = 0;      ///< 0: none
  std::uint64_t probe_floor_ns = 0;  ///< 0: no probes
  bool credits = false;              ///< Config::credits
  CongestionSettings congestion{};   ///< Config::congestion
};

/// One QP. IBA 10.3.1. What is particular to a transport is in QueuePairOf.
///
/// Its base is its place in the loop's doorbell list.
///
/// Threads: loop, except `doorbell` and the application sides of the queues.
class QueuePair : public MpscNode, public mem::InBlocks {
 public:
  QueuePair(Qpn qpn, std::uint32_t pd, const QpInitAttr& init, mem::KeyTable& keys, Counters& counters,
            CqRing& send_cq, CqRing& recv_cq, SharedReceives* shared)
      : ctx_(qpn, pd, init, keys, counters, send_cq, recv_cq, shared) {}
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  virtual ~QueuePair() = default;

  /// Moves the state machine or changes attributes. Changes nothing on failure.
  Status modify(const QpAttr& attr, std::uint32_t mask, const QpBounds& bounds);
  [[nodiscard]] QpAttr query() const noexcept;
  /// Whether a connected QP has taken anything that its peer sent since it was to receive.
  [[nodiscard]] bool has_heard() const noexcept {
    return state() >= QpState::kRtr && expected_psn() != ctx_.attr.rq_psn;
  }
  /// Switches on what the QP can do of these options of ece::kVendor, and nothing else; in Reset or Init.
  /// @return what that is
  std::uint32_t grant(std::uint32_t options);

  /// The way to the peer, before the first packet. @param path  outlives its use here
  void lead(Path& path) noexcept { ctx_.path = &path; }
  /// The peer can be reached through frames made from the path's template.
  virtual void set_resolved() noexcept = 0;

  /// A packet whose ICRC is right and whose destination is this QP.
  /// @param local  the port's address that the QP uses
  /// @return kRxRoce if it was processed, else the counter of its drop reason.
  virtual Count on_packet(const wire::PacketView& packet, const Gid& local, Ticks now) noexcept = 0;
  /// Sends requests, unless it is ready to answer and for nothing else, then responses. @return true if it
  /// ended for lack of budget or room: call again.
  virtual bool transmit(TxContext& tx) noexcept = 0;
  /// Sends requests only: what was posted just now. correct_times(), if they are wrong, and settle_requests()
  /// follow. @return whether that was all: the QP wants to send no more.
  virtual bool transmit_requests(TxContext& tx) noexcept = 0;
  /// What transmit_requests() sent as if at `assumed` has left at `actual`.
  virtual void correct_times(Ticks assumed, Ticks actual) noexcept = 0;
  /// Where the peer acknowledges: no more packets in flight than that until it has.
  virtual void narrow_window(std::uint32_t packets) noexcept = 0;
  virtual void settle_requests(Ticks now) noexcept = 0;
  /// What transmit_requests() sent as if at `assumed` has left behind that, at `latest` at the latest.
  virtual void postdate(Ticks assumed, Ticks latest) noexcept = 0;
  /// Sends responses only.
  virtual void answer(TxContext& tx) noexcept = 0;
  /// Under congestion control: a mark has come that the peer is to be told of.
  [[nodiscard]] bool owes_cnp() const noexcept { return ctx_.resolved && ctx_.congestion->marks.is_due(); }
  /// Tells it, if there is room.
  void send_cnp(TxContext& tx) noexcept;
  virtual void on_timer(Ticks now) noexcept = 0;
  [[nodiscard]] virtual Ticks deadline() const noexcept = 0;
  /// Whether transmit() would send something now.
  [[nodiscard]] virtual bool wants_transmit(Ticks now) const noexcept = 0;
  /// Whether that would be responses, which come of a request, or requests, which do not.
  [[nodiscard]] virtual bool wants_to_answer(Ticks now) const noexcept = 0;
  [[nodiscard]] virtual bool wants_to_send(Ticks now) const noexcept = 0;
  /// Whether that would be an ACK and nothing else.
  [[nodiscard]] virtual bool owes_only_ack(Ticks now) const noexcept = 0;
  /// Packets that are sent and not acknowledged.
  [[nodiscard]] virtual std::uint32_t in_flight() const noexcept = 0;
  /// RC: an idle peer is asked for signs of life from now on, and one that is silent for `silence_ns`, idle
  /// or not, ends the QP. 0: no more.
  void keep_alive(std::uint64_t silence_ns, Ticks now) noexcept;
  /// Whether the peer is to be asked now.
  [[nodiscard]] bool take_keepalive() noexcept { return std::exchange(keepalive_wanted_, false); }
  /// Asks it.
  virtual void send_keepalive(TxContext& tx) noexcept = 0;
  /// Work was posted: in Error or SQE it is flushed. @return whether it was
  [[nodiscard]] bool on_doorbell() noexcept;
  /// Application, behind a post of receives: whether the loop must look at it now. A post that just misses
  /// the move to Error is found by the recheck.
  [[nodiscard]] bool must_ring_for_receives() const noexcept {
    if (ctx_.credits.load(std::memory_order_relaxed)) [[unlikely]] {
      std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with Responder::set_out_of_credits
      if (ctx_.is_peer_out_of_credits.load(std::memory_order_relaxed)) return true;
    }
    return state() == QpState::kError;
  }

  /// Bits 1 << AsyncEventType that happened since the last call, kHasFailed and QpContext::kManyQueues.
  static constexpr std::uint32_t kHasFailed = 1U << 31;
  [[nodiscard]] std::uint32_t take_events() noexcept { return std::exchange(ctx_.events, 0); }
  /// Of what was taken, for the next time.
  void put_back_event(AsyncEventType event) noexcept { raise(event); }

  [[nodiscard]] QpContext& context() noexcept { return ctx_; }
  [[nodiscard]] const QpContext& context() const noexcept { return ctx_; }
  [[nodiscard]] QpState state() const noexcept { return ctx_.state.load(std::memory_order_relaxed); }

  std::atomic<bool> doorbell{false};  ///< in the loop's doorbell list

 protected:
  /// What every step ends with: the moves to Error and SQE if something failed, and the events of SQD and
  /// SRQ.
  void settle(Ticks now) noexcept {
    const bool is_calm =
        !ctx_.has_failed() && ctx_.send_fault == Fault::kNone && state() != QpState::kSqd && !ctx_.is_sharing;
    if (!is_calm) [[unlikely]]
      settle_what_happened(now);
  }
  /// A QP in RTR has its first packet.
  void note_established() noexcept;
  /// Flushes what was posted while the QP moved to Error; looks whether the peer is alive.
  void housekeeping(Ticks now) noexcept;

  // Congestion control, where it is on.
  void note_mark(const wire::PacketView& packet, Ticks now) noexcept;
  /// Also where it is off. @return kRxRoce if it was heeded.
  Count on_cnp(Ticks now) noexcept;

  QpContext ctx_;

 public:
  NextHop neighbour;  ///< the next hop that the loop holds for it; unset: none

 private:
  // The halves, as the state machine needs them.
  virtual void reset_halves() noexcept = 0;
  virtual void start_sending() noexcept = 0;
  virtual void start_receiving() = 0;
  /// The attributes of these bits have changed.
  virtual void take_attributes(std::uint32_t mask) = 0;
  virtual void flush_sends() noexcept = 0;
  virtual void flush_receives() noexcept = 0;
  virtual void drop_responses() noexcept = 0;
  [[nodiscard]] virtual bool is_drained() const noexcept = 0;
  [[nodiscard]] virtual Psn next_psn() const noexcept = 0;
  [[nodiscard]] virtual Psn expected_psn() const noexcept = 0;

  /// Ends the QP because of a silent peer.
  virtual void fail_silent() noexcept = 0;

  void settle_what_happened(Ticks now) noexcept;
  void look_for_peer(Ticks now) noexcept;
  void recheck_at(Ticks when) noexcept {
    error_recheck_ = when;
    ctx_.housekeeping_due = earlier(error_recheck_, keepalive_due_);
    ctx_.keeps_house = ctx_.housekeeping_due.is_set();
  }
  void apply(const QpAttr& attr, std::uint32_t mask);
  void enter(QpState to);
  void reset() noexcept;
  void report_drained() noexcept;
  void report_shared() noexcept;
  void fall_to_error() noexcept;
  void flush() noexcept;
  void raise(AsyncEventType event) noexcept { ctx_.events |= 1U << raw(event); }

  Ticks error_recheck_;
  Ticks keepalive_due_;
  std::uint64_t keepalive_ns_ = 0;  // between looks; 0: none
  std::uint32_t silent_looks_ = 0;  // in a row
  bool keepalive_wanted_ = false;
  bool drained_reported_ = false;  // or nobody wants to hear it
  bool established_reported_ = false;
  bool overflow_reported_ = false;
  bool last_wqe_reported_ = false;
};

}  // namespace uroce::transport
