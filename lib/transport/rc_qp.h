/// Reliable-connection queue pair: the state machine around requester and responder.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mpsc_list.h"
#include "base/timer_wheel.h"
#include "transport/context.h"
#include "transport/requester.h"
#include "transport/responder.h"
#include "uroce/async_event.h"
#include "uroce/result.h"

namespace uroce::transport {

/// What a modify() may hold up to, from the device and the port.
struct QpBounds {
  PathMtu active_mtu = PathMtu::k4096;
  std::uint32_t gid_count = 1;
  std::uint32_t max_rd_atomic = 128;
  std::uint32_t max_unacked = 256;
  std::uint32_t hardened = 0;    ///< Config::hardened
  std::uint64_t rnr_cap_ns = 0;  ///< 0: none
};

/// One RC QP. IBA 10.3.1, 9.7.
///
/// Its bases are the loop's: its place in the doorbell list and in the timer wheel.
///
/// Threads: loop, except `doorbell` and the application sides of the queues.
class RcQp : public MpscNode, public TimerNode {
 public:
  RcQp(Qpn qpn, std::uint32_t pd, const QpInitAttr& init, mem::KeyTable& keys, Counters& counters,
       CqRing& send_cq, CqRing& recv_cq)
      : ctx_(qpn, pd, init, keys, counters, send_cq, recv_cq), requester_(ctx_), responder_(ctx_) {}
  RcQp(const RcQp&) = delete;
  RcQp& operator=(const RcQp&) = delete;

  /// Moves the state machine or changes attributes. Changes nothing on failure.
  Status modify(const QpAttr& attr, std::uint32_t mask, const QpBounds& bounds);
  [[nodiscard]] QpAttr query() const noexcept;

  /// The peer can be reached through frames made from `head`.
  void set_resolved(const wire::FrameTemplate& head) noexcept;
  void set_unresolved() noexcept { ctx_.resolved = false; }

  /// A packet whose ICRC is right and whose destination QPN is this one.
  /// @return kRxRoce if it was processed, else the counter of its drop reason.
  Count on_packet(const wire::PacketView& packet, const Gid& local, Ticks now) noexcept;
  /// Sends requests, then responses. @return true if it ended for lack of budget or room: call again.
  bool transmit(TxContext& tx) noexcept;
  /// Sends requests only: what was posted just now.
  void transmit_requests(TxContext& tx) noexcept;
  /// Sends responses only.
  void answer(TxContext& tx) noexcept {
    if (ctx_.resolved && responder_.has_responses()) responder_.transmit(tx);
  }
  void on_timer(Ticks now) noexcept;
  [[nodiscard]] Ticks deadline() const noexcept { return earlier(requester_.deadline(), error_recheck_); }
  /// Whether transmit() would send something now.
  [[nodiscard]] bool wants_transmit(Ticks now) const noexcept {
    return ctx_.resolved ? responder_.has_responses() || requester_.gate(now) == Gate::kOpen
                         : requester_.gate(now) == Gate::kUnresolved && !requester_.deadline().is_set();
  }
  /// Work was posted to a QP in Error: flush it.
  void on_doorbell() noexcept;

  /// Bits 1 << AsyncEventType that happened since the last call.
  [[nodiscard]] std::uint32_t take_events() noexcept {
    const std::uint32_t events = events_;
    events_ = 0;
    return events;
  }

  [[nodiscard]] QpContext& context() noexcept { return ctx_; }
  [[nodiscard]] const QpContext& context() const noexcept { return ctx_; }
  [[nodiscard]] const Requester& requester() const noexcept { return requester_; }
  [[nodiscard]] const Responder& responder() const noexcept { return responder_; }
  [[nodiscard]] QpState state() const noexcept { return ctx_.state.load(std::memory_order_relaxed); }

  RcQp* next_ready = nullptr;         ///< the loop's list of QPs with packets to send
  bool is_ready = false;              ///< in that list
  std::atomic<bool> doorbell{false};  ///< in the loop's doorbell list

 private:
  void apply(const QpAttr& attr, std::uint32_t mask);
  void enter(QpState to) noexcept;
  void reset() noexcept;
  void settle(Ticks now) noexcept;
  void report_drained() noexcept;
  void fall_to_error() noexcept;
  void flush() noexcept;
  void raise(AsyncEventType event) noexcept { events_ |= 1U << raw(event); }
  [[nodiscard]] Count refuse(const wire::PacketView& packet, const Gid& local) const noexcept;

  QpContext ctx_;
  Requester requester_;
  Responder responder_;
  Ticks error_recheck_;
  std::uint32_t events_ = 0;
  bool drained_reported_ = false;
  bool established_reported_ = false;
  bool overflow_reported_ = false;
};

}  // namespace uroce::transport
