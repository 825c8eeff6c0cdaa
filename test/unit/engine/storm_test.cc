// Storms of duplicates: what a loop answers, and that it still works.
#include <array>
#include <catch2/catch.hpp>

#include <deque>

#include "engine/poll_loop.h"
#include "support/frames.h"
#include "support/script_packet.h"
#include "transport/rc_qp.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr unsigned kQps = 4;

/// A port that shows a burst of frames in each iteration and counts what is answered in it, by QP.
class StormPort final : public port::Port {
 public:
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override {
    const auto count = static_cast<unsigned>(std::min(frames.size(), burst.size()));
    for (unsigned i = 0; i < count; ++i) {
      frames[i] = {burst[i]->data(), static_cast<std::uint32_t>(burst[i]->size())};
    }
    shown += count;
    burst.clear();
    return count;
  }
  void rx_release() noexcept override {}
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    room_len_ = len;
    return room_.data();
  }
  void tx_commit() noexcept override {
    wire::PacketView view;
    if (wire::parse_packet({room_.data(), room_len_}, view) != wire::ParseResult::kRoce) return;
    const unsigned qp = raw(view.bth.dest_qpn) % kQps;
    if (view.op->is_ack) {
      ++acks[qp];
      is_nak = is_nak || view.aeth().syndrome >= 0x20;
      newest_ack[qp] = view.bth.psn;
    } else {
      ++others[qp];
    }
  }
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  std::vector<const Bytes*> burst;
  std::uint64_t shown = 0;
  std::array<unsigned, kQps> acks{};    // of this iteration
  std::array<unsigned, kQps> others{};  // likewise
  std::array<Psn, kQps> newest_ack{};
  bool is_nak = false;

 private:
  port::PortInfo info_{.name = "storm", .mac = {{2, 0, 0, 0, 0, 1}}, .link_mtu = 4200};
  std::array<std::byte, 4400> room_{};
  std::uint32_t room_len_ = 0;
};

/// QPs at one loop that have taken some requests, and the frames of those.
class Storm {
 public:
  Storm() {
    memory_.resize(kQps * 4096);
    key_ = keys_
               .insert({.addr = std::bit_cast<std::uint64_t>(memory_.data()),
                        .length = memory_.size(),
                        .pd = 1,
                        .access = access::kAll})
               .value();
    for (unsigned i = 0; i < kQps; ++i) {
      qps_[i] =
          std::make_unique<transport::RcQp>(Qpn{0x40 + i}, 1, QpInitAttr{}, keys_, loop.counters(), cq_, cq_);
      loop.add(*qps_[i]);
      connect(*qps_[i], i);
      for (std::uint32_t psn = 0; psn < 16; ++psn) send(i);
      kept_ = frames_.size();
    }
  }
  ~Storm() {
    for (auto& qp : qps_) loop.remove(*qp, now_);
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

  /// Up to 32 of the frames that were taken, once more; then an iteration, and one that answers.
  void duplicates(Random& random) {
    for (unsigned i = 0; i < port::kBurst; ++i) port.burst.push_back(&frames_[random.below(kept_)]);
    iterate();
  }
  void iterate() {
    port.acks = {};
    port.others = {};
    loop.run_once(now_);
    now_ = now_ + 100;
  }
  /// A new request to QP `i`, in the middle of the storm. @return whether it was answered.
  bool serves(unsigned i) {
    const Psn psn = qps_[i]->responder().expected_psn();
    send(i);
    const bool answered = port.newest_ack[i] == psn || port.others[i] > 0;
    frames_.pop_back();
    return answered;
  }
  [[nodiscard]] std::uint64_t counter(unsigned i) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory_.data() + i * 4096, 8);
    return value;
  }

  StormPort port;
  engine::Addresses addresses{{{*Gid::parse("fe80::1"), 64}, {Gid::from_v4({10, 0, 0, 1}), 24}},
                              std::nullopt};
  engine::PollLoop loop{{}, port, addresses, 1'000'000'000};

 private:
  [[nodiscard]] static wire::FrameAddress from_peer() {
    wire::FrameAddress address = v4_address();
    std::swap(address.src_mac, address.dst_mac);
    std::swap(address.sgid, address.dgid);
    return address;
  }

  void connect(transport::RcQp& qp, unsigned i) {
    QpAttr attr;
    attr.dest_qpn = Qpn{0x80 + i};
    attr.dgid = v4_address().dgid;
    attr.sgid_index = 1;
    attr.access_flags = access::kAll;
    attr.max_dest_rd_atomic = 4;
    for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                      {QpState::kRtr, qp_attr::kRtrMask},
                                      {QpState::kRts, qp_attr::kRtsMask}}) {
      attr.state = state;
      REQUIRE(loop.modify(qp, attr, mask, {.gid_count = 2}, now_));
    }
    qp.context().path->head = wire::FrameTemplate{v4_address()};
    qp.set_resolved();
  }

  /// The next request to QP `i`: WRITEs, and SENDs, READs and additions between them.
  void send(unsigned i) {
    transport::RcQp& qp = *qps_[i];
    const Psn psn = qp.responder().expected_psn();
    const std::uint64_t base = std::bit_cast<std::uint64_t>(memory_.data()) + i * 4096;
    Packet packet{.opcode = wire::Opcode::kRcWriteOnly,
                  .psn = psn.value(),
                  .payload = 64,
                  .ack_req = true,
                  .reth = wire::Reth{.va = base + 64, .rkey = Rkey{key_}, .length = 64},
                  .dest_qpn = Qpn{0x40 + i}};
    switch (psn.value() % 8) {
      case 3:
        packet.opcode = wire::Opcode::kRcSendOnly;
        packet.payload = 0;
        REQUIRE(qp.context().receives.own.put({.wr_id = 1}, 0));
        qp.context().receives.own.publish(1);
        break;
      case 5:
        packet.opcode = wire::Opcode::kRcReadRequest;
        packet.payload = 0;
        break;
      case 6:
        packet.opcode = wire::Opcode::kRcFetchAdd;
        packet.payload = 0;
        packet.atomic = wire::AtomicEth{.va = base, .rkey = Rkey{key_}, .swap_add = 1};
        break;
      default:
        break;
    }
    frames_.push_back(frame_of(packet, from_peer(), {}));
    port.burst.push_back(&frames_.back());
    iterate();
    iterate();
    Wc wc;
    while (cq_.poll({&wc, 1}) == 1) REQUIRE(wc.ok());
    REQUIRE(qp.responder().expected_psn() == psn + 1);
  }

  mem::KeyTable keys_{1, [] {}};
  transport::CqRing cq_{256};
  std::vector<std::byte> memory_;
  std::uint32_t key_ = 0;
  std::array<std::unique_ptr<transport::RcQp>, kQps> qps_;
  std::deque<Bytes> frames_;
  std::size_t kept_ = 0;
  Ticks now_{1'000'000'000};
};

}  // namespace

TEST_CASE("two million duplicates get at most one ACK an iteration and QP, and do not keep others out",
          "[engine][loop][duplicate][T28]") {
  constexpr std::uint64_t kDuplicates = 2'000'000;
  constexpr std::uint64_t kSeed = 28;
  INFO("seed " << kSeed);
  Random random(kSeed);
  Storm storm;
  const auto& counters = storm.loop.counters();
  const std::uint64_t before = storm.port.shown;
  std::array<std::uint64_t, kQps> added{};
  for (unsigned i = 0; i < kQps; ++i) added[i] = storm.counter(i);
  std::uint64_t served = 0;
  for (std::uint64_t burst = 0; burst < kDuplicates / port::kBurst; ++burst) {
    storm.duplicates(random);
    for (unsigned i = 0; i < kQps; ++i) {
      // Each remembered READ and addition is answered once, however often it came.
      if (storm.port.acks[i] > 1 || storm.port.others[i] > 4)
        FAIL("burst " << burst << " got too many answers");
    }
    if (burst % 1000 == 999) {
      storm.iterate();
      REQUIRE(storm.serves(static_cast<unsigned>(random.below(kQps))));
      ++served;
    }
  }
  CHECK_FALSE(storm.port.is_nak);
  CHECK(storm.port.shown - before == kDuplicates + served);
  CHECK(counters.get(Count::kResponderDuplicateRequests) == kDuplicates);
  CHECK(counters.get(Count::kResponderMessages) == kQps * 16 + served);
  CHECK(counters.get(Count::kResponderAcks) > kDuplicates / port::kBurst * kQps / 2);
  CHECK(counters.get(Count::kResponderAcks) <= kDuplicates / port::kBurst * kQps + kQps * 16 + served);
}
