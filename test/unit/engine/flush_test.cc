// A FLUSH of much memory, and what else its loop has to do. IBA A19.
#include <catch2/catch.hpp>

#include <cstring>

#include "engine/loop_fixture.h"

using namespace uroce;
using namespace uroce::test;
using wire::Opcode;

namespace {

constexpr std::size_t kBytes = 8U << 20;
constexpr std::size_t kLeast = kBytes / transport::Responder::kFlushPiece;  // iterations
constexpr std::uint32_t kRights = access::kAll | access::kFlushPersistent;
constexpr Qpn kFlushed{0x10};
constexpr Qpn kOther{0x20};

/// Two QPs of the same peer, and the memory that it may flush.
struct Flushing {
  Flushing() {
    for (transport::RcQp* qp : {flushed.get(), other.get()}) REQUIRE(f.connect(*qp));
    const QpAttr rights{.access_flags = kRights};
    REQUIRE(f.loop.modify(*flushed, rights, qp_attr::kAccessFlags, {.gid_count = 2}, f.now()));
    introduce(f);
  }
  ~Flushing() {
    for (transport::RcQp* qp : {flushed.get(), other.get()}) f.loop.remove(*qp, f.now());
  }
  void give(const Packet& packet, Qpn to) { f.give(frame_of(packet, f.from_peer(), to)); }
  void give_flush() {
    give({.opcode = Opcode::kRcFlush,
          .psn = 0,
          .ack_req = true,
          .feth = wire::Feth{.placement = wire::Feth::kPersistent, .selectivity = wire::Feth::kWholeMr},
          .reth = wire::Reth{.rkey = Rkey{key}}},
         kFlushed);
  }
  /// One iteration. @return what left
  std::vector<wire::Bth> step() {
    f.link.advance_to(f.now_ns += 1000);
    f.loop.run_once(f.now());
    std::vector<wire::Bth> left;
    for (const Bytes& frame : f.taken()) {
      wire::PacketView view;
      if (wire::parse_packet(frame, view) == wire::ParseResult::kRoce) left.push_back(view.bth);
    }
    return left;
  }

  Bytes memory = Bytes(kBytes);
  LoopFixture f;
  std::unique_ptr<transport::RcQp> flushed = f.make_qp(raw(kFlushed));
  std::unique_ptr<transport::RcQp> other = f.make_qp(raw(kOther));
  std::uint64_t addr = reinterpret_cast<std::uint64_t>(memory.data());
  std::uint32_t key = f.keys.insert({addr, kBytes, 1, kRights}).value();
};

}  // namespace

TEST_CASE("other QPs have their turns while much memory is flushed", "[engine][loop][placement]") {
  Flushing t;
  t.give_flush();
  CHECK(t.step().empty());
  t.give({.opcode = Opcode::kRcWriteOnly, .psn = 0, .ack_req = true, .reth = wire::Reth{}}, kOther);
  std::size_t answered = 0;  // in the iteration
  std::size_t flushed = 0;
  for (std::size_t i = 1; i <= 2 * kLeast && flushed == 0; ++i) {
    for (const wire::Bth& bth : t.step()) (bth.opcode == Opcode::kRcAck ? answered : flushed) = i;
  }
  CHECK(answered > 0);
  CHECK(answered < 4);
  CHECK(flushed >= kLeast);
}

TEST_CASE("a FLUSH whose region goes meanwhile is refused", "[engine][loop][placement][fault]") {
  Flushing t;
  t.give_flush();
  CHECK(t.step().empty());
  CHECK(t.step().empty());
  t.f.keys.remove(t.key);
  std::vector<wire::Bth> left = t.step();
  REQUIRE(left.size() == 1);
  CHECK(left[0].opcode == Opcode::kRcAck);  // a NAK
  CHECK(t.flushed->state() == QpState::kError);
}

TEST_CASE("an ATOMIC WRITE behind a FLUSH waits for it", "[engine][loop][placement]") {
  Flushing t;
  t.give_flush();
  CHECK(t.step().empty());
  t.give({.opcode = Opcode::kRcAtomicWrite,
          .psn = 1,
          .payload = 8,
          .ack_req = true,
          .reth = wire::Reth{.va = t.addr, .rkey = Rkey{t.key}, .length = 8},
          .data = Pattern{0x31}},
         kFlushed);
  CHECK(t.step().empty());  // has taken it
  CHECK(std::memcmp(t.memory.data(), Bytes(8).data(), 8) != 0);
  const std::vector<wire::Bth> left = t.step();  // all was flushed before it
  REQUIRE(left.size() == 2);
  CHECK(left[0].opcode == Opcode::kRcReadResponseOnly);
  CHECK(left[1].opcode == Opcode::kRcReadResponseOnly);
}
