#include "apps/common/tcp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "apps/common/clock.h"
#include "apps/common/stop.h"

namespace uroce::apps {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int code =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code == 0) return AddressList(list, &freeaddrinfo);
  return Error{.code = Errc::kNotFound, .text = fmt::format("host {}: {}", host, gai_strerror(code))};
}

Error system_error(const std::string& what, int code) {
  return {.code = Errc::kSystem, .text = fmt::format("{}: {}", what, std::strerror(code))};
}

/// Milliseconds for poll(2); -1 for ever.
int left_ms(std::uint64_t until_ns) {
  if (until_ns == 0) return -1;
  const std::uint64_t now = now_ns();
  return until_ns > now ? static_cast<int>((until_ns - now) / kMillisecond) + 1 : 0;
}

Status wait_for(const Socket& socket, short events, std::uint64_t until_ns) {
  pollfd one{.fd = socket.fd(), .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&one, 1, left_ms(until_ns));
  } while (ready < 0 && errno == EINTR && !is_stopped());
  if (ready > 0) return {};
  if (ready == 0) return Error{.code = Errc::kTimeout, .text = "the peer did not answer over TCP in time"};
  return is_stopped() ? stopped() : system_error("poll", errno);
}

/// @return 0, or why not, as errno says it
int connect_to(const Socket& socket, const addrinfo& address, std::uint64_t until_ns) {
  const int flags = ::fcntl(socket.fd(), F_GETFL);
  (void)::fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK);
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_for(socket, POLLOUT, until_ns)) return ETIMEDOUT;
    int code = 0;
    socklen_t bytes = sizeof code;
    (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &code, &bytes);
    if (code != 0) return code;
  }
  (void)::fcntl(socket.fd(), F_SETFL, flags);
  return 0;
}

/// For an address that is not the last: if nobody answers there, the others have the other half.
std::uint64_t halfway_to(std::uint64_t until_ns) {
  const std::uint64_t now = now_ns();
  return until_ns > now ? now + (until_ns - now) / 2 : until_ns;
}

Result<Socket> listen_on(const addrinfo& address, std::uint16_t port) {
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
  if (socket.fd() < 0) return system_error("socket", errno);
  const int on = 1;
  const int off = 0;
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) {
    (void)::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off,
                       sizeof off);  // one socket for both families
  }
  if (::bind(socket.fd(), address.ai_addr, address.ai_addrlen) == 0 && ::listen(socket.fd(), 8) == 0)
    return socket;
  const int code = errno;
  if (code == EADDRINUSE) {
    return Error{.code = Errc::kNameInUse,
                 .text = fmt::format("TCP port {} is in use; choose another with -p", port)};
  }
  if (code == EACCES) {
    return Error{
        .code = Errc::kPermission,
        .text = fmt::format("TCP port {} is not for this user; choose one above 1023 with -p", port)};
  }
  return system_error(fmt::format("TCP port {}", port), code);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Socket> tcp_listen(const std::string& host, std::uint16_t port) {
  auto addresses = resolve(host, port, AI_PASSIVE);
  if (!addresses) return addresses.error();
  Result<Socket> result = Error{.code = Errc::kNotFound, .text = "no address to listen on"};
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* one = addresses->get(); one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      result = listen_on(*one, port);
      if (result) return result;
    }
  }
  return result;
}

std::uint16_t tcp_local_port(const Socket& socket) {
  sockaddr_in6 address{};  // the port is at the same place in sockaddr_in
  socklen_t length = sizeof address;
  void* any = &address;
  if (::getsockname(socket.fd(), static_cast<sockaddr*>(any), &length) != 0) return 0;
  return ntohs(address.sin6_port);
}

Result<Socket> tcp_accept(const Socket& listener, std::uint64_t until_ns) {
  if (auto ready = wait_for(listener, POLLIN, until_ns); !ready) return ready.error();
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.fd() < 0) return system_error("accept", errno);
  return socket;
}

Result<Socket> tcp_connect(const std::string& host, std::uint16_t port, std::uint64_t until_ns) {
  auto addresses = resolve(host, port, 0);
  if (!addresses) return addresses.error();
  int code = 0;
  while (true) {
    bool is_refused = false;  // by one of the addresses: a server that is starting may listen at any
    for (const addrinfo* one = addresses->get(); one != nullptr; one = one->ai_next) {
      Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
      const int outcome =
          socket.fd() < 0 ? errno : connect_to(socket, *one, one->ai_next ? halfway_to(until_ns) : until_ns);
      if (outcome == 0) return socket;
      is_refused = is_refused || outcome == ECONNREFUSED;
      code = is_refused ? ECONNREFUSED : outcome;
    }
    if (!is_refused || now_ns() >= until_ns || is_stopped()) break;
    ::usleep(20'000);
  }
  return Error{.code = Errc::kPeer,
               .text = fmt::format("nobody answers at {} port {} ({}); start the server there first", host,
                                   port, std::strerror(code))};
}

Status tcp_send(const Socket& socket, std::span<const std::byte> data, std::uint64_t until_ns) {
  while (!data.empty()) {
    if (auto ready = wait_for(socket, POLLOUT, until_ns); !ready) return ready;
    const ssize_t sent = ::send(socket.fd(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) {
      return Error{.code = Errc::kPeer, .text = fmt::format("the peer is gone: {}", std::strerror(errno))};
    }
    data = data.subspan(static_cast<std::size_t>(sent));
  }
  return {};
}

Status tcp_receive(const Socket& socket, std::span<std::byte> data, std::uint64_t until_ns) {
  while (!data.empty()) {
    if (auto ready = wait_for(socket, POLLIN, until_ns); !ready) return ready;
    const ssize_t got = ::recv(socket.fd(), data.data(), data.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      return Error{.code = Errc::kPeer,
                   .text = got == 0 ? "the peer closed its TCP connection"
                                    : fmt::format("the peer is gone: {}", std::strerror(errno))};
    }
    data = data.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status tcp_send_line(const Socket& socket, const std::string& line, std::uint64_t until_ns) {
  const std::string text = line + '\n';
  return tcp_send(socket, std::as_bytes(std::span(text)), until_ns);
}

Result<std::string> tcp_receive_line(const Socket& socket, std::uint64_t until_ns) {
  std::string line;
  while (line.size() < kLongestLine) {
    std::byte one{};
    if (auto got = tcp_receive(socket, {&one, 1}, until_ns); !got) return got.error();
    if (one == std::byte{'\n'}) return line;
    line += static_cast<char>(one);
  }
  return Error{.code = Errc::kPeer, .text = "the peer's line has no end: it speaks another protocol"};
}

bool tcp_is_readable(const Socket& socket, int within_ms) noexcept {
  pollfd one{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, within_ms) > 0;
}

bool tcp_has_ended(const Socket& socket) noexcept {
  char next = 0;
  const ssize_t got = ::recv(socket.fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

std::string tcp_tune(const Socket& socket) {
  const int on = 1;
  (void)::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A peer that is gone without a word is noticed within 20 s.
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  for (const auto& [option, value] : {std::pair{TCP_KEEPIDLE, 5}, {TCP_KEEPINTVL, 5}, {TCP_KEEPCNT, 3}})
    (void)::setsockopt(socket.fd(), IPPROTO_TCP, option, &value, sizeof value);
  constexpr std::string_view kCubic = "cubic";
  (void)::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, kCubic.data(),
                     static_cast<socklen_t>(kCubic.size()));
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return "unknown";
  return name;
}

}  // namespace uroce::apps
