// The ICRC of the packet behind the one that is copied: a hint that nobody has to believe.
#include "wire/icrc_ahead.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/cpu.h"
#include "support/frames.h"
#include "wire/icrc.h"

namespace uroce::wire {
namespace {

using test::Bytes;
using test::make_frame;

constexpr std::uint32_t kPayload = 4096;

Bytes long_frame(const FrameAddress& address, std::uint32_t psn, std::uint32_t payload = kPayload) {
  return make_frame(address, {.opcode = Opcode::kRcWriteMiddle, .dest_qpn = Qpn{0x12}, .psn = Psn{psn}}, {},
                    payload);
}

/// What is done with the packets of a stream.
struct Stream {
  PacketView view_of(const Bytes& frame) {
    PacketView view{.ahead = &ahead};
    REQUIRE(parse_packet(frame, view) == ParseResult::kRoce);
    return view;
  }
  /// Copies the payload of `frame`, behind which `next` comes. @return whether it was copied as it is
  bool copy(const Bytes& frame, std::span<const std::byte> next) {
    const PacketView view = view_of(frame);
    ahead.begin(next);
    Bytes to(view.payload.size() + 2, std::byte{0x5a});
    PayloadCopy{view}(to.data() + 1, view.payload.size());
    ahead.end();
    return std::equal(view.payload.begin(), view.payload.end(), to.begin() + 1) &&
           to.front() == std::byte{0x5a} && to.back() == std::byte{0x5a};
  }
  /// Whether `frame`, which comes now, is known to be right; and whether it is, by what icrc_ok() says.
  struct Verdict {
    bool is_known;
    bool is_right;
    friend bool operator==(const Verdict&, const Verdict&) = default;
  };
  Verdict judge(const Bytes& frame) {
    const PacketView view = view_of(frame);
    ahead.begin({});
    const Verdict verdict{.is_known = ahead.approves(view), .is_right = icrc_ok(view)};
    ahead.end();
    return verdict;
  }

  IcrcAhead ahead;
};

/// Whether anything is computed ahead here.
bool computes_ahead() {
  const Bytes some(kShortestBeside);
  Bytes to(kShortestBeside);
  static_cast<void>(compute_icrc(some, false));  // which chooses how
  return compute_icrc_beside_copy(some, false, to.data(), some).has_value() && !cpu::is_intel;
}

std::vector<FrameAddress> addresses() {
  auto tagged_v4 = test::v4_address();
  auto tagged_v6 = test::v6_address();
  tagged_v4.vlan_tci = tagged_v6.vlan_tci = 0x6064;
  return {test::v4_address(), test::v6_address(), tagged_v4, tagged_v6};
}

}  // namespace

TEST_CASE("the ICRC of the next packet is known once the one before was copied, and of no other",
          "[wire][icrc]") {
  using Verdict = Stream::Verdict;
  for (const FrameAddress& address : addresses()) {
    Stream stream;
    const Bytes first = long_frame(address, 1);
    const Bytes second = long_frame(address, 2);
    CHECK(stream.judge(second) == Verdict{false, true});
    CHECK(stream.copy(first, second));
    CHECK(stream.judge(second) == Verdict{computes_ahead(), true});
    CHECK(stream.judge(second) == Verdict{false, true});
    CHECK(stream.copy(first, second));
    CHECK(stream.judge(first) == Verdict{false, true});
    CHECK(stream.judge(second) == Verdict{false, true});  // it was to be the next one
    CHECK(stream.copy(first, second));
    CHECK(stream.copy(second, {}));
    CHECK(stream.judge(second) == Verdict{false, true});
  }
}

TEST_CASE("whatever bit of the next packet is wrong, it is refused, unless a router may change it",
          "[wire][icrc]") {
  for (const FrameAddress& address : addresses()) {
    Stream stream;
    const Bytes first = long_frame(address, 1);
    Bytes second = long_frame(address, 2);
    for (std::size_t at = 0; at < second.size(); at = at < 90 ? at + 1 : at + 101) {
      second[at] ^= std::byte{0x10};
      PacketView plain;
      if (parse_packet(second, plain) == ParseResult::kRoce) {
        CAPTURE(at);
        REQUIRE(stream.copy(first, second));
        REQUIRE(stream.judge(second).is_right == icrc_ok(plain));
      }
      second[at] ^= std::byte{0x10};
    }
  }
}

TEST_CASE("what was written over after its ICRC had been computed is judged anew", "[wire][icrc]") {
  Stream stream;
  const Bytes first = long_frame(test::v4_address(), 1);
  Bytes second = long_frame(test::v4_address(), 2);
  second[2000] ^= std::byte{1};
  CHECK(stream.copy(first, second));
  const Bytes other = long_frame(test::v4_address(), 3);
  std::copy(other.begin(), other.end(), second.begin());
  CHECK(stream.judge(second) == Stream::Verdict{false, true});
}

TEST_CASE("a next packet of another kind is verified as ever", "[wire][icrc]") {
  const Bytes v4 = long_frame(test::v4_address(), 1);
  const Bytes v1 = long_frame(test::v1_address(), 1);
  for (const Bytes& first : {v4, v1}) {
    for (const Bytes& other :
         {long_frame(test::v6_address(), 2), long_frame(test::v1_address(), 2),
          long_frame(test::v4_address(), 2, 64), long_frame(test::v4_address(), 2, 900)}) {
      Stream stream;
      CHECK(stream.copy(first, other));
      CHECK(stream.judge(other) == Stream::Verdict{false, true});
    }
  }
  Stream stream;
  CHECK(stream.copy(v4, Bytes(1500)));
}

TEST_CASE("a packet whose frame is longer than it says is not approved by a sum over all of it",
          "[wire][icrc]") {
  Stream stream;
  const Bytes first = long_frame(test::v4_address(), 1);
  Bytes padded = long_frame(test::v4_address(), 2);
  padded.resize(padded.size() + 8);
  CHECK(stream.copy(first, padded));
  CHECK(stream.judge(padded) == Stream::Verdict{false, true});
}

}  // namespace uroce::wire
