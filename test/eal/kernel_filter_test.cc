#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "drivers/dpdk/kernel_filter.h"
#include "eal/frames.h"
#include "eal/requirement.h"
#include "support/no_descriptors.h"
#include "wire/frame_template.h"

namespace uroce::test {

/// A network namespace of this process's own, with a veth pair; the kernel has addresses on one end.
std::string missing_requirement() {
  if (unshare(CLONE_NEWNET) != 0)
    return std::string("needs root for a network namespace: ") + std::strerror(errno);
  const char* commands =
      "ip link set lo up && ip link add fa type veth peer name fb && ip link set fa up && ip link set fb up "
      "&&"
      " ip addr add 10.77.0.1/24 dev fa && ip addr add 10.77.0.2/24 dev fa &&"
      " ip addr add fd77::1/64 dev fa nodad && ip addr add fd77::2/64 dev fa nodad";
  if (std::system(commands) != 0) return "cannot make veth pairs; are iproute2 and the veth module there?";
  const drivers::dpdk::KernelFilter filter(if_nametoindex("lo"), std::array{Gid{}});
  return filter.works() ? "" : std::string("no TCX here (Linux 6.6, CAP_BPF): ") + std::strerror(errno);
}

namespace {

const Gid kKept4 = *Gid::parse("10.77.0.1");
const Gid kOther4 = *Gid::parse("10.77.0.2");
const Gid kKept6 = *Gid::parse("fd77::1");
const Gid kOther6 = *Gid::parse("fd77::2");
constexpr std::uint16_t kRoce = 4791;

/// Somebody who listens to a UDP port of the kernel.
class Listener {
 public:
  explicit Listener(std::uint16_t port) : fd_(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    setsockopt(fd_, IPPROTO_UDP, UDP_NO_CHECK6_RX, &yes, sizeof yes);
    const void* const where = &any;
    is_bound_ = bind(fd_, static_cast<const sockaddr*>(where), sizeof any) == 0;
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(fd_); }

  [[nodiscard]] bool is_bound() const { return is_bound_; }
  /// The first byte of the next datagram; '-' if none comes.
  [[nodiscard]] char next() const {
    pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
    std::array<char, 256> data{};
    return poll(&wanted, 1, 5000) > 0 && recv(fd_, data.data(), data.size(), 0) > 0 ? data[0] : '-';
  }

 private:
  int fd_;
  bool is_bound_ = false;
};

/// What reaches whom: frames go from fb to the port on fa, and past it to the kernel.
struct Stage {
  Result<std::unique_ptr<port::Port>> port;
  Result<std::unique_ptr<port::Port>> sender = open_port("af_packet:fb");
  Listener roce{kRoce};
  Listener other{kRoce + 1};

  explicit Stage(const char* spec) : port(open_port(spec)) {}
  [[nodiscard]] bool is_ready() const { return port && sender && roce.is_bound() && other.is_bound(); }

  /// A datagram that begins with `mark`.
  void send(const Gid& to, std::uint16_t udp_port, char mark) {
    constexpr std::uint32_t kData = 40;
    const Gid from = *Gid::parse(to.is_v4() ? "10.77.0.9" : "fd77::9");
    const wire::FrameTemplate head(
        {.src_mac = (*sender)->info().mac, .dst_mac = (*port)->info().mac, .sgid = from, .dgid = to});
    std::byte* const frame = (*sender)->tx_claim(head.overhead() + kData);
    if (frame == nullptr) return;
    std::byte* const data = head.emit_head(frame, kData);
    std::memset(data, mark, kData);
    data[-6] = std::byte{static_cast<unsigned char>(udp_port >> 8)};
    data[-5] = std::byte{static_cast<unsigned char>(udp_port & 0xff)};
    (*sender)->tx_commit();
    (*sender)->tx_flush();
  }
  /// First bytes of what the port has seen from our peer, `count` datagrams.
  std::string seen(std::size_t count) {
    std::string marks;
    for (const Deadline deadline = in_seconds(5); marks.size() < count && !is_past(deadline);) {
      std::array<port::RxFrame, port::kBurst> frames;
      const unsigned burst = (*port)->rx_burst(frames);
      for (const port::RxFrame& frame : std::span(frames).first(burst)) {
        const std::size_t head = frame.len == 42 + 40 ? 42 : frame.len == 62 + 40 ? 62 : 0;
        if (head != 0 && frame.data[head] == frame.data[head + 1])
          marks += static_cast<char>(frame.data[head]);
      }
      if (burst > 0) (*port)->rx_release();
    }
    return marks;
  }
};

/// Runs in a process of its own, as DPDK is started there.
std::string said_by(const std::function<std::string()>& play) {
  Child child([&play](const Report& report) {
    report.line(play());
    return 0;
  });
  return child.next_line(in_seconds(60));
}

}  // namespace

TEST_CASE("RoCE frames to the addresses of an af_packet port reach it, and nobody else", "[eal][af_packet]") {
  CHECK(said_by([] {
          Stage stage("af_packet:fa");
          if (!stage.is_ready()) return std::string("not ready");
          const std::array kept{kKept4, kKept6};
          (*stage.port)->keep_from_kernel(kept);
          stage.send(kKept4, kRoce, 'a');
          stage.send(kOther4, kRoce, 'b');
          stage.send(kKept6, kRoce, 'c');
          stage.send(kOther6, kRoce, 'd');
          stage.send(kKept4, kRoce + 1, 'e');
          stage.send(kKept6, kRoce + 1, 'f');
          std::string said = "port " + stage.seen(6) + " kernel ";
          for (const Listener* who : {&stage.roce, &stage.roce, &stage.other, &stage.other})
            said += who->next();
          return said;
        }) == "port abcdef kernel bdef");
}

TEST_CASE("what is no address of the port any more is the kernel's again", "[eal][af_packet]") {
  CHECK(said_by([] {
          Stage stage("af_packet:fa");
          if (!stage.is_ready()) return std::string("not ready");
          (*stage.port)->keep_from_kernel(std::array{kOther4, kKept4});
          stage.send(kKept4, kRoce, 'a');
          (*stage.port)->keep_from_kernel(std::array{kOther4});
          stage.send(kKept4, kRoce, 'b');
          return "port " + stage.seen(2) + " kernel " + stage.roce.next();
        }) == "port ab kernel b");
}

TEST_CASE("what is kept from the kernel stays so where no descriptor is left for another address",
          "[eal][af_packet]") {
  CHECK(said_by([] {
          Stage stage("af_packet:fa");
          if (!stage.is_ready()) return std::string("not ready");
          (*stage.port)->keep_from_kernel(std::array{kKept4});
          (void)errno_without_descriptors([&] {
            (*stage.port)->keep_from_kernel(std::array{kKept4, kOther4});
            return true;
          });
          stage.send(kKept4, kRoce, 'a');
          stage.send(kOther4, kRoce, 'b');
          std::string said = "port " + stage.seen(2) + " kernel " + stage.roce.next();
          (void)errno_without_descriptors([&] {
            (*stage.port)->keep_from_kernel({});
            return true;
          });
          stage.send(kKept4, kRoce, 'c');
          return said + stage.roce.next();
        }) == "port ab kernel bc");
}

TEST_CASE("what was kept from the kernel is its own again when the process has been killed",
          "[eal][af_packet]") {
  Child keeper([](const Report& report) {
    const Stage stage("af_packet:fa");
    if (stage.is_ready()) (*stage.port)->keep_from_kernel(std::array{kKept4});
    report.line(stage.is_ready() ? "kept" : "not ready");
    return ::pause();
  });
  REQUIRE(keeper.next_line(in_seconds(30)) == "kept");
  keeper.kill9();
  CHECK(said_by([] {
          Stage stage("af_packet:fa,exclusive=off");
          if (!stage.is_ready()) return std::string("not ready");
          stage.send(kKept4, kRoce, 'a');
          return "port " + stage.seen(1) + " kernel " + stage.roce.next();
        }) == "port a kernel a");
}

TEST_CASE("a port that is not exclusive leaves all frames to the kernel, too", "[eal][af_packet]") {
  CHECK(said_by([] {
          Stage stage("af_packet:fa,exclusive=off");
          if (!stage.is_ready()) return std::string("not ready");
          (*stage.port)->keep_from_kernel(std::array{kKept4});
          stage.send(kKept4, kRoce, 'a');
          return "port " + stage.seen(1) + " kernel " + stage.roce.next();
        }) == "port a kernel a");
}

TEST_CASE("more addresses than a filter holds do no harm", "[eal][af_packet]") {
  std::vector<Gid> many(1000, kKept6);
  many[drivers::dpdk::KernelFilter::kMost - 1] = kKept4;
  CHECK(drivers::dpdk::KernelFilter(if_nametoindex("fa"), many).works());
}

}  // namespace uroce::test
