// IGMP and MLD of a device, in simulated time. RFC 2236, 2710, 3376, 3810.
#include "engine/group_listener.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "engine/poll_loop.h"
#include "support/capture_port.h"
#include "support/hex.h"
#include "wire/multicast.h"
#include "wire/packet.h"

namespace uroce::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1000 * kMs;
using Kind = wire::GroupMessage::Kind;

const Gid kGroup4 = *Gid::parse("239.1.2.3");
const Gid kOther4 = *Gid::parse("239.1.2.4");
const Gid kGroup6 = *Gid::parse("ff1e::1234:5678");

/// A CapturePort that notes what it listens to.
class ListeningPort final : public port::Port {
 public:
  /// @param ends, kernel_sends  what PortInfo says
  explicit ListeningPort(unsigned ends = 0, bool kernel_sends = false) {
    told.ends = ends;
    told.kernel_sends = kernel_sends;
  }
  [[nodiscard]] const port::PortInfo& info() const noexcept override { return told; }
  unsigned rx_burst(std::span<port::RxFrame>) noexcept override { return 0; }
  void rx_release() noexcept override {}
  std::byte* tx_claim(std::uint32_t len) noexcept override { return inner.tx_claim(len); }
  void tx_commit() noexcept override { inner.tx_commit(); }
  void tx_flush() noexcept override {}
  void listen(std::span<const MacAddress> groups) noexcept override {
    heard.assign(groups.begin(), groups.end());
  }
  [[nodiscard]] port::LinkState link_state() noexcept override { return link; }
  [[nodiscard]] port::PortCounters counters() const noexcept override { return {}; }

  CapturePort inner;
  port::LinkState link = port::LinkState::kUp;
  port::PortInfo told = inner.info();
  std::vector<MacAddress> heard;
};

struct Fixture {
  /// Ten seconds after the start.
  explicit Fixture(std::uint64_t seed = 1, std::vector<engine::Address> more = {}, unsigned ends = 0,
                   bool kernel_sends = false)
      : addresses(with(std::move(more)), std::nullopt),
        port(ends, kernel_sends),
        groups(addresses, port, counters, seed),
        at_start(whats(10 * kSecond)) {}
  static std::vector<engine::Address> with(std::vector<engine::Address> more) {
    std::vector<engine::Address> own{{*Gid::parse("fe80::1"), 64}, {*Gid::parse("10.0.0.1"), 24}};
    own.insert(own.end(), more.begin(), more.end());
    return own;
  }
  [[nodiscard]] Ticks now() const { return Ticks{now_ns}; }
  void join(const Gid& group) { groups.join(group, now()); }
  void leave(const Gid& group) { groups.leave(group, now()); }
  void query(bool is_v4, std::uint8_t version, std::uint64_t delay_ns, const Gid& group = {},
             std::uint16_t vlan = 0) {
    groups.on_message(vlan, is_v4, {Kind::kQuery, version, group, delay_ns}, now());
  }
  void change(engine::Addresses changed) {
    groups.prepare(changed, now());
    addresses = std::move(changed);
  }
  void report(bool is_v4, std::uint8_t version, const Gid& group) {
    groups.on_message(0, is_v4, {Kind::kReport, version, group, 0}, now());
  }
  /// What is sent while `ns` pass: "type/record type group ..." and when.
  struct Sent {
    std::string what;
    std::uint64_t at_ns = 0;
  };
  std::vector<Sent> run(std::uint64_t ns) {
    std::vector<Sent> sent;
    const std::uint64_t end = now_ns + ns;
    for (;;) {
      groups.on_time(now());
      for (const Bytes& frame : port.inner.frames) sent.push_back({describe(frame), now_ns});
      port.inner.frames.clear();
      const Ticks next = groups.deadline();
      if (now_ns >= end) return sent;
      now_ns = next.is_set() && next.ns() < end ? std::max(next.ns(), now_ns) : end;
    }
  }
  std::vector<std::string> whats(std::uint64_t ns) {
    std::vector<std::string> out;
    for (const Sent& one : run(ns)) out.push_back(one.what);
    return out;
  }
  /// "@VLAN " in front of what comes in one.
  static std::string describe(const Bytes& tagged) {
    if (tagged[12] != std::byte{0x81}) return describe_untagged(tagged);
    const auto vlan = std::to_integer<unsigned>(tagged[14]) << 8 | std::to_integer<unsigned>(tagged[15]);
    Bytes frame = tagged;
    frame.erase(frame.begin() + 12, frame.begin() + 16);
    return "@" + std::to_string(vlan) + " " + describe_untagged(frame);
  }
  static std::string describe_untagged(const Bytes& frame) {
    const bool is_v4 = frame[12] == std::byte{0x08};
    const std::size_t message = is_v4 ? 38 : 62;
    const auto type = std::to_integer<unsigned>(frame[message]);
    const std::size_t records = message + 8;
    const std::size_t step = is_v4 ? 8 : 20;
    std::string text = std::to_string(type);
    if (type != 0x22 && type != 143) {
      const std::size_t at = is_v4 ? message + 4 : message + 8;
      return text + " " + std::to_string(std::to_integer<unsigned>(frame[frame.size() - 1])) +
             (at > frame.size() ? "?" : "");
    }
    for (std::size_t at = records; at < frame.size(); at += step) {
      text += " " + std::to_string(std::to_integer<unsigned>(frame[at])) + ":" +
              std::to_string(std::to_integer<unsigned>(frame[at + step - 1]));
    }
    return text;
  }
  [[nodiscard]] bool hears(const Gid& group) const {
    const auto& heard = port.heard;
    return std::find(heard.begin(), heard.end(), wire::multicast_mac(group)) != heard.end();
  }

  engine::Addresses addresses;
  ListeningPort port;
  Counters counters;
  engine::GroupListener groups;
  std::uint64_t now_ns = kSecond;
  std::vector<std::string> at_start;  // what was sent then
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a join and a leave are reported twice within a second", "[engine][membership]") {
  const std::uint64_t seed = GENERATE(1U, 2U, 3U, 4U, 5U);
  Fixture f(seed);
  CHECK(f.run(kSecond).empty());
  f.join(kGroup4);
  const std::uint64_t start = f.now_ns;
  auto sent = f.run(10 * kSecond);
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].what == "34 4:3");
  CHECK(sent[0].at_ns == start);
  CHECK(sent[1].what == "34 4:3");
  CHECK(sent[1].at_ns > start);
  CHECK(sent[1].at_ns <= start + kSecond);
  f.leave(kGroup4);
  CHECK(f.whats(10 * kSecond) == Texts{"34 3:3", "34 3:3"});
  f.join(kGroup6);
  CHECK(f.whats(10 * kSecond) == Texts{"143 4:120", "143 4:120"});
  f.leave(kGroup6);
  CHECK(f.whats(10 * kSecond) == Texts{"143 3:120", "143 3:120"});
  CHECK(f.counters.get(Count::kTxMembership) == 2 + 8);
  CHECK_FALSE(f.groups.deadline().is_set());
}

TEST_CASE("only the first join and the last leave of a group are reported", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  f.join(kGroup4);
  CHECK(f.run(10 * kSecond).size() == 2);
  f.leave(kGroup4);
  CHECK(f.run(10 * kSecond).empty());
  f.leave(kGroup4);
  CHECK(f.whats(10 * kSecond) == Texts{"34 3:3", "34 3:3"});
  f.leave(kGroup4);
  CHECK(f.run(10 * kSecond).empty());
}

TEST_CASE("a change overtakes the one before it", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  CHECK(f.whats(0) == Texts{"34 4:3"});
  f.leave(kGroup4);
  CHECK(f.whats(10 * kSecond) == Texts{"34 3:3", "34 3:3"});
}

TEST_CASE("some groups are never reported, but heard", "[engine][membership]") {
  Fixture f;
  for (const char* text : {"224.0.0.1", "ff02::1", "ff01::5"}) {
    f.join(*Gid::parse(text));
    CHECK(f.hears(*Gid::parse(text)));
  }
  f.query(true, 3, kSecond);
  f.query(true, 3, kSecond, *Gid::parse("224.0.0.1"));
  f.query(false, 2, kSecond, *Gid::parse("ff02::1"));
  CHECK(f.run(20 * kSecond).empty());
  f.query(false, 2, kSecond);
  CHECK(f.whats(20 * kSecond) == Texts{"143 2:1"});  // of the address
}

TEST_CASE("a general query is answered once, for all groups, after a random time", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  f.join(kOther4);
  f.join(kGroup6);
  f.run(10 * kSecond);
  std::vector<std::uint64_t> delays;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t asked = f.now_ns;
    f.query(true, 3, 2 * kSecond);
    f.query(true, 3, 10 * kSecond);  // mostly answered by the first answer
    const auto sent = f.run(20 * kSecond);
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].what == "34 2:3 2:4");
    CHECK(sent[0].at_ns <= asked + 2 * kSecond);
    delays.push_back(sent[0].at_ns - asked);
  }
  std::sort(delays.begin(), delays.end());
  CHECK(delays.front() < kSecond / 2);
  CHECK(delays.back() > 3 * kSecond / 2);
  CHECK(std::unique(delays.begin(), delays.end()) == delays.end());
  f.query(false, 2, kSecond);
  CHECK(f.whats(2 * kSecond) == Texts{"143 2:1 2:120"});
}

TEST_CASE("a query for one group is answered for that group", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  f.join(kOther4);
  f.run(10 * kSecond);
  f.query(true, 3, kSecond, kOther4);
  f.query(true, 3, kSecond, *Gid::parse("239.7.7.7"));
  CHECK(f.whats(2 * kSecond) == Texts{"34 2:4"});
  f.query(true, 3, kSecond, kOther4);
  f.leave(kOther4);
  CHECK(f.whats(0) == Texts{"34 3:4"});
  f.query(true, 3, 0, kOther4);  // it is no longer for us to answer
  CHECK(f.whats(5 * kSecond) == Texts{"34 3:4"});
}

TEST_CASE("many groups are answered in several frames", "[engine][membership]") {
  Fixture f;
  for (std::uint8_t i = 0; i < 200; ++i) f.join(Gid::from_v4({239, 0, 1, i}));
  f.run(10 * kSecond);
  f.query(true, 3, kSecond);
  const auto sent = f.whats(2 * kSecond);
  CHECK(sent.size() == 4);  // 64 each
}

TEST_CASE("a report fits into a frame of the link", "[engine][membership]") {
  Fixture f;
  f.port.told.link_mtu = 256;
  for (std::uint8_t i = 0; i < 40; ++i) f.join(Gid::from_v4({239, 0, 1, i}));
  f.run(10 * kSecond);
  f.query(true, 3, kSecond);
  CHECK(f.whats(2 * kSecond).size() == 2);  // 24 and 16
}

TEST_CASE("after an older query the older version is spoken for 260 seconds", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  f.join(kGroup6);
  f.run(10 * kSecond);
  f.query(true, 2, kSecond);
  f.query(false, 1, kSecond);
  auto sent = f.whats(2 * kSecond);
  std::sort(sent.begin(), sent.end());
  CHECK(sent == Texts{"131 1", "131 120", "22 3"});
  f.join(kOther4);
  CHECK(f.whats(12 * kSecond) == Texts{"22 4", "22 4"});
  f.leave(kOther4);
  CHECK(f.whats(12 * kSecond) == Texts{"23 4"});
  f.leave(kGroup6);
  CHECK(f.whats(12 * kSecond) == Texts{"132 120"});
  f.run(260 * kSecond);
  f.leave(kGroup4);
  CHECK(f.whats(12 * kSecond) == Texts{"34 3:3", "34 3:3"});
  f.query(true, 1, 10 * kSecond);
  f.join(kGroup4);
  CHECK(f.whats(20 * kSecond) == Texts{"18 3", "18 3"});
  f.leave(kGroup4);
  CHECK(f.run(20 * kSecond).empty());  // IGMPv1 has no leave
}

TEST_CASE("a change of version ends what is pending", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  f.join(kGroup6);
  CHECK(f.whats(0) == Texts{"34 4:3", "143 4:120"});
  f.query(true, 3, 10 * kSecond);
  f.query(true, 2, kSecond, kOther4);
  CHECK(f.whats(20 * kSecond) == Texts{"143 4:120"});
}

TEST_CASE("in older versions one listener speaks for all of a group", "[engine][membership]") {
  Fixture f;
  f.join(kGroup4);
  f.join(kOther4);
  f.run(10 * kSecond);
  f.report(true, 2, kGroup4);  // means nothing yet
  f.query(true, 2, kSecond);
  f.report(true, 2, kGroup4);
  CHECK(f.whats(2 * kSecond) == Texts{"22 4"});
  const Gid third = Gid::from_v4({239, 1, 2, 5});
  f.join(third);
  CHECK(f.whats(0) == Texts{"22 5"});
  f.report(true, 2, third);
  CHECK(f.run(12 * kSecond).empty());  // nor is the join told a second time
}

TEST_CASE("the port hears what every node must, and the groups", "[engine][membership][port]") {
  Fixture f;
  CHECK(f.hears(*Gid::parse("224.0.0.1")));
  CHECK(f.hears(*Gid::parse("ff02::1")));
  CHECK(f.hears(*Gid::parse("ff02::1:ff00:1")));
  CHECK(f.port.heard.size() == 3);
  f.join(kGroup4);
  f.join(*Gid::parse("238.129.2.3"));  // the same Ethernet address
  CHECK(f.port.heard.size() == 4);
  f.leave(kGroup4);
  CHECK(f.hears(kGroup4));
  f.leave(*Gid::parse("238.129.2.3"));
  CHECK(f.port.heard.size() == 3);
}

namespace {

std::vector<engine::Address> in_vlans() {
  return {{*Gid::parse("10.5.0.1"), 24, 5}, {*Gid::parse("fd00::1"), 64, 5}, {*Gid::parse("fd00::1"), 64, 7}};
}

}  // namespace

TEST_CASE("groups are reported in every VLAN that the device is in", "[engine][membership][vlan]") {
  Fixture f(1, in_vlans());
  f.join(kGroup4);
  CHECK(f.whats(0) == Texts{"34 4:3", "@5 34 4:3", "@7 34 4:3"});
  f.run(10 * kSecond);
  f.join(kGroup6);
  CHECK(f.whats(0) == Texts{"143 4:120", "@5 143 4:120", "@7 143 4:120"});
  f.run(10 * kSecond);
  f.leave(kGroup4);
  CHECK(f.whats(0) == Texts{"34 3:3", "@5 34 3:3", "@7 34 3:3"});
}

TEST_CASE("reports come from the device's address in their VLAN", "[engine][membership][vlan]") {
  // RFC 3376 4.2.13: 0.0.0.0 where there is none
  Fixture f(1, in_vlans());
  f.join(kGroup4);
  f.groups.on_time(f.now());
  REQUIRE(f.port.inner.frames.size() == 3);
  CHECK(to_hex(std::span(f.port.inner.frames[0]).subspan(26, 4)) == "0a000001");
  CHECK(to_hex(std::span(f.port.inner.frames[1]).subspan(30, 4)) == "0a050001");
  CHECK(to_hex(std::span(f.port.inner.frames[2]).subspan(30, 4)) == "00000000");
}

TEST_CASE("a query is answered in the VLAN that it came in, in that router's version",
          "[engine][membership][vlan]") {
  Fixture f(1, in_vlans());
  f.join(kGroup4);
  f.run(10 * kSecond);
  f.query(true, 3, kSecond, {}, 5);
  CHECK(f.whats(2 * kSecond) == Texts{"@5 34 2:3"});
  f.query(true, 2, kSecond, {}, 7);
  CHECK(f.whats(2 * kSecond) == Texts{"@7 22 3"});
  f.query(true, 3, kSecond, {}, 6);  // nobody is there
  CHECK(f.run(2 * kSecond).empty());
  f.leave(kGroup4);
  CHECK(f.whats(0) == Texts{"34 3:3", "@5 34 3:3", "@7 23 3"});
}

TEST_CASE("addresses that come bring their VLAN, and those that go take it away",
          "[engine][membership][vlan][gid]") {
  Fixture f;
  f.join(kGroup4);
  f.run(10 * kSecond);
  const Gid six = *Gid::parse("fd00::12:3456");
  engine::Addresses more = f.addresses;
  REQUIRE(more.add({six, 64, 9}));
  f.change(more);
  CHECK(f.whats(0) == Texts{"@9 34 4:3", "@9 143 4:86"});  // nothing new where it was before
  CHECK(f.run(10 * kSecond).size() == 2);
  CHECK(f.hears(wire::solicited_node_group(six)));
  CHECK(f.hears(kGroup4));
  REQUIRE(more.remove(six, 9));
  f.change(more);
  CHECK(f.whats(10 * kSecond) == Texts{"@9 34 3:3", "@9 143 3:86"});  // once: it is no longer there
  CHECK_FALSE(f.hears(wire::solicited_node_group(six)));
  f.leave(kGroup4);
  CHECK(f.whats(10 * kSecond) == Texts{"34 3:3", "34 3:3"});
}

namespace {

const Gid kSix = *Gid::parse("fd00::12:3456");
const Gid kNear = *Gid::parse("fd01::12:3456");  // asked for in the same group
const Gid kAskedIn = wire::solicited_node_group(kSix);

std::vector<engine::Address> two_of_one_group() {
  return {{kSix, 64, 5}, {kNear, 64, 5}, {kSix, 64, 5, GidType::kRoceV1}};
}

}  // namespace

TEST_CASE("a node joins the solicited-node groups of its addresses when it starts, and reports them twice",
          "[engine][membership]") {
  // RFC 4861 7.2.1, RFC 3810 6 and 9.1; each group once in the VLAN of its addresses
  CHECK(Fixture().at_start == Texts{"143 4:1", "143 4:1"});
  Fixture f(1, two_of_one_group());
  std::sort(f.at_start.begin(), f.at_start.end());
  CHECK(f.at_start == Texts{"143 4:1", "143 4:1", "@5 143 4:86", "@5 143 4:86"});
  CHECK_FALSE(f.groups.deadline().is_set());
}

TEST_CASE("queries for solicited-node groups are answered", "[engine][membership]") {
  // RFC 3810 6.2; RFC 2710 4
  Fixture f(1, two_of_one_group());
  f.query(false, 2, kSecond);
  f.query(false, 2, kSecond, {}, 5);
  Texts sent = f.whats(2 * kSecond);
  std::sort(sent.begin(), sent.end());
  CHECK(sent == Texts{"143 2:1", "@5 143 2:86"});
  f.query(false, 2, kSecond, kAskedIn);  // not in that VLAN
  CHECK(f.run(2 * kSecond).empty());
  f.query(false, 1, kSecond, kAskedIn, 5);
  CHECK(f.whats(2 * kSecond) == Texts{"@5 131 86"});
}

TEST_CASE("addresses that change take their solicited-node groups with them", "[engine][membership][gid]") {
  // RFC 4861 7.2.1: a group is left with the last of its addresses
  Fixture f;
  engine::Addresses own = f.addresses;
  REQUIRE(own.add({kSix, 64}));
  f.change(own);
  CHECK(f.whats(10 * kSecond) == Texts{"143 4:86", "143 4:86"});
  REQUIRE(own.add({kNear, 64}));
  f.change(own);
  REQUIRE(own.remove(kSix, 0));
  f.change(own);
  CHECK(f.run(10 * kSecond).empty());
  REQUIRE(own.remove(kNear, 0));
  f.change(own);
  CHECK(f.whats(10 * kSecond) == Texts{"143 3:86", "143 3:86"});
}

TEST_CASE("a solicited-node group may be a QP's as well", "[engine][membership]") {
  Fixture f(1, {{kSix, 64}});
  f.join(kAskedIn);
  f.leave(kAskedIn);
  CHECK(f.run(10 * kSecond).empty());
  f.join(kAskedIn);
  engine::Addresses own = f.addresses;
  REQUIRE(own.remove(kSix, 0));
  f.change(own);
  CHECK(f.run(10 * kSecond).empty());
  f.leave(kAskedIn);
  CHECK(f.whats(10 * kSecond) == Texts{"143 3:86", "143 3:86"});
}

TEST_CASE("a link that comes up is told all groups again", "[engine][membership][link]") {
  Fixture f;
  f.join(kGroup4);
  f.run(10 * kSecond);
  f.groups.on_link_up(f.now());
  CHECK(f.whats(0) == Texts{"143 4:1", "34 4:3"});
  CHECK(f.run(10 * kSecond).size() == 2);
}

TEST_CASE("a device that ends leaves its groups", "[engine][membership]") {
  // RFC 3810 6.1: TO_IN; RFC 2710 4: Done
  Fixture f(1, two_of_one_group());
  f.query(false, 1, 0, {}, 5);
  f.run(kSecond);
  f.groups.end(f.now());
  CHECK(f.whats(0) == Texts{"143 3:1", "@5 132 86"});
}

TEST_CASE("links between processes are told nothing of addresses, nor anything again",
          "[engine][membership]") {
  Fixture f(1, two_of_one_group(), 2);
  CHECK(f.at_start.empty());
  f.join(kGroup6);
  CHECK(f.run(10 * kSecond).size() == 4);  // in both VLANs
  f.query(false, 2, kSecond);
  CHECK(f.whats(2 * kSecond) == Texts{"143 2:120"});
  f.groups.on_link_up(f.now());
  f.groups.end(f.now());
  CHECK(f.run(10 * kSecond).empty());
}

TEST_CASE("what the kernel may want on its interface is not left", "[engine][membership]") {
  Fixture f(1, {{kSix, 64}}, 0, true);
  CHECK(f.at_start.size() == 4);
  engine::Addresses own = f.addresses;
  REQUIRE(own.remove(kSix, 0));
  f.change(own);
  f.groups.end(f.now());
  CHECK(f.run(10 * kSecond).empty());
}

TEST_CASE("a loop reports when it starts and when its link comes up, and leaves when it ends",
          "[engine][membership][link]") {
  ListeningPort port;
  port.link = port::LinkState::kDown;  // while the two ends of the cable agree
  std::uint64_t ms = 1;
  const auto sent = [&] {
    Texts texts;
    for (const Bytes& frame : port.inner.frames) texts.push_back(Fixture::describe(frame));
    port.inner.frames.clear();
    return texts;
  };
  engine::PollLoop loop({0, 1}, port, engine::Addresses(Fixture::with({}), std::nullopt), kSecond);
  const auto run = [&](std::uint64_t end) {
    for (; ms < end; ++ms) loop.run_once(Ticks{ms * kMs});
  };
  run(2000);
  CHECK(sent() == Texts{"143 4:1", "143 4:1"});
  port.link = port::LinkState::kUp;
  run(4000);
  CHECK(sent() == Texts{"143 4:1", "143 4:1"});
  loop.leave_groups(Ticks{ms * kMs});
  CHECK(sent() == Texts{"143 3:1"});
}

}  // namespace uroce::test
