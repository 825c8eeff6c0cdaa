// Copies of payloads: every byte where it belongs, and no other touched.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "base/copy.h"

namespace {

constexpr std::size_t kMargin = 64;
constexpr std::uint64_t kSeed = 77;

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t size) noexcept;

bool is_exact(Copy copy, std::size_t from_at, std::size_t to_at, std::size_t size) {
  std::mt19937_64 random{kSeed + size};
  std::vector<std::byte> from(size + kMargin);
  for (auto& byte : from) byte = static_cast<std::byte>(random());
  std::vector<std::byte> to(size + 3 * kMargin, std::byte{0xa5});
  auto expected = to;
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_at), size,
              expected.begin() + static_cast<std::ptrdiff_t>(to_at));
  copy(to.data() + to_at, from.data() + from_at, size);
  return to == expected;
}

}  // namespace

TEST_CASE("a part of a message is copied exactly, whatever its length and place", "[base][copy]") {
  for (const Copy copy : {&uroce::copy_payload, &uroce::copy_past_caches}) {
    for (std::size_t size = 0; size <= 300; ++size) {
      for (std::size_t at = 0; at < kMargin; at += 7) {
        if (!is_exact(copy, at, kMargin + (at * 5) % kMargin, size)) FAIL(size << " to " << at);
      }
    }
    for (const std::size_t size : {1024U, 4095U, 4096U, 9000U}) {
      for (std::size_t at = 0; at < kMargin; ++at) {
        if (!is_exact(copy, 3, kMargin + at, size)) FAIL(size << " to " << at);
      }
    }
  }
}
