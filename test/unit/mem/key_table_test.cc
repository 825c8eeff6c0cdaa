#include "mem/key_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "mem/sge_cursor.h"

using namespace uroce;
using namespace uroce::mem;

namespace {

constexpr std::uint32_t kPd = 4;

KeyFault fault_of(const KeyTable& keys, std::uint32_t key, std::uint64_t addr, std::uint64_t length,
                  std::uint32_t rights = access::kRemoteRead, std::uint32_t pd = kPd) {
  KeyFault fault{};
  const std::byte* bytes = keys.resolve(key, pd, rights, addr, length, fault);
  CHECK((bytes == nullptr) == (fault != KeyFault::kNone));
  if (bytes != nullptr) CHECK(std::bit_cast<std::uint64_t>(bytes) == addr);
  return fault;
}

}  // namespace

TEST_CASE("an access by key is judged to the byte, without overflow", "[mem][key][T9]") {
  KeyTable keys(1, [] {});
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  struct Row {
    std::uint64_t base, size;
  };
  const auto row = GENERATE(values<Row>(
      {{0x1000, 0x100}, {8, 0x100}, {kMax - 0xff, 0x100}, {0x8000'0000'0000'0000, 1}, {1, kMax - 1}}));
  const std::uint32_t key =
      keys.insert({.addr = row.base, .length = row.size, .pd = kPd, .access = access::kAll}).value();
  const Wide end = Wide{row.base} + row.size;
  const std::uint64_t last = static_cast<std::uint64_t>(end - 1);
  for (const std::uint64_t addr :
       {std::uint64_t{0}, row.base - 1, row.base, row.base + 1, row.base + row.size / 2, last - 1, last,
        last + 1, last + 2, kMax - 1, kMax}) {
    for (const std::uint64_t length :
         {std::uint64_t{1}, std::uint64_t{2}, row.size / 2, row.size - 1, row.size, row.size + 1,
          std::uint64_t{1} << 31, (std::uint64_t{1} << 32) - 1, kMax - 1, kMax}) {
      if (length == 0) continue;
      const bool inside = addr >= row.base && Wide{addr} + length <= end;
      CAPTURE(row.base, row.size, addr, length);
      REQUIRE((fault_of(keys, key, addr, length) == KeyFault::kNone) == inside);
    }
  }
}

TEST_CASE("a zero-based region is named by places from 0, to the byte", "[mem][key][zero-based][T9]") {
  KeyTable keys(1, [] {});
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  constexpr std::uint64_t kAddr = 0x7000'0010;
  const std::uint64_t size = GENERATE(1U, 0x100U, 0x8000'0000U);
  const std::uint32_t key =
      keys.insert({.addr = kAddr, .length = size, .pd = kPd, .access = access::kAll | access::kZeroBased})
          .value();
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1}, size / 2, size - 1, size, size + 1,
                                 kAddr, kAddr + size - 1, kMax - size, kMax}) {
    for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{2}, size - 1, size, size + 1, kMax}) {
      if (length == 0) continue;
      CAPTURE(size, at, length);
      KeyFault fault{};
      const std::byte* memory = keys.resolve(key, kPd, access::kRemoteRead, at, length, fault);
      const bool inside = Wide{at} + length <= size;
      REQUIRE((memory != nullptr) == inside);
      REQUIRE(fault == (inside ? KeyFault::kNone : KeyFault::kOutOfRange));
      if (inside) REQUIRE(std::bit_cast<std::uint64_t>(memory) == kAddr + at);
    }
  }
  KeyFault fault{};
  const auto all = keys.resolve_all(key, {.pd = kPd}, access::kRemoteRead, fault);
  CHECK(std::bit_cast<std::uint64_t>(all.data()) == kAddr);
  CHECK(all.size() == size);
}

TEST_CASE("a key works in its own protection domain only", "[mem][key][S7]") {
  KeyTable keys(1, [] {});
  const std::uint32_t key =
      keys.insert({.addr = 64, .length = 64, .pd = kPd, .access = access::kAll}).value();
  CHECK(fault_of(keys, key, 64, 8) == KeyFault::kNone);
  for (const std::uint32_t pd : {0U, 3U, 5U, ~0U}) {
    CHECK(fault_of(keys, key, 64, 8, access::kRemoteRead, pd) == KeyFault::kWrongPd);
    CHECK_FALSE(keys.invalidate(key, {.pd = pd}));
  }
}

TEST_CASE("a key grants exactly the rights of its region", "[mem][key]") {
  KeyTable keys(1, [] {});
  for (std::uint32_t granted = 0; granted < 16; ++granted) {
    const std::uint32_t key = keys.insert({.addr = 64, .length = 64, .pd = kPd, .access = granted}).value();
    for (std::uint32_t wanted = 0; wanted < 16; ++wanted) {
      const KeyFault expected = (granted & wanted) == wanted ? KeyFault::kNone : KeyFault::kNoRights;
      CHECK(fault_of(keys, key, 64, 8, wanted) == expected);
    }
  }
}

TEST_CASE("whether a byte is registered is known by where it is, not by its name", "[mem][key]") {
  KeyTable keys(1, [] {});
  const auto covers = [&](std::uint64_t at) { return keys.covers(reinterpret_cast<const void*>(at)); };
  CHECK_FALSE(covers(0));
  const auto key = keys.insert({.addr = 0x1000, .length = 0x100, .pd = kPd});
  REQUIRE(keys.insert({.addr = 0x4000, .length = 0x10, .access = access::kZeroBased}));
  REQUIRE(keys.insert({.addr = 0x7'0000, .length = 0x10, .shift = 0x1'0000}));  // by an IOVA
  REQUIRE(keys.insert_window(MwType::kType2B, kPd));
  using Addresses = std::initializer_list<std::uint64_t>;
  for (const std::uint64_t at : Addresses{0x1000, 0x10ff, 0x4000, 0x400f, 0x8'0000, 0x8'000f}) {
    CAPTURE(at);
    CHECK(covers(at));
  }
  for (const std::uint64_t at :
       Addresses{0x0, 0xf, 0xfff, 0x1100, 0x3fff, 0x4010, 0x7'0000, 0x7'ffff, 0x8'0010}) {
    CAPTURE(at);
    CHECK_FALSE(covers(at));
  }
  keys.remove(key.value());
  CHECK_FALSE(covers(0x1000));
}

TEST_CASE("unknown, removed and reserved keys resolve to nothing", "[mem][key]") {
  KeyTable keys(1, [] {});
  const std::uint32_t key =
      keys.insert({.addr = 4096, .length = 1000, .pd = kPd, .access = access::kAll}).value();
  for (const std::uint32_t other : {0U, 1U, key ^ 1, key + 1, ~key}) {
    CHECK(fault_of(keys, other, 4096, 1) == KeyFault::kUnknownKey);
  }
  keys.remove(key);
  CHECK(fault_of(keys, key, 4096, 1) == KeyFault::kUnknownKey);
  CHECK(keys.size() == 0);
  keys.remove(key);
  keys.remove(0);
  keys.remove(1);
  CHECK(keys.size() == 0);
}

TEST_CASE("an invalidated key is gone for good, but only if its region is marked", "[mem][key]") {
  KeyTable keys(1, [] {});
  const std::uint32_t plain =
      keys.insert({.addr = 4096, .length = 8, .pd = kPd, .access = access::kAll}).value();
  const std::uint32_t marked =
      keys.insert({.addr = 4096, .length = 8, .pd = kPd, .access = access::kAll | access::kInvalidatable})
          .value();
  CHECK_FALSE(keys.invalidate(plain, {.pd = kPd}));
  CHECK(fault_of(keys, plain, 4096, 1) == KeyFault::kNone);
  CHECK(keys.invalidate(marked, {.pd = kPd}));
  CHECK(fault_of(keys, marked, 4096, 1) == KeyFault::kUnknownKey);
  for (int i = 0; i < 200; ++i)
    REQUIRE(keys.insert({.addr = 4096, .length = 8, .pd = kPd, .access = 0}).has_value());
  CHECK(fault_of(keys, marked, 4096, 1) == KeyFault::kUnknownKey);  // the table has grown meanwhile
  CHECK(fault_of(keys, plain, 4096, 1) == KeyFault::kNone);
  keys.remove(marked);
}

TEST_CASE("keys stay right while thousands come and go", "[mem][key][S6]") {
  KeyTable keys(7, [] {});
  Random random(3);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> live;  // key, address
  std::set<std::uint32_t> ever;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 500 || random.below(2) == 0) {
      const std::uint64_t addr = random.next() >> 8;
      const std::uint32_t key =
          keys.insert({.addr = addr, .length = 16, .pd = kPd, .access = access::kAll}).value();
      REQUIRE(key > 1);
      REQUIRE(ever.insert(key).second);
      live.emplace_back(key, addr);
    } else {
      const std::size_t i = random.below(live.size());
      keys.remove(live[i].first);
      REQUIRE(fault_of(keys, live[i].first, live[i].second, 16) == KeyFault::kUnknownKey);
      live[i] = live.back();
      live.pop_back();
    }
    const auto& [key, addr] = live[random.below(live.size())];
    REQUIRE(fault_of(keys, key, addr, 16) == KeyFault::kNone);
  }
  CHECK(keys.size() == live.size());
}

TEST_CASE("different seeds give different keys", "[mem][key][S6]") {
  KeyTable one(1, [] {}), two(2, [] {});
  const Region region{.addr = 4096, .length = 8, .pd = kPd, .access = 0};
  CHECK(one.insert(region).value() != two.insert(region).value());
}

TEST_CASE("a key is removed only after the loops have passed an iteration boundary", "[mem][key]") {
  int waits = 0;
  KeyTable keys(1, [&waits] { ++waits; });
  const std::uint32_t key = keys.insert({.addr = 4096, .length = 8, .pd = kPd, .access = 0}).value();
  CHECK(waits == 0);
  keys.remove(key);
  CHECK(waits == 1);
}

TEST_CASE("keys are looked up while others are entered", "[mem][key][threads]") {
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<bool> stop{false};
  const auto quiesce = [&] {  // until the reader has begun another round, as a loop does
    const std::uint64_t seen = rounds.load();
    while (!stop && rounds.load() < seen + 2) std::this_thread::yield();
  };
  KeyTable keys(1, quiesce);
  std::atomic<std::uint32_t> first{0};
  bool found = true;
  std::thread reader([&] {
    while (!stop) {
      ++rounds;
      const std::uint32_t key = first.load();
      KeyFault fault{};
      if (key != 0 && keys.resolve(key, kPd, 0, 64, 8, fault) == nullptr) found = false;
    }
  });
  first = keys.insert({.addr = 64, .length = 8, .pd = kPd, .access = 0}).value();
  for (int i = 0; i < 300; ++i) {
    const std::uint32_t key = keys.insert({.addr = 4096, .length = 8, .pd = kPd, .access = 0}).value();
    if (i % 3 == 0) keys.remove(key);
  }
  stop = true;
  reader.join();
  CHECK(found);
}

TEST_CASE("a cursor walks an SGE list in any steps", "[mem][sge]") {
  KeyTable keys(1, [] {});
  std::vector<std::byte> memory(1000);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
  const auto base = std::bit_cast<std::uint64_t>(memory.data());
  const Lkey key{
      keys.insert({.addr = base, .length = 1000, .pd = kPd, .access = access::kLocalWrite}).value()};
  const std::vector<Sge> sges{
      {base + 10, 100, key}, {base, 0, key}, {base + 500, 7, key}, {base + 200, 300, key}};
  std::vector<std::byte> whole;
  for (const Sge& sge : sges) {
    const auto* from = memory.data() + (sge.addr - base);
    whole.insert(whole.end(), from, from + sge.length);
  }
  const std::size_t step = GENERATE(1U, 3U, 64U, 100U, 107U, 407U);
  SgeCursor cursor;
  std::vector<std::byte> out;
  const auto take = [&out](const std::byte* from, std::size_t n) { out.insert(out.end(), from, from + n); };
  for (std::size_t at = 0; at < whole.size(); at += step) {
    const std::size_t n = std::min(step, whole.size() - at);
    out.clear();
    REQUIRE(cursor.gather(sges, keys, kPd, at, n, take) == KeyFault::kNone);
    REQUIRE(out.size() == n);
    REQUIRE(std::equal(out.begin(), out.end(), whole.begin() + static_cast<std::ptrdiff_t>(at)));
  }
  // Anywhere, forwards and backwards.
  for (const std::size_t at : {400UL, 0UL, 99UL, 100UL, 107UL, 106UL, 3UL}) {
    REQUIRE(cursor.gather(sges, keys, kPd, at, 1, take) == KeyFault::kNone);
    REQUIRE(out.back() == whole[at]);
  }
  CHECK(cursor.gather(sges, keys, kPd, 407, 0, take) == KeyFault::kNone);
  CHECK(cursor.gather(sges, keys, kPd, 407, 1, take) == KeyFault::kOutOfRange);
}

TEST_CASE("a cursor writes nothing through an SGE without the right", "[mem][sge]") {
  KeyTable keys(1, [] {});
  std::vector<std::byte> memory(100);
  const auto base = std::bit_cast<std::uint64_t>(memory.data());
  const Lkey key{
      keys.insert({.addr = base, .length = 100, .pd = kPd, .access = access::kRemoteRead}).value()};
  const Sge sge{base, 100, key};
  const std::vector<std::byte> data(10, std::byte{1});
  SgeCursor cursor;
  CHECK(cursor.scatter({&sge, 1}, keys, kPd, 0, data.size(), CopyFrom{data.data()}) == KeyFault::kNoRights);
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  const auto refuse = [](const std::byte*, std::size_t) { FAIL("bytes of another protection domain"); };
  CHECK(cursor.gather({&sge, 1}, keys, kPd + 1, 0, 1, refuse) == KeyFault::kWrongPd);
}

TEST_CASE("a region under other addresses than its own is judged by them, and leads to its bytes",
          "[mem][key][shift]") {
  KeyTable keys(1, [] {});
  constexpr std::uint64_t kMemory = 0x7000;
  const std::uint64_t addr = GENERATE(values<std::uint64_t>({0x1000, 0x9000, 0}));  // below, above, zero
  const std::uint32_t key = keys.insert({.addr = addr,
                                         .length = 64,
                                         .pd = kPd,
                                         .access = access::kAll | access::kMwBind,
                                         .shift = kMemory - addr})
                                .value();
  const auto byte_at = [&](std::uint32_t by, std::uint64_t at) {
    KeyFault fault{};
    return std::bit_cast<std::uint64_t>(
        keys.resolve_remote(by, {.pd = kPd}, access::kRemoteRead, at, 1, fault));
  };
  CHECK(byte_at(key, addr) == kMemory);
  CHECK(byte_at(key, addr + 63) == kMemory + 63);
  CHECK(byte_at(key, addr + 64) == 0);
  CHECK(byte_at(key, kMemory) == 0);

  const std::uint32_t window = keys.insert_window(MwType::kType1, kPd).value();
  REQUIRE(keys.bind(window + 1, {.pd = kPd},
                    {.mr = Lkey{key}, .addr = addr + 8, .length = 8, .access = access::kRemoteRead}) ==
          BindResult::kDone);
  CHECK(byte_at(window + 1, addr + 8) == kMemory + 8);
  CHECK(byte_at(window + 1, addr + 7) == 0);
}
