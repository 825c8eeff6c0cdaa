// Messages that no cache holds.
#include <algorithm>
#include <cstring>

#include "api/side.h"

namespace uroce::api {

TEST_CASE("a message of 64 MiB is written and read back, to odd places, and short ones behind it",
          "[api][huge]") {
  constexpr std::uint32_t kBytes = (64U << 20U) + 5;
  constexpr std::size_t kAt = 33;
  Joined link(Mode::kAuto);
  Side a(link.a, QpType::kRc);
  Side b(link.b, QpType::kRc);
  REQUIRE(join(link.a, a.qp, link.b, b.qp));
  const Mr mine = must(Mr::alloc(link.a.pd, 2 * std::size_t{kBytes} + 2 * kAt, access::kAll));
  const Mr theirs = must(Mr::alloc(link.b.pd, kBytes + 2 * kAt, access::kAll));
  const auto sent = mine.memory().subspan(kAt, kBytes);
  const auto back = mine.memory().subspan(kAt + kBytes, kBytes);
  std::uint32_t value = 1;
  for (auto& byte : sent) byte = static_cast<std::byte>((value = value * 1664525U + 1013904223U) >> 24U);
  std::fill(theirs.memory().begin(), theirs.memory().end(), std::byte{0xa5});

  const auto run = [&](WrOpcode opcode, const Sge& sge, std::size_t at) {
    REQUIRE(a.qp.post_send({.wr_id = 1,
                            .sges = {&sge, 1},
                            .opcode = opcode,
                            .flags = send_flag::kSignaled,
                            .remote_addr = theirs.addr() + at,
                            .rkey = theirs.rkey()}));
    REQUIRE(a.next().ok());
  };
  run(WrOpcode::kRdmaWrite, mine.sge(kAt, kBytes), kAt);
  CHECK(std::memcmp(theirs.memory().data() + kAt, sent.data(), kBytes) == 0);
  CHECK(theirs.memory()[kAt - 1] == std::byte{0xa5});
  CHECK(theirs.memory()[kAt + kBytes] == std::byte{0xa5});
  run(WrOpcode::kRdmaRead, mine.sge(kAt + kBytes, kBytes), kAt);
  CHECK(std::memcmp(back.data(), sent.data(), kBytes) == 0);
  run(WrOpcode::kRdmaWrite, mine.sge(kAt + 1000, 100), 0);
  CHECK(std::memcmp(theirs.memory().data(), sent.data() + 1000, 100) == 0);
}

}  // namespace uroce::api
