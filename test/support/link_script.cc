#include "support/link_script.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "support/given_frames.h"
#include "support/reference_icrc.h"
#include "wire/arp.h"
#include "wire/describe.h"
#include "wire/multicast.h"
#include "wire/nd.h"

namespace uroce::test {

/// Keeps what the loop sends, and shows it what the script gives.
class LinkScript::FramePort final : public port::Port {
 public:
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return info_; }
  unsigned rx_burst(std::span<port::RxFrame> frames) noexcept override { return given.show(frames); }
  void rx_release() noexcept override {}
  [[nodiscard]] std::byte* tx_claim(std::uint32_t len) noexcept override {
    claimed_.assign(len, std::byte{0xee});
    return claimed_.data();
  }
  void tx_commit() noexcept override { sent.push_back(std::move(claimed_)); }
  void tx_flush() noexcept override {}
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  GivenFrames given;
  std::deque<Bytes> sent;

 private:
  port::PortInfo info_{.name = "script", .mac = kOwnMac, .link_mtu = 4200};
  Bytes claimed_;
};

namespace {

constexpr std::uint64_t kAskNs = 100'000'000;
constexpr std::size_t kAreaBytes = 16 * 1024;

}  // namespace

LinkScript::LinkScript(const std::vector<engine::Address>& own)
    : keys_(1, [] {}),
      addresses_(own, std::nullopt),
      port_(std::make_unique<FramePort>()),
      loop_({}, *port_, addresses_, kAskNs),
      source(keys_, kPd, kAreaBytes, 0, 0x10),
      inbox(keys_, kPd, kAreaBytes, access::kLocalWrite, 0x90) {}

LinkScript::~LinkScript() {
  CHECK(sent_.empty());
  Wc wc;
  CHECK(cq_.poll({&wc, 1}) == 0);
  CHECK(source.is_untouched());
  CHECK(inbox.is_untouched_but(0, kAreaBytes));
  for (auto& qp : qps_) loop_.remove(*qp, now());
}

transport::RcQp& LinkScript::rc(std::uint32_t qpn, const AhAttr& path) {
  auto made = std::make_unique<transport::RcQp>(Qpn{qpn}, kPd, QpInitAttr{.sq_sig_all = true}, keys_,
                                                loop_.counters(), cq_, cq_);
  transport::RcQp& qp = *made;
  qps_.push_back(std::move(made));
  loop_.add(qp);
  QpAttr attr{.path_mtu = PathMtu::k1024,
              .dest_qpn = kPeer,
              .access_flags = access::kAll,
              .dgid = path.dgid,
              .sgid_index = path.sgid_index,
              .traffic_class = path.traffic_class,
              .hop_limit = path.hop_limit,
              .flow_label = path.flow_label,
              .sl = path.sl};
  const transport::QpBounds bounds{.active_mtu = PathMtu::k4096,
                                   .gid_count = static_cast<std::uint32_t>(addresses_.own().size())};
  for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kInitMask},
                                    {QpState::kRtr, qp_attr::kRtrMask},
                                    {QpState::kRts, qp_attr::kRtsMask}}) {
    attr.state = state;
    REQUIRE(loop_.modify(qp, attr, mask, bounds, now()));
  }
  if (qp.neighbour.is_set()) tell(qp.neighbour);
  REQUIRE(qp.context().resolved);
  return qp;
}

transport::UdQp& LinkScript::ud(std::uint32_t qpn, const std::vector<Gid>& groups) {
  auto made = std::make_unique<transport::UdQp>(
      Qpn{qpn}, kPd, QpInitAttr{.type = QpType::kUd, .sq_sig_all = true, .block_own_multicast = true}, keys_,
      loop_.counters(), cq_, cq_);
  transport::UdQp& qp = *made;
  qps_.push_back(std::move(made));
  loop_.add(qp);
  QpAttr attr{.qkey = kQkey};
  for (const auto& [state, mask] : {std::pair{QpState::kInit, qp_attr::kUdInitMask},
                                    {QpState::kRtr, qp_attr::kState},
                                    {QpState::kRts, qp_attr::kUnreliableRtsMask}}) {
    attr.state = state;
    REQUIRE(loop_.modify(qp, attr, mask, {.active_mtu = PathMtu::k4096}, now()));
  }
  for (const Gid& group : groups) loop_.attach(group, 0, &qp, now());
  run();
  return qp;
}

AhId LinkScript::handle(const AhAttr& attr) {
  const AhId id{std::uint64_t{1} << 32 | next_handle_++};
  loop_.add_handle(id, kPd, attr, now());
  if (!attr.dgid.is_multicast()) tell(addresses_.next_hop(attr.dgid, attr.sgid_index));
  return id;
}

void LinkScript::remove(transport::QueuePair& qp) {
  loop_.remove(qp, now());
  std::erase_if(qps_, [&](const auto& one) { return one.get() == &qp; });
}

/// "That address is at kPeerMac", in its VLAN.
void LinkScript::tell(const transport::NextHop& hop) {
  const std::optional<std::uint16_t> tag = wire::vlan_tag(hop.vlan);
  if (hop.gid.is_v4()) {
    const wire::LinkAddress link{.src = kPeerMac, .dst = wire::kBroadcastMac, .vlan_tci = tag};
    Bytes frame(wire::arp_frame_len(link));
    wire::emit_arp_frame(frame.data(), link,
                         {.operation = wire::Arp::Operation::kReply,
                          .sender_mac = kPeerMac,
                          .sender_ip = wire::v4_part(hop.gid)});
    in(frame);
    return;
  }
  const wire::NeighbourMessage question = wire::make_solicitation(kOwnMac, addresses_.own()[0].gid, hop.gid);
  const wire::NeighbourMessage answer = wire::make_advertisement(question, kPeerMac);
  const wire::LinkAddress link{.src = kPeerMac, .dst = kOwnMac, .vlan_tci = tag};
  Bytes frame(wire::neighbour_frame_len(link, answer));
  wire::emit_neighbour_frame(frame.data(), link, answer);
  in(frame);
}

LinkScript& LinkScript::post(transport::QueuePair& qp, SendWr wr) {
  wr.wr_id = next_wr_++;
  REQUIRE(qp.context().sq.put(wr, 0));
  qp.context().sq.publish(1);
  loop_.ring(qp);
  return run();
}

LinkScript& LinkScript::post_send(transport::QueuePair& qp, std::uint32_t bytes) {
  const Sge sge = source.sge(0, bytes);
  return post(qp, {.sges = {&sge, 1}, .opcode = WrOpcode::kSend});
}

LinkScript& LinkScript::post_recv(transport::QueuePair& qp, std::uint32_t bytes) {
  const Sge sge = inbox.sge(recv_at_, bytes);
  recv_at_ += bytes;
  REQUIRE(qp.context().receives.own.put({.wr_id = next_wr_++, .sges = {&sge, 1}}, 0));
  qp.context().receives.own.publish(1);
  return *this;
}

LinkScript& LinkScript::in(const Packet& packet, const wire::FrameAddress& address) {
  return in(frame_of(packet, address, engine::kMulticastQpn));
}

LinkScript& LinkScript::in(const Bytes& frame) {
  port_->given.give(frame);
  return run();
}

LinkScript& LinkScript::in_refused(const Packet& packet, const wire::FrameAddress& address, Count reason) {
  return in_refused(frame_of(packet, address, engine::kMulticastQpn), reason);
}

LinkScript& LinkScript::in_refused(const Bytes& frame, Count reason) {
  std::vector<std::uint64_t> before(kCounterNames.size());
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = counted(static_cast<Count>(i));
  in(frame);
  for (std::size_t i = 0; i < before.size(); ++i) {
    INFO(kCounterNames[i]);
    const auto what = static_cast<Count>(i);
    if (what == Count::kRxRoce) continue;
    CHECK(counted(what) == before[i] + (what == reason ? 1 : 0));
  }
  return *this;
}

LinkScript& LinkScript::pass(std::uint64_t ns) {
  constexpr std::uint64_t kStepNs = 10'000;
  for (const std::uint64_t end = now_ns_ + ns; now_ns_ < end;) {
    now_ns_ = std::min(end, now_ns_ + kStepNs);
    run();
  }
  return *this;
}

LinkScript& LinkScript::run() {
  do {
    ++now_ns_;
    static_cast<void>(loop_.run_once(now()));
    for (Bytes& frame : port_->sent) {
      wire::PacketView view;
      const bool is_roce = wire::parse_packet(frame, view) == wire::ParseResult::kRoce;
      is_roce ? sent_.push_back(std::move(frame)) : others_.push_back(std::move(frame));
    }
    port_->sent.clear();
  } while (loop_.has_work() || !port_->given.empty());
  return *this;
}

LinkScript& LinkScript::out(const Packet& packet, const wire::FrameAddress& address) {
  INFO("expected to leave: " << to_string(packet));
  REQUIRE(!sent_.empty());
  const Bytes frame = std::move(sent_.front());
  sent_.pop_front();
  INFO("what left: " << to_hex(frame));
  wire::PacketView view;
  REQUIRE(wire::parse_packet(frame, view) == wire::ParseResult::kRoce);
  REQUIRE(difference(packet, view) == "");
  expect_frame(frame, address);
  return *this;
}

/// Looks at the bytes themselves, at the places that the standards give.
void LinkScript::expect_frame(const Bytes& frame, const wire::FrameAddress& address) {
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(frame[at + i]);
    return value;
  };
  const auto is_at = [&](std::size_t at, std::span<const std::uint8_t> wanted) {
    return std::memcmp(&frame[at], wanted.data(), wanted.size()) == 0;
  };
  CHECK(is_at(0, address.dst_mac.raw));
  CHECK(is_at(6, address.src_mac.raw));
  std::size_t l3 = 14;
  if (address.vlan_tci) {  // IEEE 802.1Q 9.6 ?: tag protocol, PCP:3 DEI:1 VID:12
    CHECK(number(12, 2) == 0x8100);
    CHECK(number(14, 2) == *address.vlan_tci);
    l3 = 18;
  }
  const bool is_v1 = address.type == GidType::kRoceV1;
  const bool is_v4 = !is_v1 && address.dgid.is_v4();
  CHECK(number(l3 - 2, 2) == (is_v1 ? 0x8915U : is_v4 ? 0x0800U : 0x86ddU));
  auto underlay = Underlay::kIpv4;
  std::size_t bth = l3 + 28;
  if (is_v4) {
    CHECK(frame[l3] == std::byte{0x45});
    CHECK(number(l3 + 1, 1) == address.traffic_class);
    CHECK(number(l3 + 8, 1) == address.hop_limit);
    CHECK(is_at(l3 + 12, std::span(address.sgid.raw).last<4>()));
    CHECK(is_at(l3 + 16, std::span(address.dgid.raw).last<4>()));
  } else {  // IPv6, or the GRH of IBA 8.3: its fields are at the same places
    underlay = is_v1 ? Underlay::kGrh : Underlay::kIpv6;
    bth = l3 + (is_v1 ? 40U : 48U);
    CHECK(number(l3, 4) == (6U << 28 | std::uint32_t{address.traffic_class} << 20 | address.flow_label));
    CHECK(number(l3 + 4, 2) == frame.size() - l3 - 40);
    CHECK(number(l3 + 6, 1) == (is_v1 ? 0x1bU : 17U));
    CHECK(number(l3 + 7, 1) == address.hop_limit);
    CHECK(is_at(l3 + 8, address.sgid.raw));
    CHECK(is_at(l3 + 24, address.dgid.raw));
  }
  if (!is_v1) CHECK(number(bth - 6, 2) == 4791);
  const auto covered = std::span(frame).subspan(l3, frame.size() - l3 - 4);
  const std::uint32_t icrc = reference_icrc(covered, underlay);
  for (std::size_t i = 0; i < 4; ++i) CHECK(number(frame.size() - 4 + i, 1) == (icrc >> 8 * i & 0xff));
}

LinkScript& LinkScript::completes(const Wc& expected) {
  Wc wc;
  REQUIRE(cq_.poll({&wc, 1}) == 1);
  CHECK(wc.wr_id == expected.wr_id);
  REQUIRE(wc.status == expected.status);
  if (!wc.ok()) return *this;
  CHECK(wc.opcode == expected.opcode);
  CHECK(wc.byte_len == expected.byte_len);
  CHECK(wc.flags == expected.flags);
  CHECK(wc.vlan == expected.vlan);
  CHECK(wc.sl == expected.sl);
  return *this;
}

LinkScript& LinkScript::quiet() {
  REQUIRE(sent_.empty());
  Wc wc;
  REQUIRE(cq_.poll({&wc, 1}) == 0);
  return *this;
}

std::vector<Bytes> LinkScript::others() {
  return std::exchange(others_, {});
}

}  // namespace uroce::test
