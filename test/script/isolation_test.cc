// A peer's rights end in the middle of a transfer: it gets a NAK and not one byte more.
#include <catch2/catch.hpp>

#include "base/random.h"
#include "script/remote.h"

using namespace uroce;
using namespace uroce::test;

namespace {

constexpr Pattern kData{0x66, 5};
constexpr std::uint32_t kMtu = 256;
constexpr int kRuns = 1000;

/// How a key stops being one that the QP may use.
enum class End : std::uint8_t { kDeregistered, kInvalidated, kReplacedByOtherDomain };

/// A region of the script's target memory that goes away.
class Lease {
 public:
  Lease(RcScript& qp, std::uint32_t bytes)
      : qp_(qp),
        region_{.addr = qp.target.addr(),
                .length = bytes,
                .pd = RcScript::kPd,
                .access = access::kAll | access::kInvalidatable},
        key_(qp.keys().insert(region_).value()) {}

  [[nodiscard]] wire::Reth reth() const {
    return {.va = region_.addr, .rkey = Rkey{key_}, .length = static_cast<std::uint32_t>(region_.length)};
  }
  void end(End how) {
    if (how == End::kInvalidated) {
      REQUIRE(qp_.keys().invalidate(key_, {.pd = RcScript::kPd, .qpn = RcScript::kLocal}));
      return;
    }
    qp_.keys().remove(key_);
    if (how == End::kDeregistered) return;
    region_.pd = RcScript::kPd + 1;  // the same memory, for somebody else
    REQUIRE(qp_.keys().insert(region_).value() != key_);
  }

 private:
  RcScript& qp_;
  mem::Region region_;
  std::uint32_t key_;
};

/// Packet `i` of a WRITE of `bytes`.
Packet write_packet(const Lease& lease, std::uint32_t i, std::uint32_t bytes) {
  const bool last = (i + 1) * kMtu >= bytes;
  return {.opcode = i == 0 ? kRcWriteFirst
                    : last ? kRcWriteLast
                           : kRcWriteMiddle,
          .psn = i,
          .payload = last ? bytes - i * kMtu : kMtu,
          .reth = lease.reth(),
          .data = from(kData, i * kMtu)};
}

/// A message of several packets, of which `good` come before its key ends.
struct Cut {
  std::uint32_t bytes;
  std::uint32_t good;
};
Cut cut_somewhere(Random& random) {
  const auto bytes = static_cast<std::uint32_t>(kMtu + 1 + random.below(3000));
  const std::uint32_t packets = (bytes + kMtu - 1) / kMtu;
  return {bytes, static_cast<std::uint32_t>(random.below(packets))};
}

}  // namespace

TEST_CASE("a WRITE whose key ends anywhere in it is NAKed there and writes nothing more",
          "[rc][fault][key][S7]") {
  // IBA 10.6.3 ?
  const End how = GENERATE(End::kDeregistered, End::kInvalidated, End::kReplacedByOtherDomain);
  Random random(raw(how) + 1);
  for (int run = 0; run < kRuns; ++run) {
    const auto [bytes, good] = cut_somewhere(random);
    CAPTURE(how, run, bytes, good);
    RcScript qp{{.mtu = kMtu, .area_bytes = 4096}};
    Lease lease(qp, bytes);
    for (std::uint32_t i = 0; i < good; ++i) qp.in(write_packet(lease, i, bytes));
    lease.end(how);
    qp.in(write_packet(lease, good, bytes));
    qp.out(Nak{good, 0x62, 0}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError).quiet();
    REQUIRE(qp.target.holds(0, good * kMtu, kData));
    REQUIRE(qp.target.is_untouched_but(0, good * kMtu));
  }
}

TEST_CASE("a READ whose key ends anywhere in it is NAKed there and reads nothing more",
          "[rc][fault][key][S7]") {
  // IBA 10.6.3 ?
  const End how = GENERATE(End::kDeregistered, End::kInvalidated, End::kReplacedByOtherDomain);
  Random random(raw(how) + 11);
  for (int run = 0; run < kRuns; ++run) {
    const auto [bytes, good] = cut_somewhere(random);
    CAPTURE(how, run, bytes, good);
    RcScript qp{{.mtu = kMtu, .area_bytes = 4096}};
    Lease lease(qp, bytes);
    qp.port().room = 0;
    qp.in({.opcode = kRcReadRequest, .psn = 0, .ack_req = true, .reth = lease.reth()}).quiet();
    for (std::uint32_t i = 0; i < good; ++i) {
      qp.port().room = 1;
      qp.transmit().out({.opcode = i == 0 ? kRcReadResponseFirst : kRcReadResponseMiddle,
                         .psn = i,
                         .payload = kMtu,
                         .data = qp.target.initial(i * kMtu)});
      qp.port().room = 0;
    }
    lease.end(how);
    qp.port().room = 100;
    qp.transmit().out(Nak{good, 0x62, 1}).raises(AsyncEventType::kQpAccessErr).is_in(QpState::kError);
    qp.quiet();
  }
}
