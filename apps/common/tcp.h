/// TCP sockets with deadlines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "uroce/result.h"

namespace uroce::apps {

/// A socket; closes itself.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// Listens on all addresses, or on `host` alone. Port 0 picks one.
/// @return kNameInUse if the port is taken.
Result<Socket> tcp_listen(const std::string& host, std::uint16_t port);
[[nodiscard]] std::uint16_t tcp_local_port(const Socket& socket);
/// @param until_ns  on now_ns(); 0: for ever
Result<Socket> tcp_accept(const Socket& listener, std::uint64_t until_ns);
/// Tries every address of `host`, again and again until `until_ns`: the server may be starting.
Result<Socket> tcp_connect(const std::string& host, std::uint16_t port, std::uint64_t until_ns);

/// Sends or receives exactly these bytes. @return kPeer at the end of the stream, kTimeout.
Status tcp_send(const Socket& socket, std::span<const std::byte> data, std::uint64_t until_ns);
Status tcp_receive(const Socket& socket, std::span<std::byte> data, std::uint64_t until_ns);
/// Of what two programs say to each other, bytes: numbers of all QPs, and more than are between them.
inline constexpr std::uint32_t kLongestLine = 256U << 10U;
/// A line ended by '\n', which is not part of the answer; shorter than kLongestLine.
Status tcp_send_line(const Socket& socket, const std::string& line, std::uint64_t until_ns);
Result<std::string> tcp_receive_line(const Socket& socket, std::uint64_t until_ns);

/// Whether bytes, a connection or the end of the stream are there, now or within the time given.
[[nodiscard]] bool tcp_is_readable(const Socket& socket, int within_ms = 0) noexcept;
/// Of one that is readable: nothing is to come.
[[nodiscard]] bool tcp_has_ended(const Socket& socket) noexcept;

/// No Nagle; congestion control cubic where allowed.
/// @return the congestion control in force.
std::string tcp_tune(const Socket& socket);

}  // namespace uroce::apps
