#include <catch2/catch.hpp>

#include "drivers/frame_fields.h"
#include "port_helpers.h"

using namespace uroce;
using namespace uroce::drivers;
using namespace uroce::test;

TEST_CASE("the parts of a RoCE v2 frame over IPv4 are found", "[drivers][fields]") {
  const auto fields = find_roce(roce_v4(0x11, 0x123456, 0xabcdef));
  REQUIRE(fields);
  CHECK(fields->ip == 14);
  CHECK(fields->is_ipv4);
  CHECK(fields->bth == 42);
  CHECK(fields->end == 74 - 8);
  CHECK(fields->opcode == 0x11);
  CHECK(fields->psn == 0x123456);
  CHECK(fields->dest_qpn == 0xabcdef);
  CHECK(fields->syndrome == 0x68);
}

TEST_CASE("the parts of frames over IPv6, of RoCE v1, and behind a VLAN tag are found", "[drivers][fields]") {
  const Bytes v4 = roce_v4();
  const Bytes bth(v4.begin() + 42, v4.end());
  const auto length = [&](std::size_t extra) {
    return hex(to_hex(std::vector{static_cast<std::byte>((bth.size() + extra) >> 8),
                                  static_cast<std::byte>(bth.size() + extra)}));
  };
  const auto join = [](std::initializer_list<Bytes> parts) {
    Bytes all;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Bytes macs(v4.begin(), v4.begin() + 12);
  const Bytes addresses(32);

  const Bytes v6 = join({macs, hex("86dd60200000"), length(8), hex("1140"), addresses, hex("c00012b7"),
                         length(8), hex("0000"), bth});
  auto fields = find_roce(v6);
  REQUIRE(fields);
  CHECK_FALSE(fields->is_ipv4);
  CHECK(fields->bth == 14 + 40 + 8);
  CHECK(fields->end == v6.size());
  CHECK(is_ecn_capable(v6, *fields));
  Bytes marked = v6;
  mark_congestion(marked, *fields);
  CHECK(marked[15] == std::byte{0x30});

  const Bytes v1 = join({macs, hex("891560000000"), length(0), hex("1b40"), addresses, bth});
  fields = find_roce(v1);
  REQUIRE(fields);
  CHECK(fields->bth == 14 + 40);
  CHECK(fields->psn == 0xabcdef);

  const Bytes tagged = join({macs, hex("81000005"), Bytes(v4.begin() + 12, v4.end())});
  fields = find_roce(tagged);
  REQUIRE(fields);
  CHECK(fields->ip == 18);
  CHECK(fields->bth == 46);
}

TEST_CASE("what is not RoCE, or too short for it, has no parts", "[drivers][fields]") {
  CHECK_FALSE(find_roce(arp()));
  const Bytes frame = roce_v4();
  for (std::size_t len = 0; len < 58; ++len) {
    INFO(len);
    CHECK_FALSE(find_roce(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(len))));
  }
  Bytes other_port = frame;
  other_port[37] = std::byte{0xb8};
  CHECK_FALSE(find_roce(other_port));
  Bytes fragment = frame;
  fragment[21] = std::byte{0x10};
  CHECK_FALSE(find_roce(fragment));
}

TEST_CASE("any bytes may be looked at", "[drivers][fields]") {
  Random random(Catch::rngSeed() + 1);
  Bytes frame = roce_v4();
  for (int i = 0; i < 100'000; ++i) {
    Bytes mutated = frame;
    for (int flips = 0; flips < 3; ++flips)
      mutated[random.below(mutated.size())] = static_cast<std::byte>(random.next32());
    mutated.resize(random.below(mutated.size() + 1));
    const auto fields = find_roce(mutated);
    if (!fields) continue;
    CHECK(fields->bth + 16 <= fields->end);
    CHECK(fields->end <= mutated.size());
    mark_congestion(mutated, *fields);
  }
}
