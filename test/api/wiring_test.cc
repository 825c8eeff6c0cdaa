// What a Config says reaches the QPs of its device, and one that makes no sense opens none.
#include <fcntl.h>

#include <array>
#include <fstream>
#include <iterator>
#include <vector>

#include "api/side.h"
#include "support/full_at.h"
#include "verbs/counters_file.h"
#include "verbs/gsi.h"

namespace uroce::api {
namespace {

Config base() {
  Config config;
  config.port = "shm:wiring" + std::to_string(getpid());
  config.no_huge = true;
  return config;
}

/// Two devices, of which the first is configured; nobody runs the second one unless a test does.
struct Wired {
  explicit Wired(const Config& of_a, const Config& of_b = base())
      : a(End::open(of_a)), b(End::open(of_b)), from(a, QpType::kRc), to(b, QpType::kRc) {}

  void connect(std::uint8_t min_rnr_timer = 1, std::uint8_t timeout = 16) {
    QpAttr attr = towards(b, to.qp);
    attr.timeout = timeout;
    REQUIRE(from.qp.connect(attr));
    attr = towards(a, from.qp);
    attr.min_rnr_timer = min_rnr_timer;
    REQUIRE(to.qp.connect(attr));
  }
  void write(Rkey rkey) {
    const Sge sge = from.memory.sge(0, 64);
    REQUIRE(from.qp.post_send({.sges = {&sge, 1},
                               .opcode = WrOpcode::kRdmaWrite,
                               .flags = send_flag::kSignaled,
                               .remote_addr = to.memory.addr(),
                               .rkey = rkey}));
  }
  void run() {
    a.device.progress();
    b.device.progress();
  }
  /// The next completion of `side` while both ends run.
  Wc completion(Side& side) {
    Wc wc{.status = WcStatus::kGeneralErr};
    REQUIRE(within(10s, [&] {
      run();
      return side.cq.poll({&wc, 1}) == 1;
    }));
    return wc;
  }

  End a;
  End b;
  Side from;
  Side to;
};

/// CNPs over IPv4 in a capture file: header without options, protocol UDP, the opcode behind both headers.
int cnps_with_dscp(const std::string& file, unsigned dscp) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  int found = 0;
  for (std::size_t ip = 0; ip + 28 < bytes.size(); ++ip)
    found += at(ip) == 0x45 && at(ip + 1) >> 2U == dscp && at(ip + 9) == 17 && at(ip + 28) == 0x81 ? 1 : 0;
  return found;
}

}  // namespace

TEST_CASE("a Config with a value out of range opens no device", "[api][config]") {
  const auto refused = [](void (*spoil)(Config&)) {
    Config config = base();
    spoil(config);
    const auto device = Device::open(config);
    REQUIRE_FALSE(device.has_value());
    CHECK(device.error().code == Errc::kConfig);
    return device.error().text;
  };
  CHECK_THAT(refused([](Config& c) { c.max_unacked = 0; }), Catch::Contains("max-unacked"));
  CHECK_THAT(refused([](Config& c) { c.line_mbps = 0; }), Catch::Contains("line-mbps"));
  CHECK_THAT(refused([](Config& c) { c.ip = {"10.0.0.1"}; }), Catch::Contains("prefix"));
  CHECK_THAT(refused([](Config& c) { c.ip = {"10.0.0.1/x"}; }), Catch::Contains("prefix"));
  CHECK_THAT(refused([](Config& c) { c.ip = {"224.0.0.1/24"}; }), Catch::Contains("unicast"));
  CHECK_THAT(refused([](Config& c) { c.ip = {"10.0.0.1/24@5x"}; }), Catch::Contains("VLAN"));
  CHECK_THAT(refused([](Config& c) { c.lcores = "0-2"; }),
             Catch::Contains("names 3 cores") && Catch::Contains("name 2"));
  Config config = base();
  Device device = must(Device::open(config));
  CHECK(device.loops() == 1);
  for (const char* ip :
       {"10.9.0.1", "10.9.0.1/x", "224.0.0.1/24", "10.9.0.1/24@5x", "10.9.0.1/24,10.9.0.2/24"}) {
    CAPTURE(ip);
    const Status added = device.add_ip(ip);
    REQUIRE_FALSE(added.has_value());
    CHECK(added.error().code == Errc::kConfig);
  }
}

TEST_CASE("a device has as many loops as its lcores names cores", "[api][config]") {
  Config config = base();
  config.lcores = "0,1";
  CHECK(must(Device::open(config)).loops() == 2);
}

TEST_CASE("no more packets than max_unacked are in flight", "[api][config]") {
  Config config = base();
  config.max_unacked = 3;
  config.probe_us = 0;
  Wired it(config);
  it.connect(1, 22);  // 17 s: nothing is sent again
  it.write(it.to.memory.rkey());
  CHECK(it.completion(it.from).ok());
  for (int i = 0; i < 8; ++i) it.write(it.to.memory.rkey());
  for (int i = 0; i < 10; ++i) it.a.device.progress();
  CHECK(counter(it.a.device, "requester_packets") == 1 + 3);
  for (int i = 0; i < 8; ++i) CHECK(it.completion(it.from).ok());
}

TEST_CASE("a hardened device drops bad requests before it believes one", "[api][config]") {
  Config hardened = base();
  hardened.hardened = 2;
  Wired it(base(), hardened);
  it.connect();
  it.write(Rkey{1});
  CHECK(it.completion(it.from).status == WcStatus::kRemAccessErr);
  CHECK(counter(it.b.device, "responder_tolerated_requests") == 2);
}

TEST_CASE("an RNR NAK is granted no more than rnr_cap_ms", "[api][config]") {
  Config config = base();
  config.rnr_cap_ms = 1;
  Wired it(config);
  it.connect(0);  // 655 ms
  const Sge sge = it.from.memory.sge(0, 64);
  REQUIRE(it.from.qp.post_send({.sges = {&sge, 1}, .flags = send_flag::kSignaled}));
  REQUIRE(within(10s, [&] {
    it.run();
    return counter(it.a.device, "requester_rnr_naks") > 1;
  }));
  const auto began = Clock::now();
  REQUIRE(within(10s, [&] {
    it.run();
    return counter(it.a.device, "requester_rnr_naks") > 16;
  }));
  CHECK(Clock::now() - began < 5s);  // 15 times 655 ms otherwise
  it.to.receive(1, 0, 64);
  CHECK(it.completion(it.from).ok());
}

TEST_CASE("CNPs are as far apart as cnp_us says, and have the DSCP of cnp_dscp", "[api][config][dcqcn]") {
  Config sender = base();
  sender.congestion = CongestionControl::kDcqcn;
  sender.fault = "tx.mark-ce opcode=RC_WRITE_ONLY";
  Config receiver = base();
  receiver.congestion = CongestionControl::kDcqcn;
  receiver.cnp_us = 1'000'000;
  receiver.cnp_dscp = 11;
  receiver.pcap = "/tmp/uroce-wiring-" + std::to_string(getpid()) + ".pcapng";
  {
    Wired it(sender, receiver);
    it.connect();
    const auto began = Clock::now();
    for (int i = 0; i < 20; ++i) {
      it.write(it.to.memory.rkey());
      CHECK(it.completion(it.from).ok());
    }
    const auto most = 1 + static_cast<std::uint64_t>((Clock::now() - began) / 1s);
    CHECK(counter(it.b.device, "np_cnp_sent") >= 1);
    CHECK(counter(it.b.device, "np_cnp_sent") <= most);
  }
  CHECK(cnps_with_dscp(receiver.pcap, 11) >= 1);
  CHECK(cnps_with_dscp(receiver.pcap, 48) == 0);
  unlink(receiver.pcap.c_str());
}

TEST_CASE("a device that closes adds its counters to the file that is named", "[api][config]") {
  Config config = base();
  config.counters = "/tmp/uroce-wiring-" + std::to_string(getpid()) + ".counters";
  for (int life = 0; life < 2; ++life) {
    Wired it(config);
    it.connect();
    it.write(it.to.memory.rkey());
    CHECK(it.completion(it.from).ok());
  }
  std::ifstream in(config.counters);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  unlink(config.counters.c_str());
  const std::string counted = "requester_messages 1\n";
  const std::size_t first = text.find(counted);
  REQUIRE(first != std::string::npos);
  CHECK(text.find(counted, first + 1) != std::string::npos);
  CHECK(text.starts_with("# api_limits_test " + std::to_string(getpid()) + ", shm:wiring"));
  CHECK(text.find(" 0\n") == std::string::npos);

  config.counters = "/no/such/folder/x";
  const auto device = Device::open(config);
  REQUIRE_FALSE(device.has_value());
  CHECK_THAT(device.error().text, Catch::Contains("counters: '/no/such/folder/x'"));
}

TEST_CASE("counters that find no room, or nobody who reads them, end no program", "[api][config]") {
  const std::vector counters{Counter{.name = "completions", .value = 1}};
  const std::string path = "/tmp/uroce-wiring-" + std::to_string(getpid()) + ".full";
  std::ofstream(path) << "0123456789";
  CHECK(test::end_of_full_at(10, [&] {
          append_counters(path, "shm:x", [&] { return counters; });
          return true;
        }) == "good");
  std::ifstream in(path);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "0123456789");
  unlink(path.c_str());

  CHECK(test::end_of([&] {  // nor does what is told about it
          std::array<int, 2> pipe{};
          if (::pipe2(pipe.data(), O_CLOEXEC) != 0 || dup2(pipe[1], STDERR_FILENO) < 0) return false;
          close(pipe[0]);
          append_counters("/dev/stderr", "shm:x", [&] { return counters; });
          return true;
        }) == "good");
}

TEST_CASE("what is for other networks goes to the gateway", "[api][config][neighbours]") {
  Config config = base();
  config.ip = {"10.7.0.1/24"};
  config.gateway = "10.7.0.2";
  Config other = base();
  other.ip = {"10.7.0.2/24", "10.8.0.2/24"};  // the gateway is the peer itself
  Wired it(config, other);
  QpAttr attr = towards(it.b, it.to.qp);
  attr.dgid = it.b.device.gids().at(2).gid;
  REQUIRE(it.from.qp.connect(attr));
  attr = towards(it.a, it.from.qp);
  attr.sgid_index = 2;
  REQUIRE(it.to.qp.connect(attr));
  it.write(it.to.memory.rkey());
  // Its ACKs cannot come back before it knows where 10.7.0.1 is, which is on its other network.
  CHECK(it.completion(it.from).ok());
}

TEST_CASE("the way to another network begins at the address on the gateway's", "[api][config][neighbours]") {
  Config config = base();
  config.ip = {"10.9.0.1/24", "10.7.0.1/24"};
  config.gateway = "10.7.0.2";
  Device device = must(Device::open(config));
  const AhAttr way = must(route_to(device, Gid::from_v4({10, 8, 0, 2}), {}));
  CHECK(device.gids().at(way.sgid_index).gid == Gid::from_v4({10, 7, 0, 1}));
}

}  // namespace uroce::api
