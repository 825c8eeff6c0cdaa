/// Two QPs joined by lossy pipes, without loops: for what needs every single step in hand.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "base/random.h"
#include "support/frames.h"
#include "transport/rc_qp.h"

namespace uroce::test {

/// Frames on their way from one QP to the other; one in `lost_one_in` is lost, none if 0.
class Pipe final : public port::Port {
 public:
  /// Sees each packet when it is sent, before it may get lost.
  using Observer = std::function<void(const wire::PacketView&)>;

  Pipe(std::uint64_t seed, std::uint32_t lost_one_in) : random_(seed), lost_one_in_(lost_one_in) {}

  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame>) noexcept override { return 0; }
  void rx_release() noexcept override {}
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    if (count_ == kFrames || len > sizeof(Frame::bytes)) return nullptr;
    frames_[count_].len = len;
    return frames_[count_].bytes;
  }
  void tx_commit() noexcept override {
    ++sent;
    if (observer) {
      wire::PacketView view;
      static_cast<void>(wire::parse_packet({frames_[count_].bytes, frames_[count_].len}, view));
      observer(view);
    }
    if (lost_one_in_ == 0 || random_.below(lost_one_in_) != 0) ++count_;
  }
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  /// Delivers all that is on its way.
  void drain(transport::RcQp& to, const Gid& local, Ticks now) {
    for (std::size_t i = 0; i < count_; ++i) {
      wire::PacketView view;
      if (wire::parse_packet({frames_[i].bytes, frames_[i].len}, view) != wire::ParseResult::kRoce) FAIL();
      if (!wire::icrc_ok(view) || to.on_packet(view, local, now) != Count::kRxRoce) FAIL();
    }
    count_ = 0;
  }

  std::uint64_t sent = 0;
  Observer observer;

 private:
  struct Frame {
    std::uint32_t len = 0;
    std::byte bytes[380];  // 256 bytes of payload and all headers
  };
  static constexpr std::size_t kFrames = 512;
  Random random_;
  std::uint32_t lost_one_in_;
  port::PortInfo info_{.name = "pipe", .link_mtu = 4200};
  std::vector<Frame> frames_ = std::vector<Frame>(kFrames);
  std::size_t count_ = 0;
};

struct SideConfig {
  Qpn own{1};
  Qpn peer{2};
  bool is_second = false;  ///< has the other address
  std::uint64_t seed = 1;  ///< of its losses
  std::uint32_t lost_one_in = 0;
  std::uint32_t first_psn = 0x12'3456;  ///< both ways
  std::uint32_t ece = 0;                ///< options that both have switched on
  QpInitAttr init = {.max_send_wr = 128, .sq_sig_all = false};
};

/// One QP, connected, and the pipe for what it sends. Path MTU 256, ack timeout 65 us.
struct Side {
  Side(const SideConfig& config, mem::KeyTable& keys)
      : qp(config.own, 1, config.init, keys, counters, cq, cq), pipe(config.seed, config.lost_one_in) {
    wire::FrameAddress address = v4_address();
    if (config.is_second) std::swap(address.sgid, address.dgid);
    local = address.sgid;
    QpAttr attr;
    attr.path_mtu = PathMtu::k256;
    attr.dest_qpn = config.peer;
    attr.dgid = address.dgid;
    attr.sq_psn = attr.rq_psn = Psn{config.first_psn};
    attr.access_flags = access::kAll;
    attr.timeout = 4;
    attr.min_rnr_timer = 1;
    qp.grant(config.ece);
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      REQUIRE(qp.modify(attr, mask, {.gid_count = 2}).has_value());
    }
    path.to.dgid = address.dgid;
    path.head = wire::FrameTemplate{address};
    qp.lead(path);
    qp.set_resolved();
  }

  void turn(Side& other, Ticks now) {
    if (qp.deadline().is_set() && qp.deadline() <= now) qp.on_timer(now);
    for (int i = 0; i < 16; ++i) {
      transport::TxContext tx{.port = pipe, .bulk = pipe, .now = now, .budget = 64};
      if (!qp.transmit(tx)) break;
    }
    pipe.drain(other.qp, other.local, now);
  }

  Counters counters;
  transport::Path path;
  transport::CqRing cq{512};
  transport::RcQp qp;
  Pipe pipe;
  Gid local;
};

}  // namespace uroce::test
