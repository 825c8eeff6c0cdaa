#include "apps/common/tcp_service.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "apps/common/netns.h"
#include "apps/common/open_loop.h"
#include "apps/common/udp.h"

namespace uroce::apps {
namespace {

constexpr std::byte kLast{1};                   // first byte of a sample's last message
constexpr std::size_t kReadBytes = 256 * 1024;  // asked for at a time by the receiver of a stream

/// Moves bytes in one of the two styles; a failure ends the sample.
class Mover {
 public:
  Mover(const Socket& socket, Style style, std::uint64_t until_ns, bool give_way)
      : fd_(socket.fd()),
        flags_(style == Style::kSpin ? MSG_DONTWAIT : 0),
        until_ns_(until_ns),
        give_way_(give_way) {}

  [[nodiscard]] bool send(std::span<const std::byte> data) noexcept {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd_, data.data(), data.size(), flags_ | MSG_NOSIGNAL);
      if (sent > 0) data = data.subspan(static_cast<std::size_t>(sent));
      if (sent < 0 && !may_retry()) return false;
    }
    return true;
  }
  [[nodiscard]] bool receive(std::span<std::byte> data) noexcept {
    while (!data.empty()) {
      const std::size_t got = receive_some(data);
      if (got == 0) return false;
      data = data.subspan(got);
    }
    return true;
  }
  /// What goes at once. @return bytes; none: after failures
  [[nodiscard]] std::optional<std::size_t> send_now(std::span<const std::byte> data) noexcept {
    return moved(::send(fd_, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  /// What is there. @return bytes; none: at the end of the stream, after failures
  [[nodiscard]] std::optional<std::size_t> receive_now(std::span<std::byte> data) noexcept {
    const ssize_t got = ::recv(fd_, data.data(), data.size(), MSG_DONTWAIT);
    return got == 0 ? std::nullopt : moved(got);
  }
  /// Sleeps until there is something to receive, or to send, at most for so long.
  void sleep(std::uint64_t ns, bool sends) const noexcept {
    pollfd one{.fd = fd_, .events = static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), .revents = 0};
    const timespec most{.tv_sec = static_cast<time_t>(ns / kSecond),
                        .tv_nsec = static_cast<long>(ns % kSecond)};
    (void)::ppoll(&one, 1, &most, nullptr);
  }
  /// @return bytes received; 0 at the end of the stream and after failures.
  [[nodiscard]] std::size_t receive_some(std::span<std::byte> data) noexcept {
    while (true) {
      const ssize_t got = ::recv(fd_, data.data(), data.size(), flags_);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (!may_retry()) return 0;
    }
  }

 private:
  [[nodiscard]] std::optional<std::size_t> moved(ssize_t result) noexcept {
    if (result >= 0) return static_cast<std::size_t>(result);
    return may_retry() ? std::optional<std::size_t>(0) : std::nullopt;
  }
  /// After a failed call: whether it only had nothing to do, and there is time left.
  [[nodiscard]] bool may_retry() noexcept {
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
    if (give_way_) ::sched_yield();
    return (++polls_ % 256 != 0 && flags_ != 0) || now_ns() < until_ns_;
  }

  int fd_;
  int flags_;
  std::uint64_t until_ns_;
  bool give_way_;
  std::uint32_t polls_ = 0;
};

/// Blocking calls come back twice a second to look at the time.
void limit_blocking(const Socket& socket) {
  const timeval half_second{.tv_sec = 0, .tv_usec = 500'000};
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &half_second, sizeof half_second);
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &half_second, sizeof half_second);
}

Error broken() {
  return {.code = Errc::kTimeout, .text = "TCP: the other process did not answer in time"};
}

}  // namespace

Result<Json> TcpService::handle(const Json& request) {
  const auto op = request.value("op", "");
  if (op == "netns") {
    if (auto entered = enter_new_netns(); !entered) return entered.error();
    return Json{{"pid", ::getpid()}};
  }
  if (op == "veth") {
    if (auto made = make_veth(request.at("peer_pid").get<int>()); !made) return made.error();
    return Json::object();
  }
  if (op == "address") {
    if (auto made = address_veth(); !made) return made.error();
    return Json::object();
  }
  if (op == "listen") return listen(request.at("host").get<std::string>());
  if (op == "connect") {
    host_ = request.at("host").get<std::string>();
    port_ = request.at("port").get<std::uint16_t>();
    return Json::object();
  }
  return sample(Sample::from(request), request.at("client").get<bool>());
}

Result<Json> TcpService::listen(const std::string& host) {
  auto listener = tcp_listen(host, 0);
  if (!listener) return listener.error();
  listener_.emplace(std::move(*listener));
  return Json{{"port", tcp_local_port(*listener_)}, {"congestion", tcp_tune(*listener_)}};
}

Result<Json> TcpService::sample(const Sample& sample, bool client) {
  const std::uint64_t until = now_ns() + sample.limit_ns();
  auto socket = client ? tcp_connect(host_, port_, until) : tcp_accept(*listener_, until);
  if (!socket) return socket.error();
  tcp_tune(*socket);
  if (sample.style == Style::kUdp) {
    const auto reached = client ? udp_client(*socket, host_, sample, clock_) : udp_server(*socket, sample);
    return reached ? *reached : Json::object();  // TCP goes on without
  }
  if (sample.style == Style::kBlock) limit_blocking(*socket);
  if (sample.kind == Kind::kRtt) return client ? rtt_client(*socket, sample) : rtt_server(*socket, sample);
  if (sample.kind == Kind::kOpen) return client ? open_client(*socket, sample) : open_server(*socket, sample);
  return client ? stream_client(*socket, sample) : stream_server(*socket, sample);
}

Result<Json> TcpService::rtt_client(const Socket& socket, const Sample& sample) {
  Histogram ticks;
  Mover mover(socket, sample.style, now_ns() + sample.limit_ns(), give_way_);
  std::vector<std::byte> message(sample.bytes);
  const std::uint64_t start = clock_.ticks();
  const std::uint64_t warm = start + clock_.from_ns(sample.warm_up_ns());
  const std::uint64_t end = start + clock_.from_ns(sample.run_ns);
  const std::uint64_t at_last = start + clock_.from_ns(sample.patience_ns());
  for (bool last = false; !last;) {
    const std::uint64_t begin = clock_.ticks();
    last = begin >= end && (ticks.count() >= Sample::kEnough || begin >= at_last);
    message[0] = last ? kLast : std::byte{0};
    if (!mover.send(message) || !mover.receive(message)) return broken();
    const std::uint64_t now = clock_.ticks();
    if (begin >= warm) ticks.add(now - begin);
  }
  return rtt_result(ticks, clock_);
}

Result<Json> TcpService::rtt_server(const Socket& socket, const Sample& sample) {
  Mover mover(socket, sample.style, now_ns() + sample.limit_ns(), give_way_);
  std::vector<std::byte> message(sample.bytes);
  do {
    if (!mover.receive(message) || !mover.send(message)) return broken();
  } while (message[0] != kLast);
  return Json::object();
}

/// One send per message.
Result<Json> TcpService::stream_client(const Socket& socket, const Sample& sample) {
  Mover mover(socket, sample.style, now_ns() + sample.limit_ns(), give_way_);
  const std::vector<std::byte> message(sample.bytes, std::byte{0x5a});
  const std::uint64_t end = clock_.ticks() + clock_.from_ns(sample.run_ns);
  while (clock_.ticks() < end) {
    if (!mover.send(message)) return broken();
  }
  ::shutdown(socket.fd(), SHUT_WR);
  return Json::object();
}

Result<Json> TcpService::stream_server(const Socket& socket, const Sample& sample) {
  Mover mover(socket, sample.style, now_ns() + sample.limit_ns(), give_way_);
  RateMeter received(kMillisecond, sample.warm_up_ns());
  std::vector<std::byte> memory(kReadBytes);
  while (const std::size_t got = mover.receive_some(memory)) received.add(got, now_ns());
  const double unit = sample.kind == Kind::kRate ? sample.bytes : 1.0;
  return Json{{"rate", received.typical() / unit}};
}

/// What is due goes out in one call. Style::kBlock sleeps until an answer comes or the next message is due.
Result<Json> TcpService::open_client(const Socket& socket, const Sample& sample) {
  const bool sleeps = sample.style == Style::kBlock;
  if (sleeps) ::prctl(PR_SET_TIMERSLACK, 1);  // else the kernel adds 50 us
  Mover mover(socket, sample.style, now_ns() + sample.limit_ns(), give_way_);
  const std::vector<std::byte> messages(kReadBytes);
  std::vector<std::byte> memory(kReadBytes);
  std::uint64_t sent = 0;      // bytes
  std::uint64_t received = 0;  // bytes
  std::uint64_t now = clock_.ticks();
  OpenLoop loop(sample, clock_, now);
  while (!loop.is_over(now)) {
    const std::uint64_t wanted = (loop.sent() + loop.due(now)) * sample.bytes;
    if (wanted > sent) {
      const auto went = mover.send_now(std::span(messages).first(std::min(wanted - sent, messages.size())));
      if (!went) return broken();
      sent += *went;
      loop.add_sent(sent / sample.bytes - loop.sent());
    }
    const auto got = mover.receive_now(memory);
    if (!got) return broken();
    now = clock_.ticks();
    const std::uint64_t before = received / sample.bytes;
    received += *got;
    if (received / sample.bytes > before) loop.add_answered(received / sample.bytes - before, now);
    if (sleeps && *got == 0) mover.sleep(loop.idle_ns(now), wanted > sent);
  }
  ::shutdown(socket.fd(), SHUT_WR);
  const Result<Json> result = loop.result();
  while (mover.receive_some(memory) > 0) {  // part of a message that was not sent whole
  }
  return result;
}

/// Sends back what has come.
Result<Json> TcpService::open_server(const Socket& socket, const Sample& sample) {
  Mover mover(socket, sample.style, now_ns() + sample.limit_ns(), give_way_);
  std::vector<std::byte> memory(kReadBytes);
  CpuMeter cpu;
  while (const std::size_t got = mover.receive_some(memory)) {
    if (!mover.send(std::span(memory).first(got))) return broken();
    cpu.add(got);
  }
  return Json{{"cpu_ns", cpu.per_unit() * sample.bytes}};
}

}  // namespace uroce::apps
