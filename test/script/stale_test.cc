// Old requests that come again, in millions and from far back.
#include <catch2/catch.hpp>

#include <array>

#include "base/random.h"
#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr std::uint32_t kMtu = 256;
constexpr std::uint64_t kSeed = 0x57a1e;

/// A port that only counts what leaves, by opcode.
class TallyPort final : public port::Port {
 public:
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame>) noexcept override { return 0; }
  void rx_release() noexcept override {}
  [[nodiscard]] std::byte* tx_claim(std::uint32_t) noexcept override { return room_.data(); }
  void tx_commit() noexcept override {
    ++by_opcode[std::to_integer<std::size_t>(room_[kBthAt])];
    if (room_[kBthAt] != static_cast<std::byte>(kRcAck)) return;
    syndrome = room_[kBthAt + wire::Bth::kSize];
    acked = wire::Bth::parse(wire::bytes_at<wire::Bth::kSize>(room_.data() + kBthAt)).psn;
  }
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  [[nodiscard]] std::uint64_t count(wire::Opcode opcode) const { return by_opcode[raw(opcode)]; }

  std::array<std::uint64_t, 256> by_opcode{};
  std::byte syndrome{};  ///< of the last ACK or NAK
  Psn acked;             ///< likewise

 private:
  static constexpr std::size_t kBthAt = 42;  // Ethernet, IPv4 and UDP before it
  port::PortInfo info_{.name = "tally", .link_mtu = 4200};
  std::array<std::byte, 4400> room_{};
};

/// A responder that has taken millions of packets, and frames that it took at all times.
class Veteran {
 public:
  explicit Veteran(std::uint32_t expected_psn)
      : qp({.mtu = kMtu, .expected_psn = expected_psn, .area_bytes = 4096}), psn_(expected_psn) {}

  /// One message of each kind, in order: all 17 request opcodes. The frames are kept.
  void take_one_of_each() {
    const auto write = [&](wire::Opcode opcode, std::uint32_t bytes) {
      return Packet{.opcode = opcode, .payload = bytes};
    };
    const auto atomic = [&](wire::Opcode opcode, std::size_t at) {
      return Packet{.opcode = opcode,
                    .atomic = wire::AtomicEth{.va = qp.target.addr(at),
                                              .rkey = qp.target.rkey(),
                                              .swap_add = opcode == kRcFetchAdd ? 1 : swapped_ + 1,
                                              .compare = swapped_}};
    };
    for (Packet packet : {write(kRcSendFirst, kMtu), write(kRcSendMiddle, kMtu), write(kRcSendLast, 4),
                          write(kRcSendFirst, kMtu), write(kRcSendLastImm, 4),   write(kRcSendFirst, kMtu),
                          write(kRcSendLastInv, 4),  write(kRcSendOnly, 4),      write(kRcSendOnlyImm, 4),
                          write(kRcSendOnlyInv, 4),  write(kRcWriteFirst, kMtu), write(kRcWriteMiddle, kMtu),
                          write(kRcWriteLast, 4),    write(kRcWriteFirst, kMtu), write(kRcWriteLastImm, 4),
                          write(kRcWriteOnly, 4),    write(kRcWriteOnlyImm, 4),  write(kRcReadRequest, 0),
                          atomic(kRcFetchAdd, 0),    atomic(kRcCompareSwap, 8)}) {
      complete(packet);
      packet.psn = psn_;
      packet.ack_req = true;
      kept_.push_back(frame_of(packet, qp.peer_address(), RcScript::kLocal));
      give(kept_.back());
      psn_ = (psn_ + 1) & 0xff'ffff;
    }
    swapped_ += 1;
    added_ += 1;
    answer();
    forget_completions();
  }

  /// Empty WRITEs, which nobody keeps.
  void grow_older(std::uint32_t packets) {
    if (filler_.empty()) {
      filler_ = frame_of({.opcode = kRcWriteOnly, .ack_req = false, .reth = own(qp, 0)}, qp.peer_address(),
                         RcScript::kLocal);
      REQUIRE(wire::parse_packet(filler_, filler_view_) == wire::ParseResult::kRoce);
    }
    for (; packets > 0; --packets) {
      filler_view_.bth.psn = Psn{psn_};
      if (qp.qp().on_packet(filler_view_, qp.peer_address().dgid, now()) != Count::kRxRoce) FAIL();
      psn_ = (psn_ + 1) & 0xff'ffff;
    }
  }

  /// The same request, each time with the next PSN, and its answers.
  void repeat(const Packet& packet, std::uint32_t times) {
    const Bytes frame = frame_of(packet, qp.peer_address(), RcScript::kLocal);
    wire::PacketView view;
    REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
    for (; times > 0; --times) {
      view.bth.psn = Psn{psn_};
      if (qp.qp().on_packet(view, qp.peer_address().dgid, now()) != Count::kRxRoce) FAIL();
      psn_ = (psn_ + 1) & 0xff'ffff;
      answer();
    }
  }

  /// One burst of kept frames, of any age. Responses leave behind it.
  void replay(Random& random, unsigned frames) {
    for (; frames > 0; --frames) give(kept_[random.below(kept_.size())]);
    answer();
  }

  void answer() {
    transport::TxContext tx{.port = port, .bulk = port, .now = now(), .budget = 10'000};
    if (qp.qp().transmit(tx)) FAIL("it could not say all");
  }

  [[nodiscard]] std::size_t kept() const { return kept_.size(); }
  [[nodiscard]] Psn oldest() const {
    wire::PacketView view;
    static_cast<void>(wire::parse_packet(kept_.front(), view));
    return view.bth.psn;
  }
  [[nodiscard]] std::uint64_t word(std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, qp.target.bytes().data() + at, 8);
    return value;
  }
  [[nodiscard]] std::uint64_t added() const { return added_; }
  [[nodiscard]] std::uint64_t swapped() const { return swapped_; }

  RcScript qp;
  TallyPort port;

 private:
  [[nodiscard]] Ticks now() const { return Ticks{2'000'000'000}; }

  /// Keys and lengths that are right, and a receive if it takes one.
  void complete(Packet& packet) {
    const wire::OpcodeInfo& op = wire::info(packet.opcode);
    if (op.takes_recv) {
      const Sge sge = qp.inbox.sge(0, 1024);
      REQUIRE(qp.qp().context().receives.own.put({.wr_id = 1, .sges = {&sge, 1}}, 0));
      qp.qp().context().receives.own.publish(1);
    }
    if (op.has_ieth) {
      packet.ieth = qp.keys()
                        .insert({.addr = qp.target.addr(),
                                 .length = 8,
                                 .pd = RcScript::kPd,
                                 .access = access::kInvalidatable})
                        .value();
      invalidated_.push_back(*packet.ieth);
    }
    if (packet.opcode == kRcWriteFirst) {
      const bool has_middle = writes_++ % 2 == 0;
      packet.reth = own(qp, (has_middle ? 2 : 1) * kMtu + 4, 1024);
    } else if (op.has_reth) {
      packet.reth = own(qp, 4, 1024);
    }
  }

  void give(const Bytes& frame) {
    wire::PacketView view;
    if (wire::parse_packet(frame, view) != wire::ParseResult::kRoce) FAIL("not a packet");
    if (qp.qp().on_packet(view, qp.peer_address().dgid, now()) != Count::kRxRoce) FAIL("refused");
  }

  void forget_completions() {
    qp.forget();
    for (const std::uint32_t key : invalidated_) qp.keys().remove(key);
    invalidated_.clear();
  }

  std::vector<Bytes> kept_;
  Bytes filler_;
  wire::PacketView filler_view_;
  std::vector<std::uint32_t> invalidated_;
  std::uint32_t psn_;
  std::uint32_t writes_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t swapped_ = 0;
};

}  // namespace

TEST_CASE(
    "requests of any kind that come again up to 2^22 PSNs later execute nothing and get one ACK a burst",
    "[rc][duplicate][atomic][T7][T28]") {
  // IBA 9.7.5.1.5 ?, 9.4.5: a million of them, over the PSN wrap
  constexpr std::uint32_t kRounds = 1024;
  constexpr std::uint32_t kRoundPackets = (1U << 22) / kRounds;
  constexpr std::uint32_t kReplays = 1'000'000;
  constexpr unsigned kBurst = 32;
  INFO("seed " << kSeed);
  Random random(kSeed);
  Veteran peer(0xe0'0000);
  std::memset(peer.qp.target.bytes().data(), 0, 16);
  const auto& counters = peer.qp.counters();
  std::uint64_t replayed = 0;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    peer.take_one_of_each();
    peer.grow_older(kRoundPackets - 20);
    peer.answer();
    const std::uint64_t messages = counters.get(Count::kResponderMessages);
    const Psn expected = peer.qp.qp().responder().expected_psn();
    std::memset(peer.qp.target.bytes().data() + 1024, 0x5e, 1024);  // what an executed WRITE would spoil
    std::memset(peer.qp.inbox.bytes().data(), 0x5e, 1024);
    for (std::uint32_t burst = 0; burst < kReplays / kRounds / kBurst + 1; ++burst) {
      const std::uint64_t acks = peer.port.count(kRcAck);
      peer.replay(random, kBurst);
      replayed += kBurst;
      if (peer.port.count(kRcAck) > acks + 1) FAIL("more than one ACK for a burst");
    }
    REQUIRE(counters.get(Count::kResponderMessages) == messages);
    REQUIRE(peer.qp.qp().responder().expected_psn() == expected);
    REQUIRE(peer.word(0) == peer.added());
    REQUIRE(peer.word(8) == peer.swapped());
    const auto is_untouched = [](std::byte byte) { return byte == std::byte{0x5e}; };
    const auto written = peer.qp.target.bytes().subspan(1024, 1024);
    const auto received = peer.qp.inbox.bytes().first(1024);
    REQUIRE(std::all_of(written.begin(), written.end(), is_untouched));
    REQUIRE(std::all_of(received.begin(), received.end(), is_untouched));
    peer.qp.quiet().is_in(QpState::kRts);
  }
  CHECK(replayed >= kReplays);
  CHECK(counters.get(Count::kResponderDuplicateRequests) == replayed);
  CHECK(distance(peer.qp.qp().responder().expected_psn(), peer.oldest()) == 1 << 22);
  CHECK(peer.port.syndrome == std::byte{0x1f});
  CHECK(counters.get(Count::kResponderSeqNaks) == 0);
}

TEST_CASE("an atomic that comes again long after it was forgotten is neither executed nor answered",
          "[rc][duplicate][atomic][T7]") {
  Veteran peer(0xff'fff0);
  std::memset(peer.qp.target.bytes().data(), 0, 16);
  for (int i = 0; i < 8; ++i) peer.take_one_of_each();
  const std::uint64_t answers = peer.port.count(kRcAtomicAck);
  Random random(kSeed);
  for (int i = 0; i < 1000; ++i) peer.replay(random, 32);
  const auto& counters = peer.qp.counters();
  // The last READ and the last three atomics are remembered (max_dest_rd_atomic is 4).
  CHECK(peer.port.count(kRcAtomicAck) > answers);
  CHECK(counters.get(Count::kResponderReplayedAtomics) > 0);
  CHECK(counters.get(Count::kResponderForgottenDuplicates) > 0);
  CHECK(peer.word(0) == peer.added());
  CHECK(peer.word(8) == peer.swapped());
  peer.qp.forget();
}

TEST_CASE("an ACK's PSN is never further behind than 2^22, whatever was taken since the last SEND or WRITE",
          "[rc][duplicate][atomic][placement]") {
  // One that was as far ahead as behind could be taken for an answer to what is on its way.
  constexpr std::uint32_t kOldest = 1U << 22;
  Veteran peer(0xe0'0000);
  peer.take_one_of_each();
  Packet packet{.opcode = kRcFetchAdd,
                .atomic = wire::AtomicEth{.va = peer.qp.target.addr(), .rkey = peer.qp.target.rkey()}};
  SECTION("atomics") {}
  SECTION("ATOMIC WRITEs") {
    packet = {.opcode = kRcAtomicWrite, .payload = 8, .reth = own(peer.qp, 8)};
  }
  SECTION("FLUSHes") {
    packet = {
        .opcode = kRcFlush, .feth = wire::Feth{.placement = wire::Feth::kGlobal}, .reth = own(peer.qp, 8)};
  }
  peer.repeat(packet, kOldest + 1000);
  Random random(kSeed);
  peer.replay(random, 32);
  const Psn expected = peer.qp.qp().responder().expected_psn();
  CHECK(span_from(expected, peer.port.acked) <= kOldest);
  peer.qp.quiet().is_in(QpState::kRts);
}
