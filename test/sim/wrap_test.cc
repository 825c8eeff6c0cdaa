// All 2^24 PSNs of a QP, really sent, with losses all the way.
#include <catch2/catch.hpp>

#include "support/frames.h"
#include "transport/rc_qp.h"

using namespace uroce;
using namespace uroce::test;

namespace {

/// Frames on their way from one QP to the other; one in 1000 is lost.
class Pipe final : public port::Port {
 public:
  explicit Pipe(std::uint64_t seed) : random_(seed) {}

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
    if (random_.below(1000) != 0) ++count_;
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

 private:
  struct Frame {
    std::uint32_t len = 0;
    std::byte bytes[124];
  };
  static constexpr std::size_t kFrames = 512;
  Random random_;
  port::PortInfo info_{.name = "pipe", .link_mtu = 4200};
  std::vector<Frame> frames_ = std::vector<Frame>(kFrames);
  std::size_t count_ = 0;
};

struct Side {
  Side(Qpn own, Qpn peer, bool flip, mem::KeyTable& keys, std::uint64_t seed)
      : qp(own, 1, {.max_send_wr = 128, .sq_sig_all = false}, keys, counters, cq, cq), pipe(seed) {
    wire::FrameAddress address = v4_address();
    if (flip) std::swap(address.sgid, address.dgid);
    local = address.sgid;
    QpAttr attr;
    attr.dest_qpn = peer;
    attr.dgid = address.dgid;
    attr.sq_psn = attr.rq_psn = Psn{0x12'3456};
    attr.access_flags = access::kAll;
    attr.timeout = 4;
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      REQUIRE(qp.modify(attr, mask, {.gid_count = 2}).has_value());
    }
    qp.set_resolved(wire::FrameTemplate{address});
  }

  void turn(Side& other, Ticks now) {
    if (qp.deadline().is_set() && qp.deadline() <= now) qp.on_timer(now);
    for (int i = 0; i < 16; ++i) {
      transport::TxContext tx{.port = pipe, .now = now, .budget = 64};
      if (!qp.transmit(tx)) break;
    }
    pipe.drain(other.qp, other.local, now);
  }

  Counters counters;
  transport::CqRing cq{512};
  transport::RcQp qp;
  Pipe pipe;
  Gid local;
};

}  // namespace

TEST_CASE("a QP goes through all of its PSNs", "[sim][T6]") {
  constexpr std::uint64_t kMessages = (1U << 24) + 100'000;
  mem::KeyTable keys(1, [] {});
  alignas(8) std::uint64_t counter = 0;
  std::uint64_t original = 0;
  const Rkey rkey{
      keys.insert(
              {.addr = std::bit_cast<std::uint64_t>(&counter), .length = 8, .pd = 1, .access = access::kAll})
          .value()};
  const Sge sge{std::bit_cast<std::uint64_t>(&original), 8,
                Lkey{keys.insert({.addr = std::bit_cast<std::uint64_t>(&original),
                                  .length = 8,
                                  .pd = 1,
                                  .access = access::kLocalWrite})
                         .value()}};
  Side a(Qpn{1}, Qpn{2}, false, keys, 1), b(Qpn{2}, Qpn{1}, true, keys, 2);
  std::uint64_t posted = 0, completed = 0, added = 0;
  Ticks now{1'000'000};
  for (std::uint64_t turns = 0; completed < kMessages; ++turns) {
    REQUIRE(turns < kMessages);             // or it hangs
    for (; posted < kMessages; ++posted) {  // empty WRITEs, now and then an atomic
      const bool atomic = posted % 997 == 0;
      const SendWr wr{
          .wr_id = posted,
          .sges = {&sge, atomic ? 1U : 0U},
          .opcode = atomic ? WrOpcode::kAtomicFetchAndAdd : WrOpcode::kRdmaWrite,
          .flags = posted % 64 == 63 || posted + 1 == kMessages ? send_flag::kSignaled : std::uint8_t{0},
          .remote_addr = std::bit_cast<std::uint64_t>(&counter),
          .rkey = rkey,
          .compare_add = 1};
      if (!a.qp.context().sq.put(wr, 0)) break;
      a.qp.context().sq.publish(1);
      added += atomic ? 1 : 0;
    }
    a.turn(b, now);
    b.turn(a, now);
    now = now + 10'000;
    Wc wc;
    while (a.cq.poll({&wc, 1}) == 1) {
      if (!wc.ok() || wc.wr_id < completed) FAIL("a completion out of order or failed");
      completed = wc.wr_id + 1;
    }
  }
  CHECK(counter == added);
  CHECK(b.counters.get(Count::kResponderMessages) == kMessages);
  CHECK(a.pipe.sent > kMessages);
  CHECK(a.qp.requester().next_psn() == Psn{0x12'3456 + static_cast<std::uint32_t>(kMessages)});
}
