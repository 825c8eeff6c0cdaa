// Links of more than two ends through the public API.
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "api/side.h"

namespace uroce::api {
namespace {

constexpr std::uint32_t kLong = 20'000;  // bytes: several packets
constexpr std::uint32_t kQkey = 0x1234;

std::string mesh_name(unsigned ends) {
  static int count = 0;
  return "shm:mesh" + std::to_string(getpid()) + "-" + std::to_string(count++) +
         ",ring=256K,ends=" + std::to_string(ends);
}

/// Devices on a link that each has an end of.
struct Mesh {
  explicit Mesh(unsigned count, Mode mode, const Config& others = {}) {
    Config config = others;
    config.port = mesh_name(count);
    config.mode = mode;
    for (unsigned i = 0; i < count; ++i) {
      if (!others.pcap.empty()) config.pcap = others.pcap + std::to_string(i);
      ends.push_back(std::make_unique<End>(End::open(config)));
    }
  }
  End& operator[](std::size_t end) const { return *ends[end]; }
  [[nodiscard]] bool all_progress() const {
    for (const auto& end : ends) end->device.progress();
    return true;
  }
  std::vector<std::unique_ptr<End>> ends;
};

/// A connection between two ends.
struct Wire {
  Wire(Mesh& joined, std::size_t from, std::size_t to)
      : mesh(joined), a(mesh[from], QpType::kRc), b(mesh[to], QpType::kRc), tag(from * 16 + to) {
    REQUIRE(join(mesh[from], a.qp, mesh[to], b.qp));
  }
  void post(WrOpcode opcode, std::uint32_t at, std::uint32_t bytes) {
    std::memset(a.memory.memory().data() + at, static_cast<int>(tag), bytes);
    const Sge sge = a.memory.sge(at, bytes);
    REQUIRE(a.qp.post_send({.wr_id = tag,
                            .sges = {&sge, 1},
                            .opcode = opcode,
                            .flags = send_flag::kSignaled,
                            .remote_addr = b.memory.addr() + at,
                            .rkey = b.memory.rkey()}));
  }
  void check_done(Side& side) const {
    Wc wc;
    REQUIRE(within(20s, [&] { return mesh.all_progress() && side.cq.poll({&wc, 1}) == 1; }));
    if (!wc.ok()) FAIL(side.qp.error_text());
  }
  void check_came(std::uint32_t at, std::uint32_t bytes) const {
    for (const std::byte byte : b.memory.memory().subspan(at, bytes)) REQUIRE(byte == std::byte(tag));
  }
  Mesh& mesh;
  Side a;
  Side b;
  std::size_t tag;
};

/// One each way between all.
std::vector<std::unique_ptr<Wire>> wire_up(Mesh& mesh) {
  std::vector<std::unique_ptr<Wire>> wires;
  for (std::size_t from = 0; from < mesh.ends.size(); ++from) {
    for (std::size_t to = 0; to < mesh.ends.size(); ++to) {
      if (from != to) wires.push_back(std::make_unique<Wire>(mesh, from, to));
    }
  }
  return wires;
}

void exchange(Mesh& mesh) {
  const auto wires = wire_up(mesh);
  for (const auto& wire : wires) wire->b.receive(1, 0, 64);
  for (const auto& wire : wires) {
    wire->post(WrOpcode::kSend, 0, 64);
    wire->post(WrOpcode::kRdmaWrite, 1024, kLong);
  }
  for (const auto& wire : wires) {
    wire->check_done(wire->b);
    wire->check_done(wire->a);
    wire->check_done(wire->a);
    wire->check_came(0, 64);
    wire->check_came(1024, kLong);
  }
}

}  // namespace

TEST_CASE("all ends of a mesh talk with all, each at an address of its own", "[api][mesh]") {
  const Mode mode = GENERATE(Mode::kApp, Mode::kAuto);
  Mesh mesh(4, mode);
  for (std::uint8_t i = 0; i < 4; ++i) {
    CHECK(mesh[i].gid() == Gid::from_v4({10, 77, 0, static_cast<std::uint8_t>(i + 1)}));
    CHECK(mesh[i].device.ends() == 4);
  }
  exchange(mesh);
  for (const auto& end : mesh.ends) CHECK(counter(end->device, "responder_seq_naks") == 0);
}

TEST_CASE("a mesh that is captured talks as well, and loses nothing", "[api][mesh]") {
  Config config;
  config.pcap = (std::filesystem::temp_directory_path() / ("mesh" + std::to_string(getpid()) + "-")).string();
  {
    Mesh mesh(3, Mode::kApp, config);
    exchange(mesh);
    for (const auto& end : mesh.ends) CHECK(counter(end->device, "responder_seq_naks") == 0);
  }
  for (int i = 0; i < 3; ++i) CHECK(std::filesystem::remove(config.pcap + std::to_string(i)));
}

TEST_CASE("a mesh that loses frames talks as well", "[api][mesh]") {
  Config config;
  config.fault = "loss=5%";
  config.seed = 5;
  Mesh mesh(3, Mode::kApp, config);
  exchange(mesh);
}

TEST_CASE("an end that does not poll holds up nobody who talks with others", "[api][mesh]") {
  Mesh mesh(3, Mode::kApp);
  Wire stuck(mesh, 0, 2);
  Wire good(mesh, 0, 1);
  stuck.post(WrOpcode::kRdmaWrite, 0, 64);
  stuck.check_done(stuck.a);  // the addresses are known, and the stream is open
  constexpr std::uint32_t kAll = 32 * 1024;
  for (int i = 0; i < 32; ++i) stuck.post(WrOpcode::kRdmaWrite, 0, kAll);  // four times the ring
  for (int i = 0; i < 200; ++i) {
    good.post(WrOpcode::kRdmaWrite, 0, 4096);
    Wc wc;
    REQUIRE(within(20s, [&] {
      mesh[1].device.progress();
      return good.a.cq.poll({&wc, 1}) == 1;
    }));
    REQUIRE(wc.ok());
  }
  good.check_came(0, 4096);
  Wc early;
  CHECK(stuck.a.cq.poll({&early, 1}) == 0);
  CHECK(counter(mesh[0].device, "port_tx_no_room") > 0);
  for (int i = 0; i < 32; ++i) stuck.check_done(stuck.a);
  stuck.check_came(0, kAll);
}

TEST_CASE("datagrams for an end that does not poll are lost, and hold up neither others nor connections",
          "[api][mesh]") {
  Mesh mesh(3, Mode::kApp);
  Wire there(mesh, 0, 1);
  Wire back(mesh, 1, 0);
  Side from(mesh[0], QpType::kUd);
  Side to(mesh[1], QpType::kUd);
  REQUIRE(from.qp.connect({.qkey = kQkey}));
  REQUIRE(to.qp.connect({.qkey = kQkey}));
  const Ah ah = must(Ah::create(mesh[0].pd, {.dgid = mesh[2].gid(), .sgid_index = 1}));
  const Ah other = must(Ah::create(mesh[0].pd, {.dgid = mesh[1].gid(), .sgid_index = 1}));
  Wc wc;
  const auto without_the_last = [&](Side& side) {
    return within(20s, [&] {
      mesh[0].device.progress();
      mesh[1].device.progress();
      return side.cq.poll({&wc, 1}) == 1;
    });
  };
  from.send_datagram(9, 1024, ah, Qpn{0x1234}, kQkey);
  REQUIRE(within(20s, [&] { return mesh.all_progress() && from.cq.poll({&wc, 1}) == 1; }));
  const auto lost = [&] { return counter(mesh[0].device, "port_tx_dropped"); };
  for (std::uint64_t i = 0, before = lost(); lost() == before; ++i) {
    REQUIRE(i < 10'000);  // some rings full
    from.send_datagram(9, 1024, ah, Qpn{0x1234}, kQkey);
    REQUIRE(without_the_last(from));
    REQUIRE(wc.ok());
  }
  for (int i = 0; i < 100; ++i) {
    from.send_datagram(9, 1024, ah, Qpn{0x1234}, kQkey);
    REQUIRE(without_the_last(from));
    for (Wire* const wire : {&there, &back}) {
      wire->post(WrOpcode::kRdmaWrite, 0, 64);
      REQUIRE(without_the_last(wire->a));
      REQUIRE(wc.ok());
    }
    to.receive(1, 0, kGrhBytes + 1024);
    from.send_datagram(9, 1024, other, to.qp.qpn(), kQkey);
    REQUIRE(without_the_last(from));
    REQUIRE(without_the_last(to));
  }
}

TEST_CASE("datagrams reach the end that they are for, and a group all", "[api][mesh]") {
  Mesh mesh(3, Mode::kApp);
  const Gid group = *Gid::parse("239.1.2.3");
  std::vector<std::unique_ptr<Side>> sides;
  for (const auto& end : mesh.ends) {
    sides.push_back(
        std::make_unique<Side>(*end, QpInitAttr{.type = QpType::kUd, .block_own_multicast = true}));
    REQUIRE(sides.back()->qp.connect({.qkey = kQkey}));
    REQUIRE(sides.back()->qp.attach_multicast(group));
    for (std::uint32_t i = 0; i < 4; ++i) sides.back()->receive(i, 1024 + i * 1024, kGrhBytes + 100);
  }
  const auto send = [&](std::size_t from, const Gid& to, Qpn qpn, std::initializer_list<std::size_t> takers) {
    const Ah ah = must(Ah::create(mesh[from].pd, {.dgid = to, .sgid_index = 1}));
    sides[from]->send_datagram(9, 100, ah, qpn, kQkey);
    const auto completion = [&](Side& side) {
      Wc wc;
      REQUIRE(within(20s, [&] { return mesh.all_progress() && side.cq.poll({&wc, 1}) == 1; }));
      REQUIRE(wc.ok());
      return wc;
    };
    CHECK(completion(*sides[from]).wr_id == 9);
    for (const std::size_t taker : takers) {
      const Wc wc = completion(*sides[taker]);
      CHECK(wc.byte_len == kGrhBytes + 100);
      CHECK(wc.src_qpn == sides[from]->qp.qpn());
    }
  };
  send(0, mesh[2].gid(), sides[2]->qp.qpn(), {2});
  send(1, mesh[0].gid(), sides[0]->qp.qpn(), {0});
  send(2, group, Qpn{0xff'ffff}, {0, 1});
  for (const auto& side : sides) {
    Wc wc;
    CHECK(side->cq.poll({&wc, 1}) == 0);
  }
}

TEST_CASE("an end that has another number when it comes again is found", "[api][mesh]") {
  Mesh mesh(3, Mode::kApp);
  const std::string port = mesh[0].device.config().port;
  exchange(mesh);
  mesh.ends.pop_back();
  mesh.ends.pop_back();
  Config config;
  config.port = port;
  config.mode = Mode::kApp;
  config.ip = {"10.77.0.3/24"};                                   // that of end 2 before
  mesh.ends.push_back(std::make_unique<End>(End::open(config)));  // end 1
  exchange(mesh);
}

}  // namespace uroce::api
