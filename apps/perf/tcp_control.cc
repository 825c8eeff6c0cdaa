// Agreeing over TCP.
#include "apps/common/tell.h"
#include "apps/perf/control.h"
#include "apps/perf/session.h"

namespace uroce::apps::perf {
namespace {

constexpr std::uint64_t kConnectNs = 5 * kSecond;

class TcpControl final : public Control {
 public:
  TcpControl(Device& device, Socket socket, bool is_client)
      : device_(device), socket_(std::move(socket)), is_client_(is_client) {}

  bool has_news() override { return tcp_is_readable(socket_); }
  Status send(const std::string& line, std::uint64_t until_ns) override {
    return tcp_send_line(socket_, line, until_ns);
  }
  Result<std::string> receive(std::uint64_t until_ns) override {
    if (auto ready = wait_readable(device_, socket_, until_ns); !ready) return ready.error();
    return tcp_receive_line(socket_, until_ns);
  }
  Result<std::vector<QpAddress>> connect(std::vector<Qp>& qps, const Connecting& with,
                                         std::uint64_t until_ns) override;
  [[nodiscard]] std::uint64_t counted_messages() const noexcept override { return 0; }

 private:
  Result<QpAddress> swap(const QpAddress& mine, std::uint64_t until_ns);

  Device& device_;
  Socket socket_;
  bool is_client_;
};

/// Client first.
Result<QpAddress> TcpControl::swap(const QpAddress& mine, std::uint64_t until_ns) {
  if (is_client_) {
    if (auto sent = send_address(socket_, mine, until_ns); !sent) return sent.error();
  }
  if (auto ready = wait_readable(device_, socket_, until_ns); !ready) return ready.error();
  auto peer = receive_address(socket_, until_ns);
  if (!peer || is_client_) return peer;
  if (auto sent = send_address(socket_, mine, until_ns); !sent) return sent.error();
  return peer;
}

Result<std::vector<QpAddress>> TcpControl::connect(std::vector<Qp>& qps, const Connecting& with,
                                                   std::uint64_t until_ns) {
  std::vector<QpAddress> peers;
  for (Qp& qp : qps) {
    const QpAddress mine = {
        .qpn = qp.qpn(), .psn = random_psn(), .gid = device_.gids().at(with.gid_index).gid};
    const auto theirs = swap(mine, until_ns);
    if (!theirs) return theirs.error();
    if (auto checked = check_addresses(mine.gid, theirs->gid); !checked) return checked.error();
    QpAttr attr = connect_attributes(mine, *theirs, with.path_mtu, with.gid_index);
    attr.max_rd_atomic = attr.max_dest_rd_atomic = with.depth;
    attr.timeout = with.timeout;
    attr.sl = with.service_level;
    attr.traffic_class = with.traffic_class;
    attr.qkey = kPingPongQkey;
    if (auto connected = qp.connect(attr); !connected) return connected.error();
    peers.push_back(*theirs);
  }
  return peers;
}

/// The first that says something: scanners and balancers connect, and close at once.
Result<Socket> meet_client(Device& device, const Socket& listener) {
  constexpr unsigned kMostOthers = 1000;
  for (unsigned others = 0; others < kMostOthers; ++others) {
    if (auto ready = wait_readable(device, listener, 0); !ready) return ready.error();
    auto socket = tcp_accept(listener, now_ns() + kConnectNs);
    if (!socket) return socket;
    if (auto ready = wait_readable(device, *socket, now_ns() + kAnswerNs); !ready) return ready.error();
    if (!tcp_has_ended(*socket)) return socket;
    if (others == 0) tell("uroce: note: somebody connected and said nothing; waiting for a client\n");
  }
  return Error{.code = Errc::kPeer, .text = "all that connect close at once: is `uroce perf` the client?"};
}

Result<Socket> meet(Device& device, const LocalOptions& local, const OnReady& on_ready) {
  if (local.is_client()) {
    auto socket = tcp_connect(local.host, local.tcp_port, now_ns() + kConnectNs);
    if (socket || socket.error().code != Errc::kPeer) return socket;
    return Error{.code = Errc::kPeer,
                 .text = socket.error().text + "; one that runs with -R is found with -R only"};
  }
  auto listener = tcp_listen("", local.tcp_port);
  if (!listener) return listener.error();
  on_ready(device);
  return meet_client(device, *listener);
}

}  // namespace

Result<std::unique_ptr<Control>> meet_over_tcp(Device& device, const LocalOptions& local,
                                               const OnReady& on_ready) {
  auto socket = meet(device, local, on_ready);
  if (!socket) return socket.error();
  tcp_tune(*socket);
  return std::unique_ptr<Control>(new TcpControl(device, std::move(*socket), local.is_client()));
}

}  // namespace uroce::apps::perf
