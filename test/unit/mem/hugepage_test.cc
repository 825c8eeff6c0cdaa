#include "mem/hugepage.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "support/skip.h"

namespace uroce::mem {
namespace {

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

TEST_CASE("a buffer without hugepages is zeroed, page-aligned and at least as large as asked",
          "[mem][hugepage]") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{3} << 20}) {
    auto buffer = HugeBuffer::allocate(bytes, true);
    REQUIRE(buffer);
    CHECK(buffer->size() >= bytes);
    CHECK(buffer->size() % buffer->page_bytes() == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer->data()) % buffer->page_bytes() == 0);
    CHECK(is_zero(buffer->bytes()));
  }
}

TEST_CASE("a moved buffer has one owner", "[mem][hugepage]") {
  auto buffer = HugeBuffer::allocate(8192, true);
  REQUIRE(buffer);
  std::byte* data = buffer->data();
  HugeBuffer second = std::move(*buffer);
  CHECK(buffer->data() == nullptr);
  CHECK(second.data() == data);
  HugeBuffer third;
  third = std::move(second);
  CHECK(third.data() == data);
  third.bytes().back() = std::byte{1};
}

TEST_CASE("hugepages that are not there are refused with the numbers and the command", "[mem][hugepage]") {
  constexpr std::size_t kTooMuch = std::size_t{1} << 46;
  const auto buffer = HugeBuffer::allocate(kTooMuch, false);
  REQUIRE_FALSE(buffer);
  CHECK(buffer.error().code == Errc::kNoHugepages);
  CHECK_THAT(buffer.error().text, Catch::Contains("33554432 hugepages of 2 MiB are needed, ") &&
                                      Catch::Contains("run: sudo config/hugepages ") &&
                                      Catch::Contains("or add --no-huge (UROCE_NO_HUGE=1)"));
}

TEST_CASE("a buffer on hugepages takes whole 2 MiB pages and gives them back", "[mem][hugepage]") {
  if (hugepages_free() < 2) {
    return test::skip("fewer than 2 free hugepages; run: sudo config/hugepages");
  }
  const auto buffer = HugeBuffer::allocate(kHugepageBytes + 1, false);
  REQUIRE(buffer);
  CHECK(buffer->size() == 2 * kHugepageBytes);
  CHECK(buffer->page_bytes() == kHugepageBytes);
  CHECK(is_zero(buffer->bytes()));
}

TEST_CASE("a buffer of no bytes is refused", "[mem][hugepage]") {
  const auto buffer = HugeBuffer::allocate(0, true);
  REQUIRE_FALSE(buffer);
  CHECK(buffer.error().code == Errc::kInvalid);
}

TEST_CASE("hugepage pools are read smallest first, without the reserved pages", "[mem][hugepage]") {
  char name[] = "/tmp/uroce-pools-XXXXXX";
  const std::filesystem::path root = mkdtemp(name);
  const auto write = [&](const char* pool, const char* total, const char* free, const char* reserved) {
    std::filesystem::create_directory(root / pool);
    std::ofstream(root / pool / "nr_hugepages") << total;
    std::ofstream(root / pool / "free_hugepages") << free;
    std::ofstream(root / pool / "resv_hugepages") << reserved;
  };
  write("hugepages-1048576kB", "3", "2", "0");
  write("hugepages-2048kB", "64", "10", "4");
  const auto pools = hugepage_pools(root.string());
  std::filesystem::remove_all(root);
  REQUIRE(pools.size() == 2);
  CHECK(pools[0].page_bytes == kHugepageBytes);
  CHECK(pools[0].total == 64);
  CHECK(pools[0].free == 6);
  CHECK(pools[1].page_bytes == std::uint64_t{1} << 30);
  CHECK(pools[1].free == 2);
  CHECK(hugepage_pools("/nowhere").empty());
}

}  // namespace uroce::mem
