#include "wire/icrc.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <random>

#include "support/guarded_bytes.h"
#include "support/reference_icrc.h"
#include "support/skip.h"
#include "wire/crc32.h"
#include "wire/crc32_pairs.h"
#include "wire/crc32_wide.h"
#include "wire/frame_template.h"

namespace uroce::wire {
namespace {

using test::Underlay;

constexpr std::uint64_t kSeed = 0x5eed'0001;

/// Covered bytes of a packet, mostly as short as messages are, at times as long as a packet gets.
std::size_t random_size(std::mt19937_64& random, Underlay underlay) {
  const std::size_t smallest = underlay == Underlay::kIpv4 ? 40 : underlay == Underlay::kIpv6 ? 60 : 52;
  const std::uint64_t dice = random();
  const std::size_t range = dice % 1024 == 0 ? 4096 : 64;
  return smallest + (dice >> 32) % range;
}

void fill(std::span<std::byte> out, std::mt19937_64& random) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % 8 == 0) word = random();
    out[i] = static_cast<std::byte>(word >> (i % 8 * 8));
  }
}

std::uint32_t icrc_of(std::span<const std::byte> covered, Underlay underlay) {
  return underlay == Underlay::kGrh ? compute_icrc_v1(covered)
                                    : compute_icrc(covered, underlay == Underlay::kIpv6);
}

/// Also those that this CPU can go and does not.
bool all_ways_give(std::uint32_t expected, std::uint32_t crc, std::span<const std::byte> in,
                   const CrcMask& mask) {
  if (masked_crc32(crc, in, mask) != expected) return false;
  if (computes_crc32_of_parts() && narrow_masked_crc32(crc, in, mask) != expected) return false;
  if (has_pairs_crc32() && pairs_masked_crc32(crc, in, mask) != expected) return false;
  if (!has_wide_crc32()) return true;
  return std::ranges::all_of(kFoldings,
                             [&](Folding how) { return wide_masked_crc32(crc, in, mask, how) == expected; });
}

using BesideCopy = std::function<std::optional<std::uint32_t>(
    std::uint32_t, std::span<const std::byte>, const CrcMask&, std::byte*, std::span<const std::byte>)>;

/// Likewise.
std::vector<BesideCopy> ways_beside_copy() {
  std::vector<BesideCopy> ways = {&masked_crc32_beside_copy};
  if (has_pairs_crc32()) ways.emplace_back(&pairs_masked_crc32_beside_copy);
  if (!has_wide_crc32()) return ways;
  for (const Folding how : kFoldings) {
    ways.emplace_back([how](std::uint32_t crc, std::span<const std::byte> in, const CrcMask& mask,
                            std::byte* to, std::span<const std::byte> others) {
      return wide_masked_crc32_beside_copy(crc, in, mask, how, to, others);
    });
  }
  return ways;
}

using CopyCrc32 = std::function<std::uint32_t(std::uint32_t, std::byte*, std::span<const std::byte>)>;

/// Likewise.
std::vector<CopyCrc32> ways_to_copy(std::size_t size) {
  std::vector<CopyCrc32> ways = {&copy_crc32, &narrow_copy_crc32};
  if (has_pairs_crc32() && size >= kShortestPairs) ways.emplace_back(&pairs_copy_crc32);
  if (!has_wide_crc32() || size < kShortestWide) return ways;
  for (const Folding how : kFoldings) {
    ways.emplace_back([how](std::uint32_t crc, std::byte* to, std::span<const std::byte> from) {
      return wide_copy_crc32(crc, to, from, how);
    });
  }
  return ways;
}

}  // namespace

TEST_CASE("the reference CRC gives the check value of CRC-32", "[wire][icrc]") {
  const std::string_view check = "123456789";
  CHECK(test::reference_crc32(std::as_bytes(std::span{check})) == 0xcbf4'3926);
  const std::vector<std::byte> ones(8, std::byte{0xff});
  CHECK(test::reference_crc32(ones) == 0x2144'df1c);
}

TEST_CASE("a million random packets have the ICRC of the bitwise reference", "[wire][icrc][T29]") {
  constexpr unsigned kPackets = 1'000'000;
  std::mt19937_64 random{kSeed};
  std::vector<std::byte> buffer(64 + 4160);
  unsigned different = 0;
  for (unsigned i = 0; i < kPackets; ++i) {
    const auto underlay = Underlay{static_cast<int>(random() % 3)};
    const auto covered = std::span{buffer}.subspan(random() % 64, random_size(random, underlay));
    fill(covered, random);
    if (icrc_of(covered, underlay) == test::reference_icrc(covered, underlay)) continue;
    ++different;
    CAPTURE(kSeed, i, covered.size(), static_cast<int>(underlay));
    CHECK(different == 0);
    if (different == 10) break;  // enough to read
  }
  CHECK(different == 0);
}

TEST_CASE("the ICRC of every length around the block sizes of fast CRCs is right", "[wire][icrc][T29]") {
  std::mt19937_64 random{kSeed + 1};
  std::vector<std::byte> buffer(60 + 1100);
  for (const auto underlay : {Underlay::kIpv4, Underlay::kIpv6, Underlay::kGrh}) {
    for (std::size_t size = 60; size <= buffer.size(); ++size) {
      const auto covered = std::span{buffer}.first(size);
      fill(covered, random);
      if (icrc_of(covered, underlay) != test::reference_icrc(covered, underlay)) FAIL(size);
    }
  }
}

TEST_CASE("all CPUs get the same CRC, whatever they can multiply", "[wire][icrc][T29]") {
  std::mt19937_64 random{kSeed + 2};
  CrcMask mask;
  std::vector<std::byte> buffer(4200);
  for (std::size_t size = 32; size <= buffer.size(); ++size) {
    const auto in = std::span{buffer}.first(size);
    fill(in, random);
    fill(std::span{mask.ones}.first(CrcMask::kReach), random);
    const auto crc = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = portable_masked_crc32(crc, in, mask);
    if (!all_ways_give(expected, crc, in, mask)) FAIL(size);
  }
}

TEST_CASE("a million random packets have the same CRC with all ways to multiply", "[wire][icrc][T29]") {
  std::mt19937_64 random{kSeed + 3};
  std::vector<std::byte> buffer(64 + 4160);
  CrcMask mask;
  fill(std::span{mask.ones}.first(CrcMask::kReach), random);
  fill(buffer, random);
  for (unsigned i = 0; i < 1'000'000; ++i) {
    const auto underlay = Underlay{static_cast<int>(random() % 3)};
    const auto covered = std::span{buffer}.subspan(random() % 64, random_size(random, underlay));
    fill(covered.first(40), random);
    const auto crc = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = portable_masked_crc32(crc, covered, mask);
    if (all_ways_give(expected, crc, covered, mask)) continue;
    CAPTURE(kSeed, i, covered.size());
    FAIL("they differ");
  }
}

TEST_CASE("lines are fetched while a long packet is checked, which its CRC does not depend on",
          "[wire][icrc]") {
  if (!has_wide_crc32()) return test::skip("this CPU lacks AVX-512, VPCLMULQDQ or GFNI");
  std::mt19937_64 random{kSeed + 6};
  std::vector<std::byte> buffer(4200);
  fill(buffer, random);
  for (std::size_t size = 32; size <= buffer.size(); size += 97) {
    const auto in = std::span{buffer}.first(size);
    for (const Folding how : kFoldings) {
      FetchAhead ahead;
      ahead.set(buffer.data(), 4096);
      const std::uint32_t crc = wide_masked_crc32(7, in, {}, how, &ahead);
      if (crc != portable_masked_crc32(7, in, {})) FAIL(size);
      const std::size_t turns = size < 1024 ? 0 : size / 512 - 1;  // 512 bytes each, behind the first
      if (size >= 1024 && ahead.left() != 64 - 4 * turns) FAIL(size << " " << ahead.left());
    }
  }
}

TEST_CASE("lines are fetched while pairs of blocks are multiplied, and nothing behind them is read",
          "[wire][icrc]") {
  if (!has_pairs_crc32()) return test::skip("this CPU lacks AVX2 or VPCLMULQDQ");
  std::mt19937_64 random{kSeed + 7};
  test::GuardedBytes guarded{4200};
  std::vector<std::byte> copy(4200);
  for (std::size_t size = 32; size <= copy.size(); size += 13) {
    const auto in = guarded.room(size);
    fill(in, random);
    FetchAhead ahead;
    ahead.set(copy.data(), 4096);
    const std::uint32_t expected = portable_masked_crc32(7, in, {});
    if (pairs_masked_crc32(7, in, {}, &ahead) != expected) FAIL(size);
    const std::size_t turns = size < 384 ? 0 : size / 128 - 1;  // behind the first
    if (ahead.left() != 64 - turns) FAIL(size << " " << ahead.left());
    if (size >= kShortestPairs && pairs_copy_crc32(7, copy.data(), in) != expected) FAIL(size);
  }
}

TEST_CASE("a CRC computed while copying is that of the copy, and nothing else is written",
          "[wire][icrc][T29]") {
  std::mt19937_64 random{kSeed + 4};
  constexpr std::size_t kMost = 4160;
  constexpr std::size_t kMargin = 64;
  std::vector<std::byte> from(kMost + kMargin);
  fill(from, random);
  const std::vector<std::byte> untouched(kMost + 3 * kMargin, std::byte{0xa5});
  auto to = untouched;
  for (std::size_t size = 0; size <= kMost; ++size) {
    const auto in = std::span{from}.subspan(random() % kMargin, size);
    const std::size_t at = kMargin + random() % kMargin;
    auto expected = untouched;
    std::copy(in.begin(), in.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
    const std::uint32_t expected_crc = test::reference_crc32(in);
    for (const auto& copy : ways_to_copy(size)) {
      std::copy(untouched.begin(), untouched.end(), to.begin());
      if (copy(test::reference_crc32({}), to.data() + at, in) != expected_crc || to != expected) FAIL(size);
    }
  }
}

TEST_CASE("while others are copied the CRC is the same, they are all there, and nothing else is touched",
          "[wire][icrc][T29]") {
  std::mt19937_64 random{kSeed + 8};
  constexpr std::size_t kMost = 4160;
  constexpr std::size_t kMargin = 64;
  std::vector<std::byte> buffer(kMost + kMargin);
  fill(buffer, random);
  test::GuardedBytes guarded{kMost};
  fill(guarded.room(kMost), random);
  const std::vector<std::byte> untouched(kMost + 3 * kMargin, std::byte{0xa5});
  auto to = untouched;
  CrcMask mask;
  fill(std::span{mask.ones}.first(CrcMask::kReach), random);
  const auto some = [&random] { return kShortestBeside + random() % (kMost - kShortestBeside + 1); };
  for (unsigned i = 0; i < 3000; ++i) {
    // At times both as long as those of a stream, at times the one or the other at its limit.
    const std::size_t size = i % 3 == 0 ? kMost : some();
    const auto in = std::span{buffer}.subspan(random() % kMargin, size);
    const auto others = guarded.room(i % 4 == 0 ? kShortestBeside : i % 4 == 1 ? 4096 : some());
    const std::size_t at = kMargin + random() % kMargin;
    auto expected = untouched;
    std::copy(others.begin(), others.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
    const std::uint32_t expected_crc = portable_masked_crc32(i, in, mask);
    for (const auto& way : ways_beside_copy()) {
      std::copy(untouched.begin(), untouched.end(), to.begin());
      const auto crc = way(i, in, mask, to.data() + at, others);
      CAPTURE(kSeed, i, in.size(), others.size(), at);
      REQUIRE(crc.value_or(expected_crc) == expected_crc);
      REQUIRE(to == (crc.has_value() ? expected : untouched));
    }
  }
}

TEST_CASE("the CRCs of two parts make that of both", "[wire][icrc]") {
  std::mt19937_64 random{kSeed};
  std::vector<std::byte> bytes(64 + 9600);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  const CrcMask none;
  const auto crc_of = [&none](std::span<const std::byte> in) { return portable_masked_crc32(0, in, none); };
  for (std::size_t size = 64; size <= 9600; ++size) {
    CAPTURE(kSeed, size);
    const std::size_t first = 1 + random() % 64;
    const auto both = std::span{bytes}.first(first + size);
    REQUIRE(join_crc32(crc_of(both.first(first)), crc_of(both.subspan(first)), size) == crc_of(both));
  }
}

TEST_CASE("whatever way seems the fastest, the CRC is the same", "[wire][icrc]") {
  // What is tried first seems the fastest, or what is tried last.
  const auto slows_down = [] { return [n = std::uint64_t{0}]() mutable { return ++n, n * n; }; };
  const auto speeds_up = [] { return [n = std::uint64_t{1} << 20]() mutable { return --n, -n * n; }; };
  for (const Now& clock : {Now{slows_down()}, Now{speeds_up()}}) {
    const pid_t child = fork();
    if (child == 0) {  // there is no way back
      tune_crc32(clock);
      std::mt19937_64 random{kSeed + 5};
      std::vector<std::byte> bytes(4200);
      fill(bytes, random);
      bool is_same = true;
      for (std::size_t size = 32; size <= bytes.size(); ++size) {
        const auto in = std::span{bytes}.first(size);
        is_same = is_same && masked_crc32(7, in, {}) == portable_masked_crc32(7, in, {});
      }
      _exit(is_same ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("a process that leaves the CRC out gives 0 for every packet", "[wire][icrc]") {
  const pid_t child = fork();
  if (child == 0) {  // there is no way back
    std::vector<std::byte> covered(1400, std::byte{0x5a});
    bool is_out = icrc_of(covered, Underlay::kIpv4) != 0;
    leave_out_crc32();
    is_out = is_out && !computes_crc32();
    for (std::size_t size = 60; size <= covered.size(); ++size) {
      is_out = is_out && icrc_of(std::span{covered}.first(size), Underlay::kIpv4) == 0;
    }
    _exit(is_out ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("an ICRC travels least significant byte first", "[wire][icrc]") {
  std::array<std::byte, kIcrcSize> bytes{};
  store_icrc(bytes, 0x0102'0304);
  CHECK(bytes == std::array{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}});
  CHECK(load_icrc(bytes) == 0x0102'0304);
}

}  // namespace uroce::wire
