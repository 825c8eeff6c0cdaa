// UDP beside uroce, with a peer that is late.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <thread>

#include "apps/common/udp.h"

using namespace uroce;
using namespace uroce::apps;

namespace {

constexpr std::uint64_t kLateNs = 30 * kMillisecond;  // longer than a client waits for an answer
constexpr std::uint64_t kDelayNs = kMillisecond;

/// Answers each datagram kDelayNs after it has come, the first one kLateNs after that.
void answer_late(const Socket& socket, const std::atomic<bool>& is_over) {
  struct Answer {
    std::uint64_t due_ns;
    std::array<std::byte, 64> message;
    sockaddr_in to;
  };
  std::deque<Answer> answers;
  bool is_first = true;
  while (!is_over.load()) {
    Answer next{};
    socklen_t length = sizeof next.to;
    void* const from = &next.to;
    if (::recvfrom(socket.fd(), next.message.data(), next.message.size(), MSG_DONTWAIT,
                   static_cast<sockaddr*>(from), &length) > 0) {
      next.due_ns = now_ns() + (is_first ? kLateNs : kDelayNs);
      is_first = false;
      answers.push_back(next);
    }
    std::erase_if(answers, [&](const Answer& one) {
      if (now_ns() < one.due_ns) return false;
      const void* const to = &one.to;
      (void)::sendto(socket.fd(), one.message.data(), one.message.size(), 0, static_cast<const sockaddr*>(to),
                     sizeof one.to);
      return true;
    });
  }
}

}  // namespace

TEST_CASE("a datagram that is answered late is not taken for the answer to a later one", "[apps][udp]") {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  void* const any = &own;
  socklen_t length = sizeof own;
  REQUIRE(::bind(socket.fd(), static_cast<sockaddr*>(any), length) == 0);
  REQUIRE(::getsockname(socket.fd(), static_cast<sockaddr*>(any), &length) == 0);
  const std::uint64_t until = now_ns() + 10 * kSecond;
  const auto listener = tcp_listen("127.0.0.1", 0);
  REQUIRE(listener);
  const auto control = tcp_connect("127.0.0.1", tcp_local_port(*listener), until);
  REQUIRE(control);
  const auto accepted = tcp_accept(*listener, until);
  REQUIRE(accepted);
  const std::uint16_t port = ntohs(own.sin_port);
  REQUIRE(tcp_send(*accepted, std::as_bytes(std::span{&port, 1}), until));
  std::atomic<bool> is_over{false};
  std::thread server([&] { answer_late(socket, is_over); });
  const auto told = udp_client(*control, "127.0.0.1",
                               {.kind = Kind::kRtt, .style = Style::kUdp, .bytes = 64, .run_ns = kSecond / 4},
                               TickClock::calibrate());
  is_over = true;
  server.join();
  REQUIRE(told);
  CHECK(told->at("p50").get<double>() > 0.9 * static_cast<double>(kDelayNs));
}
