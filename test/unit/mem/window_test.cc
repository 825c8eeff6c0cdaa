/// Memory windows in the key table: who may use them, what they may be bound to, when they end.
#include "mem/window.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "mem/key_table.h"

namespace uroce::mem {
namespace {

constexpr std::uint32_t kPd = 7;
constexpr KeyUser kOwner{.pd = kPd, .qpn = Qpn{0x11}};
constexpr KeyUser kSamePd{.pd = kPd, .qpn = Qpn{0x12}};
constexpr KeyUser kSameQpn{.pd = kPd + 1, .qpn = Qpn{0x11}};
constexpr std::uint64_t kBase = 0x10000;
constexpr std::uint32_t kRights = access::kAll | access::kMwBind;

KeyFault fault_of(const KeyTable& keys, std::uint32_t key, const KeyUser& user, std::uint64_t addr,
                  std::uint64_t length, std::uint32_t access = access::kRemoteRead) {
  KeyFault fault{};
  std::byte* memory = keys.resolve_remote(key, user, access, addr, length, fault);
  REQUIRE((memory != nullptr) == (fault == KeyFault::kNone));
  return fault;
}

/// A region of 4096 bytes with a window that is bound to 64 of them.
struct Bound {
  explicit Bound(MwType type, std::uint32_t access = access::kRemoteRead | access::kRemoteWrite)
      : region(keys.insert({.addr = kBase, .length = 4096, .pd = kPd, .access = kRights}).value()),
        window(keys.insert_window(type, kPd).value()) {
    to = {.mr = Lkey{region}, .addr = kBase + 64, .length = 64, .access = access};
    REQUIRE(keys.bind(window + 1, kOwner, to) == BindResult::kDone);
  }
  KeyTable keys{1, [] {}};
  std::uint32_t region;
  std::uint32_t window;
  MwBind to;
};

}  // namespace

TEST_CASE("a window gives what it is bound to, by the key that it was given", "[mem][window]") {
  const auto type = GENERATE(values<MwType>({MwType::kType1, MwType::kType2A, MwType::kType2B}));
  Bound it(type);
  const std::uint32_t key = it.window + 1;
  CHECK(fault_of(it.keys, key, kOwner, kBase + 64, 64) == KeyFault::kNone);
  CHECK(fault_of(it.keys, key, kOwner, kBase + 127, 1) == KeyFault::kNone);
  CHECK(fault_of(it.keys, key, kOwner, kBase + 63, 1) == KeyFault::kOutOfRange);
  CHECK(fault_of(it.keys, key, kOwner, kBase + 64, 65) == KeyFault::kOutOfRange);
  CHECK(fault_of(it.keys, key, kOwner, kBase + 128, 1) == KeyFault::kOutOfRange);
  CHECK(fault_of(it.keys, key, kOwner, ~std::uint64_t{0}, 2) == KeyFault::kOutOfRange);
  CHECK(fault_of(it.keys, key, kOwner, kBase + 64, 8, access::kRemoteWrite) == KeyFault::kNone);
  CHECK(fault_of(it.keys, key, kOwner, kBase + 64, 8, access::kRemoteAtomic) == KeyFault::kNoRights);
  for (std::uint32_t low = 0; low < 256; ++low) {
    if (low == 1) continue;
    REQUIRE(fault_of(it.keys, it.window + low, kOwner, kBase + 64, 1) == KeyFault::kUnknownKey);
  }
  KeyFault fault{};
  CHECK(it.keys.resolve_all(key, kOwner, 0, fault).size() == 64);
  CHECK(it.keys.resolve(key, kPd, 0, kBase + 64, 1, fault) == nullptr);  // it is no local key
  CHECK(fault == KeyFault::kUnknownKey);
}

TEST_CASE("type 1 serves a protection domain, 2A a QP, 2B both", "[mem][window][S7]") {
  const auto type = GENERATE(values<MwType>({MwType::kType1, MwType::kType2A, MwType::kType2B}));
  Bound it(type);
  const auto may = [&](const KeyUser& user) {
    return fault_of(it.keys, it.window + 1, user, kBase + 64, 1) == KeyFault::kNone;
  };
  CHECK(may(kOwner));
  CHECK(may(kSamePd) == (type == MwType::kType1));
  CHECK(may(kSameQpn) == (type == MwType::kType2A));
}

TEST_CASE("a window is bound by its own protection domain only", "[mem][window][S7]") {
  const auto type = GENERATE(values<MwType>({MwType::kType1, MwType::kType2A, MwType::kType2B}));
  KeyTable keys(1, [] {});
  const std::uint32_t foreign =
      keys.insert({.addr = kBase, .length = 64, .pd = kSameQpn.pd, .access = kRights}).value();
  const std::uint32_t window = keys.insert_window(type, kPd).value();
  const MwBind to{.mr = Lkey{foreign}, .addr = kBase, .length = 8, .access = access::kRemoteRead};
  CHECK(keys.bind(window + 1, kSameQpn, to) == BindResult::kRefused);
  CHECK(keys.bind(window + 1, kOwner, to) == BindResult::kRefused);
  CHECK(keys.remove_unbound(foreign));
}

TEST_CASE("a window of type 1 outlives the QP that bound it", "[mem][window]") {
  Bound it(MwType::kType1);
  it.keys.release_windows(kOwner.qpn);
  CHECK(fault_of(it.keys, it.window + 1, kSamePd, kBase + 64, 64) == KeyFault::kNone);
}

TEST_CASE("a window of type 1 is bound again under a new key, or to nothing", "[mem][window]") {
  Bound it(MwType::kType1);
  CHECK(it.keys.bind(it.window + 1, kSamePd, it.to) == BindResult::kRefused);  // the key it has
  it.to.addr = kBase + 256;
  CHECK(it.keys.bind(it.window + 2, kSamePd, it.to) == BindResult::kDone);
  CHECK(fault_of(it.keys, it.window + 1, kOwner, kBase + 64, 1) == KeyFault::kUnknownKey);
  CHECK(fault_of(it.keys, it.window + 2, kOwner, kBase + 64, 1) == KeyFault::kOutOfRange);
  CHECK(fault_of(it.keys, it.window + 2, kOwner, kBase + 256, 1) == KeyFault::kNone);
  CHECK_FALSE(it.keys.invalidate(it.window + 2, kOwner));
  it.to.length = 0;
  CHECK(it.keys.bind(it.window + 3, kOwner, it.to) == BindResult::kDone);
  for (std::uint32_t low : {1U, 2U, 3U}) {
    CHECK(fault_of(it.keys, it.window + low, kOwner, kBase + 256, 0) == KeyFault::kUnknownKey);
  }
  CHECK(it.keys.remove_unbound(it.region));
}

TEST_CASE("a window of type 2 is bound once, until the QP that bound it invalidates it", "[mem][window]") {
  const auto type = GENERATE(values<MwType>({MwType::kType2A, MwType::kType2B}));
  Bound it(type);
  CHECK(it.keys.bind(it.window + 2, kOwner, it.to) == BindResult::kRefused);
  CHECK_FALSE(it.keys.may_invalidate(it.window + 2, kOwner));
  CHECK_FALSE(it.keys.invalidate(it.window + 2, kOwner));
  CHECK_FALSE(it.keys.invalidate(it.window + 1, kSamePd));
  CHECK(it.keys.may_invalidate(it.window + 1, kSameQpn) == (type == MwType::kType2A));
  CHECK(it.keys.may_invalidate(it.window + 1, kOwner));
  CHECK(it.keys.invalidate(it.window + 1, kOwner));
  CHECK(fault_of(it.keys, it.window + 1, kOwner, kBase + 64, 1) == KeyFault::kUnknownKey);
  CHECK_FALSE(it.keys.invalidate(it.window + 1, kOwner));
  CHECK(it.keys.bind(it.window + 1, kSamePd, it.to) == BindResult::kDone);
  CHECK(fault_of(it.keys, it.window + 1, kOwner, kBase + 64, 1) == KeyFault::kWrongPd);
}

TEST_CASE("places in a zero-based window count from its first byte, in whatever region",
          "[mem][window][zero-based]") {
  const auto type = GENERATE(values<MwType>({MwType::kType2A, MwType::kType2B}));
  const bool is_zero_based = GENERATE(true, false);         // the region
  const bool is_window_zero_based = GENERATE(true, false);  // the window
  KeyTable keys(1, [] {});
  const std::uint32_t zero = access::kZeroBased;
  const std::uint32_t region =
      keys.insert({.addr = kBase, .length = 4096, .pd = kPd, .access = kRights | (is_zero_based ? zero : 0)})
          .value();
  const std::uint32_t window = keys.insert_window(type, kPd).value();
  const std::uint64_t first = is_zero_based ? 0 : kBase;
  MwBind to{.mr = Lkey{region},
            .addr = first + 4033,
            .length = 64,
            .access = access::kRemoteRead | (is_window_zero_based ? zero : 0)};
  CHECK(keys.bind(window + 1, kOwner, to) == BindResult::kRefused);  // a byte too many
  to.addr -= 1;
  REQUIRE(keys.bind(window + 1, kOwner, to) == BindResult::kDone);
  const std::uint64_t named = is_window_zero_based ? 0 : first + 4032;
  KeyFault fault{};
  const std::byte* memory =
      keys.resolve_remote(window + 1, kOwner, access::kRemoteRead, named + 3, 61, fault);
  CHECK(std::bit_cast<std::uint64_t>(memory) == kBase + 4035);
  CHECK(fault_of(keys, window + 1, kOwner, named + 3, 62) == KeyFault::kOutOfRange);
  CHECK(fault_of(keys, window + 1, kOwner, named - 1, 1) == KeyFault::kOutOfRange);
  CHECK(fault_of(keys, window + 1, kOwner, named + 64, 1) == KeyFault::kOutOfRange);
  const auto all = keys.resolve_all(window + 1, kOwner, access::kRemoteRead, fault);
  CHECK(std::bit_cast<std::uint64_t>(all.data()) == kBase + 4032);
  CHECK(all.size() == 64);
}

TEST_CASE("a window of type 1 is not zero-based", "[mem][window][zero-based]") {
  Bound it(MwType::kType1);
  it.to.access |= access::kZeroBased;
  CHECK(it.keys.bind(it.window + 2, kOwner, it.to) == BindResult::kRefused);
  CHECK(fault_of(it.keys, it.window + 1, kOwner, kBase + 64, 64) == KeyFault::kNone);  // as it was
}

TEST_CASE("what a bind may ask for", "[mem][window]") {
  // IBA C10-72 to C10-75 ?
  const auto type = GENERATE(values<MwType>({MwType::kType1, MwType::kType2B}));
  const bool is_type1 = type == MwType::kType1;
  KeyTable keys(1, [] {});
  const auto insert = [&](std::uint32_t pd, std::uint32_t access) {
    return Lkey{keys.insert({.addr = kBase, .length = 4096, .pd = pd, .access = access}).value()};
  };
  const std::uint32_t window = keys.insert_window(type, kPd).value();
  MwBind to{.mr = insert(kPd, kRights), .addr = kBase, .length = 4096, .access = access::kRemoteWrite};
  KeyUser user = kOwner;
  std::uint32_t key = window + 5;
  BindResult expected = BindResult::kRefused;
  SECTION("all of the region") {
    expected = BindResult::kDone;
  }
  SECTION("no right at all") {
    to.access = 0;
    expected = BindResult::kDone;
  }
  SECTION("reading, of a region that is not for writing") {
    to.mr = insert(kPd, access::kMwBind);
    to.access = access::kRemoteRead;
    expected = BindResult::kDone;
  }
  SECTION("writing, of a region that is not for writing") {
    to.mr = insert(kPd, access::kMwBind);
    to.access = is_type1 ? access::kRemoteWrite : access::kRemoteAtomic;
  }
  SECTION("a FLUSH placement that the region has not") {
    to.access = is_type1 ? access::kFlushGlobal : access::kFlushPersistent;
  }
  SECTION("what is no right of a peer") {
    to.access = is_type1 ? access::kLocalWrite : access::kInvalidatable;
  }
  SECTION("a region without the right to bind") {
    to.mr = insert(kPd, access::kAll);
  }
  SECTION("a region of another protection domain") {
    to.mr = insert(kPd + 1, kRights);
  }
  SECTION("no region") {
    to.mr = Lkey{is_type1 ? 1U : 0x1234'5678U};
  }
  SECTION("a window as region") {
    to.mr = Lkey{window};
  }
  SECTION("a region as window") {
    key = raw(to.mr);
  }
  SECTION("an unknown window") {
    key = is_type1 ? 1U : 0x8765'4321U;
  }
  SECTION("a QP of another protection domain") {
    user.pd = kPd + 1;
  }
  SECTION("one byte more than the region has") {
    to.length = 4097;
  }
  SECTION("a byte before it") {
    to.addr = kBase - 1;
  }
  SECTION("around the end of the address space") {
    to.addr = ~std::uint64_t{0};
  }
  SECTION("nothing, which only type 1 knows") {
    to.length = 0;
    expected = is_type1 ? BindResult::kDone : BindResult::kRefused;
  }
  CHECK(keys.bind(key, user, to) == expected);
  const bool gives = expected == BindResult::kDone && to.length > 0;
  CHECK((fault_of(keys, window + 5, kOwner, kBase, 1, 0) == KeyFault::kNone) == gives);
  CHECK(keys.remove_unbound(raw(to.mr)).has_value() == !gives);
}

TEST_CASE("a region with windows is neither removed, replaced nor invalidated", "[mem][window]") {
  KeyTable keys(1, [] {});
  const Region region{.addr = kBase, .length = 64, .pd = kPd, .access = kRights | access::kInvalidatable};
  const std::uint32_t mr = keys.insert(region).value();
  const std::uint32_t window = keys.insert_window(MwType::kType2A, kPd).value();
  const MwBind to{.mr = Lkey{mr}, .addr = kBase, .length = 8, .access = access::kRemoteRead};
  REQUIRE(keys.bind(window, kOwner, to) == BindResult::kDone);
  CHECK(keys.remove_unbound(mr).error().code == Errc::kBusy);
  CHECK(keys.replace(mr, region).error().code == Errc::kBusy);
  CHECK_FALSE(keys.may_invalidate(mr, kOwner));
  CHECK_FALSE(keys.invalidate(mr, kOwner));
  CHECK(fault_of(keys, mr, kOwner, kBase, 8) == KeyFault::kNone);
  SECTION("until they are gone") {
    keys.remove_window(window);
    CHECK(fault_of(keys, window, kOwner, kBase, 8) == KeyFault::kUnknownKey);
  }
  SECTION("until they are invalidated") {
    REQUIRE(keys.invalidate(window, kOwner));
  }
  SECTION("until their QP is gone") {
    keys.release_windows(kSamePd.qpn);
    CHECK(fault_of(keys, window, kOwner, kBase, 8) == KeyFault::kNone);
    keys.release_windows(kOwner.qpn);
    CHECK(fault_of(keys, window, kOwner, kBase, 8) == KeyFault::kUnknownKey);
  }
  CHECK(keys.replace(mr, region));
  CHECK(keys.invalidate(mr, kOwner));
  CHECK(keys.bind(window, kOwner, to) == BindResult::kRefused);
  CHECK(keys.remove_unbound(mr));
}

TEST_CASE("a region that goes all the same takes its windows along", "[mem][window][S7]") {
  Bound it(MwType::kType2A);
  it.keys.remove(it.region);
  CHECK(fault_of(it.keys, it.window + 1, kOwner, kBase + 64, 1) == KeyFault::kUnknownKey);
  CHECK(it.keys.bind(it.window + 2, kOwner, it.to) == BindResult::kRefused);
  const bool invalidated = GENERATE(true, false);
  if (invalidated) CHECK(it.keys.invalidate(it.window + 1, kOwner));
  it.keys.remove_window(it.window);
  CHECK(it.keys.size() == 0);
  it.keys.remove(it.keys.insert({.addr = kBase, .length = 1, .pd = kPd, .access = 0}).value());
}

TEST_CASE("a region keeps its key while all else of it changes", "[mem][window][rereg]") {
  KeyTable keys(1, [] {});
  const std::uint32_t key =
      keys.insert({.addr = kBase, .length = 64, .pd = kPd, .access = access::kAll}).value();
  const std::uint32_t other = keys.insert({.addr = 64, .length = 64, .pd = kPd, .access = 0}).value();
  REQUIRE(keys.replace(key, {.addr = 2 * kBase, .length = 32, .pd = kPd + 1, .access = kRights}));
  CHECK(fault_of(keys, key, kOwner, kBase, 1) == KeyFault::kWrongPd);
  CHECK(fault_of(keys, key, kSameQpn, kBase, 1) == KeyFault::kOutOfRange);
  CHECK(fault_of(keys, key, kSameQpn, 2 * kBase, 32) == KeyFault::kNone);
  CHECK(fault_of(keys, key, kSameQpn, 2 * kBase, 33) == KeyFault::kOutOfRange);
  CHECK(fault_of(keys, other, kOwner, 64, 64, 0) == KeyFault::kNone);
  const std::uint32_t window = keys.insert_window(MwType::kType1, kPd + 1).value();
  CHECK(keys.bind(window, kSameQpn, {.mr = Lkey{key}, .addr = 2 * kBase, .length = 1}) == BindResult::kDone);
  CHECK(keys.size() == 3);
}

TEST_CASE("a region that was invalidated, or may have no windows any more, is registered anew and goes",
          "[mem][window][rereg]") {
  KeyTable keys(1, [] {});
  const Region region{.addr = kBase, .length = 64, .pd = kPd, .access = kRights | access::kInvalidatable};
  const std::uint32_t key = keys.insert(region).value();
  REQUIRE(keys.invalidate(key, kOwner));
  REQUIRE(fault_of(keys, key, kOwner, kBase, 1) == KeyFault::kUnknownKey);
  REQUIRE(keys.replace(key, {.addr = kBase, .length = 64, .pd = kPd, .access = access::kAll}));
  CHECK(fault_of(keys, key, kOwner, kBase, 64) == KeyFault::kNone);
  const std::uint32_t window = keys.insert_window(MwType::kType1, kPd).value();
  CHECK(keys.bind(window + 1, kOwner, {.mr = Lkey{key}, .addr = kBase, .length = 1}) == BindResult::kRefused);
  CHECK(keys.remove_unbound(key));
  CHECK(fault_of(keys, key, kOwner, kBase, 1) == KeyFault::kUnknownKey);
}

TEST_CASE("no key of a window is one that anything else has or had", "[mem][window][S6]") {
  KeyTable keys(5, [] {});
  std::set<std::uint32_t> regions, windows;
  for (int i = 0; i < 3000; ++i) {
    const std::uint32_t key = keys.insert({.addr = kBase, .length = 1, .pd = kPd, .access = 0}).value();
    regions.insert(key >> 8);
    REQUIRE_FALSE(windows.contains(key >> 8));
    const std::uint32_t window = keys.insert_window(MwType::kType1, kPd).value();
    REQUIRE((window & 0xff) == 0);
    REQUIRE(windows.insert(window >> 8).second);
    REQUIRE_FALSE(regions.contains(window >> 8));
    if (i % 3 == 0) keys.remove(key);
    if (i % 4 == 0) keys.remove_window(window);
  }
}

TEST_CASE("a reader sees one binding or the other, never a part of each", "[mem][window][threads]") {
  KeyTable keys(1, [] {});
  const std::uint32_t mr =
      keys.insert({.addr = kBase, .length = 1U << 20, .pd = kPd, .access = kRights}).value();
  const std::uint32_t window = keys.insert_window(MwType::kType1, kPd).value();
  // Bindings under even keys are long and may be read, under odd keys short, elsewhere, and may be written.
  const MwBind even{.mr = Lkey{mr}, .addr = kBase, .length = 4096, .access = access::kRemoteRead};
  const MwBind odd{.mr = Lkey{mr}, .addr = kBase + 65536, .length = 8, .access = access::kRemoteWrite};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> seen{0};
  std::thread reader([&] {
    KeyFault fault{};
    const auto gives = [&](std::uint32_t key, std::uint32_t access, std::uint64_t addr,
                           std::uint64_t length) {
      return keys.resolve_remote(window + key, kSamePd, access, addr, length, fault) != nullptr;
    };
    while (!stop) {
      seen += gives(2, access::kRemoteRead, kBase, 4096) ? 1 : 0;
      wrong += gives(2, access::kRemoteRead, kBase + 65536, 8) ? 1 : 0;
      wrong += gives(2, access::kRemoteWrite, kBase, 8) ? 1 : 0;
      wrong += gives(1, access::kRemoteWrite, kBase + 65536, 16) ? 1 : 0;
      wrong += gives(1, access::kRemoteRead, kBase + 65536, 8) ? 1 : 0;
      wrong += gives(1, access::kRemoteWrite, kBase, 1) ? 1 : 0;
    }
  });
  for (int i = 0; i < 200'000 || seen == 0; ++i) {
    const bool is_odd = i % 2 == 0;
    REQUIRE(keys.bind(window + (is_odd ? 1 : 2), kOwner, is_odd ? odd : even) == BindResult::kDone);
  }
  stop = true;
  reader.join();
  CHECK(wrong == 0);
  keys.remove_window(window);
  CHECK(keys.remove_unbound(mr));
}

TEST_CASE("of several threads that bind a free window one succeeds", "[mem][window][threads]") {
  KeyTable keys(1, [] {});
  const std::uint32_t mr = keys.insert({.addr = kBase, .length = 64, .pd = kPd, .access = kRights}).value();
  const std::uint32_t window = keys.insert_window(MwType::kType2A, kPd).value();
  std::atomic<int> bound{0};
  const auto work = [&](std::uint32_t qpn) {
    const KeyUser me{.pd = kPd, .qpn = Qpn{qpn}};
    const MwBind to{.mr = Lkey{mr}, .addr = kBase, .length = 8, .access = access::kRemoteRead};
    for (int i = 0; i < 50'000; ++i) {
      if (keys.bind(window + qpn, me, to) != BindResult::kDone) continue;
      if (bound.fetch_add(1) != 0) bound = 1000;
      bound.fetch_sub(1);
      if (!keys.invalidate(window + qpn, me)) bound = 1000;
    }
  };
  std::thread one(work, 1), two(work, 2);
  one.join();
  two.join();
  CHECK(bound == 0);
  CHECK(keys.remove_unbound(mr));
}

}  // namespace uroce::mem
