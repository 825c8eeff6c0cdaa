/// Packet scripts: time, what goes in, what must come out. One endpoint, simulated clock.
///
///   RcScript qp{{.mtu = 1024, .first_psn = 0xff'fffe}};
///   qp.at(0us).post_write(2148);
///   qp.out({kRcWriteFirst, 0xff'fffe, 1024});
///   ...
///   qp.at(9us).in(Ack{0}).completes(1);
///
/// A packet, completion or event that nobody expected fails the test at the next at() or at the end.
#pragma once

#include <chrono>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "support/capture_port.h"
#include "support/script_memory.h"
#include "support/script_packet.h"
#include "transport/rc_qp.h"
#include "transport/unreliable_qp.h"
#include "transport/xrc_domain.h"
#include "transport/xrc_qp.h"

namespace uroce::test {

/// All rights that a peer can have.
inline constexpr std::uint32_t kAllRights = access::kAll | access::kFlushGlobal | access::kFlushPersistent;

/// The QP under test and the work it may do.
struct ScriptConfig {
  QpType type = QpType::kRc;
  std::uint32_t mtu = 1024;        ///< bytes
  std::uint32_t first_psn = 0;     ///< of the requester
  std::uint32_t expected_psn = 0;  ///< of the responder
  QpState state = QpState::kRts;   ///< to begin with
  std::uint8_t max_rd_atomic = 4;
  std::uint8_t max_dest_rd_atomic = 4;
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t timeout = 14;  ///< 67 ms
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint32_t max_unacked = 256;  ///< packets
  std::uint32_t hardened = 0;       ///< Config::hardened
  std::uint64_t rnr_cap_ns = 0;
  std::uint64_t probe_floor_ns = 0;  ///< Config::probe_us; 0: no probes
  bool credits = false;              ///< Config::credits
  transport::CongestionSettings congestion{};
  std::uint32_t ece = 0;  ///< options that are switched on
  std::uint32_t access_flags = kAllRights;
  bool sig_all = true;
  std::uint32_t send_wrs = 64;
  std::uint32_t recv_wrs = 64;
  std::uint32_t sges = 4;
  std::uint32_t inline_bytes = 256;
  std::uint32_t cqes = 1024;
  bool v6 = false;
  bool resolved = true;
  std::uint32_t qkey = 0x1111'1111;    ///< UD
  std::uint32_t shared_wrs = 0;        ///< receives come from a shared queue of so many; 0: from its own
  std::size_t area_bytes = 64 * 1024;  ///< of each of the four areas
};

/// What an XRC target has besides: the domain, with the script's shared queue, number 1, and another one,
/// number 2, which completes in a CQ of its own and belongs to another protection domain.
struct XrcSide {
  transport::CqRing other_cq{64};
  transport::SharedReceives other;
  transport::XrcDomain domain;

  explicit XrcSide(std::uint32_t pd) : other(2, pd, 8, 4) {}
};

/// In scripts of XRC QPs packets are written with the opcodes of RC; requests name queue 1 unless they say
/// otherwise.
class RcScript {
 public:
  static constexpr Qpn kLocal{0x11};
  static constexpr Qpn kPeer{0x22};
  static constexpr std::uint32_t kPd = 7;
  static constexpr std::uint32_t kOtherPd = 8;
  static constexpr std::uint64_t kRemoteVa = 0x1000'0000;  ///< what posted RDMA work requests name
  static constexpr Rkey kRemoteKey{0x00ab'cd01};
  static constexpr AhId kPeerHandle{1ULL << 32};
  static constexpr AhId kForeignHandle{1ULL << 32 | 1};  ///< of another protection domain

  explicit RcScript(const ScriptConfig& config = {});
  ~RcScript();
  RcScript(const RcScript&) = delete;
  RcScript& operator=(const RcScript&) = delete;

  /// Moves the clock, doing what falls due on the way.
  RcScript& at(std::chrono::nanoseconds time);
  /// Moves the clock without looking at timers, as a loop does that is late for them. The next at() looks.
  RcScript& late_at(std::chrono::nanoseconds time);

  // What the application does. Work requests are numbered from 1, sends and receives apart. Data come from
  // the start of `source`, READ and atomic results go to the start of `sink`, receives to `inbox`, one behind
  // another.
  RcScript& keep_alive(std::chrono::nanoseconds silence);
  RcScript& post(SendWr wr);
  RcScript& post_send(std::uint32_t bytes, std::uint8_t flags = 0);
  RcScript& post_write(std::uint32_t bytes, std::uint8_t flags = 0);
  RcScript& post_read(std::uint32_t bytes, std::uint8_t flags = 0);
  RcScript& post_swap(std::uint64_t compare, std::uint64_t swap, std::uint8_t flags = 0);
  RcScript& post_add(std::uint64_t addend, std::uint8_t flags = 0);
  RcScript& post_masked(WrOpcode opcode, std::uint64_t compare_add, std::uint64_t swap,
                        const AtomicMasks& masks);
  RcScript& post_atomic_write(std::uint8_t flags = 0);
  RcScript& post_flush(const FlushWr& flush, std::uint8_t flags = 0);
  RcScript& post_datagram(std::uint32_t bytes, std::uint32_t qkey, std::uint8_t flags = 0);
  RcScript& post_recv(std::uint32_t bytes);
  RcScript& post_recv(std::span<const Sge> sges);
  /// To the shared receive queue.
  RcScript& post_shared(std::uint32_t bytes);
  /// Several posts that the loop sees at once.
  template <typename F>
  RcScript& together(F&& posts) {
    is_held_ = true;
    posts(*this);
    is_held_ = false;
    return ring();
  }
  [[nodiscard]] Status modify(const QpAttr& attr, std::uint32_t mask);
  RcScript& move_to(QpState state);

  // What the peer does.
  RcScript& in(const Packet& packet) { return in({packet}); }
  /// Packets that arrive in one burst.
  RcScript& in(std::initializer_list<Packet> packets);
  /// One packet, and the counter of the reason for which it must be refused.
  RcScript& in_refused(const Packet& packet, Count reason);
  RcScript& in_from(const wire::FrameAddress& address, const Packet& packet, Count reason);

  // What must have happened, in this order for each kind.
  RcScript& out(const Packet& packet);
  RcScript& completes(std::uint64_t wr_id, WcStatus status = WcStatus::kSuccess);
  RcScript& completes(const Wc& wc);
  RcScript& receives(std::uint64_t wr_id, std::uint32_t bytes);
  RcScript& receives(std::uint64_t wr_id, WcStatus status);
  RcScript& receives(const Wc& wc);
  RcScript& raises(AsyncEventType event);
  /// Nothing that was not asked for.
  RcScript& quiet();
  RcScript& is_in(QpState state);
  RcScript& counted(Count what, std::uint64_t times);

  [[nodiscard]] wire::FrameAddress peer_address() const;
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept { return now_; }
  /// When the last packet left that out() took.
  [[nodiscard]] std::chrono::nanoseconds left_at() const noexcept { return left_at_; }
  /// Packets that have left and were not taken yet.
  [[nodiscard]] std::size_t waiting() const noexcept { return sent_.size(); }
  /// The next packet that has left, whatever it is.
  Bytes take_frame();
  /// Forgets all that has happened unasked.
  RcScript& forget();
  /// Of RC scripts.
  [[nodiscard]] transport::RcQp& qp() noexcept { return static_cast<transport::RcQp&>(*qp_); }
  [[nodiscard]] transport::QpContext& context() noexcept { return qp_->context(); }
  [[nodiscard]] transport::SharedReceives& shared() noexcept { return *shared_; }
  /// What the last packets have left of QueuePair::take_events().
  [[nodiscard]] std::uint32_t notes() const noexcept { return notes_; }
  [[nodiscard]] XrcSide& xrc() noexcept { return *xrc_; }
  [[nodiscard]] transport::AddressHandles& handles() noexcept { return handles_; }
  [[nodiscard]] mem::KeyTable& keys() noexcept { return keys_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] CapturePort& port() noexcept { return port_; }
  /// Lets the QP send what it can: the port has room again.
  RcScript& transmit();

 private:
  struct Sent {
    Bytes frame;
    std::chrono::nanoseconds time{};
  };
  struct Event {
    AsyncEventType type{};
    std::chrono::nanoseconds time{};
  };

  void connect(const ScriptConfig& config);
  [[nodiscard]] Packet spoken(Packet packet) const;
  [[nodiscard]] std::unique_ptr<transport::QueuePair> make_qp(const ScriptConfig& config);
  RcScript& ring();
  void pump();
  void collect();
  void run_timers(std::chrono::nanoseconds until);
  [[nodiscard]] Ticks ticks() const noexcept;
  Wc next_completion(transport::CqRing& cq, std::deque<Wc>& taken, const char* kind);
  [[nodiscard]] std::string surprises();

  std::chrono::nanoseconds now_{0};
  std::chrono::nanoseconds left_at_{0};
  mem::KeyTable keys_;
  Counters counters_;
  transport::CqRing send_cq_;
  transport::CqRing recv_cq_;
  transport::AddressHandles handles_;
  transport::Path path_;
  std::unique_ptr<transport::SharedReceives> shared_;
  std::unique_ptr<XrcSide> xrc_;
  std::unique_ptr<transport::QueuePair> qp_;
  transport::QpBounds bounds_;
  CapturePort port_;
  bool v6_ = false;
  bool is_held_ = false;
  std::uint32_t notes_ = 0;
  std::uint64_t next_send_id_ = 1;
  std::uint64_t next_recv_id_ = 1;
  std::size_t recv_at_ = 0;
  std::deque<Sent> sent_;
  std::deque<Wc> sends_done_;
  std::deque<Wc> receives_done_;
  std::deque<Event> events_;

 public:
  Area source;  ///< may be read locally only
  Area sink;    ///< local write
  Area inbox;   ///< local write
  Area target;  ///< all rights
};

}  // namespace uroce::test
