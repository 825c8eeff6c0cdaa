// Connections that end, or are to end, while they are only asked for.
#include <mutex>
#include <optional>
#include <vector>

#include "api/cm_pair.h"
#include "api/side.h"
#include "cm/connect_error.h"
#include "cm/gsi.h"
#include "cm/service.h"
#include "verbs/gsi.h"

namespace uroce::api {
namespace {

/// What the peer of `manager` says in `say` brings two events, of which none is passed on before the other is
/// there: as in a turn that finds both messages.
template <typename Say>
void hear_at_once(Cm& manager, Say&& say) {
  Cm::Impl& impl = manager.impl();
  const std::lock_guard lock(impl.mutex);
  say();
  REQUIRE(within(5s, [&] {
    impl.gsi->poll([&](const AhAttr& from, auto mad) { impl.agent.on_mad(from, mad, impl.now()); });
    return impl.fresh.size() == 2;
  }));
  impl.wake();
}

/// As when an id has waited for the RTU for too long.
void take_reply_back(Cm& manager, CmId id) {
  Cm::Impl& impl = manager.impl();
  const std::lock_guard lock(impl.mutex);
  const cm::Conversation& c = *impl.agent.find(id);
  const wire::CmRej rej{.local_comm_id = raw(c.id),
                        .remote_comm_id = c.remote_id,
                        .about = wire::CmAbout::kRep,
                        .reason = static_cast<std::uint16_t>(CmReject::kTimeout)};
  impl.gsi->send(c.path, wire::make_cm_mad(c.transaction, rej));
}

TEST_CASE("a connection that is only asked for cannot be disconnected, and its QP is left alone", "[cm]") {
  Pair pair(Mode::kAuto);
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  Side client(pair.a, QpType::kRc);
  REQUIRE(client.qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(id, {.to = pair.at_b(9)}, &client.qp));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  CHECK(server.disconnect(event.id).error().code == Errc::kBadState);
  CHECK(clients.disconnect(id).error().code == Errc::kBadState);
  CHECK(client.qp.query().state == QpState::kInit);
  Side accepting(pair.b, QpType::kRc);
  REQUIRE(server.accept(event.id, {}, &accepting.qp));
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
  CHECK(client.qp.query().state == QpState::kRts);
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kEstablished);
  REQUIRE(clients.disconnect(id));
  CHECK(client.qp.query().state == QpState::kError);
}

TEST_CASE("of a reply that comes with the end of its connection the end alone is told", "[cm]") {
  const bool is_taken_back = GENERATE(true, false);  // else the peer uses its QP for something new
  const bool is_gone = GENERATE(false, true);        // our QP
  CAPTURE(is_taken_back, is_gone);
  Pair pair(Mode::kAuto);
  REQUIRE(pair.cm_b.resolve(pair.a.gid(), {}, 5s));  // else the reply may wait while what follows passes it
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 1);
  std::optional<Side> client;
  client.emplace(pair.a, QpType::kRc);
  REQUIRE(client->qp.modify({.state = QpState::kInit}, qp_attr::kInitMask));
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  const CmId id = must(clients.create_id(PortSpace::kTcp));
  REQUIRE(clients.connect(id, {.to = pair.at_b(9)}, &client->qp));
  if (is_gone) client.reset();
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  Side accepting(pair.b, QpType::kRc);
  hear_at_once(pair.cm_a, [&] {
    REQUIRE(server.accept(event.id, {}, &accepting.qp));
    if (is_taken_back) return take_reply_back(pair.cm_b, event.id);
    REQUIRE(server.connect(must(server.create_id(PortSpace::kTcp)),
                           {.to = {pair.a.gid(), 9}, .terms = {.qpn = accepting.qp.qpn()}}));
  });
  REQUIRE(clients.wait(event, 5s));
  CHECK(event.type == (is_taken_back ? CmEventType::kRejected : CmEventType::kDisconnected));
  CHECK(event.reason == (is_taken_back ? CmReject::kTimeout : CmReject::kNone));
  if (!is_gone) CHECK(client->qp.query().state == QpState::kError);
  if (clients.next(event)) CHECK(event.type == CmEventType::kTimewaitExit);
}

TEST_CASE("who has no connection is told that it ended at once, not that it was refused", "[cm]") {
  CmEvent event;
  event.type = GENERATE(CmEventType::kDisconnected, CmEventType::kRejected);  // of who accepted, of who asked
  event.reason = event.type == CmEventType::kRejected ? CmReject::kTimeout : CmReject::kNone;
  CHECK(connect_error(event).text.ends_with(" ended the connection at once"));
  event.type = CmEventType::kRejected;
  event.reason = CmReject::kConsumer;
  CHECK(connect_error(event).text.find(" refused the connection: ") != std::string::npos);
}

TEST_CASE("requests that are over before anybody has read them leave nothing", "[cm][S9]") {
  Pair pair(Mode::kAuto);
  REQUIRE(pair.cm_b.resolve(pair.a.gid(), {}, 5s));
  CmChannel server = must(CmChannel::create(pair.cm_b));
  listen_at_9(server, 4);
  CmChannel clients = must(CmChannel::create(pair.cm_a));
  constexpr std::uint32_t kRequests = 200;
  const std::size_t before = pair.cm_b.ids();
  CmId last{};
  for (std::uint32_t i = 0; i < kRequests; ++i) {  // of one QP: each ends the one before it
    const auto patience = i + 1 < kRequests ? 200ms : 20s;
    last = must(clients.create_id(PortSpace::kTcp));
    REQUIRE(
        clients.connect(last, {.to = pair.at_b(9), .terms = {.qpn = Qpn{0x10'0000}}, .timeout = patience}));
  }
  const auto handled = [&] {  // of the first time
    std::uint64_t count = 0;
    for (const Counter& one : pair.cm_b.counters()) {
      if (one.name == "cm_received") count += one.value;
      if (one.name == "cm_duplicates" || one.name == "cm_unexpected") count -= one.value;
    }
    return count;
  };
  REQUIRE(within(10s, [&] { return handled() >= kRequests; }));
  CmEvent event;
  REQUIRE(server.wait(event, 5s));
  CHECK(event.type == CmEventType::kConnectRequest);
  CHECK_FALSE(server.next(event));
  REQUIRE(within(20s, [&] { return pair.cm_b.ids() <= before + 1; }));
}

TEST_CASE("what waits for an Ethernet address leaves once, and is not overtaken by the next to the same peer",
          "[cm][neighbours]") {
  Joined both(Mode::kApp);
  const auto a = must(cm::Gsi::open(both.a.device));
  const auto b = must(cm::Gsi::open(both.b.device));
  const AhAttr to = must(route_to(both.a.device, both.b.gid(), {}));
  for (int i = 0; i < 3; ++i) a->send(to, {std::byte{1}});
  REQUIRE(a->is_waiting());
  const Ah probe = must(Ah::create(both.a.pd, to));
  REQUIRE(within(10s, [&] {
    run_gsi_loop(both.b.device);
    run_gsi_loop(both.a.device);
    return is_resolved(both.a.device, probe);
  }));
  a->send(to, {std::byte{2}});
  std::vector<int> came;
  REQUIRE(within(10s, [&] {
    run_gsi_loop(both.a.device);
    run_gsi_loop(both.b.device);
    a->poll([](const auto&, auto) {});
    b->poll([&](const auto&, auto mad) { came.push_back(std::to_integer<int>(mad[0])); });
    return came.size() == 2;
  }));
  CHECK(came == std::vector{1, 2});
  CHECK(a->dropped() == 0);
}

TEST_CASE("answers to many of whom nobody is there keep nobody from being answered", "[cm][neighbours][S9]") {
  Joined both(Mode::kApp);
  const auto a = must(cm::Gsi::open(both.a.device));
  const auto b = must(cm::Gsi::open(both.b.device));
  constexpr unsigned kNobodies = 1500;
  AhAttr to = must(route_to(both.a.device, both.b.gid(), {}));
  const AhAttr somebody = to;
  for (unsigned i = 0; i < kNobodies; ++i) {
    to.flow_label = i;  // as a peer can choose them
    to.dgid =
        Gid::from_v4({10, 7, static_cast<std::uint8_t>(1 + i / 250), static_cast<std::uint8_t>(i % 250)});
    a->send(to, {std::byte{1}});
  }
  bool has_come = false;
  REQUIRE(within(10s, [&] {
    a->send(somebody, {std::byte{2}});  // and again, as the communication manager does
    run_gsi_loop(both.a.device);
    run_gsi_loop(both.b.device);
    a->poll([](const auto&, auto) {});
    b->poll([&](const auto&, auto mad) { has_come = has_come || mad[0] == std::byte{2}; });
    return has_come;
  }));
  CHECK(a->dropped() >= kNobodies + 1 - 1024);
}

TEST_CASE("much that waits for one of whom nobody is there keeps nobody from being answered",
          "[cm][neighbours][S9]") {
  Joined both(Mode::kApp);
  const auto a = must(cm::Gsi::open(both.a.device));
  const auto b = must(cm::Gsi::open(both.b.device));
  constexpr unsigned kMads = 1100;
  const AhAttr somebody = must(route_to(both.a.device, both.b.gid(), {}));
  AhAttr nobody = somebody;
  nobody.dgid = Gid::from_v4({10, 7, 9, 9});
  const auto number = [](unsigned i) {
    wire::Mad mad{std::byte{1}};
    store_be<1, 4>(std::span{mad}, i);
    return mad;
  };
  for (unsigned i = 0; i < kMads; ++i) a->send(nobody, number(i));
  CHECK(a->dropped() == kMads - 1024);
  for (std::uint8_t i = 2; i < 5; ++i) a->send(somebody, {std::byte{i}});
  CHECK(a->dropped() == kMads - 1024 + 3);
  std::vector<int> came;
  REQUIRE(within(10s, [&] {
    run_gsi_loop(both.a.device);
    run_gsi_loop(both.b.device);
    a->send(nobody, number(kMads / 2));  // keeps that one waiting, and none of the others
    a->poll([](const auto&, auto) {});
    b->poll([&](const auto&, auto mad) { came.push_back(std::to_integer<int>(mad[0])); });
    return a->dropped() >= kMads - 1 && came.size() >= 3;
  }));
  CHECK(came == std::vector{2, 3, 4});
}

}  // namespace
}  // namespace uroce::api
