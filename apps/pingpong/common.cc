#include "apps/pingpong/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "apps/common/cores.h"
#include "apps/common/endpoint.h"
#include "apps/common/json_text.h"
#include "apps/common/machine_json.h"
#include "apps/common/stop.h"
#include "apps/common/tell.h"

namespace uroce::apps {
namespace {

/// What a send to a peer that has ended may take to fail.
constexpr std::uint64_t kGoneNs = 3 * kSecond;

/// For a peer of another type sends another number of addresses, and packets that our QPs take no notice of.
Error with_another_type(Error error) {
  error.text += "; give both ends the same --type";
  return error;
}

bool is_of_another_type(const Device& device) {
  const auto all = device.counters();
  const auto dropped = std::ranges::find(all, "drop_wrong_transport", &Counter::name);
  return dropped != all.end() && dropped->value > 0;
}

Status send_all(const Socket& socket, std::span<const QpAddress> addresses, std::uint64_t until_ns) {
  for (const QpAddress& address : addresses) {
    const Status sent = send_address(socket, address, until_ns);
    if (!sent) return &address == addresses.data() ? sent : with_another_type(sent.error());
  }
  return {};
}

/// Addresses of nothing are left as they are.
Status receive_all(const Socket& socket, std::span<QpAddress> addresses, std::uint64_t until_ns) {
  for (QpAddress& address : addresses) {
    const bool is_first = &address == addresses.data();
    auto received = receive_address(socket, until_ns, !is_first);
    if (!received) return is_first ? received.error() : with_another_type(received.error());
    address = *received;
  }
  return {};
}

/// Options that both ends must have alike.
struct AlikeOption {
  const char* flag;
  std::uint32_t PingPongOptions::*value;
};
constexpr std::array kAlike = {AlikeOption{.flag = "-n", .value = &PingPongOptions::iterations},
                               AlikeOption{.flag = "-s", .value = &PingPongOptions::size}};

Status same_options(const PingPongOptions& options, const std::string& line) {
  const Json theirs = Json::parse(line, nullptr, false);
  if (!theirs.is_object()) return Error{.code = Errc::kPeer, .text = "the peer speaks another protocol"};
  for (const AlikeOption& one : kAlike) {
    const std::uint32_t mine = options.*one.value;
    const auto it = theirs.find(one.flag);
    if (it == theirs.end() || *it == mine) continue;
    return Error{.code = Errc::kPeer,
                 .text = fmt::format("{0} is {1} here and {2} at the peer; give both ends the same {0}",
                                     one.flag, mine, to_text(*it))};
  }
  return {};
}

/// The server begins: a stock server closes its socket instead, and a stock client has closed its own.
Result<Socket> compare_options(Device& device, const PingPongOptions& options, Socket peer,
                               std::uint64_t until_ns) {
  Json mine = Json::object();
  for (const AlikeOption& one : kAlike) mine[one.flag] = options.*one.value;
  if (!options.is_client() && !tcp_send_line(peer, to_text(mine), until_ns)) return Socket();
  if (auto ready = wait_readable(device, peer, until_ns); !ready) return ready.error();
  const auto theirs = tcp_receive_line(peer, until_ns);
  if (!theirs) return theirs.error().code == Errc::kPeer ? Result<Socket>(Socket()) : theirs.error();
  if (options.is_client()) (void)tcp_send_line(peer, to_text(mine), until_ns);
  if (auto same = same_options(options, *theirs); !same) return same.error();
  return peer;
}

void print_result(const PingPongOptions& options, double seconds) {
  const double usec = seconds * 1e6;
  const double total = 2.0 * options.size * options.iterations;
  fmt::print("{:.0f} bytes in {:.2f} seconds = {:.2f} Mbit/sec\n", total, seconds, total * 8 / usec);
  fmt::print("{} iters in {:.2f} seconds = {:.2f} usec/iter\n", options.iterations, seconds,
             usec / options.iterations);
}

Json result_json(const PingPongOptions& options, double seconds) {
  return {{"role", options.is_client() ? "client" : "server"},
          {"type", to_string(options.type())},
          {"bytes", options.size},
          {"iterations", options.iterations},
          {"path_mtu", options.path_mtu},
          {"seconds", seconds},
          {"usec_per_iteration", seconds * 1e6 / options.iterations},
          {"checked", options.check}};
}

}  // namespace

Result<PathMtu> checked_path_mtu(const PingPongOptions& options, const Device& device) {
  const auto mtu = path_mtu_from_bytes(options.path_mtu);
  if (!mtu) return Error{.code = Errc::kInvalid, .text = "path MTU is 256, 512, 1024, 2048 or 4096"};
  const std::uint32_t most = bytes(device.active_mtu());
  if (*mtu > device.active_mtu()) {
    return Error{.code = Errc::kInvalid,
                 .text = fmt::format("path MTU {} does not fit the port, which takes {} at most; use -m {}",
                                     options.path_mtu, most, most)};
  }
  if (options.type() == QpType::kUd && options.size > most) {
    return Error{.code = Errc::kInvalid,
                 .text = fmt::format("a datagram has {} bytes at most on this port; use -s {}", most, most)};
  }
  return *mtu;
}

Result<Socket> exchange_addresses(Device& device, const PingPongOptions& options,
                                  std::span<const QpAddress> local, std::span<QpAddress> remote,
                                  const std::function<Status()>& connect) {
  if (options.is_client()) {
    const std::uint64_t until = now_ns() + kConnectNs;
    auto socket = tcp_connect(options.host, options.tcp_port, until);
    if (!socket) return socket;
    if (auto sent = send_all(*socket, local, until); !sent) return sent.error();
    if (auto ready = wait_readable(device, *socket, until); !ready) return with_another_type(ready.error());
    if (auto received = receive_all(*socket, remote, until); !received) return received.error();
    if (auto connected = connect(); !connected) return connected.error();
    if (auto sent = send_done(*socket, until); !sent) return sent.error();
    return compare_options(device, options, std::move(*socket), until);
  }
  auto listener = tcp_listen("", options.tcp_port);
  if (!listener) return listener;
  if (auto ready = wait_readable(device, *listener, 0); !ready) return ready.error();
  auto socket = tcp_accept(*listener, 0);
  if (!socket) return socket;
  const std::uint64_t until = now_ns() + kConnectNs;
  if (auto ready = wait_readable(device, *socket, until); !ready) return ready.error();
  if (auto received = receive_all(*socket, remote, until); !received) return received.error();
  if (auto connected = connect(); !connected) return connected.error();
  if (auto sent = send_all(*socket, local, until); !sent) return sent.error();
  if (auto ready = wait_readable(device, *socket, until); !ready) return ready.error();
  if (const Status done = receive_done(*socket, until); !done) return with_another_type(done.error());
  return compare_options(device, options, std::move(*socket), until);
}

Result<std::size_t> next_completions(Device& device, Cq& cq, const PingPongOptions& options,
                                     const Socket& peer, std::span<Wc> wcs) {
  const std::uint64_t until =
      options.give_up_ms == 0 ? UINT64_MAX : now_ns() + options.give_up_ms * kMillisecond;
  const std::uint32_t long_mask = options.events ? 0x7 : 0xff'ffff;  // of empty looks: some 0.5 s
  std::uint32_t looks = 0;
  std::uint64_t gone_ns = 0;  // when the peer was seen to have ended
  Patience patience(until, when_to_give_way(device.config()));
  while (!is_stopped()) {
    if (const std::size_t count = cq.poll(wcs); count > 0) return count;
    bool over = false;
    if (options.events) {
      (void)cq.wait(std::chrono::milliseconds(100));
      over = now_ns() >= until;
    } else {
      over = patience.is_over();
    }
    if ((++looks & long_mask) == 0) {
      if (is_of_another_type(device)) {
        return with_another_type(
            {.code = Errc::kPeer,
             .text = fmt::format("the peer's packets are not those of --type {}", options.type_name)});
      }
      if (gone_ns == 0 && peer.fd() >= 0 && tcp_is_readable(peer)) gone_ns = now_ns();
      if (gone_ns != 0 && now_ns() - gone_ns > kGoneNs)
        return Error{.code = Errc::kPeer, .text = "the peer has ended before all messages were exchanged"};
    }
    if (over)
      return Error{.code = Errc::kTimeout,
                   .text = fmt::format("nothing came for {:g} s", options.give_up_ms / 1000.0)};
  }
  return stopped();
}

int report(const Config& config, const PingPongOptions& options, bool json, double seconds,
           std::uint64_t data_errors, const Json& more) {
  if (json) {
    Json result = run_json("uroce.pingpong/1", config);
    result.update(result_json(options, seconds));
    result["data_errors"] = data_errors;
    result.update(more);
    fmt::print("{}\n", to_text(result, 2));
  } else {
    print_result(options, seconds);
    if (options.check) fmt::print("{} bytes of received data were wrong\n", data_errors);
  }
  if (data_errors == 0) return 0;
  tell("uroce: invalid data received\n");
  return 1;
}

}  // namespace uroce::apps
