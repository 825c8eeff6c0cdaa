#include <catch2/catch.hpp>

#include "transport/cq_ring.h"
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
