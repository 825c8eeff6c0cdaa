// A peer that dies: the survivor learns it in the configured time, and the link works again with the next
// peer.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "process/processes.h"
#include "uroce/mr.h"
#include "uroce/qp.h"

namespace uroce::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBytes = 64;

constexpr unsigned kLives = 5;

/// What the processes tell each other; one entry per life of the peer.
struct Meeting {
  struct Side {
    std::atomic<std::uint32_t> qpn;
    Gid gid;
  };
  std::atomic<unsigned> lives;  // peers that may start
  Side survivor[kLives];
  Side peer[kLives];
};

/// Device, QP and memory of one process.
struct End {
  Device device;
  Pd pd;
  Cq cq;
  Mr mr;

  static Result<End> open(const std::string& port) {
    Config config;
    config.port = port;
    config.no_huge = true;
    auto device = Device::open(config);
    if (!device) return device.error();
    auto pd = Pd::create(*device);
    auto cq = Cq::create(*device, 64);
    auto mr = Mr::alloc(*pd, 4096, access::kAll);
    if (!pd || !cq || !mr) return Error{Errc::kNoMemory, "end"};
    return End{std::move(*device), std::move(*pd), std::move(*cq), std::move(*mr)};
  }
  Result<Qp> make_qp() { return Qp::create(pd, cq, cq, {.max_send_wr = 16, .max_recv_wr = 16}); }
  bool post_recv(Qp& qp) {
    const Sge sge = mr.sge(0, kBytes);
    return qp.post_recv({.wr_id = 1, .sges = {&sge, 1}});
  }
  bool post_send(Qp& qp) {
    const Sge sge = mr.sge(2048, kBytes);
    return qp.post_send({.wr_id = 2, .sges = {&sge, 1}, .flags = send_flag::kSignaled});
  }
  /// The next completion, or an empty one with status kGeneralErr after `timeout`.
  Wc next(std::chrono::milliseconds timeout) {
    Wc wc{.status = WcStatus::kGeneralErr};
    const auto deadline = Clock::now() + timeout;
    while (cq.poll({&wc, 1}) == 0 && Clock::now() < deadline) {
    }
    return wc;
  }
};

Status connect(Qp& qp, Qpn dest, const Gid& dgid) {
  return qp.connect({.dest_qpn = dest,
                     .rq_psn = Psn{7},
                     .sq_psn = Psn{7},
                     .dgid = dgid,
                     .timeout = 16,  // 268 ms: a peer that stands still for a while is no dead one
                     .retry_cnt = 3});
}

bool publish(Meeting::Side& side, End& end, Qp& qp) {
  side.gid = end.device.gids().at(1).gid;
  side.qpn.store(raw(qp.qpn()), std::memory_order_release);
  return true;
}

bool await_peer(End& end, Meeting::Side& side) {
  const auto deadline = Clock::now() + 20s;
  while (side.qpn.load(std::memory_order_acquire) == 0) {
    if (Clock::now() > deadline) return false;
    end.device.progress();
  }
  return true;
}

/// The peer waits for its turn, then echoes until it is killed.
int echo(const std::string& port, Meeting& meeting, unsigned life) {
  if (!test::await([&] { return meeting.lives.load() > life; }, 60)) return 6;
  auto end = End::open(port);
  if (!end) {
    std::fprintf(stderr, "%s\n", end.error().text.c_str());
    return 1;
  }
  auto qp = end->make_qp();
  if (!qp || !publish(meeting.peer[life], *end, *qp) || !await_peer(*end, meeting.survivor[life])) return 2;
  const Meeting::Side& other = meeting.survivor[life];
  if (!connect(*qp, Qpn{other.qpn.load()}, other.gid) || !end->post_recv(*qp)) return 3;
  for (;;) {
    const Wc wc = end->next(20s);
    if (!wc.ok()) return 4;
    if (wc.opcode != WcOpcode::kRecv) continue;
    if (!end->post_recv(*qp) || !end->post_send(*qp)) return 5;
  }
}

/// One round trip, then the peer is killed, then a send that nobody answers.
void live_and_die(End& end, Meeting& meeting, Child& peer, unsigned life) {
  INFO("life " << life << " of the peer");
  meeting.lives.store(life + 1);
  auto qp = end.make_qp();
  REQUIRE(qp.has_value());
  REQUIRE(publish(meeting.survivor[life], end, *qp));
  REQUIRE(await_peer(end, meeting.peer[life]));
  REQUIRE(connect(*qp, Qpn{meeting.peer[life].qpn.load()}, meeting.peer[life].gid).has_value());
  REQUIRE(end.post_recv(*qp));
  REQUIRE(end.post_send(*qp));
  for (int i = 0; i < 2; ++i) {
    const Wc wc = end.next(10s);
    INFO(to_string(wc.status));
    REQUIRE(wc.ok());
  }

  peer.kill();
  const auto start = Clock::now();
  REQUIRE(end.post_send(*qp));
  const Wc wc = end.next(20s);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  CHECK(wc.status == WcStatus::kRetryExcErr);
  // Four periods of 268 ms, each of which may last up to four times as long (IBA 9.7.6.1.3); generous above,
  // since the machine may be busy.
  CHECK(took >= 960ms);
  CHECK(took < 10s);
  CHECK_FALSE(qp->error_text().empty());
  CHECK(qp->query().state == QpState::kError);
}

void survive(const std::string& own_port, const std::string& peer_port) {
  Shared<Meeting> meeting;
  std::vector<std::unique_ptr<Child>> peers;  // forked before anything is opened here
  for (unsigned life = 0; life < kLives; ++life) {
    peers.push_back(std::make_unique<Child>([&, life] { return echo(peer_port, *meeting, life); }));
  }
  auto end = End::open(own_port);
  INFO((end ? "" : end.error().text));
  REQUIRE(end.has_value());
  for (unsigned life = 0; life < kLives; ++life) live_and_die(*end, *meeting, *peers[life], life);
}

}  // namespace

// One case per process: a child forked after DPDK has started could not start it again.

TEST_CASE("a dead peer gives RETRY_EXC_ERR in time, and the next one is served, over shm", "[shm]") {
  const std::string port = "shm:death" + std::to_string(::getpid());
  survive(port, port);
}

TEST_CASE("a memif server outlives its client, sees RETRY_EXC_ERR in time and serves the next",
          "[memif-server]") {
  const std::string port = "memif:/tmp/uroce-death-" + std::to_string(::getpid()) + ".sock";
  survive(port + ",role=server", port + ",role=client");
}

TEST_CASE("a memif client outlives its server, sees RETRY_EXC_ERR in time and uses the next",
          "[memif-client]") {
  const std::string socket = "/tmp/uroce-death-" + std::to_string(::getpid()) + ".sock";
  survive("memif:" + socket + ",role=client", "memif:" + socket + ",role=server");
  ::unlink(socket.c_str());  // the last server could not
}

}  // namespace uroce::test
