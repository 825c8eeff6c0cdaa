#include <rte_mbuf.h>

#include <array>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "drivers/registry.h"
#include "eal/frames.h"
#include "eal/requirement.h"

namespace uroce::test {

std::string missing_requirement() {
  return {};
}

namespace {

unsigned receive(port::Port& port, std::uint64_t& next, std::uint32_t len) {
  std::array<port::RxFrame, port::kBurst> frames;
  const unsigned count = port.rx_burst(frames);
  for (unsigned i = 0; i < count; ++i) CHECK(is_frame(frames[i], len, next++, false));
  if (count > 0) port.rx_release();
  return count;
}

/// All buffers of the process, taken from under the port.
class Hoard {
 public:
  Hoard() {
    rte_mempool_walk(
        [](rte_mempool* pool, void* self) {
          while (rte_mbuf* mbuf = rte_pktmbuf_alloc(pool)) static_cast<Hoard*>(self)->held_.push_back(mbuf);
        },
        this);
  }
  ~Hoard() { release(); }
  Hoard(const Hoard&) = delete;
  Hoard& operator=(const Hoard&) = delete;
  void release() {
    for (rte_mbuf* mbuf : held_) rte_pktmbuf_free(mbuf);
    held_.clear();
  }
  [[nodiscard]] std::size_t size() const { return held_.size(); }

 private:
  std::vector<rte_mbuf*> held_;
};

}  // namespace

TEST_CASE("a port without buffers has no room, loses nothing that it has, and goes on", "[eal][ring][R7]") {
  auto port = open_port("ring");
  REQUIRE(port);
  port::Port& ring = **port;
  std::uint64_t sent = 0;
  const auto send = [&] {
    std::byte* room = ring.tx_claim(200);
    if (room == nullptr) return false;
    write_frame(room, 200, sent++, false);
    ring.tx_commit();
    ring.tx_flush();
    return true;
  };
  REQUIRE(send());
  Hoard hoard;
  REQUIRE(hoard.size() > 1000);
  while (sent < 1000 && send()) {
  }
  REQUIRE(sent < 1000);  // what the port had put aside for itself
  CHECK(ring.counters().tx_no_room == 1);
  CHECK_FALSE(send());
  hoard.release();
  std::uint64_t next = 0;
  for (int turns = 0; next < sent && turns < 1000; ++turns) receive(ring, next, 200);
  CHECK(next == sent);
  REQUIRE(send());
  for (int turns = 0; next < sent && turns < 1000; ++turns) receive(ring, next, 200);
  CHECK(next == sent);
  CHECK(ring.counters().tx_dropped == 0);
}

TEST_CASE("a full link keeps what it was given, refuses more, and goes on after it is drained",
          "[eal][ring]") {
  auto port = open_port("ring");
  REQUIRE(port);
  port::Port& ring = **port;
  std::uint64_t sent = 0;
  std::byte* room = nullptr;
  while (sent < 10'000 && (room = ring.tx_claim(200)) != nullptr) {
    write_frame(room, 200, sent++, false);
    ring.tx_commit();
    ring.tx_flush();
  }
  CHECK(room == nullptr);
  CHECK(sent >= 1023);
  CHECK(ring.counters().tx_no_room == 1);
  std::uint64_t next = 0;
  while (next < sent) {
    ring.tx_flush();
    REQUIRE(receive(ring, next, 200) > 0);
  }
  CHECK(next == sent);
  CHECK(ring.counters().rx_frames == sent);
  CHECK(ring.counters().rx_bytes == sent * 200);
  CHECK(ring.counters().tx_frames == sent);
  CHECK(ring.counters().tx_dropped == 0);
}

TEST_CASE("a link that takes nothing for long drops and counts what it holds", "[eal][ring]") {
  auto port = open_port("ring");
  REQUIRE(port);
  port::Port& ring = **port;
  while (std::byte* room = ring.tx_claim(100)) {
    write_frame(room, 100, 0, false);
    ring.tx_commit();
    ring.tx_flush();
  }
  for (const Deadline deadline = in_seconds(5); ring.counters().tx_dropped == 0 && !is_past(deadline);)
    ring.tx_flush();
  CHECK(ring.counters().tx_dropped == port::kBurst);
  CHECK(ring.tx_claim(100) != nullptr);
}

TEST_CASE("a claim without a commit is forgotten", "[eal][ring]") {
  auto port = open_port("ring");
  REQUIRE(port);
  port::Port& ring = **port;
  for (int i = 0; i < 1000; ++i) REQUIRE(ring.tx_claim(64) != nullptr);
  write_frame(ring.tx_claim(64), 64, 0, false);
  ring.tx_commit();
  ring.tx_flush();
  std::uint64_t next = 0;
  CHECK(receive(ring, next, 64) == 1);
}

TEST_CASE("each queue of a port is polled by a thread of its own", "[eal][ring]") {
  auto ports = drivers::open_ports(
      {.spec = "ring", .link_mtu = 9000, .queues = 2, .no_huge = true, .fault = {}, .seed = 1, .pcap = {}});
  REQUIRE(ports);
  REQUIRE(ports->size() == 2);
  CHECK(ports->front()->info().link_mtu == 9000);
  std::array<std::uint64_t, 2> echoed{};
  const auto body = [&](std::size_t queue) {
    port::Port& port = *(*ports)[queue];
    port.enter_thread();
    std::array<port::RxFrame, port::kBurst> frames;
    for (const Deadline deadline = in_seconds(10); echoed[queue] < 20'000 && !is_past(deadline);) {
      if (std::byte* room = port.tx_claim(9018)) {
        room[0] = std::byte{2};
        port.tx_commit();
      }
      port.tx_flush();
      const unsigned count = port.rx_burst(frames);
      echoed[queue] += count;
      if (count > 0) port.rx_release();
    }
  };
  std::thread first(body, 0);
  std::thread second(body, 1);
  first.join();
  second.join();
  CHECK(echoed[0] >= 20'000);
  CHECK(echoed[1] >= 20'000);
}

TEST_CASE("ports can be opened and closed many times in one process", "[eal][ring]") {
  for (int i = 0; i < 20; ++i) {
    auto port = open_port("ring");
    REQUIRE(port);
    std::byte* room = (*port)->tx_claim(64);
    REQUIRE(room != nullptr);
    write_frame(room, 64, 0, false);
    (*port)->tx_commit();
    (*port)->tx_flush();
    std::uint64_t next = 0;
    CHECK(receive(**port, next, 64) == 1);
  }
}

}  // namespace uroce::test
