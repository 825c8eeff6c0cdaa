/// Queue pairs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "uroce/cq.h"
#include "uroce/ece.h"
#include "uroce/mw.h"
#include "uroce/pd.h"
#include "uroce/qp_attr.h"
#include "uroce/srq.h"
#include "uroce/wr.h"
#include "uroce/xrcd.h"

namespace uroce {

namespace engine {
class LoopRunner;
}
namespace transport {
class QueuePair;
}

/// Queue pair: a send and a receive ring into the poll loop that owns its transport
/// state.
///
/// Threads: post_send() from one application thread at a time, post_recv() likewise; everything else from any
/// control thread. Lifetime: movable handle; destruction returns once the loop has let go (one iteration);
/// completions that were not polled are removed, but for those of an XRC target: they stay in its SRQs' CQs.
class Qp {
 public:
  /// Creates a QP in state Reset.
  /// @return kInvalid if `attr` exceeds Device::limits(), its type is made by another create(), or one of the
  ///   others is of another device; kUnsupported for a type that there is not; kOtherLoop if its CQs and SRQ
  ///   are not of one loop; kLimit if the device has Config::max_qp QPs, or the loop no number left;
  ///   kNoMemory if memory ran out.
  ///   Of an XRC_SEND QP max_recv_wr and max_recv_sge mean nothing: it receives nothing.
  static Result<Qp> create(Pd& pd, Cq& send_cq, Cq& recv_cq, const QpInitAttr& attr);
  /// Likewise, with receives from `srq`; max_recv_wr and max_recv_sge mean nothing then, and post_recv()
  /// takes nothing.
  static Result<Qp> create(Pd& pd, Cq& send_cq, Cq& recv_cq, Srq& srq, const QpInitAttr& attr);
  /// The receiving end of an XRC connection: `attr.type` is QpType::kXrcRecv, and the rest of it means
  /// nothing. It takes receives from every Srq of `domain`, and posts nothing.
  static Result<Qp> create(Xrcd& domain, const QpInitAttr& attr);
  Qp(Qp&&) noexcept;
  Qp& operator=(Qp&&) noexcept;
  ~Qp();

  /// Moves the state machine or changes attributes, with the masks of IBA table 91 / ibv_modify_qp(3).
  /// @return kInvalid for a missing or forbidden attribute or an illegal move; kNoMemory; the QP is then
  /// unchanged.
  Status modify(const QpAttr& attr, std::uint32_t mask);
  /// Reset -> Init -> RTR -> RTS with every attribute taken from `attr`. `attr.state` is ignored.
  Status connect(const QpAttr& attr);
  [[nodiscard]] QpAttr query() const;

  /// Posts `wrs` in order. Wait-free; neither allocates nor throws.
  /// @param least  from 1: if fewer can be taken, none is posted, and the answer is how many could be
  /// @return how many were taken; fewer than wrs.size() means: ring full, too many SGEs, too much inline data
  /// or a state that takes no sends (Reset, Init, RTR).
  [[nodiscard]] std::size_t post_send(std::span<const SendWr> wrs, std::size_t least = 1) noexcept;
  [[nodiscard]] std::size_t post_recv(std::span<const RecvWr> wrs) noexcept;
  [[nodiscard]] bool post_send(const SendWr& wr) noexcept { return post_send(std::span{&wr, 1}) == 1; }
  [[nodiscard]] bool post_recv(const RecvWr& wr) noexcept { return post_recv(std::span{&wr, 1}) == 1; }

  /// Posts a bind of a window of type 1, which is of the QP's PD; see Mw. `flags` are send_flag bits.
  /// @return the window's key once the bind is done; kInvalid for a window of another type, kBadState if the
  /// bind cannot be posted now.
  Result<Rkey> bind_mw(Mw& mw, const MwBind& bind, std::uint64_t wr_id, std::uint8_t flags = 0);

  /// UD: takes part in a multicast group, an IPv4 one (::ffff:224.0.0.0/100) or an IPv6 one (ff00::/8). Every
  /// datagram to the group that carries this QP's Q_Key completes one of its receives; so do those of other
  /// QPs of the device, and its own unless QpInitAttr::block_own_multicast says no. The device reports its
  /// membership by IGMP or MLD, in every VLAN that it has an address in, while any QP is attached; groups
  /// that are never reported are 224.0.0.1, ff02::1 and IPv6 ones that stay within a node. To send, use an Ah
  /// with the group as dgid and remote_qpn 0xffffff; that needs no attachment. Attaching again changes
  /// nothing; destruction detaches. IBA 10.5, ibv_attach_mcast(3).
  ///
  /// @return kInvalid: not a UD QP, or not a group; kLimit: beyond Limits::max_mcast_grp or
  /// max_mcast_qp_attach; kNoMemory.
  Status attach_multicast(const Gid& group);
  /// @return kInvalid: not a UD QP, or not attached.
  Status detach_multicast(const Gid& group);
  /// Whether it is attached to any group.
  [[nodiscard]] bool is_in_multicast() const;

  /// Asks for options beyond the standard that both ends must know; only in Reset and Init. As
  /// ibv_set_ece(3). What is granted of them is switched on; see uroce/ece.h.
  /// @return kBadState later on, kNoMemory.
  Status set_ece(const Ece& asked);
  /// Those that this end grants, under the vendor that asked for them; none but those of ece::kVendor.
  [[nodiscard]] Ece query_ece() const noexcept;

  [[nodiscard]] Qpn qpn() const noexcept;                 ///< unique per Device
  [[nodiscard]] const QpInitAttr& attr() const noexcept;  ///< capacities as granted
  /// What is rare: packets that were sent again, timeouts, NAKs, CNPs, duplicates, refusals. In a fixed
  /// order, under the names that Device::counters() has for all QPs together; each is a number of packets or
  /// events since the QP was created or last moved to Reset. From any thread; its loop does nothing for it.
  [[nodiscard]] std::vector<Counter> counters() const;
  /// Why nobody may be found at the address of its peer, known from RTR on: that is in no prefix of the port
  /// and no gateway leads to it. It is asked for on the link. One sentence; empty if there is a route.
  [[nodiscard]] std::string route_trouble() const;
  /// Why the QP is in Error, one sentence; empty otherwise.
  [[nodiscard]] std::string error_text() const;

  struct Impl;
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  friend Result<Qp> make_gsi_qp(Pd& pd, Cq& cq, const QpInitAttr& attr);
  static Result<Qp> make(Pd& pd, Cq& send_cq, Cq& recv_cq, Srq* srq, const QpInitAttr& attr);
  explicit Qp(std::unique_ptr<Impl> impl) noexcept;
  void take(Qp& other) noexcept;
  std::unique_ptr<Impl> impl_;
  // Of `impl_`: a post has no need of its cache line.
  transport::QueuePair* queue_pair_ = nullptr;
  engine::LoopRunner* runner_ = nullptr;
};

}  // namespace uroce
