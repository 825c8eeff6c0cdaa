// The communication manager where memory runs out in the middle of a message.
#include <catch2/catch.hpp>
#include <vector>

#include "api/failing_new.h"
#include "cm/agent.h"
#include "wire/cm_mad.h"

namespace uroce::api {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
const Gid kHere = Gid::from_v4({10, 0, 0, 1});

/// Both ends are at one address.
struct Speaker final : cm::AgentHost {
  explicit Speaker(std::uint64_t guid) : agent({.ca_guid = guid}, *this) {}
  void send(const AhAttr&, const wire::Mad& mad) override { last = mad; }
  void on_event(CmEvent&& event) override { events.push_back(std::move(event)); }
  [[nodiscard]] bool is_own(const Gid&) const override { return true; }
  [[nodiscard]] bool has_heard(CmId) override { return false; }
  void hear(const wire::Mad& mad) { agent.on_mad({.dgid = kHere}, mad, now); }
  void wait(std::uint64_t ns) {
    now = now + ns;
    agent.on_time(now);
  }
  [[nodiscard]] CmId listener() {
    const CmId id = *agent.create(PortSpace::kTcp);
    REQUIRE(agent.bind(id, {{}, 9}));
    REQUIRE(agent.listen(id, 1));
    return id;
  }
  [[nodiscard]] CmId asker() {
    const CmId id = *agent.create(PortSpace::kTcp);
    const CmConnect ask{.to = {kHere, 9}, .terms = {.qpn = Qpn{2}}, .timeout = std::chrono::seconds(20)};
    REQUIRE(agent.connect(id, ask, {.dgid = kHere}, kHere, now));
    return id;
  }

  cm::Agent agent;
  wire::Mad last{};
  std::vector<CmEvent> events;
  Ticks now{kSecond};
};

/// Makes each allocation of `act` fail in turn, and `check`s what is left, until there is none left to fail.
/// @return how many times it has failed
template <typename Act, typename Check>
unsigned fail_each(Act&& act, Check&& check) {
  for (unsigned n = 0;; ++n) {
    bool has_failed = false;
    allocations_left = n;
    try {
      act();
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    allocations_left = -1;
    if (!has_failed) return n;
    check();
  }
}

}  // namespace

TEST_CASE("a request that there is no memory for takes no room at the listener", "[cm][memory]") {
  Speaker asker(1);
  Speaker server(2);
  const CmId listener = server.listener();
  (void)asker.asker();
  const auto is_as_before = [&] {
    REQUIRE(server.agent.size() == 1);
    REQUIRE(server.agent.find(listener)->waiting == 0);
    REQUIRE(server.events.empty());
  };
  CHECK(fail_each([&] { server.hear(asker.last); }, is_as_before) > 3);
  REQUIRE(server.events.size() == 1);
  CHECK(server.events.front().type == CmEventType::kConnectRequest);
}

TEST_CASE("a reply that there is no memory for is asked for again", "[cm][memory]") {
  Speaker asker(1);
  Speaker server(2);
  (void)server.listener();
  const CmId id = asker.asker();
  server.hear(asker.last);
  REQUIRE(server.agent.accept(server.events.front().id, {.terms = {.qpn = Qpn{3}}}, server.now));
  const wire::Mad reply = server.last;
  const auto asks_again = [&] {
    REQUIRE(asker.events.empty());
    asker.last = {};
    asker.wait(kSecond);
    const auto header = wire::MadHeader::parse(std::span{asker.last}.first<wire::MadHeader::kSize>());
    REQUIRE(header.attribute_id == static_cast<std::uint16_t>(wire::CmAttribute::kReq));
  };
  CHECK(fail_each([&] { asker.hear(reply); }, asks_again) > 1);
  REQUIRE(asker.events.size() == 1);
  CHECK(asker.events.front().type == CmEventType::kConnectReply);
  CHECK(asker.agent.establish(id));
}

TEST_CASE("an end that there is no memory for is told when there is", "[cm][memory]") {
  Speaker asker(1);
  (void)asker.asker();
  while (asker.agent.deadline() < asker.now + kSecond / 2)
    asker.wait(kSecond / 4);  // the last silence is next
  const auto is_untold = [&] { REQUIRE(asker.events.empty()); };
  CHECK(fail_each([&] { asker.wait(30 * kSecond); }, is_untold) > 0);
  REQUIRE(asker.events.size() == 1);
  CHECK(asker.events.front().type == CmEventType::kUnreachable);
  CHECK_FALSE(asker.agent.deadline().is_set());
}

}  // namespace uroce::api
