// Message channels between two devices of one process.
#include "uroce/message_channel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "api/side.h"
#include "base/endian.h"

namespace uroce::api {
namespace {

/// Two ends of a link with a channel each.
struct Channels {
  explicit Channels(const MessageChannelAttr& attr, Mode mode = Mode::kApp, const std::string& fault = "")
      : Channels(attr, attr, mode, fault) {}
  Channels(const MessageChannelAttr& attr_a, const MessageChannelAttr& attr_b, Mode mode = Mode::kApp,
           const std::string& fault = "")
      : joined(mode, "mc", 100, fault),
        a(must(MessageChannel::create(joined.a.pd, joined.a.device, attr_a))),
        b(must(MessageChannel::create(joined.b.pd, joined.b.device, attr_b))) {
    REQUIRE(join(joined.a, a.qp(), joined.b, b.qp()));
  }

  /// Until both ends have heard of each other.
  void meet() {
    std::array<Message, 1> none;
    REQUIRE(within(10s, [&] {
      CHECK(a.poll(none) + b.poll(none) == 0);
      return a.credits() > 0 && b.credits() > 0;
    }));
  }
  /// The next message at b, while both ends make progress.
  Message next_at_b() {
    std::array<Message, 1> message;
    REQUIRE(within(10s, [&] {
      joined.a.device.progress();
      return b.poll(message) == 1;
    }));
    return message[0];
  }
  [[nodiscard]] std::uint64_t rnr_naks() const {
    return counter(joined.a.device, "responder_rnr_naks") + counter(joined.b.device, "responder_rnr_naks");
  }

  Joined joined;
  MessageChannel a;
  MessageChannel b;
};

std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.data.data()), message.data.size()};
}

/// One direction of a random exchange: what was sent, what is held by the receiver.
struct Way {
  MessageChannel& from;
  MessageChannel& to;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::deque<Message> held{};

  void send(std::mt19937& random, std::uint64_t most) {
    std::span<std::byte> place;
    const std::size_t bytes = sizeof sent + random() % 57;
    if (sent == most || from.claim(bytes, place) != Sent::kOk) return;
    std::memset(place.data(), static_cast<int>(sent & 0xff), place.size());
    std::memcpy(place.data(), &sent, sizeof sent);
    REQUIRE(from.commit(bytes) == Sent::kOk);
    ++sent;
  }
  void receive() {
    std::array<Message, 3> messages;
    for (std::size_t i = 0, taken = to.poll(messages); i < taken; ++i) held.push_back(messages[i]);
  }
  void check_and_release(const Message& message) {
    std::uint64_t number = 0;
    REQUIRE(message.data.size() >= sizeof number);
    std::memcpy(&number, message.data.data(), sizeof number);
    CHECK(number == message.number);
    const auto rest = message.data.subspan(sizeof number);
    CHECK(std::ranges::all_of(rest, [&](std::byte one) { return one == std::byte(number & 0xff); }));
    to.release(message);
    ++received;
  }
  void release(std::mt19937& random) {
    if (held.empty()) return;
    const auto which = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
    check_and_release(*which);
    held.erase(which);
  }
};

}  // namespace

TEST_CASE("messages arrive in order and whole, both ways", "[messages]") {
  Channels channels({.message_bytes = 100});
  CHECK(channels.a.max_message() == 0);
  channels.meet();
  CHECK(channels.a.max_message() == 100);
  const std::string longest(100, 'x');
  CHECK(channels.a.send(bytes_of("hello")) == Sent::kOk);
  CHECK(channels.a.send({}) == Sent::kOk);
  CHECK(channels.a.send(bytes_of(longest)) == Sent::kOk);
  CHECK(channels.a.send(bytes_of(longest + "x")) == Sent::kTooLong);
  for (const auto& text : {std::string("hello"), std::string(), longest}) {
    const Message message = channels.next_at_b();
    CHECK(text_of(message) == text);
    channels.b.release(message);
  }
  CHECK(channels.b.send(bytes_of("and back")) == Sent::kOk);
  std::array<Message, 1> message;
  REQUIRE(within(10s, [&] {
    channels.joined.b.device.progress();
    return channels.a.poll(message) == 1;
  }));
  CHECK(text_of(message[0]) == "and back");
  CHECK(channels.a.counts().sent == 3);
  CHECK(channels.b.counts().received == 3);
}

TEST_CASE("a claim is written in place, and lasts until it is committed", "[messages]") {
  Channels channels({.message_bytes = 64});
  channels.meet();
  std::span<std::byte> first;
  std::span<std::byte> second;
  REQUIRE(channels.a.claim(64, first) == Sent::kOk);
  REQUIRE(channels.a.claim(10, second) == Sent::kOk);
  CHECK(first.data() == second.data());
  CHECK(channels.a.commit(11) == Sent::kTooLong);
  second[0] = std::byte{'!'};
  CHECK(channels.a.commit(1) == Sent::kOk);
  CHECK(channels.a.commit(1) == Sent::kTooLong);
  CHECK(text_of(channels.next_at_b()) == "!");
}

TEST_CASE("an empty message needs a claim, too", "[messages]") {
  Channels channels({.message_bytes = 64, .receives = 1});
  CHECK(channels.a.commit(0) == Sent::kTooLong);
  channels.meet();
  std::span<std::byte> place;
  REQUIRE(channels.a.claim(0, place) == Sent::kOk);
  CHECK(channels.a.commit(0) == Sent::kOk);
  CHECK(channels.a.commit(0) == Sent::kTooLong);
  CHECK(channels.a.credits() == 0);
  CHECK(channels.a.counts().sent == 1);
}

TEST_CASE("a sender stops at what the receiver has room for, and goes on", "[messages]") {
  Channels channels({.message_bytes = 64, .sends = 16, .receives = 5});
  channels.meet();
  CHECK(channels.a.credits() == 5);
  for (int i = 0; i < 5; ++i) CHECK(channels.a.send(bytes_of("x")) == Sent::kOk);
  CHECK(channels.a.send(bytes_of("x")) == Sent::kNoCredit);
  std::vector<Message> held;
  for (int i = 0; i < 5; ++i) held.push_back(channels.next_at_b());
  std::array<Message, 1> none;
  CHECK(channels.a.poll(none) == 0);
  CHECK(channels.a.send(bytes_of("x")) == Sent::kNoCredit);
  CHECK(channels.a.counts().no_credit == 2);
  for (const auto& message : held) channels.b.release(message);
  REQUIRE(within(10s, [&] {
    CHECK(channels.a.poll(none) + channels.b.poll(none) == 0);
    return channels.a.credits() > 0;
  }));
  CHECK(channels.a.send(bytes_of("y")) == Sent::kOk);
  CHECK(text_of(channels.next_at_b()) == "y");
  CHECK(channels.rnr_naks() == 0);
}

TEST_CASE("a message is released once", "[messages]") {
  Channels channels({.sends = 4, .receives = 2});
  channels.meet();
  for (const char* text : {"one", "two"}) CHECK(channels.a.send(bytes_of(text)) == Sent::kOk);
  const Message one = channels.next_at_b();
  const Message two = channels.next_at_b();
  CHECK(channels.b.release(one));
  CHECK_FALSE(channels.b.release(one));
  CHECK_FALSE(channels.b.release({.number = two.number, .slot = one.slot}));
  CHECK_FALSE(channels.b.release({.number = two.number, .slot = ~0U}));
  CHECK(text_of(two) == "two");
  std::array<Message, 1> none;
  REQUIRE(within(10s, [&] {
    CHECK(channels.a.poll(none) == 0);
    return channels.b.poll(none) == 0 && channels.a.credits() > 0;
  }));
  CHECK(channels.a.credits() == 1);
  CHECK(channels.a.send(bytes_of("three")) == Sent::kOk);
  const Message three = channels.next_at_b();
  CHECK_FALSE(channels.b.release(one));
  CHECK((text_of(two) == "two" && text_of(three) == "three"));
  CHECK(channels.b.release(three));
  CHECK(channels.b.release(two));
}

TEST_CASE("an end with few sends waits for its own messages", "[messages]") {
  Channels channels({.message_bytes = 64, .sends = 3, .receives = 64});
  channels.meet();
  for (int i = 0; i < 3; ++i) CHECK(channels.a.send(bytes_of("x")) == Sent::kOk);
  CHECK(channels.a.send(bytes_of("x")) == Sent::kNoSlot);
  CHECK(channels.a.counts().no_slot == 1);
  REQUIRE(within(10s, [&] {
    channels.joined.b.device.progress();
    return channels.a.send(bytes_of("x")) == Sent::kOk;
  }));
}

TEST_CASE("messages are as long as both ends take", "[messages]") {
  Channels channels({.message_bytes = 1000}, {.message_bytes = 70});
  channels.meet();
  CHECK(channels.a.max_message() == 70);
  CHECK(channels.b.max_message() == 70);
}

TEST_CASE("random senders, receivers and releases lose nothing, and none runs out of receives",
          "[messages]") {
  const std::uint32_t receives = GENERATE(1U, 2U, 3U, 7U, 64U);
  const std::string fault = GENERATE("", "loss=2%,dup=2%,reorder=2%");
  CAPTURE(receives, fault, Catch::rngSeed());
  std::mt19937 random(Catch::rngSeed() + receives);
  Channels channels({.message_bytes = 64, .sends = receives + 1, .receives = receives}, Mode::kApp, fault);
  constexpr std::uint64_t kMessages = 2000;
  Way there{.from = channels.a, .to = channels.b};
  Way back{.from = channels.b, .to = channels.a};
  REQUIRE(within(60s, [&] {
    for (Way* way : {&there, &back}) {
      const unsigned what = random() % 8;
      if (what < 3) way->send(random, kMessages);
      if (what >= 3 && what < 6) way->release(random);
      if (what >= 6 || way->held.empty()) way->receive();
    }
    return there.received == kMessages && back.received == kMessages;
  }));
  CHECK(channels.rnr_naks() == 0);
  CHECK_FALSE(channels.a.has_ended());
  CHECK_FALSE(channels.b.has_ended());
}

TEST_CASE("who drains knows that all has arrived", "[messages]") {
  Channels channels({.message_bytes = 64}, Mode::kAuto);
  CHECK(channels.a.drain(0s));  // of nothing
  channels.meet();
  for (int i = 0; i < 10; ++i) REQUIRE(channels.a.send(bytes_of("x")) == Sent::kOk);
  CHECK(channels.a.drain(10s));
  std::array<Message, 16> messages;
  CHECK(channels.b.poll(messages) == 10);
}

TEST_CASE("a channel whose peer does nothing is not drained", "[messages]") {
  Channels channels({.message_bytes = 64});
  channels.meet();
  REQUIRE(channels.a.send(bytes_of("x")) == Sent::kOk);
  const Status late = channels.a.drain(1ms);
  REQUIRE_FALSE(late);
  CHECK(late.error().code == Errc::kTimeout);
}

TEST_CASE("who looks again and again whether all has arrived leaves the messages their room", "[messages]") {
  Channels channels({.message_bytes = 64, .sends = 16});
  channels.meet();
  for (int i = 0; i < 8; ++i) REQUIRE(channels.a.send(bytes_of("x")) == Sent::kOk);
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(channels.a.drain(0s));  // b does nothing
  for (int i = 0; i < 8; ++i) CHECK(channels.a.send(bytes_of("x")) == Sent::kOk);
  CHECK(within(10s, [&] {
    channels.joined.b.device.progress();
    return channels.a.drain(0s).has_value();
  }));
  std::array<Message, 17> messages;
  CHECK(channels.b.poll(messages) == 16);
}

TEST_CASE("a channel tells that it has ended, after what had arrived", "[messages]") {
  Channels channels({.message_bytes = 64}, Mode::kAuto);
  channels.meet();
  REQUIRE(channels.b.send(bytes_of("last")) == Sent::kOk);
  REQUIRE(channels.b.drain(10s));
  REQUIRE(channels.a.qp().modify({.state = QpState::kError}, qp_attr::kState));
  std::array<Message, 1> message;
  REQUIRE(channels.a.poll(message) == 1);
  CHECK(text_of(message[0]) == "last");
  CHECK(within(10s, [&] { return channels.a.poll(message) == 0 && channels.a.has_ended(); }));
  CHECK(channels.a.send(bytes_of("x")) == Sent::kEnded);
  CHECK_FALSE(channels.a.end_text().empty());
  CHECK_FALSE(channels.a.drain(1s));
}

TEST_CASE("what is no message does not keep a poll from its end", "[messages]") {
  constexpr std::uint32_t kRoom = 200;
  Channels channels({.message_bytes = 64, .receives = kRoom});
  channels.meet();
  const std::uint32_t word = 0x8000'0000 | kRoom;  // as a tells how much it has room for
  for (int i = 0; i < 100; ++i) {
    REQUIRE(channels.a.qp().post_send({.opcode = WrOpcode::kSendWithImm, .imm_data = network_order(word)}));
  }
  REQUIRE(channels.a.send(bytes_of("x")) == Sent::kOk);
  REQUIRE(within(10s, [&] {
    channels.joined.b.device.progress();
    return channels.a.drain(0s).has_value();
  }));
  std::array<Message, 1> message;
  CHECK(channels.b.poll(message) == 0);
  unsigned polls = 1;
  while (channels.b.poll(message) == 0 && polls < 100) ++polls;
  CHECK(polls < 10);
  CHECK(text_of(message[0]) == "x");
}

TEST_CASE("a peer that sends what no channel does ends the channel, and is granted nothing", "[messages]") {
  const auto [opcode, why] = GENERATE(table<WrOpcode, std::string>(
      {{WrOpcode::kSend, "the peer has sent without immediate data, which a channel always sends"},
       {WrOpcode::kRdmaWriteWithImm,
        "the peer has written elsewhere, with immediate data, where messages are sent"}}));
  Channels channels({.message_bytes = 64});
  channels.meet();
  const std::uint32_t credits = channels.b.credits();
  REQUIRE(channels.a.qp().post_send(SendWr{.opcode = opcode}));
  std::array<Message, 1> message;
  CHECK(within(10s, [&] {
    channels.joined.a.device.progress();
    return channels.b.poll(message) > 0 || channels.b.has_ended();
  }));
  CHECK(channels.b.has_ended());
  CHECK(channels.b.credits() == credits);
  CHECK(channels.b.counts().received == 0);
  CHECK(channels.b.end_text() == why);
  CHECK(channels.b.send(bytes_of("x")) == Sent::kEnded);
}

TEST_CASE("channels that no device can have are refused", "[messages]") {
  End end = lone(Mode::kApp);
  for (const auto& attr : {MessageChannelAttr{.sends = 0}, MessageChannelAttr{.receives = 0},
                           MessageChannelAttr{.message_bytes = 3}, MessageChannelAttr{.sends = 32'768}}) {
    const auto channel = MessageChannel::create(end.pd, end.device, attr);
    REQUIRE_FALSE(channel);
    CHECK(channel.error().code == Errc::kInvalid);
  }
}

}  // namespace uroce::api
