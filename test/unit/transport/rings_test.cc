#include <array>
#include <catch2/catch.hpp>
#include <cstring>

#include "base/random.h"
#include "transport/cq_ring.h"
#include "transport/receives.h"
#include "transport/responder_resources.h"
#include "transport/wqe_ring.h"

using namespace uroce;
using namespace uroce::transport;

TEST_CASE("a CQ gives completions back in order and refuses what does not fit", "[transport][cq]") {
  CqRing cq(4);
  CHECK(cq.is_empty());
  Wc out[8];
  CHECK(cq.poll(out) == 0);
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(cq.push({.wr_id = id}, false));
    CHECK_FALSE(cq.push({.wr_id = 99}, false));
    CHECK(cq.poll(std::span(out).first(3)) == 3);
    CHECK(out[2].wr_id == 2);
    REQUIRE(cq.push({.wr_id = 4}, false));
    CHECK(cq.poll(out) == 2);
    CHECK(out[0].wr_id == 3);
    CHECK(out[1].wr_id == 4);
    CHECK(cq.is_empty());
  }
}

TEST_CASE("what a CQ had no room for comes in order once it has, and nothing more is put off then",
          "[transport][cq][overflow]") {
  CqRing cq(4);
  cq.add_receive_demand(4);
  Wc out[8];
  std::uint64_t next = 0;
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t first = next;
    while (next - first < 4) REQUIRE(cq.push({.wr_id = next++}, false));
    while (next - first < 8) REQUIRE(cq.put_off({.wc = {.wr_id = next++}}, Qpn{7}));
    CHECK(cq.shows_late());
    CHECK_FALSE(cq.put_off({.wc = {.wr_id = 99}}, Qpn{7}));  // as many receives wait as it has entries
    REQUIRE(cq.poll(out) == 4);
    CHECK(out[0].wr_id == first);
    REQUIRE(cq.put_off({.wc = {.wr_id = next++}}, Qpn{7}));  // but now there is room for those
    REQUIRE(cq.poll(out) == 4);
    CHECK(out[0].wr_id == first + 4);
    REQUIRE(cq.put_off({.wc = {.wr_id = next++}}, Qpn{7}));  // and for this one itself
    CHECK_FALSE(cq.shows_late());
    REQUIRE(cq.poll(out) == 2);
    CHECK(out[1].wr_id == next - 1);
  }
}

TEST_CASE("the timestamp of a completion is of when it came, not of when there was room",
          "[transport][cq][timestamps]") {
  Ticks now{1000};
  CqRing cq(2, -1, &now, true);
  cq.add_receive_demand(2);
  for (int i = 0; i < 2; ++i) REQUIRE(cq.push({}, false));
  now = Ticks{2000};
  REQUIRE(cq.put_off({}, Qpn{7}));
  now = Ticks{3000};
  Wc out[4];
  REQUIRE(cq.poll(out) == 2);
  CHECK(out[1].timestamp_ns == 1000);
  cq.catch_up();
  REQUIRE(cq.poll(out) == 1);
  CHECK(out[0].timestamp_ns == 2000);
}

TEST_CASE("every field of a completion comes out as it went in", "[transport][cq]") {
  CqRing cq(2);
  const Wc in{.wr_id = 0x0102'0304'0506'0708,
              .timestamp_ns = 0x1112'1314'1516'1718,
              .byte_len = 0x2122'2324,
              .imm_data = 0x3132'3334,
              .qpn = Qpn{0x41'4243},
              .src_qpn = Qpn{0x51'5253},
              .status = WcStatus::kRemAccessErr,
              .opcode = WcOpcode::kRecvRdmaWithImm,
              .flags = 0x61,
              .vendor_err = 0x71,
              .sl = 0x81,
              .network = NetworkHeader::kIpv6,
              .vlan = 0x9192};
  REQUIRE(cq.push(in, false));
  std::array<Wc, 1> out;
  REQUIRE(cq.poll(out) == 1);
  CHECK(std::memcmp(static_cast<const void*>(&in), static_cast<const void*>(out.data()), sizeof in) == 0);
}

TEST_CASE("an armed CQ wakes once, for what it was armed for", "[transport][cq]") {
  CqRing cq(8);
  REQUIRE(cq.push({.wr_id = 1}, true));
  CHECK_FALSE(cq.take_wake());
  cq.arm(false);
  REQUIRE(cq.push({.wr_id = 2}, false));
  CHECK(cq.take_wake());
  CHECK_FALSE(cq.take_wake());
  REQUIRE(cq.push({.wr_id = 3}, false));
  CHECK_FALSE(cq.take_wake());

  cq.arm(true);  // solicited only
  REQUIRE(cq.push({.wr_id = 4}, false));
  CHECK_FALSE(cq.take_wake());
  REQUIRE(cq.push({.wr_id = 5}, true));
  CHECK(cq.take_wake());
  cq.arm(true);
  REQUIRE(cq.push({.wr_id = 6, .status = WcStatus::kWrFlushErr}, false));  // errors always
  CHECK(cq.take_wake());
}

TEST_CASE("a CQ that is resized keeps what is in it, and takes no size below that",
          "[transport][cq][resize]") {
  CqRing cq(4);
  Wc out[16];
  const std::uint64_t before = GENERATE(range(0U, 9U));  // places where the ring may stand
  for (std::uint64_t id = 0; id < before; ++id) {
    REQUIRE(cq.push({.wr_id = id}, false));
    REQUIRE(cq.poll(out) == 1);
  }
  for (std::uint64_t id = 0; id < 3; ++id) REQUIRE(cq.push({.wr_id = 100 + id}, false));
  CHECK_FALSE(cq.resize(2));
  CHECK(cq.entries() == 4);
  REQUIRE(cq.resize(16));
  CHECK(cq.entries() == 16);
  for (std::uint64_t id = 3; id < 16; ++id) REQUIRE(cq.push({.wr_id = 100 + id}, false));
  CHECK_FALSE(cq.push({.wr_id = 99}, false));
  REQUIRE(cq.poll(std::span(out).first(12)) == 12);
  REQUIRE(cq.resize(4));  // full
  CHECK_FALSE(cq.push({.wr_id = 99}, false));
  CHECK(cq.poll(std::span(out).subspan(12)) == 4);
  for (std::uint64_t id = 0; id < 16; ++id) CHECK(out[id].wr_id == 100 + id);
  CHECK(cq.is_empty());
}

TEST_CASE("completions carry the loop's time where that was asked for", "[transport][cq][timestamp]") {
  Ticks now{1234};
  CqRing plain(4, -1, &now);
  CqRing stamped(4, -1, &now, true);
  Wc out[2];
  for (CqRing* cq : {&plain, &stamped}) {
    now = Ticks{1234};
    REQUIRE(cq->push({.wr_id = 1}, false));
    now = Ticks{5678};
    REQUIRE(cq->push({.wr_id = 2, .byte_len = 3, .status = WcStatus::kWrFlushErr, .vendor_err = 7}, false));
    REQUIRE(cq->poll(out) == 2);
    CHECK(out[0].timestamp_ns == (cq == &stamped ? 1234 : 0));
    CHECK(out[1].timestamp_ns == (cq == &stamped ? 5678 : 0));
    CHECK(out[1].wr_id == 2);
    CHECK(out[1].byte_len == 3);
    CHECK(out[1].status == WcStatus::kWrFlushErr);
    CHECK(out[1].vendor_err == 7);
  }
}

TEST_CASE("a moderated CQ wakes after so many completions, or so much time", "[transport][cq][moderation]") {
  Ticks now{1000};
  CqRing cq(64, -1, &now);
  const auto push = [&cq](std::uint64_t id, bool solicited = false) {
    REQUIRE(cq.push({.wr_id = id}, solicited));
    return cq.take_wake();
  };
  cq.moderate(3, 500);
  cq.arm(false);
  CHECK_FALSE(push(1));
  CHECK(cq.deadline() == Ticks{1500});
  CHECK_FALSE(push(2));
  CHECK(push(3));
  CHECK_FALSE(cq.deadline().is_set());
  CHECK_FALSE(push(4));  // nobody asked for more
  CHECK_FALSE(cq.deadline().is_set());

  cq.arm(false);
  now = Ticks{2000};
  CHECK_FALSE(push(5));
  cq.on_timer(Ticks{2499});
  CHECK_FALSE(cq.take_wake());
  cq.on_timer(Ticks{2500});
  CHECK(cq.take_wake());
  cq.on_timer(Ticks{9000});
  CHECK_FALSE(cq.take_wake());

  cq.arm(true);
  CHECK_FALSE(push(6));  // not of the kind
  CHECK_FALSE(cq.deadline().is_set());
  CHECK_FALSE(push(7, true));
  REQUIRE(cq.push({.wr_id = 8, .status = WcStatus::kRemOpErr}, false));
  CHECK(cq.take_wake());  // errors do not wait

  cq.moderate(2, 0);  // count alone
  cq.arm(false);
  CHECK_FALSE(push(9));
  CHECK_FALSE(cq.deadline().is_set());
  cq.moderate(0, 0);  // what waits does so no longer
  CHECK(cq.take_wake());
  cq.arm(false);
  CHECK(push(10));
}

TEST_CASE("completions that wait for their event do so as they are moderated now",
          "[transport][cq][moderation]") {
  Ticks now{1000};
  CqRing cq(64, -1, &now);
  const auto push = [&cq](unsigned count) {
    for (unsigned i = 0; i < count; ++i) REQUIRE(cq.push({.wr_id = i}, false));
    return cq.take_wake();
  };

  SECTION("as many as are enough now are told of at once") {
    cq.moderate(8, 0);
    cq.arm(false);
    CHECK_FALSE(push(5));
    cq.moderate(3, 0);
    CHECK(cq.take_wake());
    cq.arm(false);
    CHECK_FALSE(push(2));
    CHECK(push(1));
  }
  SECTION("fewer wait for the others, and those before count") {
    cq.moderate(8, 0);
    cq.arm(false);
    CHECK_FALSE(push(5));
    cq.moderate(6, 0);
    CHECK_FALSE(cq.take_wake());
    CHECK(push(1));
  }
  SECTION("a period that comes later began with the first of them") {
    cq.moderate(100, 0);
    cq.arm(false);
    CHECK_FALSE(push(1));
    now = Ticks{1200};
    CHECK_FALSE(push(2));
    cq.moderate(100, 500);
    CHECK(cq.has_news());
    CHECK(cq.deadline() == Ticks{1500});
    cq.on_timer(Ticks{1500});
    CHECK(cq.take_wake());
  }
  SECTION("a shorter period is shorter for them, too") {
    cq.moderate(1000, 3'600'000'000'000);
    cq.arm(false);
    CHECK_FALSE(push(1));
    now = Ticks{4000};
    cq.moderate(1000, 5000);
    CHECK(cq.deadline() == Ticks{6000});
    cq.moderate(1000, 500);  // is over
    cq.on_timer(now);
    CHECK(cq.take_wake());
  }
  SECTION("without a period they wait for their number alone") {
    cq.moderate(3, 500);
    cq.arm(false);
    CHECK_FALSE(push(1));
    cq.moderate(4, 0);
    CHECK_FALSE(cq.deadline().is_set());
    CHECK_FALSE(push(2));
    CHECK(push(1));
  }
  SECTION("a count of none is a period alone") {
    cq.moderate(8, 500);
    cq.arm(false);
    CHECK_FALSE(push(7));
    cq.moderate(0, 900);
    CHECK_FALSE(cq.take_wake());
    CHECK_FALSE(push(9));
    CHECK(cq.deadline() == Ticks{1900});
  }
}

TEST_CASE("a shared queue that is resized keeps its receives", "[transport][srq][resize]") {
  SharedReceives shared(1, 1, 4, 2);
  TakenReceive taken(2);
  const std::uint64_t before = GENERATE(range(0U, 6U));  // places where the ring may stand
  const auto post = [&shared](std::uint64_t id) {
    const Sge sges[2] = {{id, 1, Lkey{}}, {id + 1, 2, Lkey{}}};
    if (!shared.ring.put({.wr_id = id, .sges = sges}, 0)) return false;
    shared.ring.publish(1);
    return true;
  };
  for (std::uint64_t id = 0; id < before; ++id) {
    REQUIRE(post(id));
    shared.take(taken);
  }
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(post(10 + id));
  CHECK_FALSE(post(99));
  CHECK_FALSE(shared.resize(2));
  shared.arm(3);
  REQUIRE(shared.resize(8));
  for (std::uint64_t id = 4; id < 8; ++id) REQUIRE(post(10 + id));
  CHECK_FALSE(post(99));
  for (std::uint64_t id = 0; id < 6; ++id) {
    shared.take(taken);
    CHECK(taken.wqe().wr_id == 10 + id);
    CHECK(taken.wqe().sges()[1].addr == 11 + id);
    CHECK(shared.take_limit_event() == (id == 5));
  }
  shared.arm(2);
  CHECK_FALSE(shared.resize(1));  // nor below the limit
  REQUIRE(shared.resize(2));
  CHECK_FALSE(post(99));
  shared.take(taken);
  CHECK(taken.wqe().wr_id == 16);
}

TEST_CASE("a send queue takes as many work requests as it has slots", "[transport][sq]") {
  SendQueue sq(3, 2, 16);  // rounded up to 4
  CHECK(sq.depth() == 4);
  std::uint32_t taken = 0;
  while (taken < 10 && sq.put({.wr_id = taken}, taken)) ++taken;
  CHECK(taken == 4);
  sq.publish(taken);
  CHECK_FALSE(sq.put({.wr_id = 9}, 0));
  CHECK(sq.at(2).wr_id == 2);
  sq.retire(1);
  CHECK(sq.put({.wr_id = 9}, 0));
  sq.publish(1);
  CHECK(sq.at(4).wr_id == 9);
  CHECK_FALSE(sq.put({.wr_id = 10}, 0));
}

TEST_CASE("a send queue that is empty begins at its first slot again, once a quarter of it was used",
          "[transport][sq]") {
  constexpr std::uint32_t kDepth = 8;
  constexpr std::uint32_t kStride = 64;  // bytes: of a WQE with one SGE
  SendQueue sq(kDepth, 1, 16);
  Random random(GENERATE(range<std::uint64_t>(1, 5)));
  std::uint32_t next = 0;     // to be posted
  std::uint32_t retired = 0;  // as the loop says
  std::uint32_t place = 0;    // of the next one
  const void* const first = &sq.at(0);
  unsigned begun_anew = 0;
  for (int i = 0; i < 1000; ++i) {
    CAPTURE(i, next, retired, place);
    const auto wanted = static_cast<std::uint32_t>(random.below(kDepth + 2));
    if (wanted > 0 && retired == next && place >= kDepth / 4) {
      place = 0;
      ++begun_anew;
    }
    std::uint32_t taken = 0;
    while (taken < wanted && sq.put({.wr_id = next + taken}, taken)) ++taken;
    REQUIRE(taken == std::min(wanted, kDepth - (next - retired)));
    sq.publish(taken);
    for (std::uint32_t k = 0; k < taken; ++k) {
      const void* const expected = static_cast<const std::byte*>(first) + (place + k) % kDepth * kStride;
      REQUIRE(static_cast<const void*>(&sq.at(next + k)) == expected);
    }
    place = (place + taken) % kDepth;
    next += taken;
    REQUIRE(sq.tail() == next);
    for (std::uint32_t index = retired; index != next; ++index) REQUIRE(sq.at(index).wr_id == index);
    retired += static_cast<std::uint32_t>(random.below(next - retired + 1));
    sq.retire(retired);
  }
  CHECK(begun_anew > 10);
}

TEST_CASE("a send queue refuses more SGEs or inline bytes than it was made for", "[transport][sq]") {
  SendQueue sq(4, 2, 16);
  const std::byte data[17]{};
  const auto addr = std::bit_cast<std::uint64_t>(&data[0]);
  const Sge sges[] = {{addr, 8, Lkey{}}, {addr, 8, Lkey{}}, {addr, 1, Lkey{}}};
  CHECK(sq.put({.sges = std::span(sges).first(2)}, 0));
  CHECK_FALSE(sq.put({.sges = sges}, 0));
  CHECK(sq.put({.sges = std::span(sges).first(2), .flags = send_flag::kInline}, 0));
  CHECK_FALSE(sq.put({.sges = sges, .flags = send_flag::kInline}, 0));  // 17 bytes
  CHECK(sq.put({.sges = std::span(sges).subspan(1), .flags = send_flag::kInline}, 0));
}

TEST_CASE("a receive queue adds up its SGEs without overflow", "[transport][rq]") {
  RecvQueue rq(2, 3);
  const Sge sges[] = {{0, 0xffff'ffff, Lkey{}}, {0, 0xffff'ffff, Lkey{}}, {0, 5, Lkey{}}};
  REQUIRE(rq.put({.wr_id = 1, .sges = sges}, 0));
  CHECK(rq.at(0).length == 0xffff'ffff);
  REQUIRE(rq.put({.wr_id = 1, .sges = std::span(sges).subspan(2)}, 0));
  CHECK(rq.at(0).length == 5);
  const Sge four[4]{};
  CHECK_FALSE(rq.put({.sges = four}, 0));
}

namespace {

ResponderResource& remember(ResponderResources& resources, std::uint32_t psn, std::uint32_t packets) {
  ResponderResource* entry = resources.add();
  REQUIRE(entry != nullptr);
  entry->first_psn = Psn{psn};
  entry->packets = packets;
  resources.queue(*entry);
  return *entry;
}

}  // namespace

TEST_CASE("a responder remembers the newest requests, whatever their number of packets",
          "[transport][resources]") {
  ResponderResources resources;
  resources.resize(3);
  for (std::uint32_t psn : {0xff'fff0U, 0x00'0000U, 0x00'0001U}) {
    remember(resources, psn, psn == 0xff'fff0U ? 16 : 1);
    resources.pop();
  }
  CHECK(resources.find(Psn{0xff'fff0})->packets == 16);
  CHECK(resources.find(Psn{0xff'ffff})->packets == 16);
  CHECK(resources.find(Psn{0xff'ffef}) == nullptr);
  CHECK(resources.find(Psn{0})->first_psn == Psn{0});
  remember(resources, 2, 1);
  CHECK(resources.find(Psn{0xff'ffff}) == nullptr);  // the oldest made room
  CHECK(resources.find(Psn{0}) != nullptr);
}

TEST_CASE("of requests with the same PSN, 2^24 packets apart, a responder knows the newest",
          "[transport][resources]") {
  const unsigned others = GENERATE(range(0U, 4U));  // where the ring's end is
  ResponderResources resources;
  resources.resize(4);
  for (unsigned i = 0; i < others; ++i) {
    remember(resources, 1000 + i, 1);
    resources.pop();
  }
  for (const std::uint64_t va : {1U, 2U}) {
    remember(resources, 7, 1).va = va;
    resources.pop();
  }
  CHECK(resources.find(Psn{7})->va == 2);
}

TEST_CASE("a responder does not forget what it has not answered", "[transport][resources]") {
  ResponderResources resources;
  resources.resize(2);
  remember(resources, 0, 1);
  remember(resources, 1, 1);
  CHECK(resources.add() == nullptr);
  resources.pop();
  CHECK(resources.add() != nullptr);
}

TEST_CASE("a new request takes the place of one whose replay is still due", "[transport][resources]") {
  ResponderResources resources;
  resources.resize(2);
  remember(resources, 0, 1);
  remember(resources, 1, 1);
  resources.pop();
  resources.pop();
  resources.queue(*resources.find(Psn{0}));
  resources.queue(*resources.find(Psn{1}));
  resources.queue(*resources.find(Psn{1}));  // once is enough
  remember(resources, 2, 1);
  REQUIRE(resources.front() != nullptr);
  CHECK(resources.front()->first_psn == Psn{1});
  resources.pop();
  CHECK(resources.front()->first_psn == Psn{2});
  resources.pop();
  CHECK_FALSE(resources.has_queued());
}

TEST_CASE("a responder keeps what it remembers, and in order, when it is to remember more",
          "[transport][resources]") {
  const unsigned before = GENERATE(range(1U, 6U));
  ResponderResources resources;
  resources.resize(4);
  for (unsigned i = 0; i < before; ++i) {
    remember(resources, i, 1);
    if (i < before - 1) resources.pop();  // one is still to be answered
  }
  resources.resize(9);
  resources.resize(2);  // never less
  const unsigned oldest = before > 4 ? before - 4 : 0;
  for (unsigned i = 0; i < before; ++i) CHECK((resources.find(Psn{i}) != nullptr) == (i >= oldest));
  REQUIRE(resources.front() != nullptr);
  CHECK(resources.front()->first_psn == Psn{before - 1});
  for (unsigned i = before; i < 9 + oldest; ++i) remember(resources, i, 1);
  CHECK(resources.find(Psn{oldest}) != nullptr);
  for (unsigned i = before - 1; i < 9 + oldest; ++i) {
    CHECK(resources.front()->first_psn == Psn{i});
    resources.pop();
  }
}
