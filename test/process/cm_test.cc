// Connections between processes: many in a row, and those whose peer is killed under load.
// CM_CYCLES and CM_LIVES make both longer.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "process/processes.h"
#include "uroce/connection.h"
#include "uroce/mr.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kPort = 7471;
constexpr std::uint32_t kBytes = 4096;
constexpr unsigned kDepth = 16;  // WRITEs in flight

unsigned number_of(const char* variable, unsigned otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

std::size_t open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// Device, manager and memory of one process.
struct End {
  Device device;
  std::unique_ptr<Cm> cm;
  Pd pd;
  Cq cq;
  Mr mr;

  static std::unique_ptr<End> open(const std::string& port, std::uint32_t keepalive_ms = 1000) {
    Config config;
    config.port = port;
    config.no_huge = true;
    config.mode = Mode::kAuto;
    config.keepalive_ms = keepalive_ms;
    auto device = Device::open(config);
    if (!device) return complain(device.error());
    auto pd = Pd::create(*device);
    auto cq = Cq::create(*device, 256);
    auto mr = Mr::alloc(*pd, 2 * kBytes, access::kAll);
    if (!pd || !cq || !mr) return nullptr;
    auto end = std::make_unique<End>(
        End{std::move(*device), nullptr, std::move(*pd), std::move(*cq), std::move(*mr)});
    auto cm = Cm::open(end->device);
    if (!cm) return complain(cm.error());
    end->cm = std::make_unique<Cm>(std::move(*cm));
    return end;
  }
  static std::unique_ptr<End> complain(const Error& error) {
    std::fprintf(stderr, "%s\n", error.text.c_str());
    return nullptr;
  }
  Result<Qp> make_qp() { return Qp::create(pd, cq, cq, {.max_send_wr = 2 * kDepth, .max_recv_wr = 4}); }
  [[nodiscard]] CmAddress other() const {
    const auto own = device.gids().at(1).gid;
    return {Gid::from_v4({10, 77, 0, own.raw[15] == 1 ? std::uint8_t{2} : std::uint8_t{1}}), kPort};
  }

  /// Where the peer's memory is.
  struct Target {
    std::uint64_t addr = 0;
    std::uint32_t rkey = 0;
  };
  [[nodiscard]] Target target() const { return {mr.addr() + kBytes, raw(mr.rkey())}; }
  static Target target_of(const Connection& connection) {
    Target target;
    std::memcpy(&target, connection.peer().private_data().data(), sizeof target);
    return target;
  }

  /// WRITEs without pause until the QP fails or `done` says so. @return how many completed.
  template <typename F>
  std::uint64_t load(Qp& qp, const Target& to, F&& done) {
    const Sge sge = mr.sge(0, kBytes);
    const SendWr wr{.sges = {&sge, 1},
                    .opcode = WrOpcode::kRdmaWrite,
                    .flags = send_flag::kSignaled,
                    .remote_addr = to.addr,
                    .rkey = Rkey{to.rkey}};
    std::uint64_t completed = 0;
    for (unsigned i = 0; i < kDepth; ++i) (void)qp.post_send(wr);
    std::array<Wc, 32> wcs;
    while (!done(completed)) {
      for (const Wc& wc : std::span{wcs}.first(cq.poll(wcs))) {
        if (wc.qpn != qp.qpn()) continue;
        if (!wc.ok()) return completed;
        ++completed;
        (void)qp.post_send(wr);
      }
    }
    return completed;
  }
  /// Takes what a QP that is over has left in the CQ.
  void drain() {
    std::array<Wc, 32> wcs;
    while (cq.poll(wcs) > 0) {
    }
  }
};

std::span<const std::byte> bytes_of(const End::Target& target) {
  return std::as_bytes(std::span{&target, 1});
}

Result<Connection> connect(End& end, Qp& qp, std::chrono::milliseconds patience = 10s) {
  const End::Target own = end.target();
  return Connection::connect(*end.cm, qp,
                             {.to = end.other(), .private_data = bytes_of(own), .patience = patience});
}

Result<Connection> accept(End& end, Listener& listener, Qp& qp) {
  auto request = listener.wait(30s);
  if (!request.has_value()) return Error{Errc::kTimeout, "no request"};
  const End::Target own = end.target();
  return request->accept(qp, {.private_data = bytes_of(own)});
}

// Many in a row

int serve_cycles(const std::string& port, unsigned cycles) {
  auto end = End::open(port, 0);
  if (end == nullptr) return 1;
  auto listener = Listener::create(*end->cm, {{}, kPort});
  if (!listener) return 2;
  for (unsigned i = 0; i < cycles; ++i) {
    auto qp = end->make_qp();
    if (!qp) return 3;
    auto connection = accept(*end, *listener, *qp);
    if (!connection) return 4;
    if (!connection->wait_end(10s)) return 5;
  }
  return 0;
}

/// One connection with one WRITE over it.
Status cycle(End& end) {
  auto qp = end.make_qp();
  if (!qp) return qp.error();
  auto connection = connect(end, *qp);
  if (!connection) return connection.error();
  std::uint64_t written = 0;
  const Sge sge = end.mr.sge(0, 64);
  const End::Target to = End::target_of(*connection);
  const bool posted = qp->post_send({.sges = {&sge, 1},
                                     .opcode = WrOpcode::kRdmaWrite,
                                     .flags = send_flag::kSignaled,
                                     .remote_addr = to.addr,
                                     .rkey = Rkey{to.rkey}});
  Wc wc;
  while (posted && written == 0 && end.cq.wait(5s)) written += end.cq.poll({&wc, 1});
  if (written != 1 || !wc.ok()) return Error{Errc::kPeer, "the WRITE failed"};
  connection->disconnect();
  return {};
}

// Killed peers

struct Stage {
  std::atomic<unsigned> lives;    // peers that may start
  std::atomic<unsigned> working;  // those whose load runs
};

/// The peer of one life: connects or listens, and works until it is killed.
int work(const std::string& port, Stage& stage, unsigned life) {
  if (!await([&] { return stage.lives.load() > life; }, 300)) return 6;
  auto end = End::open(port);
  if (end == nullptr) return 1;
  auto qp = end->make_qp();
  if (!qp) return 2;
  std::optional<Listener> listener;
  const bool listens = life % 2 == 0;
  if (listens) {
    auto made = Listener::create(*end->cm, {{}, kPort});
    if (!made) return 3;
    listener.emplace(std::move(*made));
  }
  auto connection = listens ? accept(*end, *listener, *qp) : connect(*end, *qp);
  if (!connection) {
    std::fprintf(stderr, "%s\n", connection.error().text.c_str());
    return 4;
  }
  stage.working = life + 1;
  end->load(*qp, End::target_of(*connection), [](std::uint64_t) { return false; });
  return 5;
}

/// Kills the peer while both write. @return milliseconds until the survivor knows.
double outlive(End& end, Listener& listener, Stage& stage, Child& peer, unsigned life) {
  INFO("life " << life << " of the peer");
  stage.lives = life + 1;
  auto qp = end.make_qp();
  REQUIRE(qp.has_value());
  auto connection = life % 2 == 0 ? connect(end, *qp, 20s) : accept(end, listener, *qp);
  if (!connection) FAIL(connection.error().text);
  std::optional<Clock::time_point> killed;
  const std::uint64_t completed = end.load(*qp, End::target_of(*connection), [&](std::uint64_t so_far) {
    const bool ripe = stage.working.load() > life && so_far > 1000;
    if (ripe && !killed.has_value()) {
      peer.kill();
      killed = Clock::now();
    }
    return killed.has_value() && Clock::now() - *killed > 20s;
  });
  REQUIRE(killed.has_value());
  CHECK(completed > 1000);
  CHECK(connection->wait_end(5s));
  const double took = std::chrono::duration<double, std::milli>(Clock::now() - *killed).count();
  CHECK(took < 10'000);  // 1000, and a busy machine
  CHECK(connection->end_text().find("nothing has been heard") != std::string::npos);
  CHECK(qp->query().state == QpState::kError);
  end.drain();
  return took;
}

}  // namespace

TEST_CASE("processes connect and disconnect many times in a row without a failure or a leak", "[cm][T19]") {
  const unsigned cycles = number_of("CM_CYCLES", 300);
  const RuntimeDir dir;
  Child server([cycles] { return serve_cycles("shm:cycles", cycles); });
  auto end = End::open("shm:cycles", 0);
  REQUIRE(end != nullptr);
  REQUIRE(end->cq.fd() >= 0);  // otherwise made when a cycle first has to wait, which may be any
  std::size_t files = 0;
  const auto start = Clock::now();
  for (unsigned i = 0; i < cycles; ++i) {
    if (i == 1) files = open_files();
    const Status done = cycle(*end);
    if (!done) FAIL("cycle " << i << ": " << done.error().text);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%u connections, one after the other, %.0f a second\n", cycles, cycles / seconds);
  CHECK(open_files() == files);
  CHECK(server.wait(30) == 0);
  CHECK(await([&] { return end->cm->ids() == 0; }, 10));  // once timewait is over
}

TEST_CASE("a peer that is killed under load is noticed in time, and the next one connects", "[cm][R1]") {
  const unsigned lives = number_of("CM_LIVES", 6);
  const RuntimeDir dir;
  Shared<Stage> stage;
  std::vector<std::unique_ptr<Child>> peers;
  for (unsigned life = 0; life < lives; ++life) {
    peers.push_back(std::make_unique<Child>([&stage, life] { return work("shm:lives", *stage, life); }));
  }
  auto end = End::open("shm:lives");
  REQUIRE(end != nullptr);
  auto listener = Listener::create(*end->cm, {{}, kPort});
  REQUIRE(listener.has_value());
  std::vector<double> times;
  for (unsigned life = 0; life < lives; ++life)
    times.push_back(outlive(*end, *listener, *stage, *peers[life], life));
  std::sort(times.begin(), times.end());
  std::printf("%u peers killed under load, noticed after %.0f ms (median), %.0f ms (worst)\n", lives,
              times[times.size() / 2], times.back());
  CHECK(await([&] { return end->cm->ids() == 1; }, 20));  // the listener
}

}  // namespace uroce::test
