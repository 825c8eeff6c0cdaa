/// One agent under a script: what it is told, what it sends, what it tells the application.
#pragma once

#include <catch2/catch.hpp>
#include <deque>
#include <set>
#include <string>

#include "cm/agent.h"
#include "cm/ip_header.h"
#include "wire/cm_mad.h"

namespace uroce::test {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kSecond = 1000 * kMs;

inline const Gid kHere = Gid::from_v4({10, 0, 0, 1});
inline const Gid kThere = Gid::from_v4({10, 0, 0, 2});
inline const Gid kElsewhere = Gid::from_v4({10, 0, 0, 3});

// The other end, which the script plays.
inline constexpr std::uint32_t kPeerId = 0x5566'7788;
inline constexpr std::uint64_t kPeerGuid = 0x0200'00ff'fe00'0002;
inline constexpr std::uint64_t kOwnGuid = 0x0200'00ff'fe00'0001;
inline constexpr std::uint64_t kPeerTransaction = 0x5566'7788'0000'0001;
inline constexpr std::uint16_t kPort = 7471;
inline constexpr Qpn kOwnQpn{0x123};
inline constexpr Qpn kPeerQpn{0x456};

template <std::size_t N>
std::array<std::byte, N> text_bytes(std::string_view text, std::size_t at = 0) {
  std::array<std::byte, N> bytes{};
  for (std::size_t i = 0; i < text.size(); ++i) bytes[at + i] = static_cast<std::byte>(text[i]);
  return bytes;
}

inline std::string text_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    if (byte == std::byte{0}) break;
    text += static_cast<char>(byte);
  }
  return text;
}

/// Bytes of a text, as the API takes private data.
inline std::span<const std::byte> data(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// Private data of a REQ or SIDR_REQ from the peer.
template <std::size_t N>
std::array<std::byte, N> with_ip(std::string_view text, const Gid& from = kThere, const Gid& to = kHere) {
  auto bytes = text_bytes<N>(text, cm::IpHeader::kSize);
  cm::IpHeader{.source_port = 0x9c41, .source = from, .destination = to}.emit(
      std::span{bytes}.template first<cm::IpHeader::kSize>());
  return bytes;
}

/// As the peer asks for a connection.
inline wire::CmReq peer_req(std::uint32_t id = kPeerId, Qpn qpn = kPeerQpn) {
  wire::CmReq req;
  req.local_comm_id = id;
  req.service_id = cm::service_id(PortSpace::kTcp, kPort);
  req.ca_guid = kPeerGuid;
  req.qpn = qpn;
  req.responder_resources = 3;
  req.initiator_depth = 5;
  req.remote_cm_timeout = 20;
  req.psn = Psn{0xab'cdef};
  req.local_cm_timeout = 20;
  req.retry_cnt = 6;
  req.flow_control = true;
  req.path_mtu = 3;
  req.rnr_retry = 5;
  req.max_cm_retries = 15;
  req.local_lid = req.remote_lid = 0xffff;
  req.local_gid = kThere;
  req.remote_gid = kHere;
  req.flow_label = 0x1'2345;
  req.traffic_class = 0x68;
  req.hop_limit = 64;
  req.ack_timeout = 14;
  req.private_data = with_ip<92>("hello");
  return req;
}

/// As the peer answers `req`.
inline wire::CmRep peer_rep(const wire::CmReq& req) {
  wire::CmRep rep;
  rep.local_comm_id = kPeerId;
  rep.remote_comm_id = req.local_comm_id;
  rep.qpn = kPeerQpn;
  rep.psn = Psn{0xbeef};
  rep.responder_resources = 2;
  rep.initiator_depth = 4;
  rep.target_ack_delay = 15;
  rep.rnr_retry = 3;
  rep.flow_control = true;
  rep.ca_guid = kPeerGuid;
  rep.private_data = text_bytes<196>("reply");
  return rep;
}

class Station final : public cm::AgentHost {
 public:
  explicit Station(const cm::AgentConfig& config = {.ca_guid = kOwnGuid}) : agent(config, *this) {}

  // The host's side.
  void send(const AhAttr& to, const wire::Mad& mad) override { sent.push_back({to, mad, now}); }
  void on_event(CmEvent&& event) override { events.push_back(std::move(event)); }
  [[nodiscard]] bool is_own(const Gid& gid) const override { return gid == kHere; }
  [[nodiscard]] bool has_heard(CmId id) override { return heard.contains(id); }

  // The peer's side.
  template <typename Message>
  void in(const Message& message, std::uint64_t of = kPeerTransaction, const Gid& from = kThere,
          std::uint32_t options = 0) {
    AhAttr path;
    path.dgid = from;
    agent.on_mad(path, wire::make_cm_mad(of, message, options), now);
  }
  /// `message` in answer to what was taken from out() last.
  template <typename Message>
  void answer(const Message& message) {
    in(message, transaction);
  }
  /// The next message sent, which must be a `Message`; `transaction` and `at_ns` are then its.
  template <typename Message>
  Message out(const Gid& to = kThere) {
    REQUIRE_FALSE(sent.empty());
    const Sent next = sent.front();
    sent.pop_front();
    const auto header = wire::MadHeader::parse(std::span{next.mad}.first<wire::MadHeader::kSize>());
    REQUIRE(header.attribute_id == static_cast<std::uint16_t>(Message::kAttribute));
    CHECK(header.mgmt_class == wire::kCmClass);
    CHECK(header.class_version == wire::kCmVersion);
    CHECK(header.method == wire::kCmSend);
    CHECK(header.status == 0);
    CHECK(next.to.dgid == to);
    transaction = header.transaction_id;
    modifier = header.attribute_modifier;
    at_ns = next.at.ns();
    last_mad = next.mad;
    return Message::parse(wire::cm_body(next.mad));
  }

  // The application's side.
  CmEvent event(CmEventType type) {
    REQUIRE_FALSE(events.empty());
    CmEvent next = std::move(events.front());
    events.pop_front();
    CAPTURE(to_string(next.type), to_string(type));
    REQUIRE(next.type == type);
    return next;
  }
  CmId make(PortSpace space = PortSpace::kTcp) {
    auto id = agent.create(space);
    REQUIRE(id);
    return *id;
  }
  CmId listener(unsigned backlog = 4, PortSpace space = PortSpace::kTcp) {
    const CmId id = make(space);
    REQUIRE(agent.bind(id, {.port = kPort}));
    REQUIRE(agent.listen(id, backlog));
    return id;
  }
  /// An id whose REQ is on its way.
  CmId asking(CmConnect ask = {}) {
    const CmId id = make();
    ask.to = {kThere, kPort};
    ask.terms.qpn = kOwnQpn;
    AhAttr path;
    path.dgid = kThere;
    path.sgid_index = 3;
    REQUIRE(agent.connect(id, ask, path, kHere, now));
    return id;
  }
  /// An id that the peer has asked for; there must be a listener.
  CmId asked(const wire::CmReq& req = peer_req()) {
    in(req);
    return event(CmEventType::kConnectRequest).id;
  }
  void accept(CmId id, std::string_view text = {}) {
    CmAccept answer{.private_data = data(text)};
    answer.terms.qpn = kOwnQpn;
    REQUIRE(agent.accept(id, answer, now));
  }
  /// The active side of an established connection.
  CmId connected() {
    const CmId id = asking();
    answer(peer_rep(out<wire::CmReq>()));
    event(CmEventType::kConnectReply);
    REQUIRE(agent.establish(id));
    out<wire::CmRtu>();
    return id;
  }
  /// The passive side of an established connection.
  CmId accepted(const wire::CmReq& req = peer_req()) {
    const CmId id = asked(req);
    accept(id);
    out<wire::CmRep>();
    in(wire::CmRtu{.local_comm_id = req.local_comm_id, .remote_comm_id = raw(id)});
    event(CmEventType::kEstablished);
    return id;
  }

  /// Lets `ns` pass; timers fire when they are due.
  void wait(std::uint64_t ns) {
    const Ticks end = now + ns;
    while (agent.deadline().is_set() && agent.deadline() <= end) {
      now = std::max(now, agent.deadline());
      agent.on_time(now);
    }
    now = end;
  }
  /// Nothing has been sent or told that was not looked at.
  void quiet() const {
    CHECK(sent.empty());
    CHECK(events.empty());
  }
  /// Waits until nothing is due any more, whatever is sent and told meanwhile.
  void drain() {
    wait(1000 * kSecond);
    sent.clear();
    events.clear();
  }
  [[nodiscard]] cm::State state(CmId id) const {
    const cm::Conversation* c = agent.find(id);
    REQUIRE(c != nullptr);
    return c->state;
  }

  struct Sent {
    AhAttr to;
    wire::Mad mad;
    Ticks at;
  };
  Ticks now{kSecond};
  std::deque<Sent> sent;
  std::deque<CmEvent> events;
  std::set<CmId> heard;
  std::uint64_t transaction = 0;
  std::uint32_t modifier = 0;
  std::uint64_t at_ns = 0;
  wire::Mad last_mad{};
  cm::Agent agent;
};

}  // namespace uroce::test
