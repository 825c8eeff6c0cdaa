#include "apps/common/udp.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

namespace uroce::apps {
namespace {

constexpr std::byte kEnd{1};  // first byte of a sample's last message, and what ends a stream
constexpr std::uint64_t kRepeatNs = 20 * kMillisecond;
constexpr std::uint32_t kPollsPerLook = 1024;  // at the control connection
constexpr int kBuffer = 4 << 20;               // bytes

Error failed(const char* what) {
  return {.code = Errc::kSystem, .text = fmt::format("UDP {}: {}", what, std::strerror(errno))};
}

Result<Socket> datagrams() {
  Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return failed("socket");
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof kBuffer);
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof kBuffer);
  return socket;
}

/// From now on only with `peer`.
Status join(const Socket& socket, const sockaddr_in& peer) {
  const void* const any = &peer;
  if (::connect(socket.fd(), static_cast<const sockaddr*>(any), sizeof peer) != 0) return failed("connect");
  return {};
}

bool send(const Socket& socket, std::span<const std::byte> message) noexcept {
  return ::send(socket.fd(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

/// @return bytes; 0: nothing has come
std::size_t receive(const Socket& socket, std::span<std::byte> memory) noexcept {
  const ssize_t got = ::recv(socket.fd(), memory.data(), memory.size(), MSG_DONTWAIT);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

/// The peer's address, once its first datagram has come.
std::optional<sockaddr_in> wait_for_peer(const Socket& socket, std::span<std::byte> memory,
                                         std::uint64_t until_ns) noexcept {
  sockaddr_in peer{};
  void* const any = &peer;
  for (std::uint32_t polls = 1; polls % kPollsPerLook != 0 || now_ns() < until_ns; ++polls) {
    socklen_t length = sizeof peer;
    const ssize_t got = ::recvfrom(socket.fd(), memory.data(), memory.size(), MSG_DONTWAIT | MSG_PEEK,
                                   static_cast<sockaddr*>(any), &length);
    if (got >= 0) return peer;
  }
  return std::nullopt;
}

Json rtt_client(const Socket& socket, const Sample& sample, const TickClock& clock) {
  Histogram ticks;
  std::vector<std::byte> message(sample.bytes);
  std::vector<std::byte> answer(sample.bytes);
  // A late answer to an earlier one is none to this one: they have numbers, behind the first byte.
  std::uint32_t number = 0;
  const std::size_t number_bytes = std::min(sizeof number, message.size() - 1);
  const auto is_answer = [&] { return std::memcmp(answer.data(), message.data(), 1 + number_bytes) == 0; };
  const std::uint64_t start = clock.ticks();
  const std::uint64_t warm = start + clock.from_ns(sample.warm_up_ns());
  const std::uint64_t end = start + clock.from_ns(sample.run_ns);
  const std::uint64_t repeat = clock.from_ns(kRepeatNs);
  std::uint64_t begin = start;
  while (begin < end) {
    begin = clock.ticks();
    std::uint64_t now = begin;
    bool answered = false;
    ++number;
    std::memcpy(message.data() + 1, &number, number_bytes);
    if (!send(socket, message)) continue;
    while (!answered && now - begin < repeat) {
      answered = receive(socket, answer) != 0 && is_answer();
      now = clock.ticks();
    }
    if (answered && begin >= warm) ticks.add(now - begin);
  }
  return rtt_result(ticks, clock);
}

}  // namespace

Result<Json> udp_client(const Socket& control, const std::string& host, const Sample& sample,
                        const TickClock& clock) {
  std::uint16_t port = 0;
  const std::uint64_t until = now_ns() + sample.limit_ns();
  if (auto heard = tcp_receive(control, std::as_writable_bytes(std::span{&port, 1}), until); !heard)
    return heard.error();
  auto socket = datagrams();
  if (!socket) return socket.error();
  sockaddr_in server{};
  socklen_t length = sizeof server;
  void* const any = &server;
  if (::getpeername(control.fd(), static_cast<sockaddr*>(any), &length) != 0 || server.sin_family != AF_INET)
    return Error{.code = Errc::kUnsupported, .text = fmt::format("UDP: {} is no IPv4 address", host)};
  server.sin_port = htons(port);
  if (auto joined = join(*socket, server); !joined) return joined.error();
  Json result = Json::object();
  if (sample.kind == Kind::kRtt) {
    result = rtt_client(*socket, sample, clock);
  } else {
    const std::vector<std::byte> message(sample.bytes, std::byte{0x5a});
    const std::uint64_t end = clock.ticks() + clock.from_ns(sample.run_ns);
    while (clock.ticks() < end) (void)send(*socket, message);
  }
  if (auto told = tcp_send(control, {&kEnd, 1}, until); !told) return told.error();
  return result;
}

Result<Json> udp_server(const Socket& control, const Sample& sample) {
  auto socket = datagrams();
  if (!socket) return socket.error();
  sockaddr_in own{};
  own.sin_family = AF_INET;
  void* const any = &own;
  socklen_t length = sizeof own;
  if (::bind(socket->fd(), static_cast<sockaddr*>(any), sizeof own) != 0) return failed("bind");
  if (::getsockname(socket->fd(), static_cast<sockaddr*>(any), &length) != 0) return failed("getsockname");
  const std::uint16_t port = ntohs(own.sin_port);
  const std::uint64_t until = now_ns() + sample.limit_ns();
  if (auto told = tcp_send(control, std::as_bytes(std::span{&port, 1}), until); !told) return told.error();
  std::vector<std::byte> memory(std::max(sample.bytes, 1U));
  const auto peer = wait_for_peer(*socket, memory, until);
  if (!peer) return Error{.code = Errc::kTimeout, .text = "UDP: the other process did not answer in time"};
  if (auto joined = join(*socket, *peer); !joined) return joined.error();
  RateMeter received(kMillisecond, sample.warm_up_ns());
  for (std::uint32_t polls = 1;; ++polls) {
    if (const std::size_t got = receive(*socket, memory); got != 0) {
      if (sample.kind == Kind::kRtt) (void)send(*socket, std::span{memory}.first(got));
      if (sample.kind != Kind::kRtt) received.add(got, now_ns());
      continue;
    }
    if (polls % kPollsPerLook == 0 && (tcp_is_readable(control) || now_ns() >= until)) break;
  }
  if (sample.kind == Kind::kRtt) return Json::object();
  const double unit = sample.kind == Kind::kRate ? sample.bytes : 1.0;
  return Json{{"rate", received.typical() / unit}};
}

}  // namespace uroce::apps
