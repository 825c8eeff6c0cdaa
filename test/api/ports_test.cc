// Several ports in one process: each is a Device with loops of its own; those of DPDK share its one EAL.
#include <sched.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "api/ends.h"
#include "support/skip.h"
#include "uroce/connection.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kBytes = 100'000;

/// Two devices of this process on one link, and a connection between them.
struct Wire {
  Wire(const std::string& port_a, const std::string& port_b, const std::string& network, Mode mode)
      : a(open(port_a, network + "1/24", mode)), b(open(port_b, network + "2/24", mode)) {
    REQUIRE(join(a, qp_a, b, qp_b));
  }

  static End open(const std::string& port, const std::string& ip, Mode mode) {
    Config config;
    config.port = port;
    config.ip = {ip};
    config.no_huge = true;
    config.mode = mode;
    Device device = must(Device::open(config));
    Pd pd = must(Pd::create(device));
    return {std::move(device), std::move(pd)};
  }

  void post(std::uint8_t tag) {
    std::memset(from.memory().data(), tag, kBytes);
    const Sge sge = from.sge(0, kBytes);
    REQUIRE(qp_a.post_send({.wr_id = tag,
                            .sges = {&sge, 1},
                            .opcode = WrOpcode::kRdmaWrite,
                            .flags = send_flag::kSignaled,
                            .remote_addr = to.addr(),
                            .rkey = to.rkey()}));
  }
  [[nodiscard]] bool has_completed(std::uint8_t tag) {
    b.device.progress();
    Wc wc;
    if (cq_a.poll({&wc, 1}) == 0) return false;
    INFO(a.device.config().port);
    CHECK(wc.ok());
    CHECK(wc.wr_id == tag);
    CHECK(std::memcmp(to.memory().data(), from.memory().data(), kBytes) == 0);
    return true;
  }

  End a;
  End b;
  Cq cq_a = must(Cq::create(a.device, 16));
  Cq cq_b = must(Cq::create(b.device, 16));
  Qp qp_a = must(Qp::create(a.pd, cq_a, cq_a, {}));
  Qp qp_b = must(Qp::create(b.pd, cq_b, cq_b, {}));
  Mr from = must(Mr::alloc(a.pd, kBytes, access::kAll));
  Mr to = must(Mr::alloc(b.pd, kBytes, access::kAll));
};

/// All at the same time, some rounds.
void carry(std::vector<std::unique_ptr<Wire>>& wires) {
  for (std::uint8_t round = 1; round <= 20; ++round) {
    for (auto& wire : wires) wire->post(round);
    std::size_t done = 0;
    std::vector<bool> completed(wires.size());
    REQUIRE(within(20s, [&] {
      for (std::size_t i = 0; i < wires.size(); ++i) {
        if (completed[i] || !wires[i]->has_completed(round)) continue;
        completed[i] = true;
        ++done;
      }
      return done == wires.size();
    }));
  }
}

std::string name(const std::string& what) {
  return what + std::to_string(getpid());
}

/// Whether this process has two veth pairs in a network namespace of its own.
bool has_interfaces() {
  static const bool has =
      unshare(CLONE_NEWNET) == 0 && std::system(
                                        "for i in 0 1; do ip link add pa$i type veth peer name pb$i &&"
                                        " ip link set pa$i up && ip link set pb$i up || exit 1; done") == 0;
  return has;
}

}  // namespace

TEST_CASE("one process has several shm ports", "[api][ports][shm]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kLcore);
  std::vector<std::unique_ptr<Wire>> wires;
  for (int i = 0; i < 3; ++i) {
    const std::string port = "shm:" + name("ports" + std::to_string(i) + "-");
    wires.push_back(std::make_unique<Wire>(port, port, "10." + std::to_string(i) + ".0.", mode));
  }
  carry(wires);
}

namespace {

/// Opens and closes them twice.
void carry_over_several_kinds(bool with_interfaces) {
  const std::string shm = "shm:" + name("ports-mixed");
  const std::string memif = "memif:/tmp/" + name("uroce-ports") + ".sock";
  for (int time = 0; time < 2; ++time) {
    std::vector<std::unique_ptr<Wire>> wires;
    wires.push_back(
        std::make_unique<Wire>(memif + ",role=server", memif + ",role=client", "10.1.0.", Mode::kApp));
    wires.push_back(std::make_unique<Wire>(shm, shm, "10.2.0.", Mode::kApp));
    for (int i = 0; with_interfaces && i < 2; ++i) {
      const std::string number = std::to_string(i);
      wires.push_back(std::make_unique<Wire>("af_packet:pa" + number, "af_packet:pb" + number,
                                             "10.3" + number + ".0.", Mode::kApp));
    }
    carry(wires);
    for (auto& wire : wires) CHECK(wire->a.device.port_state() == PortState::kActive);
  }
}

}  // namespace

TEST_CASE("one process has ports of shm and memif, and opens and closes them again", "[api][ports][eal]") {
  carry_over_several_kinds(false);
}

TEST_CASE("one process has ports of several kinds, and opens and closes them again", "[api][ports][eal]") {
  if (!has_interfaces()) return test::skip("needs root for a network namespace");
  carry_over_several_kinds(true);
}

namespace {

/// A server that takes one connection, from its opening to its end.
struct Server {
  explicit Server(const std::string& port) : end(Wire::open(port, "10.4.0.2/24", Mode::kAuto)) {}
  /// @return whether `client` at `from` was connected
  bool connect(Cm& from, Qp& client) {
    std::thread thread([&] {
      auto request = listener.wait(20s);
      if (request.has_value()) served = request->accept(qp, {}).has_value();
    });
    const auto connection =
        Connection::connect(from, client, {.to = {Gid::from_v4({10, 4, 0, 2}), listener.port()}});
    INFO((connection ? "" : connection.error().text));
    CHECK(connection);
    thread.join();
    return served && connection.has_value();
  }
  End end;
  Cm cm = must(Cm::open(end.device, kPatient));
  Cq cq = must(Cq::create(end.device, 16));
  Qp qp = must(Qp::create(end.pd, cq, cq, {}));
  Listener listener = must(Listener::create(cm, {}));
  bool served = false;
};

}  // namespace

TEST_CASE("a peer that has come back with another Ethernet address is connected to again",
          "[api][ports][cm][R5]") {
  // A switch that knows where each address is, and drops what is for no other.
  const char* const bridge =
      "ip link add br0 type bridge && ip link set br0 up &&"
      " for i in 0 1; do ip link set pb$i master br0 && bridge link set dev pb$i flood off || exit 1; done";
  if (!has_interfaces() || std::system(bridge) != 0) {
    return test::skip("needs root for a network namespace, and bridges");
  }
  End end = Wire::open("af_packet:pa0", "10.4.0.1/24", Mode::kAuto);
  Cm cm = must(Cm::open(end.device, kPatient));
  Cq cq = must(Cq::create(end.device, 16));
  for (const std::string mac : {"02:00:00:00:04:01", "02:00:00:00:04:02"}) {
    const std::string change =
        "ip link set pa1 down && ip link set pa1 address " + mac + " && ip link set pa1 up";
    REQUIRE(std::system(change.c_str()) == 0);
    Qp qp = must(Qp::create(end.pd, cq, cq, {}));
    CHECK(Server("af_packet:pa1").connect(cm, qp));
  }
  CHECK(std::system("ip link del br0") == 0);
}

}  // namespace uroce::api
