/// Scripts of a whole loop: frames with their tags and network headers go in, frames come out. Simulated
/// clock.
///
///   LinkScript link{{{gid("fe80::1"), 64}, {gid("10.0.0.1"), 24, 5}}};
///   link.rc(0x10, {.dgid = gid("10.0.0.2"), .sl = 3});
///   link.in(packet, link.from_peer(0x6005)).out(packet, link.to_peer(0x6005));
///
/// A RoCE packet or completion that nobody expected fails the test at the end, or at quiet().
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/poll_loop.h"
#include "support/script_memory.h"
#include "support/script_packet.h"
#include "transport/rc_qp.h"
#include "transport/unreliable_qp.h"

namespace uroce::test {

class LinkScript {
 public:
  static constexpr Qpn kPeer{0x22};
  static constexpr std::uint32_t kPd = 7;
  static constexpr std::uint32_t kQkey = 0x1111'1111;
  static constexpr MacAddress kOwnMac{{2, 0, 0, 0, 0, 1}};
  static constexpr MacAddress kPeerMac{{2, 0, 0, 0, 0, 2}};

  explicit LinkScript(const std::vector<engine::Address>& own);
  ~LinkScript();
  LinkScript(const LinkScript&) = delete;
  LinkScript& operator=(const LinkScript&) = delete;

  /// A QP in RTS towards QP kPeer of `path.dgid`, which has kPeerMac. Path MTU 1024.
  transport::RcQp& rc(std::uint32_t qpn, const AhAttr& path);
  /// A UD QP in RTS with kQkey, attached to `groups`.
  transport::UdQp& ud(std::uint32_t qpn, const std::vector<Gid>& groups = {});
  /// An address handle; its neighbour, if it has one, has kPeerMac.
  AhId handle(const AhAttr& attr);
  void remove(transport::QueuePair& qp);

  LinkScript& post(transport::QueuePair& qp, SendWr wr);
  LinkScript& post_send(transport::QueuePair& qp, std::uint32_t bytes);
  LinkScript& post_recv(transport::QueuePair& qp, std::uint32_t bytes);

  /// A frame of the peer; `packet` goes to the QP that it names.
  LinkScript& in(const Packet& packet, const wire::FrameAddress& address);
  LinkScript& in(const Bytes& frame);
  /// Likewise, and the counter, besides rx_roce, that alone says why nothing comes of it.
  LinkScript& in_refused(const Packet& packet, const wire::FrameAddress& address, Count reason);
  LinkScript& in_refused(const Bytes& frame, Count reason);

  /// The next RoCE packet that has left, in a frame that is `address` to the bit, with the ICRC of the
  /// standard's words. The UDP source port is not compared.
  LinkScript& out(const Packet& packet, const wire::FrameAddress& address);
  /// The next completion. Statuses other than success: status and wr_id alone are compared.
  LinkScript& completes(const Wc& expected);
  LinkScript& quiet();
  LinkScript& pass(std::uint64_t ns);
  [[nodiscard]] std::uint64_t counted(Count what) { return loop_.counters().get(what); }
  /// Frames other than RoCE that have left since the last call.
  std::vector<Bytes> others();

  [[nodiscard]] engine::PollLoop& loop() noexcept { return loop_; }

 private:
  class FramePort;

  void tell(const transport::NextHop& hop);
  LinkScript& run();
  [[nodiscard]] Ticks now() const noexcept { return Ticks{now_ns_}; }
  void expect_frame(const Bytes& frame, const wire::FrameAddress& address);

  mem::KeyTable keys_;
  transport::CqRing cq_{256};
  engine::Addresses addresses_;
  std::unique_ptr<FramePort> port_;
  engine::PollLoop loop_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::vector<std::unique_ptr<transport::QueuePair>> qps_;
  std::uint64_t next_wr_ = 1;
  std::uint64_t next_handle_ = 1;
  std::size_t recv_at_ = 0;
  std::deque<Bytes> sent_;  // RoCE
  std::vector<Bytes> others_;

 public:
  Area source;  ///< what is sent
  Area inbox;   ///< receives, one behind another
};

}  // namespace uroce::test
